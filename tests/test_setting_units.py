"""Every number among the settings says its unit in its name, or is a count that begins with max_ or min_."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import moot

SOURCE = Path(moot.__file__).parent
_SETTINGS_CLASS = re.compile(r"(Limits|Settings|Config|Policy|Budget)$")
# To parse all files takes seconds, and few have such a class.
_HAS_ONE = re.compile(r"class \w*(Limits|Settings|Config|Policy|Budget)\b")
_UNIT = re.compile(
    r"^(max|min)_|_(seconds|days|bytes|chars|tokens|messages|events|records|frames|fragments|segments|people|share|factor)$"
    r"|_per_[a-z]+$|(^|_)port$|_at$"
)
# A model's temperature has no unit, and a quality is a score from 0 to 1.
# Sums have the unit of the argument that they are of.
_WITHOUT_UNIT = {"temperature", "replicas", "shards", "sums"} | {
    "description_quality_threshold",
    "description_quality_floor",
}


def numbers_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The settings classes of a module and their fields that are numbers."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not _SETTINGS_CLASS.search(node.name):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                annotation = ast.unparse(field.annotation)
                if "Callable" not in annotation and re.search(r"\b(int|float)\b", annotation):
                    yield node.name, field.target.id


def test_every_number_among_the_settings_names_its_unit() -> None:
    texts = (path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    found = [each for text in texts if _HAS_ONE.search(text) for each in numbers_of(ast.parse(text))]
    assert len(found) > 60
    unclear = [
        f"{name}.{field}" for name, field in found if not _UNIT.search(field) and field not in _WITHOUT_UNIT
    ]
    assert unclear == []
