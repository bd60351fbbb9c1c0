"""The message history after a restart, read from the journal (D-40).

Proposals outlive a restart, and so must their text: whoever polls, or comes back to decide, finds them as
if the gateway had never been away. Only messages to everybody come back. Messages to one member alone,
presence and frames do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from moot.errors import MootError
from moot.gateway.hosting.delivery import MessageHistory
from moot.gateway.hosting.membership_start import participants_of
from moot.gateway.hosting.stored_input import ACCEPTED, StoredInput, read_input
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, fill_missing, rfc3339
from moot.protocol.kinds import KINDS, UNKNOWN
from moot.space.config import SpaceConfig
from moot.space.effects import Deliver
from moot.space.last_vote import read_made
from moot.store.journal_reader import last_records


def restore_history(history: MessageHistory, folder: Path, config: SpaceConfig) -> None:
    """Fill the history of a space with the latest messages of its journal, each for who was a member."""
    listed: Collection[str] | None = None
    for stored in _accepted_inputs(folder, history.max_messages):
        history.restored_until = stored.t
        participants = participants_of(stored)
        if participants is not None:
            for name in participants.keys() - set(participants if listed is None else listed):
                history.hide_before(name, stored.t)
            listed = participants.keys()
        elif stored.input in ("rotate", "restore"):
            history.hide_before(stored.who, stored.t)
        elif stored.sign_in is not None and stored.sign_in.capabilities is not None:
            # Whether it was the first time stands further back, perhaps; the pages of the history know.
            if not history.visible_since(stored.who):
                history.hide_before(stored.who, stored.t)
        elif stored.input in ("receive", "post") and bytes(stored.raw):
            try:
                envelope = envelope_of(stored, config)
            except MootError:
                # Under other rules than today's; whoever wants it finds it in the journal.
                continue
            if envelope.kind == "space/invite":
                history.hide_before(str(envelope.payload.get("participant_id")), stored.t)
            if is_for_everybody(envelope.kind, config):
                history.add(stored.t, Deliver((), envelope), None)
            for made in stored.made:
                history.add(stored.t, Deliver((), read_made(bytes(made))), None)


def _accepted_inputs(folder: Path, count: int) -> Iterator[StoredInput]:
    for record in last_records(folder, count):
        try:
            stored = read_input(record.line)
        except MootError:
            continue
        if stored.out == ACCEPTED:
            yield stored


def envelope_of(stored: StoredInput, config: SpaceConfig) -> Envelope:
    """The envelope of a record, as members heard it; raises MootError under other rules than today's."""
    dialect = DIALECTS[stored.dialect]
    envelope = dialect.decode(
        bytes(stored.raw), config.limits.envelope, accept_protocols=config.accept_protocols
    )
    id = stored.mint[0] if stored.mint else ""
    return fill_missing(envelope, protocol=dialect.protocol, id=id, ts=rfc3339(stored.t), sender=stored.who)


def is_for_everybody(kind: str, config: SpaceConfig) -> bool:
    """Whether all members hear such messages; D-32: some a space keeps between those concerned."""
    if kind == "chat/acknowledge" and config.ack_delivery != "all":
        return False
    if kind == "participant/status" and config.status_delivery != "all":
        return False
    return KINDS.get(kind, UNKNOWN).relayed
