"""The message history after a restart, read from the journal (D-40).

Proposals outlive a restart, and so must their text: whoever polls, or comes back to decide, finds them as
if the gateway had never been away. Only messages to everybody come back. Messages to one member alone,
presence and frames do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from moot.errors import MootError
from moot.gateway.delivery import MessageHistory
from moot.gateway.space_records import ACCEPTED, StoredInput, read_input
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, fill_missing, rfc3339
from moot.protocol.kinds import KINDS, UNKNOWN
from moot.space.config import SpaceConfig
from moot.space.effects import Deliver
from moot.store.journal_reader import last_records


def restore_history(history: MessageHistory, folder: Path, config: SpaceConfig) -> None:
    """Fill the history of a space with the latest messages of its journal."""
    for at, envelope in _accepted_envelopes(folder, history.max_messages, config):
        if envelope.kind == "space/invite":
            history.hide_before(str(envelope.payload.get("participant_id")), at)
        if is_for_everybody(envelope.kind, config):
            history.add(at, Deliver((), envelope), None)


def _accepted_envelopes(folder: Path, count: int, config: SpaceConfig) -> Iterator[tuple[float, Envelope]]:
    for record in last_records(folder, count):
        try:
            stored = read_input(record.line)
            if stored.input in ("receive", "post") and stored.out == ACCEPTED and bytes(stored.raw):
                yield stored.t, envelope_of(stored, config)
        except MootError:
            # Under other rules than today's; whoever wants it finds it in the journal.
            continue


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
