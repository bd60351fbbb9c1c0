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
from moot.conformance.vectors import Vector, VectorStep

# `relay`: somebody does not hear what was accepted. `notice`: a message of the gateway is missing or differs.
# `step`: everything else, such as what should have been refused.
Subject = Literal["relay", "notice", "step"]

# Matching envelopes are delivered.
_DELIVERY: Final = "MEW-4.2-1"
# The rights in a welcome are those that were configured.
_RIGHTS: Final = "MEW-5.2-4"
_RIGHTS_FIELDS: Final = ("you.capabilities", "your_capabilities", "participant.capabilities")
# A wrong token gets no connection.
_ADMISSION: Final = "MEW-5.2-2"
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
    # Of the message in question; None: that of the step.
    kind: str | None = None


def rows_broken(vector: Vector, step: VectorStep, found: Finding) -> Sequence[str]:
    """The rows that this step has broken: of the vector, or of what it only uses."""
    fields = step.rows if isinstance(step.rows, dict) else {}
    named = [row for field, row in fields.items() if field in found.text]
    if named:
        return named[:1]
    if any(field in found.text for field in _RIGHTS_FIELDS):
        return [_RIGHTS]
    if isinstance(step.rows, list):
        return step.rows
    if found.subject == "relay":
        return [_DELIVERY]
    kind = found.kind or _kind_of(step)
    own = [row for row in vector.rows if _is_about(row, kind)]
    if step.join is not None and "'refused'" in str(step.hear):
        return own or [_ADMISSION]
    state = _STATES.get(step.refused or "")
    if state is not None and not any(_is_about(row, "participant/pause") for row in vector.rows):
        return [state]
    if own or step.refused is not None:
        # That something is not refused is what a story is about.
        return own or vector.rows
    general = [row for row in vector.rows if not any(_is_in(row, each) for each in _SECTIONS)]
    base = _kind_rows().get(kind)
    if base is not None and (found.subject == "notice" or not general):
        return [base]
    return general or vector.rows


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
