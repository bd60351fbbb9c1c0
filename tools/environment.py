"""Makes a Python environment for `make`, a line for each step; where nothing changed it does nothing.

    python3 tools/environment.py FOLDER [--watch FILE …] [--newest-pip] -- PIP-ARGUMENTS

FOLDER/installed remembers what was installed, by which Python, from what the watched files said. Times of
files play no part: a fresh clone changes them all. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path

# What pip says when it begins with another package.
_COLLECTING = "Collecting "
# Enough to see what went wrong, of output that may be thousands of lines.
_SHOWN_LINES = 40


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a Python environment, or leave it as it is.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--watch", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument(
        "--newest-pip", action="store_true", help="for arguments that an old pip does not know"
    )
    parser.add_argument("wanted", nargs="+", metavar="PIP-ARGUMENT")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    stamp, python = folder / "installed", folder / "bin" / "python"
    key = _key(chosen.wanted, chosen.watch)
    if python.exists() and stamp.is_file() and stamp.read_text("utf-8") == key:
        # For `make`, which looks at times.
        stamp.touch()
        return 0
    stamp.unlink(missing_ok=True)
    if not _is_usable(folder):
        _say(f"Python {sys.version.split()[0]} ({sys.executable}) makes the environment {folder}")
        if not _ran([sys.executable, "-m", "venv", "--clear", str(folder)], "The environment cannot be made"):
            return 1
    # Of ten thousand files most are never imported: those that are, Python compiles then.
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-compile"]
    if chosen.newest_pip:
        _say("Updating pip")
        if not _ran([*pip, "--upgrade", "pip>=25.1"], "pip cannot be updated"):
            return 1
    _say(f"Installing: pip install {' '.join(chosen.wanted)}")
    begun = time.monotonic()
    if not _ran([*pip, "--progress-bar", "off", *chosen.wanted], "The installation failed"):
        return 1
    count = len(list(folder.glob("lib/python*/site-packages/*.dist-info")))
    _say(f"Installed {count} packages in {time.monotonic() - begun:.0f} s")
    stamp.write_text(key, "utf-8")
    return 0


def _key(wanted: list[str], watched: list[Path]) -> str:
    """What makes another installation necessary. The place is part of it: environments cannot be moved."""
    parts = [sys.version, str(Path.cwd()), *wanted]
    parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(watched)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest() + "\n"


def _is_usable(folder: Path) -> bool:
    """Made here, by this very Python, and to its end: pip comes last."""
    python, script = folder / "bin" / "python", folder / "bin" / "activate"
    if not python.exists() or not script.is_file() or str(folder.resolve()) not in script.read_text("utf-8"):
        return False
    ask = "import pip, sys; sys.stdout.write(sys.version)"
    asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout == sys.version


def _ran(command: list[str], complaint: str) -> bool:
    """Run quietly, but show a terminal which package is being fetched, and anybody why it failed."""
    lines: list[str] = []
    is_watched = sys.stdout.isatty()
    collected = 0
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None  # noqa: S101
        for line in running.stdout:
            lines.append(line)
            if is_watched and line.lstrip().startswith(_COLLECTING):
                collected += 1
                name = line.split()[1][:40]
                print(f"\r\033[K  {collected}: {name}", end="", flush=True)
    if is_watched and collected:
        print("\r\033[K", end="", flush=True)
    if running.returncode:
        print("".join(lines[-_SHOWN_LINES:]), file=sys.stderr)
        print(f"{complaint}: the lines above say why. Then run make again.", file=sys.stderr)
    return not running.returncode


def _say(text: str) -> None:
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
