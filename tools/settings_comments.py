"""The comments beside the fields of a class: in this project they say where a default comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping


def comments_of(source: str) -> Mapping[str, str]:
    """The comment above or behind each field, by the field's name."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in source.splitlines():
        text = line.strip()
        field = re.match(r"(\w+): [^#]+(?:#\s*(.*))?$", text)
        if text.startswith("#"):
            above.append(text.lstrip("# "))
        elif field:
            found[field[1]] = field[2] or " ".join(above)
            above = []
    return found
