"""The table of calls that hints are measured by, as calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from moot.protocol.operation import Json

_FILE: Final = Path(__file__).parent.parent / "data" / "risk-cases.yaml"


def cases(which: str) -> list[tuple[str, dict[str, Json]]]:
    """The tools and arguments of the `dangerous` or `harmless` ones."""
    found: dict[str, list[Any]] = yaml.safe_load(_FILE.read_text("utf-8"))[which]
    calls = [("run", {"command": text}) for text in found["shell"]]
    calls += [("query", {"sql": text}) for text in found["sql"]]
    return calls + [(each["tool"], {k: v for k, v in each.items() if k != "tool"}) for each in found["paths"]]
