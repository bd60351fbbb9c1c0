"""YAML as plain values, quickly: the vectors are a quarter of a megabyte."""

from __future__ import annotations

import yaml

from moot.protocol.operation import Json

# libyaml's parser is six times quicker; wheels have it, an unusual build may not.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Json:
    """The value of a YAML text; raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # both are safe loaders
