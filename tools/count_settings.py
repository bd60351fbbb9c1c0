"""`python -m tools.count_settings` counts what users can set: fields of settings, and options of commands.

A field is one of a class whose name ends with Config, Settings, Limits or Policy; 0.2 had 827 at ad9d897a. An
option is a name with its help text: one that several commands have and that is declared once counts once; 0.2
had 318. Of another version: `git archive VERSION src | tar x -C FOLDER`, then with `PYTHONPATH=FOLDER/src:.`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import moot
from moot.cli import adapter, devserver
from moot.cli.command_table import COMMANDS, make_parser

_SETTINGS: Final = re.compile(r"(Config|Settings|Limits|Policy)$")


def settings_classes(root: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """The file and name of each class of settings, with the fields that it declares itself."""
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and _SETTINGS.search(node.name):
                fields = [
                    line.target.id
                    for line in node.body
                    if isinstance(line, ast.AnnAssign)
                    and isinstance(line.target, ast.Name)
                    and "ClassVar" not in ast.unparse(line.annotation)
                ]
                yield f"{file.relative_to(root)}:{node.name}", fields


def options(parser: argparse.ArgumentParser) -> set[tuple[str, str]]:
    """The options of a program and all its commands: the long name, and what the help says."""
    found = set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {each for command in action.choices.values() for each in options(command)}
        elif action.option_strings:
            found.add((action.option_strings[-1], action.help or ""))
    return found


def all_options() -> set[tuple[str, str]]:
    """Those of all three programs."""
    return options(make_parser(COMMANDS)) | options(adapter._parser([])) | options(devserver._parser([]))


def main() -> None:
    classes = dict(settings_classes(Path(moot.__path__[0])))
    found = sorted(all_options())
    if "--list" in sys.argv[1:]:
        for name, fields in classes.items():
            print(f"{len(fields):4} {name}: {' '.join(fields)}")
        for name, text in found:
            print(f"     {name}: {text}")
    print(f"{sum(map(len, classes.values()))} fields of {len(classes)} classes, {len(found)} options")


if __name__ == "__main__":
    main()
