"""What `make` stands on: finding a Python, making an environment once, installing what tests need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def put_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run(
    *command: str | Path, path: Path | str | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({} if path is None else {"PATH": str(path)})
    return subprocess.run(  # noqa: S603
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        cwd=cwd,
        env=environment,
    )


def put_old_python(folder: Path, name: str) -> None:
    """Answers as Python 3.9 would: its version, and no to whether that is enough."""
    put_program(folder, name, 'case "$2" in *print*) echo 3.9.6 ;; *) exit 1 ;; esac')


def put_python(folder: Path, name: str, *, can_make_environments: bool = True) -> None:
    venv = "exit 0" if can_make_environments else "exit 1"
    put_program(folder, name, f'case "$2" in *print*) echo 3.12.1 ;; *venv*) {venv} ;; *) exit 0 ;; esac')


def test_the_first_python_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    """As on macOS, whose own python3 is 3.9, with another from elsewhere."""
    put_old_python(tmp_path / "bin", "python3")
    put_python(tmp_path / "bin", "python3.12")
    found = run("/bin/sh", TOOLS / "find_python.sh", path=tmp_path / "bin")
    assert (found.returncode, found.stdout) == (0, f"{tmp_path}/bin/python3.12\n")


def test_a_python_that_is_too_old_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    put_old_python(tmp_path / "bin", "python3")
    found = run("/bin/sh", TOOLS / "find_python.sh", path=tmp_path / "bin")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("python3 is Python 3.9.6, and Moot needs 3.11 or later: ")


def test_a_python_without_venv_is_one_line_with_what_to_install(tmp_path: Path) -> None:
    put_python(tmp_path / "bin", "python3", can_make_environments=False)
    found = run("/bin/sh", TOOLS / "find_python.sh", path=tmp_path / "bin")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.endswith("sudo apt-get install python3.12-venv\n")


def test_a_python_that_is_named_is_the_only_one_tried(tmp_path: Path) -> None:
    put_python(tmp_path / "bin", "python3")
    put_old_python(tmp_path / "bin", "mine")
    found = run("/bin/sh", TOOLS / "find_python.sh", "mine", path=tmp_path / "bin")
    assert found.returncode == 1
    assert found.stderr.startswith("mine is Python 3.9.6")


def test_no_python_at_all_is_one_line(tmp_path: Path) -> None:
    found = run("/bin/sh", TOOLS / "find_python.sh", path=tmp_path)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert "install it" in found.stderr


def test_an_environment_is_made_once_and_again_when_something_changed(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    watched = tmp_path / "watched.toml"
    watched.write_text("first")
    make: list[str | Path] = [
        sys.executable,
        TOOLS / "environment.py",
        "made",
        "--watch",
        watched,
        "--",
        "--no-index",
        wheel,
    ]

    first = run(*make, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    answer = first.stdout.splitlines()
    assert len(answer) == 3
    assert answer[1].startswith("· Installing: pip install ")
    assert answer[2].startswith("· Installed ")
    assert run(tmp_path / "made" / "bin" / "python", "-c", "import tiny").returncode == 0

    again = run(*make, cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    watched.write_text("second")
    wheel.unlink()
    broken = run(*make, cwd=tmp_path)
    assert broken.returncode == 1
    assert [line.split(":")[0] for line in broken.stdout.splitlines()] == ["· Installing"]
    assert "tiny-1.0-py3-none-any.whl" in broken.stderr
    assert broken.stderr.endswith("The installation failed: the lines above say why. Then run make again.\n")
    assert not (tmp_path / "made" / "installed").exists()


def test_make_run_wants_nothing_that_only_tests_need() -> None:
    """Also where the tests' environment is missing."""
    planned = run("make", "-n", "run", "VENV=nowhere")
    assert planned.returncode == 0, planned.stderr
    assert "tools/environment.py .venv-demo" in planned.stdout
    for word in ("system_packages", "apt", "npm", "--group", "nowhere"):
        assert word not in planned.stdout


def test_make_test_looks_at_the_style_first_and_at_types_beside_all_tests() -> None:
    planned = run("make", "-n", "test", "VENV=nowhere", "NODE=nowhere-else")
    assert planned.returncode == 0, planned.stderr
    places = [
        planned.stdout.index(step)
        for step in (
            "tools/system_packages.sh",
            "tools/environment.py nowhere",
            "nowhere/bin/ruff check .\nnowhere/bin/ruff format --check .\n"
            "nowhere-else/node_modules/.bin/biome check --error-on-warnings\n",
            "--jobs=2 types tests\n",
            "nowhere/bin/mypy\nnowhere/bin/lint-imports\nnowhere-else/node_modules/.bin/tsc\n",
            "nowhere/bin/pytest -n 8 --cache-clear || nowhere/bin/python tools/unsteady_tests.py\n",
        )
    ]
    assert places == sorted(places)
    assert planned.stdout.index("npm install") < planned.stdout.index("nowhere/bin/ruff")
    # The one is not left out, and does not pass, because the other failed.
    assert "|| true" not in planned.stdout.replace("--collect-only --quiet > /dev/null || true", "")


LIST = """\
# a comment

present-package surely-not-here present-program
no-such-package no-such-program NoSuchFont.ttf
"""


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    """A list of two packages, of which one is there, and a PATH with what the script itself uses."""
    file = tmp_path / "packages.txt"
    file.write_text(LIST)
    put_program(tmp_path / "bin", "present-program", "")
    put_program(tmp_path / "bin", "id", "echo 1000")
    put_program(tmp_path / "bin", "find", "exit 0")
    return file


def test_missing_system_packages_are_named_with_the_line_to_type(tmp_path: Path, wanted: Path) -> None:
    put_program(tmp_path / "bin", "apt-get", "exit 9")
    done = run("/bin/sh", TOOLS / "system_packages.sh", wanted, path=tmp_path / "bin")
    assert done.returncode == 1
    assert done.stderr.endswith("type: sudo apt-get install --no-install-recommends no-such-package\n")


def test_as_root_missing_system_packages_are_installed(tmp_path: Path, wanted: Path) -> None:
    put_program(tmp_path / "bin", "id", "echo 0")
    put_program(tmp_path / "bin", "apt-get", f'echo "$@" >>{tmp_path}/called')
    assert run("/bin/sh", TOOLS / "system_packages.sh", wanted, path=tmp_path / "bin").returncode == 0
    called = (tmp_path / "called").read_text().splitlines()
    assert called == ["update -qq", "install -y -qq --no-install-recommends no-such-package"]


def test_without_apt_what_is_missing_is_named(tmp_path: Path, wanted: Path) -> None:
    done = run("/bin/sh", TOOLS / "system_packages.sh", wanted, path=tmp_path / "bin")
    assert done.returncode == 1
    assert "missing for the tests: no-such-package (" in done.stderr


def test_where_nothing_is_missing_nothing_is_done(tmp_path: Path, wanted: Path) -> None:
    wanted.write_text("present-package surely-not-here present-program\n")
    done = run("/bin/sh", TOOLS / "system_packages.sh", wanted, path=tmp_path / "bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_test_that_passes_alone_is_named_and_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_once.py").write_text(
        "from pathlib import Path\n\n"
        "def test_once():\n"
        "    seen = Path('seen')\n"
        "    was_there = seen.exists()\n"
        "    seen.touch()\n"
        "    assert was_there\n"
    )
    whole = (sys.executable, "-m", "pytest", "-q")
    again = (sys.executable, str(TOOLS / "unsteady_tests.py"))
    assert run(*again, cwd=tmp_path).returncode == 1, "nothing is known to have failed"
    assert run(*whole, cwd=tmp_path).returncode == 1
    named = run(*again, cwd=tmp_path)
    assert named.returncode == 0
    assert "UNSTEADY" in named.stdout
    assert named.stdout.rstrip().endswith("test_once.py::test_once")
    (tmp_path / "test_never.py").write_text("def test_never():\n    assert False\n")
    assert run(*whole, cwd=tmp_path).returncode == 1
    assert run(*again, cwd=tmp_path).returncode == 1
