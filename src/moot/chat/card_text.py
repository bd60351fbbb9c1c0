"""What a card says: who wants which call, all of it, what deserves a look and why, and where to decide.

The words are those of the shell and the console. What members wrote is shown with every hidden character
visible, and a card is sent as text in which platforms read no markup, mention nobody and link nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Final

from moot.chat.act_check import LinkAbove, page_reason
from moot.chat.platform import Card, Verb
from moot.operations.operation import short_id
from moot.operations.proposal_operations import argument_lines, operation, space_lines
from moot.operations.text.call_text import proposal_link
from moot.operations.text.origin_text import OriginNotes, caution_lines
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.hidden_text import show_hidden
from moot.protocol.large_content import reference_in
from moot.protocol.operation import Json

DECIDING: Final[tuple[Verb, ...]] = ("approve", "reject", "ask")
# Of a card about many.
MAX_LISTED: Final = 10
_MAX_TITLE_CHARS: Final = 202
_LINE_END: Final = re.compile("[\n\r\u2028\u2029]")
_CODE: Final = re.compile("`([^`\n]+)`")


def proposal_card(
    seen: SeenProposal,
    *,
    key: str,
    viewers: Sequence[str],
    console: str,
    space: str,
    link_above: LinkAbove,
    max_chars: int,
) -> Card:
    """The card of one proposal: with buttons only if it shows all of the call and the space allows it."""
    link = proposal_link(console, space, seen.id)
    title = title_of(seen)
    if seen.status != "pending":
        return Card(key=key, title=title, body="", notes=(state_line(seen),), link=link)
    notes = [
        *(f"! {text}" for text in caution_lines(seen)),
        *(f"! {each.text}" for each in seen.risks),
        *space_lines(seen),
        *([seen.vote_text] if seen.vote_text else []),
        *(f"rejected by {each.by}: {each.reason}" for each in seen.rejections),
        f"{space + ', ' if space else ''}{short_id(seen.id)}, fingerprint {seen.fingerprint()[:12]}",
    ]
    body = _visible(call_lines(seen, viewers))
    lines = _visible(notes).split("\n")
    verbs: tuple[Verb, ...] = ()
    why = ""
    if units(title, body, *lines) > max_chars or _has_reference(seen.params):
        body, why = "", "The call is too long to be shown here whole, so it is decided on its page."
    elif not seen.to:
        why = "It names no host: choose one on its page."
    elif not (why := page_reason(seen, link_above)):
        verbs = DECIDING
    shown = [*_fitting(lines, max_chars - units(title, body, why)), *([why] if why else [])]
    return Card(key=key, title=title, body=body, notes=tuple(shown), link=link, verbs=verbs)


def many_card(found: Sequence[SeenProposal], *, key: str, console: str, space: str) -> Card:
    """One card for many: a line for each, a link to the list, and a button that shows them."""
    open_ones = [seen for seen in found if seen.status == "pending"]
    lines = [title_of(seen) for seen in open_ones[:MAX_LISTED]]
    if len(open_ones) > len(lines):
        lines.append(f"and {len(open_ones) - len(lines)} more")
    link = proposal_link(console, space, "").rstrip("/")
    if not open_ones:
        return Card(key=key, title="None of these proposals is open any more", body="", link=link)
    waiting = "1 proposal waits" if len(open_ones) == 1 else f"{len(open_ones)} proposals wait"
    title = f"{waiting} for a decision{f' in {space}' if space else ''}"
    return Card(key=key, title=title, body=_visible(lines), link=link, verbs=("show",))


def shown_card(count: int, *, key: str) -> Card:
    """What becomes of a card about many when all of them got cards of their own."""
    title = {0: "None of these proposals is open any more", 1: "1 proposal is shown below"}.get(count)
    return Card(key=key, title=title or f"{count} proposals are shown below", body="")


def comment_text(by: str, text: str) -> str:
    """A comment with its author: no line of it but the first looks like the beginning of another one."""
    lines = _LINE_END.split(text)
    return f"{show_hidden(by)}: " + "\n| ".join(map(show_hidden, lines))


def fault_text(fault: Exception | str) -> str:
    """Why something was not done, with commands in quotes: no chat reads the backticks of a shell."""
    return _CODE.sub(r"“\1”", show_hidden(str(fault)))


def title_of(seen: SeenProposal) -> str:
    host = ", ".join(seen.to) or "anyone"
    what = operation(seen).removeprefix("tools/call ")
    text = " ".join(show_hidden(f"{seen.proposer} proposes {what} on {host}").split())
    return _cut(text, _MAX_TITLE_CHARS)


def state_line(seen: SeenProposal) -> str:
    """What became of it."""
    return " ".join(show_hidden(seen.state_text).split())[:500]


def call_lines(seen: SeenProposal, viewers: Sequence[str]) -> list[str]:
    """All that runs: arguments with their origins, and whatever else is in the params."""
    notes = OriginNotes(seen.origins, viewers, with_places=False)
    arguments = seen.params.get("arguments")
    shown = {"arguments"} if isinstance(arguments, dict) else set()
    rest: dict[str, Json] = {
        name: value for name, value in seen.params.items() if name not in {"name", *shown}
    }
    lines = argument_lines(seen.params, notes)
    return [*lines, *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in rest.items())]


def digest_of(card: Card) -> str:
    """The same for cards that look the same."""
    parts = json.dumps([card.title, card.body, card.notes, card.link, card.verbs])
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def units(*lines: str) -> int:
    """How long a text of these lines is, as platforms count: in units of UTF-16."""
    return sum(len(line.encode("utf-16-le")) // 2 + 1 for line in lines)


def _cut(text: str, limit: int) -> str:
    """The beginning of a text, if it is longer."""
    if units(text) <= limit:
        return text
    return text.encode("utf-16-le")[: 2 * (limit - 2)].decode("utf-16-le", "ignore") + "…"


def _fitting(lines: Sequence[str], limit: int) -> list[str]:
    """As many lines as fit, and how many do not: a card that is too long is not taken at all."""
    if units(*lines) <= limit:
        return list(lines)
    kept: list[str] = []
    for line in lines:
        kept.append(_cut(line, limit // 4))
        if units(*kept) > limit - 100:
            kept.pop()
            break
    return [*kept, *([f"and {rest} more on its page"] if (rest := len(lines) - len(kept)) else [])]


def _visible(lines: Sequence[str]) -> str:
    """One line each: a line end inside of one, as in the name of an argument, is shown as an escape."""
    return "\n".join(_LINE_END.sub(_escaped, show_hidden(line)) for line in lines)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _has_reference(value: Json) -> bool:
    """Whether some of the call is kept by the gateway and only its beginning is here."""
    if reference_in(value) is not None:
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_reference, parts))
