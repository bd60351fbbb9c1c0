"""What has to be in the wheel and in the sdist: compares them with the source tree, file by file.

A console without one of its scripts, or a template that was forgotten, installs without a complaint and fails
in a user's hands. So it is not a list that is checked but everything that lies under src/moot.
"""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

# What tools leave beside the sources.
_LEFT_BEHIND: Final = {".pyc", ".so", ".c"}
_IN_SDIST: Final = {"pyproject.toml", "setup.py", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in"}
_COMMANDS: Final = {"moot", "xprotocol-adapter", "xprotocol-devserver"}


def source_files(root: Path) -> set[str]:
    """Every file of the package, as the wheel should name it."""
    source = root / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "moot").rglob("*")
        if path.is_file() and path.suffix not in _LEFT_BEHIND
    }


def faults_of_wheel(wheel: Path, root: Path, version: str) -> list[str]:
    """What is missing from the wheel, what does not belong into it; nothing if it is as it should be."""
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if not name.endswith("/")}
        about = f"moot-{version}.dist-info"
        metadata = file.read(f"{about}/METADATA").decode() if f"{about}/METADATA" in names else ""
        commands = (
            file.read(f"{about}/entry_points.txt").decode() if f"{about}/entry_points.txt" in names else ""
        )
    packed = {name for name in names if not name.startswith(f"{about}/") and not name.endswith(".so")}
    wanted = source_files(root)
    faults = [f"{wheel.name} lacks {name}" for name in sorted(wanted - packed)]
    faults += [f"{wheel.name} has {name}, which is not in src/" for name in sorted(packed - wanted)]
    if f"{about}/licenses/LICENSE" not in names:
        faults.append(f"{wheel.name} lacks the licence")
    faults += [
        f"{wheel.name} has no command {name}" for name in sorted(_COMMANDS) if f"{name} = " not in commands
    ]
    return faults + _faults_of_metadata(wheel.name, metadata, version)


def faults_of_sdist(sdist: Path, root: Path, version: str) -> list[str]:
    """Likewise for the sdist: what a wheel is built from, and no part of the tests."""
    top = f"moot-{version}"
    with tarfile.open(sdist) as file:
        names = {PurePosixPath(member.name).relative_to(top).as_posix() for member in file if member.isfile()}
        found = file.extractfile(f"{top}/PKG-INFO")
        metadata = found.read().decode() if found is not None else ""
    wanted = {f"src/{name}" for name in source_files(root)} | _IN_SDIST
    faults = [f"{sdist.name} lacks {name}" for name in sorted(wanted - names)]
    faults += [
        f"{sdist.name} has {name}"
        for name in sorted(names - wanted)
        if not name.startswith("src/moot.egg-info/") and name not in ("PKG-INFO", "setup.cfg")
    ]
    return faults + _faults_of_metadata(sdist.name, metadata, version)


def compiled_in(wheel: Path) -> set[str]:
    """The compiled modules of a wheel, by name."""
    with zipfile.ZipFile(wheel) as file:
        return {PurePosixPath(name).name.split(".")[0] for name in file.namelist() if name.endswith(".so")}


def _faults_of_metadata(name: str, metadata: str, version: str) -> list[str]:
    answer = HeaderParser().parsestr(metadata)
    wanted = {
        "Name": "moot",
        "Version": version,
        "Requires-Python": ">=3.11",
        "License-Expression": "Apache-2.0",
        "Description-Content-Type": "text/markdown",
    }
    faults = [
        f"{name}: {key} is {answer[key]!r}, not {value!r}"
        for key, value in wanted.items()
        if answer[key] != value
    ]
    if not answer.get_payload():
        faults.append(f"{name} has no description")
    return faults
