"""Writes the console's table of risks from that of `moot.protocol`: `python -m tools.make_risk_table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from moot.protocol import risk_table

FILE: Final = Path("src/moot/console/views/proposals/risk-table.js")


def text() -> str:
    """The module, before it is formatted."""
    lines = [
        "// Written by `python -m tools.make_risk_table` from moot/protocol/risk_table.py: change it there."
    ]
    for name, value in vars(risk_table).items():
        if name.isupper():
            kind = "string" if isinstance(value, str) else "string[][]"
            lines.append(f"/** @type {{{kind}}} */\nexport const {name} = {json.dumps(value)};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    print(f"{FILE}: now run Biome's formatter on it")
