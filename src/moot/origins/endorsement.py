"""A person's word that a value, or all that one source says, is fine: bounded, visible, revocable.

`moot/endorse` carries it: `{"value": …}` or `{"source": ENVELOPE}`, with `task`, `member` and `until` to
bound it, or `{"revoke": ENVELOPE}`. It needs a right of its own; rules and agents never endorse.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from moot.origins.value_keys import number_text
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.origin_report import ENDORSE_SECONDS

MAX_ENDORSEMENTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Endorsement:
    """Exactly one of `value` and `source` is set. Empty `task` and `member`: any."""

    id: str
    by: str
    at: float
    until: float
    value: str | None = None
    source: str | None = None
    task: str = ""
    member: str = ""

    def holds(self, *, task: str, member: str, now: float) -> bool:
        return now < self.until and self.task in ("", task) and self.member in ("", member)


class _Payload(msgspec.Struct):
    value: str | int | float | None = None
    source: str | None = None
    task: str | None = None
    member: str | None = None
    until: Json = None


def read_endorsement(envelope: Envelope, at: float) -> Endorsement | None:
    """What a `moot/endorse` says; None if it says nothing that can be understood."""
    try:
        said = msgspec.convert(envelope.payload, _Payload)
    except msgspec.ValidationError:
        return None
    value = said.value
    if (value is None) == (said.source is None):
        return None
    return Endorsement(
        envelope.id, envelope.sender, at, _until(said.until, at),
        value=value if value is None or isinstance(value, str) else number_text(value), source=said.source,
        task=said.task or "", member=said.member or "",
    )  # fmt: skip


def _until(value: Json, at: float) -> float:
    # Nobody remembers next week what they endorsed today.
    most = at + ENDORSE_SECONDS
    if not isinstance(value, str):
        return most
    try:
        until = datetime.fromisoformat(value)
    except ValueError:
        return at
    # Without a zone it would end at another time on another gateway.
    return at if until.tzinfo is None else min(most, until.timestamp())
