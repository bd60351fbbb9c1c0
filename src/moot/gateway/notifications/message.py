"""What a notification says: who proposes which tool on which host, since when, and where to decide. Pure.

It holds no token and nothing that decides: a link leads to the console, where everybody signs in themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
import orjson

from moot.gateway.notifications.recipients import Subject, happened_at, payload_of
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json
from moot.space.proposals.proposal_ledger import ProposalRecord

# What strangers wrote, made harmless for the places where people read notifications. Pure.
#
# The name of a tool, the id of a proposal and its arguments are chosen by whoever proposes. In a mail, a chat
# or on a phone such a text must be nothing but text: on one line, with every hidden character visible, and
# without links and mentions, which those programs make of anything that looks like one.

# MCP's own bound on tool names.
MAX_NAME_CHARS: Final = 128

# Joiners too, which a name does not need; and line ends, which would begin another header or paragraph.
_UNSEEN: Final = re.compile("[\t\n\r\u200c\u200d\u2028\u2029\ufe00-\ufe0f]")
# Blanks of other widths can push text out of sight.
_BLANKS: Final = re.compile(r"\s+")
# A host's name: a dot between a letter or digit and at least two letters. `3.14` and `a.b` stay.
_HOST_DOT: Final = re.compile(r"(?<=\w)\.(?=[^\W\d_]{2})")
# Full stops of other scripts, which browsers take for a dot in an address.
_OTHER_DOTS: Final = re.compile("[\u3002\uff0e\uff61]")
_SCHEME: Final = re.compile(
    r":(?=/)|(?<=\bmailto):|(?<=\btel):|(?<=\bjavascript):|(?<=\bdata):", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"(?<=\d)\.(?=\d{1,3}\.\d{1,3}\b)")
# Signs of Markdown and of Slack's mrkdwn; `_` only where it can begin or end emphasis.
_MARKUP: Final = re.compile(r"[*~`<>&|]|\](?=\s*[(:])|(?<![^\W_])_|_(?![^\W_])")


def shown(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    """A stranger's text as one line that is only text: nothing hidden, no link, no mention; cut."""
    # Cut before anything else too: a name may have as many characters as a message.
    text = text[: max_chars + 1]
    text = _BLANKS.sub(" ", _UNSEEN.sub(_escaped, show_hidden(text))).strip()
    if len(text) > max_chars:
        text = text[: max_chars - 1] + "…"
    text = _OTHER_DOTS.sub(_escaped, text)
    text = _HOST_DOT.sub("[.]", _ADDRESS.sub("[.]", text))
    return _SCHEME.sub("[:]", text).replace("@", "[at]").replace("\uff20", "[at]")


def without_markup(text: str) -> str:
    """A shown text for a place that reads Markdown: its signs as visible escapes."""
    return _MARKUP.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(
        f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in found[0]
    )


class Entry(NamedTuple):
    """One proposal in a message, as it was when the message was written. Names are as they were sent."""

    subject: Subject
    proposer: str
    hosts: tuple[str, ...]
    method: str
    name: str | None
    since: float
    expires: float
    rejected_by: tuple[str, ...]
    approvals: tuple[int, int]
    reason: str | None
    link: str | None
    # JSON, cut; None unless the receiver is to have it.
    arguments: str | None
    # Where the one value that matters came from; it names that value, so it goes where arguments go.
    why: str | None = None


class Message(NamedTuple):
    """What one receiver is sent at once."""

    # The same for the same subjects, however often it is sent: who has seen it can leave it.
    delivery: str
    participant: str
    entries: tuple[Entry, ...]
    # Of all that it is about, those that `entries` leave out too.
    total: int
    link: str | None

    @property
    def is_summary(self) -> bool:
        return self.total > 1


def describe(
    subject: Subject,
    proposal: ProposalRecord,
    *,
    public_url: str | None,
    max_argument_chars: int | None,
    why: str | None = None,
) -> Entry:
    """An entry about a proposal; `max_argument_chars` None leaves its arguments out."""
    operation = proposal.operation
    return Entry(
        subject=subject,
        proposer=proposal.proposer,
        hosts=tuple(proposal.to),
        method=(operation.method if operation is not None else None) or "a request",
        name=None if operation is None else operation.context,
        since=happened_at(proposal, subject.event),
        expires=proposal.expires,
        rejected_by=tuple(proposal.rejected_by),
        approvals=(len(proposal.approved_by), proposal.approvals_needed),
        reason=proposal.reason,
        link=None if public_url is None else page_of(public_url, subject.space, subject.id),
        arguments=None if max_argument_chars is None else _arguments(proposal, max_argument_chars),
        why=None if max_argument_chars is None else why,
    )


def compose(
    receiver: str,
    participant: str,
    subjects: Sequence[Subject],
    entries: Sequence[Entry],
    public_url: str | None,
) -> Message:
    """A message about subjects, of which `entries` describe the first ones."""
    spaces = {subject.space for subject in subjects}
    link = entries[0].link if len(subjects) == 1 else None
    if link is None and public_url is not None:
        link = page_of(public_url, min(spaces)) if len(spaces) == 1 else f"{public_url}/"
    return Message(
        delivery=_delivery_id(receiver, subjects),
        participant=participant,
        entries=tuple(entries),
        total=len(subjects),
        link=link,
    )


def page_of(public_url: str, space: str, id: str | None = None) -> str:
    """The address of a proposal in the console, or of all that are open in a space."""
    page = f"{public_url}/#/{quote(space, safe='')}/approvals"
    return page if id is None else f"{page}/{quote(id, safe='')}"


def title_of(message: Message) -> str:
    """One line, with nothing in it but text."""
    first = message.entries[0]
    if not message.is_summary:
        return f"{sentence_of(first)} ({shown(first.subject.space)})"
    unknown = sum(entry.subject.event == "outcome.unknown" for entry in message.entries)
    what = "proposals pending" if not unknown else "proposals pending or with an unknown outcome"
    return f"{message.total} {what} for {shown(message.participant)}"


def lines_of(message: Message) -> list[str]:
    """The message in words, without the link."""
    if not message.is_summary:
        return _details_of(message.entries[0])
    lines = [
        f"{shown(entry.subject.space)}: {sentence_of(entry)}, since {moment_of(entry.since)}"
        for entry in message.entries
    ]
    more = message.total - len(message.entries)
    return [*lines, f"and {more} more"] if more else lines


def sentence_of(entry: Entry) -> str:
    what = shown(entry.method) if entry.name is None else shown(entry.name)
    if entry.method != "tools/call" and entry.name is not None:
        what = f"{shown(entry.method)} {what}"
    where = f" on {', '.join(map(shown, entry.hosts[:3]))}" if entry.hosts else ""
    if entry.subject.event == "outcome.unknown":
        return f"Nobody knows whether {what}{where} was done, which {shown(entry.proposer)} had proposed"
    prefix = "For you: " if entry.subject.is_assigned else ""
    prefix += "Reminder: " if entry.subject.is_reminder else ""
    return f"{prefix}{shown(entry.proposer)} proposes {what}{where}"


def moment_of(at: float) -> str:
    """A time for people; an old snapshot does not know when something was proposed."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC" if at else "an unknown time"


def _details_of(entry: Entry) -> list[str]:
    is_open = entry.subject.event == "proposal.pending"
    lines = [sentence_of(entry)]
    if is_open and entry.why:
        lines.append(shown(entry.why, len(entry.why)))
    lines += [f"Space: {shown(entry.subject.space)}", f"Since: {moment_of(entry.since)}"]
    if is_open:
        lines.append(f"Expires: {moment_of(entry.expires)}")
    if is_open and entry.approvals[1]:
        lines.append(f"Approvals: {entry.approvals[0]} of {entry.approvals[1]}")
    if is_open and entry.rejected_by:
        lines.append(f"Rejected by: {', '.join(map(shown, entry.rejected_by[:3]))}")
    if not is_open and entry.reason is not None:
        lines.append(f"Reason: {entry.reason.replace('_', ' ')}")
    if entry.arguments is not None:
        lines.append(f"Arguments: {shown(entry.arguments, len(entry.arguments))}")
    return lines


def _arguments(proposal: ProposalRecord, max_chars: int) -> str:
    params: Json = payload_of(proposal).get("params")
    text = orjson.dumps(params.get("arguments", params) if isinstance(params, dict) else params).decode()
    text = show_hidden(text[: max_chars + 1])
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def _delivery_id(receiver: str, subjects: Sequence[Subject]) -> str:
    parts = msgspec.json.encode([receiver, sorted(subjects)])
    return f"msg_{hashlib.sha256(parts).hexdigest()[:32]}"
