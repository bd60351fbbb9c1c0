"""Patches: which files one changes, and how. What a file says afterwards is not read.

Two notations: that of `git diff`, with `a/` and `b/` before the paths, and the one with `*** Update File:
PATH`. A line that is not understood, a binary, or a file that becomes executable: the patch is not read.
"""

from __future__ import annotations

import re
from typing import Final

from moot.values.atoms import Atom, file_atoms, fixed

MAX_PATCH_FILES: Final = 20
_HEADER: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (\S+)|\*\*\* Move to: (\S+)")
_HUNK: Final = re.compile(r"@@ -[0-9]+(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@.*")
_NO_NEWLINE: Final = "\\ No newline at end of file"
_ABOUT: Final = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+(?: 100644)?|(?:new|deleted) file mode 100644|")
_START: Final = re.compile(r"diff --git a/(\S+) b/(\S+)")


def patch_files(text: str) -> list[str] | None:
    """`update PATH`, `add PATH`, `delete PATH` for each file; None if the patch cannot be read."""
    lines = text.removesuffix("\n").split("\n")
    # Signs that other readers take for the end of a line.
    if text.splitlines() != lines:
        return None
    found = _from_headers(lines) if lines[0] == "*** Begin Patch" else _from_diff(lines)
    return found if found and len(found) <= MAX_PATCH_FILES else None


def is_patch(text: str) -> bool:
    return patch_files(text) is not None


def patch_atoms(change: str) -> list[Atom] | None:
    """The atoms of one change as `patch_files` writes it."""
    verb, _, path = change.partition(" ")
    atoms = file_atoms(path)
    return None if atoms is None else [fixed(f"{verb} "), *atoms]


def _from_headers(lines: list[str]) -> list[str] | None:
    found: list[str] = []
    if lines[-1] != "*** End Patch":
        return None
    for line in lines[1:-1]:
        if header := _HEADER.fullmatch(line):
            found.append(f"{header[1].lower()} {header[2]}" if header[1] else f"add {header[3]}")
        elif not found or "*** " in line or not (line == "" or line[0] in " +-" or line.startswith("@@")):
            return None
    return found


def _from_diff(lines: list[str]) -> list[str] | None:
    found: list[str] = []
    old = new = 0
    before = announced = ""
    for line in lines:
        if old or new:
            sign = line[:1]
            old, new = old - (sign in " -"), new - (sign in " +")
            # A line that looks like the head of another file is that to some readers.
            is_odd = sign not in (" ", "+", "-") or line.startswith(("--- ", "+++ ")) or old < 0 or new < 0
            if is_odd and line != _NO_NEWLINE:
                return None
        elif line.startswith("--- ") and not before:
            before = line[4:]
        elif line.startswith("+++ ") and before:
            change = _change(before, line[4:])
            if change is None or (announced and announced != change.partition(" ")[2]):
                return None
            found.append(change)
            before = announced = ""
        elif (start := _START.fullmatch(line)) and not before and not announced and start[1] == start[2]:
            # Without the lines that follow, git makes or deletes an empty file.
            announced = start[1]
        elif (hunk := _HUNK.fullmatch(line)) and found and not before:
            old, new = int(hunk[1] or 1), int(hunk[2] or 1)
        elif before or not (_ABOUT.fullmatch(line) or line == _NO_NEWLINE):
            return None
    return found if not (old or new or before or announced) else None


def _change(before: str, after: str) -> str | None:
    # git takes the first folder away, whatever its name is.
    old = before[2:] if before.startswith("a/") else ""
    new = after[2:] if after.startswith("b/") else ""
    if before == "/dev/null":
        return f"add {new}" if new else None
    if after == "/dev/null":
        return f"delete {old}" if old else None
    return f"update {new}" if old and old == new else None
