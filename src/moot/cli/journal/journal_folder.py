"""Which journal a command reads: `--data` and `--space`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from moot.cli.options.member_options import SPACE_HELP
from moot.cli.options.shared_options import add_data
from moot.errors import UsageError


def add_journal_options(parser: argparse.ArgumentParser) -> None:
    """Add `--data` and `--space`."""
    add_data(parser, ".moot")
    parser.add_argument("--space", metavar="NAME", help=SPACE_HELP)


def journal_folders(options: argparse.Namespace) -> dict[str, Path]:
    """The journals of the data folder by the names of their spaces."""
    found = {path.parent.name: path for path in sorted(options.data.glob("spaces/*/journal"))}
    if not found:
        # Nothing there, or nothing that we may see: the latter is said by this.
        for folder in (options.data, options.data / "spaces"):
            if folder.is_dir():
                os.listdir(folder)
        raise UsageError(
            f"no journal in {options.data}: name the gateway's data folder with --data DIR "
            "(a gateway with `journal: off` writes none)"
        )
    if options.space is None:
        return found
    if options.space not in found:
        raise UsageError(f"no space {options.space!r} in {options.data}: there is {', '.join(found)}")
    return {options.space: found[options.space]}


def journal_folder_of(options: argparse.Namespace) -> Path:
    """The one journal that `--data` and `--space` mean; raises UsageError when there are several or none."""
    found = journal_folders(options)
    if len(found) > 1:
        raise UsageError(f"several spaces in {options.data}: choose one with --space ({', '.join(found)})")
    return next(iter(found.values()))
