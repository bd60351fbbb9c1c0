"""The ledger of a journal: the one module here that reads a disk.

Refused envelopes decided nothing and are passed over. A journal of another time may hold what no dialect
reads any more; such a record is passed over, too, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import EnvelopeLimits
from moot.store.journal_reader import JournalRecord, read_records
from moot.trust.decision_ledger import MAX_DECISIONS, PROPOSAL_SECONDS, RULE_KINDS, Decision, DecisionLedger

# What was accepted once is read again, whatever the limits are now.
_ANY_SIZE: Final = EnvelopeLimits(**dict.fromkeys(EnvelopeLimits.__struct_fields__, 1 << 62))
_SPOKEN: Final = frozenset({"receive", "post"})
# The wire kinds of MCPx and m3p begin or are spelled otherwise; these parts tell them all.
_WANTED: Final = ("mcp", "moot/approve", "space/kick", *sorted(RULE_KINDS))


class JournalReader:
    """Feeds records to a ledger; `skipped` counts those that could not be read."""

    def __init__(self, ledger: DecisionLedger) -> None:
        self.ledger = ledger
        self.position = 0
        self.skipped = 0

    def take(self, record: JournalRecord) -> None:
        """One record, in the order of their numbers."""
        self.position = record.number
        if record.text("out") not in ("", "accepted"):
            return
        if record.text("in") not in _SPOKEN:
            if record.text("in") == "expire":
                self.ledger.pass_time(record.time)
            return
        if not record.kind.startswith(_WANTED):
            return
        raw = record.envelope
        spoken_in = record.text("dialect") or "mew"
        dialect = next((dialect for name, dialect in DIALECTS.items() if name == spoken_in), None)
        if raw is None or dialect is None:
            self.skipped += 1
            return
        try:
            # Whatever version it names, it was accepted.
            spoken = frozenset(p for p in (record.envelope_fields.get("protocol"),) if isinstance(p, str))
            envelope = dialect.decode(raw, _ANY_SIZE, accept_protocols=spoken)
        except MalformedEnvelope:
            self.skipped += 1
            return
        if not envelope.id:
            # The gateway gave it one; the journal has it beside the sender's own bytes.
            envelope = msgspec.structs.replace(envelope, id=record.id)
        self.ledger.hear(envelope, record.time, sender=record.text("who"))

    def take_all(self, records: Iterable[JournalRecord]) -> None:
        for record in records:
            self.take(record)

    def catch_up(self, folder: Path) -> None:
        """What the journal holds since the last call."""
        self.take_all(read_records(folder, self.position))


def ledger_of(
    folder: Path,
    *,
    now: float | None = None,
    proposal_seconds: float = PROPOSAL_SECONDS,
    most: int = MAX_DECISIONS,
    on_change: Callable[[Decision], None] | None = None,
) -> DecisionLedger:
    """All decisions of a journal folder (`DATA/spaces/NAME/journal`); `now` lets open ones expire."""
    ledger = DecisionLedger(proposal_seconds=proposal_seconds, most=most, on_change=on_change)
    JournalReader(ledger).take_all(read_records(folder))
    if now is not None:
        ledger.pass_time(now)
    return ledger
