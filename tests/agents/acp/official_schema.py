"""The schema of the official SDK, loaded when a test asks for it: that takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def model_of(name: str) -> type[Any]:
    """The model of a message; AttributeError if there is none of that name."""
    found: type[Any] = getattr(import_module("acp.schema"), name)
    return found
