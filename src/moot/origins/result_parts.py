"""What is in a message: every text and number of its payload, and where each stands.

Of a tool's answer, text that is JSON is read as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moot.errors import InvalidJson
from moot.protocol import strict_json
from moot.protocol.operation import Json

MAX_DEPTH: Final = 16
MAX_PATH_CHARS: Final = 256
_MAX_NAME_CHARS: Final = 64
# A look-up returns names and values. More words, or a sentence, are what somebody wrote.
MAX_VALUE_WORDS: Final = 8
_PARTS_OF_RESULT: Final = frozenset({"content", "structuredContent", "isError"})


class MessageLeaf(NamedTuple):
    """A text or a number, or the name of a member. `member` is the name that a value goes by."""

    path: str
    member: str
    text: str


def leaves_of(value: Json, path: str, member: str = "", depth: int = MAX_DEPTH) -> Iterator[MessageLeaf]:
    """Every text and number of a JSON value, names of members too; deeper than `depth` as one text."""
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            below = f"{path}.{name[:_MAX_NAME_CHARS]}"[:MAX_PATH_CHARS]
            yield MessageLeaf(below, "", name)
            yield from leaves_of(inner, below, name, depth - 1)
    elif isinstance(value, list) and depth:
        for at, inner in enumerate(value):
            yield from leaves_of(inner, f"{path}[{at}]"[:MAX_PATH_CHARS], member, depth - 1)
    elif not isinstance(value, bool) and value is not None:
        text = value if isinstance(value, str) else strict_json.encode(value).decode("utf-8", "replace")
        yield MessageLeaf(path, member, text)


def parts_of_answer(payload: Mapping[str, Json]) -> list[tuple[str, Json]]:
    """What an answer says, each part with its path; what is said as text and as structure comes once."""
    result = payload.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(content, list):
        return [("payload", dict(payload))]
    at = "payload.result"
    blocks = [_block(f"{at}.content[{number}]", each) for number, each in enumerate(content)]
    structured = result.get("structuredContent")
    where = f"{at}.structuredContent"
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        structured, where = structured["result"], f"{where}.result"
    values = [value for _, value in blocks]
    rest = {name: value for name, value in result.items() if name not in _PARTS_OF_RESULT}
    return [
        *([(at, rest)] if rest else []),
        *([] if values == [structured] or values == structured else blocks),
        *([] if structured is None else [(where, structured)]),
    ]


def _block(path: str, block: Json) -> tuple[str, Json]:
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str) or block.keys() - {"type", "text"}:
        return path, block
    path += ".text"
    if not text.lstrip().startswith(("{", "[")) and text != "null":
        return path, text
    try:
        return path, strict_json.parse(text.encode("utf-8", "replace"))
    except InvalidJson:
        return path, text


def lines_of(text: str, *, heading: bool) -> list[str]:
    """The lines of a text; the first one also without its heading, as in `Hotels: Ritz`."""
    lines = text.splitlines()
    _, colon, behind = lines[0].partition(": ") if lines and heading else ("", "", "")
    return [line.strip() for line in ([behind] if colon else []) + lines]


def is_written(line: str) -> bool:
    """Whether a line of a look-up is what somebody wrote, rather than a name or a value."""
    words = len(line.split())
    return words > MAX_VALUE_WORDS or (words >= 4 and line.rstrip().endswith((".", "!", "?")))
