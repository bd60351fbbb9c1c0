"""Which requirement row a failed step breaks: not every row that its vector is about.

A story sets its stage with invitations, grants and streams, and is about something else. A gateway that opens
streams in its own way breaks the row of `stream/open` in all of them, and nothing is known about their other
rows. What the vector says of a step (`rows`) comes first. Otherwise the row follows from what was found: an
envelope that is not relayed, a list of rights that is not the given one, or the kind of message that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from moot.conformance.manifest import load_document
from moot.conformance.unspecified import rows_of_field
from moot.conformance.vectors import Vector, VectorStep

# `relay`: somebody does not hear what was accepted. `notice`: a message of the gateway is missing or differs.
# `unanswered`: what was refused is not told so. `step`: everything else, such as what is not refused.
Subject = Literal["relay", "notice", "unanswered", "step"]

# Matching envelopes are delivered.
_DELIVERY: Final = "MEW-4.2-1"
# The rights in a welcome are those that were configured.
_RIGHTS: Final = "MEW-5.2-4"
_RIGHTS_FIELDS: Final = ("you.capabilities", "your_capabilities", "participant.capabilities")
# A wrong token gets no connection.
_ADMISSION: Final = "MEW-5.2-2"
# An invitation's credentials are the inviter's; a closed stream carries nothing and is not listed; frames of
# a stream with targets are theirs alone.
_CREDENTIALS: Final = "MEW-3.6.6-6"
_CLOSED: Final = "MEW-3.10.4-5"
_CLOSED_LISTED: Final = "MEW-3.10.4-1"
_TARGETED: Final = "MEW-3.10.3-4"
# What is delivered names members by their runtime ids.
_RUNTIME_NAMES: Final = "MEW-3.6.4-7"
# Who is kicked is gone, and does not come back.
_KICKED: Final = "MEW-3.6.7-1"
# A violation of rights is answered; so is any other.
_ANSWERS: Final = {"capability_violation": "MEW-4.2-4"}
_OTHER_ANSWERS: Final = "MEW-8.1-11"
# What keeps a member from speaking; stories about other things use it to see who was meant.
_STATES: Final = {"participant_paused": "MEW-3.9.1-4", "participant_shutdown": "MEW-3.9.10-4"}
# MEW's sections by the first word of a kind.
_SECTIONS: Final = {
    "mcp": ("3.1", "3.2", "3.3"),
    "chat": ("3.4",),
    "reasoning": ("3.5",),
    "capability": ("3.6",),
    "space": ("3.6",),
    "system": ("3.7", "3.8"),
    "participant": ("3.9",),
    "stream": ("3.10",),
}


class Finding(NamedTuple):
    """What is different from what a step should cause."""

    text: str
    subject: Subject = "step"
    # Of the message in question, None: that of the step; the code of ours, if nothing is answered.
    kind: str | None = None
    # Why a gateway that others wrote may do so; None: it may not.
    open: str | None = None


def rows_broken(vector: Vector, step: VectorStep, found: Finding) -> Sequence[str]:
    """The rows that this step has broken: of the vector, or of what it only uses."""
    fields = step.rows if isinstance(step.rows, dict) else {}
    named = [row for field, row in fields.items() if field in found.text]
    if named:
        return named[:1]
    if any(field in found.text for field in _RIGHTS_FIELDS):
        return [_RIGHTS]
    if tell_tale := _tell_tale(vector, step, found):
        return [tell_tale]
    code = step.refused or ""
    if found.subject == "unanswered":
        return [_ANSWERS.get(found.kind or code, _OTHER_ANSWERS)]
    if fields_of_errors := list(rows_of_field(found.text, vector.rows, code, _kind_of(step))):
        return fields_of_errors[:1]
    if isinstance(step.rows, list):
        return step.rows
    if found.subject == "relay":
        return [_DELIVERY]
    kind = found.kind or _kind_of(step)
    own = [row for row in vector.rows if _is_about(row, kind)]
    if step.join is not None and "'refused'" in str(step.hear):
        return own or [_ADMISSION]
    state = _STATES.get(step.refused or "")
    if state is not None:
        return [state]
    if own or step.refused is not None:
        # That something is not refused is what a story is about.
        return own or vector.rows
    general = [row for row in vector.rows if not any(_is_in(row, each) for each in _SECTIONS)]
    base = _kind_rows().get(kind)
    if base is not None and (found.subject == "notice" or not general):
        return [base]
    return general or vector.rows


def _tell_tale(vector: Vector, step: VectorStep, found: Finding) -> str | None:
    """The row that is broken whatever the story is about."""
    if "hears besides: ['space/invite-ack" in found.text:
        return _CREDENTIALS
    before = vector.steps[: vector.steps.index(step)]
    kinds = [str((each.send or {}).get("kind")) for each in before]
    by_correlation = "MEW-3.10.4-3" in vector.rows
    if step.frame is not None and "not refused (stream_not_found)" in found.text and "stream/close" in kinds:
        return "MEW-3.10.4-3" if by_correlation else _CLOSED
    if ": to[" in found.text and "runtime_id" in str((vector.join, before)):
        return _RUNTIME_NAMES
    if "payload.active_streams: expected" in found.text and "stream/close" in kinds:
        return _CLOSED_LISTED
    gone = "'event': 'leave'" in found.text or "{'closed'" in found.text
    if (_kind_of(step) == "space/kick" and "does not hear" in found.text and gone) or (
        step.join is not None and "'refused'" in str(step.hear) and "space/kick" in kinds
    ):
        return _KICKED
    hears, besides, _ = found.text.partition(" hears besides: ")
    if step.frame is not None and besides and "'target': [" in str(before):
        kicked = [each.send for each in before if each.send and each.send.get("kind") == "space/kick"]
        return _KICKED if f"'{hears}'" in str(kicked) else _TARGETED
    return None


def _kind_of(step: VectorStep) -> str:
    if step.frame is not None:
        return "stream/data"
    if step.join is not None or step.leave is not None:
        return "system/presence"
    return str((step.send or {}).get("kind", ""))


def _is_about(row: str, kind: str) -> bool:
    return row == _kind_rows().get(kind) or _is_in(row, kind.partition("/")[0])


def _is_in(row: str, family: str) -> bool:
    return row.startswith(
        tuple(f"MEW-{section}{end}" for section in _SECTIONS.get(family, ()) for end in ".-")
    )


_rows_by_kind: dict[str, str] = {}


def _kind_rows() -> dict[str, str]:
    """MEW 3 has a row for every kind; its words begin with the kind."""
    if not _rows_by_kind:
        for id, row in load_document("mew").items():
            first = row.words.partition(" ")[0]
            if id.startswith("MEW-3-") and ("/" in first or first == "chat"):
                _rows_by_kind.setdefault(first, id)
    return _rows_by_kind
