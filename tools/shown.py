"""By what each requirement row is shown: vectors name rows, and tests carry them as marks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from moot.conformance.vectors import load_vectors

ROOT = Path(__file__).resolve().parent.parent


@cache
def shown() -> dict[str, list[str]]:
    """Row id → the vectors and tests that show it, vectors first. Worked out once: it takes seconds."""
    found: dict[str, list[str]] = {}
    for source, vector in load_vectors():
        for id in vector.rows:
            found.setdefault(id, []).append(f"vector “{vector.name}” ({source.removesuffix('.yaml')})")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        for name, ids in _marks(ast.parse(text)) if "mark.requirement" in text else ():
            for id in ids:
                found.setdefault(id, []).append(f"`{path.relative_to(ROOT)}::{name}`")
    return found


def _marks(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Every test with the ids of its requirement marks, those of its parameters included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            ids = [
                argument.value
                for decorator in node.decorator_list
                for call in ast.walk(decorator)
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "requirement"
                for argument in call.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
            if ids:
                yield node.name, ids
