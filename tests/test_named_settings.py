"""A text that names a setting names one that there is: whoever reads it looks for it in their file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from moot.cli.agents import a2a
from moot.config.former_settings import ADAPTER, MOOT
from tests.rows import for_each_row

ROOT: Final = Path(__file__).parent.parent
FORMER: Final = {path.rpartition(".")[2] for path in (*MOOT, *ADAPTER)} | {
    *a2a._FORMER_OF_JOIN,
    *a2a._FORMER_OF_SERVE,
}
WORD: Final = re.compile(r"\b[a-z]+_[a-z_]+\b")
# What limits are called here.
LIMIT: Final = re.compile(r"max_[a-z_]+|[a-z]+_[a-z_]*(?:seconds|bytes|chars|records|per_minute|per_second)")
# A field, a parameter or a function.
DECLARED: Final = re.compile(r"\b(?:def )?([a-z]\w+)(?:: |\()")
# Of a file for NATS, in a text of ours.
OTHERS: Final = {"max_payload"}
SKIPPED: Final = {"former_settings.py"}


class Module:
    """One file of source: the names in it, and its texts."""

    def __init__(self, file: Path) -> None:
        text = file.read_text("utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        self.used = {name for node in nodes for name in _names_of(node)}
        found = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        # A word alone is for machines: a wire name, a key.
        self.used |= {str(node.value) for node in found}
        self.texts = [(node.lineno, str(node.value)) for node in found if re.search(r"\s", str(node.value))]
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.texts += [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def _names_of(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "arg", "name"):
        if isinstance(name := getattr(node, field, None), str):
            yield name


def names_in(text: str) -> set[str]:
    return {name for name in set(WORD.findall(text)) if name in FORMER or LIMIT.fullmatch(name)}


def unknown_in(module: Module, declared: set[str]) -> Iterator[tuple[int, str]]:
    known = (declared - FORMER) | module.used | OTHERS
    for line, text in module.texts:
        for name in names_in(text) - known:
            yield line, name


def test_no_text_of_the_source_names_a_setting_that_there_is_not() -> None:
    files = [*(ROOT / "src/moot").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    sources = {file: file.read_text("utf-8") for file in files if file.name not in SKIPPED}
    declared = {name for text in sources.values() for name in DECLARED.findall(text)}
    declared |= {file.stem for file in sources}
    known = declared - FORMER
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file, text in sources.items()
        # To parse all of them takes ten seconds.
        if names_in(text) - known
        for line, name in unknown_in(Module(file), declared)
    ]
    assert found == []


@for_each_row(
    "text",
    ["at most 5 bytes (poll_bytes)", "# poll_bytes is 3", "wait for max_unheard_of things"],
)
def test_one_is_found(tmp_path: Path, text: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(text if text.startswith("#") else f"WORDS = {text!r}\n", "utf-8")
    ((line, name),) = unknown_in(Module(file), {"poll_bytes"})
    assert (line, name in text) == (1, True)


PAGES: Final = [
    page
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
    if "decisions" not in page.parts and "reference" not in page.parts
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_one_either(page: Path) -> None:
    # Arguments of the SDK and members of payloads, which were settings elsewhere, and a plain word.
    gone = FORMER - {"timeout_seconds", "search"}
    assert not gone & set(re.findall(r"\w+", page.read_text("utf-8")))
