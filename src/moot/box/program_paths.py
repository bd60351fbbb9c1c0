"""The files of a program itself: what has to be readable so that it starts.

Programs of the system are under /usr, which every box has. What is installed elsewhere is found from the
program: where its links lead, the interpreter that its first line names, the prefix that it was installed to
(`bin` and `lib` beside each other), its virtual environment, its `node_modules`. Never a home folder as such.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from moot.box.box_plan import SYSTEM, is_shown

# Links, interpreters and environments of one program; more is a loop.
_MAX_STEPS: Final = 20
_PARTS: Final = ("bin", "lib", "lib64", "libexec")


def program_paths(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> list[Path]:
    """Files and folders to show read-only, as they are called outside: `argv` begins with a full path."""
    found: dict[Path, None] = {}
    waiting, seen = [Path(argv[0])], set[Path]()
    while waiting and len(seen) < _MAX_STEPS:
        program = waiting.pop()
        if program in seen:
            continue
        seen.add(program)
        found |= dict.fromkeys(_installation(program))
        if program.is_symlink():
            # One link after the other: `bin/python` of an environment leads to that of another installation.
            waiting.append(Path(os.path.normpath(program.parent / program.readlink())))
        else:
            waiting += _interpreters(program, environment)
    # Files that the command line names: the script of an interpreter, a list of settings.
    found |= {file: None for word in argv[1:] if (file := cwd / word).is_file()}
    # Our own servers, where our package is not inside of the installation.
    if any(each == Path(sys.prefix) or each.parent == Path(sys.prefix) for each in found):
        found[Path(__file__).parents[1]] = None
    return [each for each in found if not is_shown(each, map(Path, SYSTEM)) and each.exists()]


def _installation(program: Path) -> Iterator[Path]:
    """Where the program was installed, as far as it is about programs."""
    yield program
    modules = [each for each in program.parents if each.name == "node_modules"]
    if modules:
        yield modules[-1]
    if program.parent.name != "bin":
        return
    prefix = program.parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield prefix
        # Where the environment has its standard library from.
        for line in settings.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home" and value.strip():
                yield from _prefix_parts(Path(value.strip()).parent)
    else:
        yield from _prefix_parts(prefix)


def _prefix_parts(prefix: Path) -> Iterator[Path]:
    home = Path.home()
    # ~/bin/tool and /bin/tool are no installations of their own.
    if prefix != home and prefix != Path("/") and not home.is_relative_to(prefix):
        yield from (prefix / part for part in _PARTS)


def _interpreters(program: Path, environment: Mapping[str, str]) -> list[Path]:
    """What the first line of a script names."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return []
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if not words:
        return []
    if Path(words[0]).name != "env":
        return [Path(words[0])]
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
    named = shutil.which(name, path=environment.get("PATH"))
    return [Path(named)] if named else []
