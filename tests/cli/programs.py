"""The programs as a person starts them: real processes, with whatever they print and their exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES: Final = {
    "moot": "moot.cli",
    "xprotocol-adapter": "moot.cli.adapter",
    "xprotocol-devserver": "moot.cli.devserver",
}
# Generous: a busy machine needs seconds to load an interpreter.
_SECONDS: Final = 120
# Root ignores permissions; without these capabilities the superuser is like anybody else.
_POWERS: Final = "-dac_override,-dac_read_search"
_POWERLESS: Final = ["setpriv", f"--bounding-set={_POWERS}", f"--inh-caps={_POWERS}"]
# So that nothing of whoever runs the tests gets in.
_FOREIGN: Final = ("MOOT_", "PYTHONUNBUFFERED", "XDG_")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line of what it said about its failure."""
        return self.err.rstrip("\n").rpartition("\n")[2]


def command(program: str, *words: str, powerless: bool = False) -> list[str]:
    """The command line; `powerless` so that permissions hold for root, too."""
    run = f"import sys; from {MODULES[program]} import main; sys.argv[0] = {program!r}; sys.exit(main())"
    prefix = _POWERLESS if powerless and os.geteuid() == 0 else []
    return [*prefix, sys.executable, "-c", run, *words]


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {"HOME": str(home)} | more


def run(
    program: str,
    *words: str,
    folder: Path,
    powerless: bool = False,
    stdout: int | None = None,
    environ: Mapping[str, str] | None = None,
    start: str = 'exec "$@"',
) -> Ended:
    """Run it to its end in a folder; `stdout` is a descriptor to write to, `start` how it is started.

    The home is the folder above, so that it is there when the folder is not.
    """
    started = command(program, *words, powerless=powerless)
    done = subprocess.run(  # noqa: S603  # words of our own
        ["/bin/sh", "-c", start, "sh", *started],
        cwd=folder,
        env=clean_environment(folder.parent, **(environ or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        timeout=_SECONDS,
        check=False,
        text=True,
    )
    ended = Ended(done.returncode, done.stdout or "", done.stderr)
    # Whatever else is expected: nobody is shown one of these.
    assert "Traceback" not in ended.err, ended.err
    assert "Exception ignored" not in ended.err, ended.err
    return ended
