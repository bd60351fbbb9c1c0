"""The sdist and the wheel hold all of src/moot and nothing else; `make package` tries them as a whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.package_contents import faults_of_sdist, faults_of_wheel, source_files

import moot
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent
AROUND = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")


def build(what: str, source: Path, to: Path) -> Path:
    """By setuptools' own hook, in a fresh process; without the compiled parts, which take a minute."""
    to.mkdir(exist_ok=True)
    script = f"from setuptools.build_meta import build_{what} as build\nprint(build({str(to)!r}))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env=os.environ | {"MOOT_PURE_PYTHON": "1"},
    )
    assert done.returncode == 0, done.stderr
    return to / done.stdout.split("\n")[-2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a copy of this tree, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("package")
    tree = folder / "tree"
    left_behind = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=left_behind)
    for name in AROUND:
        shutil.copy(ROOT / name, tree)
    # What setuptools takes along by itself, if it is not told otherwise.
    (tree / "tests").mkdir()
    (tree / "tests" / "test_nothing.py").touch()
    sdist = build("sdist", tree, folder / "dist")
    with tarfile.open(sdist) as file:
        # There since 3.11.4, and what later versions warn about when it is left out.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(folder / "unpacked")  # noqa: S202
    return sdist, build("wheel", folder / "unpacked" / sdist.name.removesuffix(".tar.gz"), folder / "dist")


def test_the_sdist_is_whole(built: tuple[Path, Path]) -> None:
    assert faults_of_sdist(built[0], ROOT, moot.__version__) == []


def test_the_wheel_is_whole(built: tuple[Path, Path]) -> None:
    assert built[1].name == f"moot-{moot.__version__}-py3-none-any.whl"
    assert faults_of_wheel(built[1], ROOT, moot.__version__) == []


def test_what_a_program_reads_beside_its_code_counts_as_source() -> None:
    """Lest the check be one that cannot fail: these are no Python, and they are looked for."""
    found = source_files(ROOT)
    assert {
        "moot/py.typed",
        "moot/console/index.html",
        "moot/protocol/_scan_envelope.pyx",
        "moot/store/sha256_lanes.h",
    } <= found
    assert {Path(name).suffix for name in found} >= {
        ".css",
        ".js",
        ".md",
        ".pyi",
        ".pxd",
        ".svg",
        ".tcss",
        ".yaml",
    }


def test_a_wheel_that_lacks_a_file_is_noticed(built: tuple[Path, Path], tmp_path: Path) -> None:
    lost = "moot/console/index.html"
    smaller = tmp_path / built[1].name
    with zipfile.ZipFile(built[1]) as whole, zipfile.ZipFile(smaller, "w") as less:
        for name in whole.namelist():
            if name != lost:
                less.writestr(name, whole.read(name))
        less.writestr("tests/test_nothing.py", "")
    assert faults_of_wheel(smaller, ROOT, moot.__version__) == [
        f"{smaller.name} lacks {lost}",
        f"{smaller.name} has tests/test_nothing.py, which is not in src/",
    ]


def test_the_wheel_runs_where_nothing_of_the_tree_is(built: tuple[Path, Path], tmp_path: Path) -> None:
    """From the wheel itself, which Python can import: the dependencies are the environment's."""
    script = (
        f"import sys\nsys.path.insert(0, {str(built[1])!r})\n"
        "import moot\nassert '.whl' in moot.__file__\n"
        "from moot.cli import main\nsys.exit(main(['demo']))\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "capability_violation" in done.stdout
