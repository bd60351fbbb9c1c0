"""Random trees, and random scripts of changes to them. Run as a program: `random_changes.py FOLDER SEED`.

The same seed does the same wherever it runs: everything is chosen from sorted lists.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import sys
from pathlib import Path

NAMES = ("a", "b.md", "c d", "e\nf", "ü", "-n", "g.txt", "x:y,z")


def make_tree(root: Path, draw: random.Random, depth: int = 0) -> None:
    for name in draw.sample(NAMES, draw.randint(2, 5)):
        path = root / name
        kind = draw.random()
        if kind < 0.3 and depth < 3:
            path.mkdir()
            make_tree(path, draw, depth + 1)
            path.chmod(draw.choice((0o755, 0o700, 0o775)))
        elif kind < 0.4:
            path.symlink_to(draw.choice(("a", "../b.md", "/nowhere", ".")))
        else:
            path.write_bytes(_text(draw))
            path.chmod(draw.choice((0o644, 0o600, 0o755)))


def _text(draw: random.Random) -> bytes:
    return (
        draw.randbytes(draw.choice((0, 1, 100, 5_000)))
        if draw.random() < 0.3
        else ("".join(f"line {draw.randint(0, 9)}\n" for _ in range(draw.randint(0, 20))).encode())
    )


def _all(root: Path) -> list[Path]:
    found = [Path(folder) / name for folder, folders, files in os.walk(root) for name in (*folders, *files)]
    return sorted(found)


def run_script(root: Path, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 12)):
        _change(root, draw)


def _change(root: Path, draw: random.Random) -> None:
    paths = _all(root)
    folders = [root, *(each for each in paths if each.is_dir() and not each.is_symlink())]
    # Only root writes to one that nobody may write to.
    files = [
        each for each in paths if not each.is_symlink() and each.is_file() and each.stat().st_mode & 0o200
    ]
    new = draw.choice(folders) / draw.choice((*NAMES, "new", "new 2"))
    some = draw.choice(paths) if paths else None
    match draw.randint(0, 10):
        case 0 | 1 if not os.path.lexists(new):
            new.write_bytes(_text(draw))
        case 2 if files:
            draw.choice(files).write_bytes(_text(draw))
        case 3 if files:
            with draw.choice(files).open("ab") as appended:
                appended.write(_text(draw))
        case 4 if some is not None:
            _remove(some)
        case 5 if not os.path.lexists(new):
            new.mkdir()
            (new / "inside").write_bytes(_text(draw))
        case 6 if some is not None and not os.path.lexists(new) and not new.is_relative_to(some):
            shutil.move(some, new)
        case 7 if some is not None and not some.is_symlink():
            some.chmod(
                draw.choice((0o755, 0o700, 0o750)) if some.is_dir() else draw.choice((0o644, 0o400, 0o755))
            )
        case 8 if not os.path.lexists(new):
            new.symlink_to(draw.choice(("a", "nowhere", "..")))
        case 9 if some is not None:
            # Something of another kind in its place.
            was_folder = some.is_dir() and not some.is_symlink()
            _remove(some)
            if was_folder and draw.random() < 0.5:
                some.write_bytes(_text(draw))
            else:
                some.mkdir()
                (some / "a").write_bytes(_text(draw))
        case 10 if files:
            # Written as it was, and by way of another file, as editors do.
            file = draw.choice(files)
            data = file.read_bytes()
            if draw.random() < 0.5:
                file.write_bytes(data)
            else:
                beside = file.with_name(".swap")
                beside.write_bytes(data + b"saved\n")
                beside.replace(file)
        case _:
            pass


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def tree_of(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Everything below a folder: kind, mode and content."""
    made = {}
    for path in _all(root):
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        if path.is_symlink():
            shown = ("link", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            shown = ("folder", mode, b"")
        else:
            shown = ("file", mode, path.read_bytes())
        made[str(path.relative_to(root))] = shown
    return made


if __name__ == "__main__":
    run_script(Path(sys.argv[1]), random.Random(int(sys.argv[2])))
