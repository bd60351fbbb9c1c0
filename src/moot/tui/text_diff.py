"""Changes of files as people read them: removed and added lines.

The two texts of an argument pair such as `old` and `new` are compared. The whole text for a path is compared
with what was last read or written there in this space, if that was seen; this is what a member claimed,
and it is shown as such. The comparison decides nothing: what is approved are the arguments.
"""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from moot.operations.grant_scope import PATHS, TEXTS
from moot.operations.text.envelope_view import clock
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.tui.row_layout import Line

# The names that common tools use for the old and the new passage.
PAIRS: Final = (
    ("old", "new"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("before", "after"),
)
EDITS: Final = ("edits", "changes")

# The time to compare grows with the square: with more lines both sides are shown as they are.
MAX_DIFF_LINES: Final = 2_000
# Texts that are kept for comparing, their size, and requests without an answer yet.
MAX_TEXTS: Final = 200
MAX_TEXT_BYTES: Final = 8 << 20
_MAX_REQUESTS: Final = 512


def difference(old: str | None, new: str) -> Iterator[Line]:
    """A unified diff; signs as well as colours mark the lines. `old` is None for a new file."""
    if old is None:
        yield (("a new file", "dim"),)
        yield from ((("+ ", "good"), (each, "good")) for each in new.split("\n"))
        return
    before, after = old.split("\n"), new.split("\n")
    if len(before) + len(after) > MAX_DIFF_LINES:
        yield ((f"more than {MAX_DIFF_LINES} lines: not compared", "dim"),)
        yield from ((("- ", "bad"), (each, "bad")) for each in before)
        yield from ((("+ ", "good"), (each, "good")) for each in after)
        return
    if old == new:
        yield (("no changes", "dim"),)
    for each in list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]:
        match each[:1]:
            case "+":
                yield (("+ ", "good"), (each[1:], "good"))
            case "-":
                yield (("- ", "bad"), (each[1:], "bad"))
            case "@":
                yield ((each, "note"),)
            case _:
                yield (("  ", "dim"), (each[1:], "dim"))


def pair_in(arguments: Mapping[str, Json]) -> tuple[str, str] | None:
    """The names of the old and the new passage, if these arguments have both; the old one may be null."""
    for old, new in PAIRS:
        if isinstance(arguments.get(old, 0), str | None) and isinstance(arguments.get(new), str):
            return old, new
    return None


def whole_text_in(arguments: Mapping[str, Json]) -> tuple[str, str] | None:
    """The path, and the name of the argument with the whole text for it, if there are both."""
    path = next((arguments[name] for name in PATHS if isinstance(arguments.get(name), str)), None)
    text = next((name for name in TEXTS if isinstance(arguments.get(name), str)), None)
    return None if path is None or text is None else (path, text)


@dataclass(frozen=True, slots=True)
class KnownText:
    """The text of a file as a member reported it, and when."""

    text: str
    when: str


class KnownTexts:
    """The latest texts of paths: from whole reads that were answered and writes that succeeded."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, str], KnownText] = OrderedDict()
        self._bytes = 0
        self._requests: LatestDict[str, tuple[str, str, str | None]] = LatestDict(_MAX_REQUESTS)

    def get(self, host: str, path: str) -> KnownText | None:
        return self._texts.get((host, path))

    def observe(self, envelope: Envelope) -> None:
        if envelope.kind == "mcp/request":
            self._observe_request(envelope)
        elif envelope.kind == "mcp/response":
            for id in envelope.correlation_id:
                request = self._requests.pop(id, None)
                if request is not None and request[0] == envelope.sender:
                    self._observe_answer(request, envelope)

    def _observe_request(self, envelope: Envelope) -> None:
        params: Json = envelope.payload.get("params")
        arguments = params.get("arguments") if isinstance(params, dict) else None
        if len(envelope.to) != 1 or not isinstance(arguments, dict):
            return
        path = next((arguments[name] for name in PATHS if isinstance(arguments.get(name), str)), None)
        whole = whole_text_in(arguments)
        # A partial read says nothing about the rest.
        if path is None or (whole is None and len(arguments) > 1):
            return
        self._requests[envelope.id] = (envelope.to[0], path, None if whole is None else arguments[whole[1]])

    def _observe_answer(self, request: tuple[str, str, str | None], envelope: Envelope) -> None:
        host, path, written = request
        result: Json = envelope.payload.get("result")
        if not isinstance(result, dict) or result.get("isError") is True:
            return
        text = written if written is not None else _only_text(result.get("content"))
        if text is None:
            return
        before = self._texts.pop((host, path), None)
        self._bytes += len(text) - (0 if before is None else len(before.text))
        self._texts[host, path] = KnownText(text, clock(envelope.ts))
        while len(self._texts) > MAX_TEXTS or (self._bytes > MAX_TEXT_BYTES and self._texts):
            self._bytes -= len(self._texts.popitem(last=False)[1].text)


def _only_text(content: Json) -> str | None:
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    text = content[0].get("text")
    return text if isinstance(text, str) else None


def edits_in(arguments: Mapping[str, Json]) -> tuple[str, list[Mapping[str, Json]]] | None:
    """A list of changes and its name, as tools that make several at once and coding agents tell them."""
    for name in EDITS:
        edits = arguments.get(name)
        if (
            edits
            and isinstance(edits, list)
            and all(isinstance(each, dict) and pair_in(each) for each in edits)
        ):
            return name, edits
    return None
