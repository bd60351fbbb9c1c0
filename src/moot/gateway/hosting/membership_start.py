"""Since which record somebody has been a member of a space, as far as the journal tells.

A member may read what was said while it was one, and nothing earlier (D-40). A running gateway knows when it
gave somebody a token; after a restart only the journal does. It is gone through once: what changes a token
or the list of participants starts over for whoever it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.errors import MootError, UsageError
from moot.gateway.hosting.stored_input import ACCEPTED, StoredInput, read_input
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from moot.protocol.operation import Json
from moot.store.journal_reader import read_blocks

# A block without any of these concerns no membership, and is not taken apart.
_SIGNS: Final = (
    b'"reload"',
    b'"state"',
    b'"repair"',
    b'"rotate"',
    b'"restore"',
    b'"sign_in"',
    b"invite",
    b"kick",
)
_MEMBERSHIP_KINDS: Final = frozenset({"space/invite", "space/kick"})

_Participants = Mapping[str, Mapping[str, Any]]


def membership_starts(folder: Path, opened_at: int) -> dict[str, int]:
    """The record from which on each participant may read; who is not in it was never admitted.

    `opened_at` is the first record of the running gateway: it keeps in memory what came later, and its
    participants have been here since then at least.
    """
    starts: dict[str, int] = {}
    listed: dict[str, Json] | None = None
    for number, stored in _membership_records(folder):
        participants = participants_of(stored)
        if participants is not None:
            credentials = {name: one.get("credentials") for name, one in participants.items()}
            # Nobody knows what was before the first list, except at the very beginning.
            earliest = number if listed is not None else 0 if number == 1 else min(number, opened_at)
            for name, given in credentials.items():
                if listed is None or name not in listed or listed[name] != given:
                    starts[name] = earliest
            listed = credentials
        elif stored.input in ("rotate", "restore"):
            starts[stored.who] = number
        elif stored.sign_in is not None:
            # Of each further token there is a record, too: the first one made them a member.
            starts.setdefault(stored.who, number)
        else:
            concerned = _concerned(stored)
            if concerned is not None:
                starts[concerned] = number
    return starts


def _membership_records(folder: Path) -> Iterator[tuple[int, StoredInput]]:
    for block in read_blocks(folder):
        if not any(sign in block.text for sign in _SIGNS):
            continue
        for record in block.records():
            if any(sign in record.line for sign in _SIGNS):
                try:
                    stored = read_input(record.line)
                except UsageError:
                    continue
                if stored.out == ACCEPTED:
                    yield record.number, stored


def participants_of(stored: StoredInput) -> _Participants | None:
    """Whom a record lists with the configuration, if it does."""
    config = stored.config
    if config is None and stored.input in ("state", "repair") and bytes(stored.state):
        config = msgspec.json.decode(stored.state).get("config")
    if not isinstance(config, dict) or stored.input not in ("reload", "state", "repair"):
        return None
    participants = config.get("participants")
    return participants if isinstance(participants, dict) else None


def _concerned(stored: StoredInput) -> str | None:
    """Whom an invitation or a removal concerns."""
    if stored.input not in ("receive", "post") or not bytes(stored.raw):
        return None
    try:
        raw = bytes(stored.raw)
        protocols = frozenset({str(msgspec.json.decode(raw).get("protocol", ""))})
        envelope = DIALECTS[stored.dialect].decode(raw, ANY_SIZE, accept_protocols=protocols)
    except (MootError, msgspec.MsgspecError):
        return None
    if envelope.kind not in _MEMBERSHIP_KINDS:
        return None
    name = envelope.payload.get("participant_id")
    return name if isinstance(name, str) else None
