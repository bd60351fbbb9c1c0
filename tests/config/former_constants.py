"""What was a setting once is a constant now: where each is, and tests that need another value."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moot.config import former_settings
from moot.config.strict_yaml import read_yaml
from moot.protocol.operation import Json

# The path in a moot.yaml → the module and its constant.
CONSTANTS: Final[Mapping[str, str]] = {
    "gateway.read_slice_bytes": "moot.net.read_schedule.SLICE_BYTES",
    "gateway.read_slice_frames": "moot.net.read_schedule.SLICE_FRAMES",
    "gateway.read_slice_seconds": "moot.net.read_schedule.SLICE_SECONDS",
    "gateway.read_turn_seconds": "moot.net.read_schedule.TURN_SECONDS",
}


def value_of(constant: str) -> Any:
    module, _, name = constant.rpartition(".")
    return getattr(importlib.import_module(module), name)


@contextmanager
def former_constants(file: Path) -> Iterator[None]:
    """The constants as a file of an earlier version would have set them, for gateways in this process."""
    document = read_yaml(file.read_text("utf-8"))
    with changed_constants(
        {path: found for path in former_settings.MOOT for found in _values(document, path)}
    ):
        yield


@contextmanager
def changed_constants(values: Mapping[str, Json]) -> Iterator[None]:
    """These constants, by the paths that they had as settings."""
    with pytest.MonkeyPatch.context() as process:
        for path, value in values.items():
            process.setattr(CONSTANTS[path], value)
        yield


def _values(node: Json, path: str) -> Iterator[Json]:
    step, _, rest = path.partition(".")
    for each in node if isinstance(node, list) else [node]:
        for key, inner in each.items() if isinstance(each, dict) else ():
            if step in ("*", key):
                yield from _values(inner, rest) if rest else [inner]
