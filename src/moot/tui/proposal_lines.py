"""One proposal for the person who decides on it: who, what, where, and every argument in full."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from moot.operations.content_operation import reference_text
from moot.operations.proposal_operations import space_lines
from moot.operations.text.input_text import input_lines
from moot.operations.text.origin_text import OriginNotes, ago, asks_for, caution_lines
from moot.participant import SeenProposal
from moot.protocol.call_risks import Severity
from moot.protocol.large_content import CONTENT_KEY, reference_in, shows_all_parts
from moot.protocol.operation import Json
from moot.protocol.origin_report import ArgumentReport
from moot.protocol.proposal_life import proposed_bytes
from moot.tui.row_layout import Line, Part, Tone, line
from moot.tui.text_diff import KnownTexts, difference, edits_in, pair_in, whole_text_in

# In a list: about two lines of eighty columns, none of them one argument alone.
_SUMMARY_CHARS: Final = 160
_ARGUMENT_CHARS: Final = 60
_STATE_TONES: Final[Mapping[str, Tone]] = {
    "pending": "warn",
    "fulfilled": "good",
    "done": "good",
    "failed": "bad",
    "unknown": "warn",
    "rejected": "bad",
}
_RISK_TONES: Final[Mapping[Severity, Tone]] = {"bad": "bad", "warn": "warn", "info": "note"}


def title_of(seen: SeenProposal) -> str:
    """The proposed operation in a few words."""
    name = seen.params.get("name") or seen.params.get("uri")
    what = str(name) if isinstance(name, str) else seen.method
    return what if seen.method == "tools/call" else f"{seen.method} {what}" if what != seen.method else what


def host_of(seen: SeenProposal) -> str:
    return ", ".join(seen.to) or "anyone"


def state_of(seen: SeenProposal) -> tuple[str, Tone]:
    """The state of a proposal in words, with its tone."""
    return seen.state_text, _STATE_TONES.get(seen.state, "dim")


def _votes(count: int) -> str:
    return f"{count} {'vote' if count == 1 else 'votes'}"


def arguments_text(seen: SeenProposal) -> str:
    """The arguments in one line, cut where it gets long: the dialog shows all of them."""
    arguments = seen.params.get("arguments")
    if not isinstance(arguments, dict):
        return ""
    parts = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first = text.split("\n", 1)[0]
        cut = first[:_ARGUMENT_CHARS]
        parts.append(f"{name}={cut}{'…' if cut != text else ''}")
    text = "  ".join(parts)
    return text if len(text) <= _SUMMARY_CHARS else f"{text[:_SUMMARY_CHARS]}…"


def summary_lines(seen: SeenProposal, number: int, *, note: str = "") -> tuple[Line, ...]:
    """A few lines for a list of them; `note` says why it waits for others."""
    state, tone = state_of(seen)
    if note:
        state, tone = note, "dim"
    arguments = arguments_text(seen)
    rejections = f" · rejected by {', '.join(each.by for each in seen.rejections)}" if seen.rejections else ""
    votes = f" · {seen.vote_text or _votes(len(seen.votes))}" if seen.votes or seen.vote_text else ""
    worst: list[tuple[str, Tone]] = [
        *((text, "warn") for text in caution_lines(seen)[:1]),
        *((each.text, "bad") for each in seen.risks if each.severity == "bad"),
        *((text[2:], "bad") for text in space_lines(seen) if text.startswith("! ")),
    ]
    return (
        line((f"#{number} ", "dim"), (title_of(seen), "strong"), (" on ", "dim"), (host_of(seen), "name")),
        *([line(f"   {arguments}")] if arguments else []),
        *(line(("   ! ", tone), (text, tone)) for text, tone in worst[:1]),
        line(
            (f"   {seen.proposer}", "name"), (f" · {age(seen)} · ", "dim"), (state, tone), rejections, votes
        ),
    )


def age(seen: SeenProposal) -> str:
    """How long ago it was made, by its own time."""
    try:
        seconds = max(0.0, time.time() - datetime.fromisoformat(seen.created).timestamp())
    except ValueError:
        return "just now"
    return ago(seconds)


def full_lines(
    seen: SeenProposal,
    texts: KnownTexts | None = None,
    *,
    whole: Mapping[str, Json] | None = None,
    viewers: Collection[str] = (),
    with_places: bool = False,
) -> list[Line]:
    """Everything that a decision is about. `whole`: its params with their large values; `with_places`: where
    each value was said."""
    state, tone = state_of(seen)
    what: tuple[Part, ...] = ((title_of(seen), "strong"), (" on ", "text"), (host_of(seen), "name"))
    lines: list[Line] = [line((seen.proposer, "name"), " proposes ", *what)]
    if seen.uncertain:
        lines.append(
            line(("the connection was lost for a while: this may have been decided already", "warn"))
        )
    # Before the arguments: a long one would push them out of sight.
    lines += [line(("! ", "warn"), (text, "warn")) for text in caution_lines(seen)]
    lines += [
        line(("! ", tone), (each.text, tone)) for each in seen.risks for tone in [_RISK_TONES[each.severity]]
    ]
    lines += [line((text, "bad" if text.startswith("! ") else "note")) for text in space_lines(seen)]
    notes = OriginNotes(seen.origins, viewers, with_places=with_places)
    lines += _params(seen, texts, seen.params if whole is None else whole, notes)
    lines += _origins(notes.take_rest())
    for each in seen.rejections:
        lines.append(line(("✗ ", "bad"), "rejected by ", (each.by, "name"), f": {each.reason}"))
        lines += [line(("    ", "dim"), text) for text in each.explanations]
    if seen.votes:
        lines.append(line(("✓ ", "good"), "votes: ", (", ".join(seen.votes), "name")))
    if seen.vote_text:
        exempt = f"; exempt: {', '.join(seen.exempt)}" if seen.exempt else ""
        lines.append(line(("? ", "warn"), f"{seen.vote_text}{exempt}"))
    lines += [line(("· ", "note"), text) for text in input_lines(seen)]
    lines += [(), line(("method  ", "dim"), seen.method)]
    if seen.envelope.context:
        lines.append(line(("context ", "dim"), seen.envelope.context))
    lines.append(line(("state   ", "dim"), (state, tone), (f" · proposed {age(seen)}", "dim")))
    lines.append(line(("id      ", "dim"), (seen.id, "dim")))
    return lines


def _origins(found: Iterable[tuple[ArgumentReport, list[str]]]) -> Iterator[Line]:
    for argument, texts in found:
        tone: Tone = "warn" if asks_for(argument) else "dim"
        yield from (line((f"    {'!' if asks_for(argument) else '·'} {text}", tone)) for text in texts)


def _params(
    seen: SeenProposal, texts: KnownTexts | None, params: Mapping[str, Json], notes: OriginNotes
) -> Iterator[Line]:
    arguments = params.get("arguments")
    others = {name: value for name, value in params.items() if name not in ("name", "arguments")}
    if shows_all_parts(params) and set(others["_meta"]) == {CONTENT_KEY}:
        del others["_meta"]
    if not isinstance(arguments, dict):
        others |= {"arguments": arguments} if "arguments" in params else {}
        arguments = {}
    if others:
        yield line(("params", "note"))
        for name, value in others.items():
            yield from _value(name, value)
    if not arguments:
        yield line(("no arguments", "dim")) if seen.method == "tools/call" else ()
        return
    if reference_in(arguments) is not None:
        yield from _value("arguments", arguments)
        return
    yield line(("arguments", "note"))
    yield from _arguments(arguments, seen, texts, notes)


def _arguments(
    arguments: Mapping[str, Json], seen: SeenProposal, texts: KnownTexts | None, notes: OriginNotes
) -> Iterator[Line]:
    pair = pair_in(arguments)
    whole = whole_text_in(arguments)
    edits = edits_in(arguments)
    known = None
    if whole is not None and texts is not None and len(seen.to) == 1:
        known = texts.get(seen.to[0], whole[0])
    for name, value in arguments.items():
        if pair is not None and name == pair[1]:
            yield from _origins(notes.take_argument(name))
            continue
        if pair is not None and name == pair[0]:
            yield line((f"  {pair[0]} → {pair[1]}:", "strong"))
            yield from _indented(difference(value, str(arguments[pair[1]])))
        elif edits is not None and name == edits[0]:
            for number, edit in enumerate(edits[1], 1):
                yield line((f"  edit {number} of {len(edits[1])}:", "strong"))
                yield from _edit(edit)
        elif whole is not None and name == whole[1] and known is not None:
            yield line(
                (f"  {name}", "strong"),
                (
                    f" compared with the version {seen.to[0]} had at {known.when} (x shows the full text):",
                    "dim",
                ),
            )
            yield from _indented(difference(known.text, value))
        elif whole is not None and name == whole[1]:
            # Not as added lines: most of them may be in the file already, and others are lost.
            yield line((f"  {name}", "strong"), (f" {_size(value)}:", "dim"))
            unknown = "replaces the file if there is one; its current content is not known here"
            yield line((f"    {unknown}", "warn"))
            yield from (line(("    ", "dim"), each) for each in value.split("\n"))
        else:
            yield from _value(name, value)
        yield from _origins(notes.take_argument(name))


def _edit(edit: Mapping[str, Json]) -> Iterator[Line]:
    pair = pair_in(edit)
    if pair is None:
        return
    for name, value in edit.items():
        if name not in pair:
            yield from _value(name, value)
    yield from _indented(difference(edit[pair[0]], str(edit[pair[1]])))


def _indented(lines: Iterator[Line]) -> Iterator[Line]:
    return ((("    ", "dim"), *each) for each in lines)


def _size(text: str) -> str:
    if not text:
        return "empty (0 bytes)"
    count = text.count("\n") + 1
    return f"({count} line{'s' if count > 1 else ''}, {len(text.encode(errors='replace'))} bytes)"


def _value(name: str, value: Json) -> Iterator[Line]:
    """One argument; texts keep their lines."""
    label: Part = (f"  {name}: ", "strong")
    if isinstance(value, str):
        if "\n" not in value:
            yield line(label, value) if value else line(label, ("(empty)", "dim"))
            return
        yield line(label, (_size(value), "dim"))
        yield from (line(("    ", "dim"), each) for each in value.split("\n"))
        return
    reference = reference_in(value)
    if reference is not None:
        yield line(label, (reference_text(reference, is_interactive=True), "note"))
        yield line(("    v shows all of it. It begins with", "dim"))
        yield from (line(("    ", "dim"), each) for each in reference.excerpt.split("\n"))
        return
    first, *rest = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    yield line(label, first)
    yield from (line("  ", each) for each in rest)


def raw_lines(seen: SeenProposal) -> list[Line]:
    """Method and params in the proposer's own bytes, which an approval repeats (D-28)."""
    lines = [line(("these exact bytes are sent when it is approved", "note")), ()]
    for name, value in proposed_bytes(seen.envelope.raw).items():
        lines.append(line((f"{name}  ", "dim"), value.decode("utf-8", "replace")))
    return lines
