"""Configuration files as the tests write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from moot.config import Configuration, load
from moot.config.configuration import SpaceSettings

NO_ENVIRONMENT: Mapping[str, str] = {}


def written(folder: Path, text: str, name: str = "moot.yaml") -> Path:
    """A configuration file that only its owner reads."""
    path = folder / name
    path.write_text(dedent(text), "utf-8")
    path.chmod(0o600)
    return path


def loaded(folder: Path, text: str, **environ: str) -> Configuration:
    return load(written(folder, text), environ=environ)


def lab(folder: Path, text: str, **environ: str) -> SpaceSettings:
    """The space `lab` of a file that has its section alone."""
    section = "".join(f"    {line}\n" for line in dedent(text).splitlines())
    return loaded(folder, f"spaces:\n  lab:\n{section}", **environ).spaces["lab"]
