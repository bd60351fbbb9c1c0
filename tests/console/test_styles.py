"""What the console's styles must not do."""

from __future__ import annotations

import re
from pathlib import Path

import moot

STYLES = Path(moot.__file__).parent / "console" / "css"


def test_no_rule_asks_the_whole_page() -> None:
    """`body:has(…)` is looked at anew with each line that appears: four times the work."""
    found = [
        f"{path.name}: {rule}"
        for path in STYLES.glob("*.css")
        for rule in re.findall(r"(?:^|[\s,{}])(?:body|html|:root):has\([^{]*", path.read_text("utf-8"))
    ]
    assert len(list(STYLES.glob("*.css"))) > 5
    assert found == []
