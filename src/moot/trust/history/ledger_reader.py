"""Reads the decisions of a journal into a ledger.

Refused envelopes decided nothing and are skipped. Records that no dialect can read are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, rfc3339
from moot.protocol.gateway_proposal import GatewayProposal
from moot.protocol.proposal_life import RULE_KINDS
from moot.space.proposals.proposal_ledger import ProposalLedger, ProposalRecord
from moot.store.journal_reader import JournalRecord, read_records
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory

_MESSAGE_INPUTS: Final = frozenset({"receive", "post"})
# Prefixes that cover the spellings of all dialects.
_KIND_PREFIXES: Final = ("mcp", "moot/approve", "moot/settle", "space/kick", *sorted(RULE_KINDS))


class JournalReader:
    """Feeds records to a ledger; `skipped` counts those that could not be read."""

    def __init__(self, ledger: ProposalHistory) -> None:
        self.ledger = ledger
        self.position = 0
        self.skipped = 0

    def read(self, record: JournalRecord) -> HistoryProposal | None:
        """Read one record, in the order of their numbers; returns the proposal that it is about, if any."""
        self.position = record.number
        # Of an erased one, who decided what is left.
        if record.text("out") not in ("", "accepted", "erased"):
            return None
        if record.text("in") not in _MESSAGE_INPUTS:
            if record.text("in") == "expire":
                self.ledger.advance(record.time)
            elif record.text("in") == "state":
                self._restore(record)
            return None
        if not record.kind.startswith(_KIND_PREFIXES):
            return None
        raw = record.envelope
        dialect_name = record.text("dialect") or "mew"
        dialect = next((dialect for name, dialect in DIALECTS.items() if name == dialect_name), None)
        if raw is None or dialect is None:
            self.skipped += 1
            return None
        try:
            # Whatever version it names, it was accepted.
            protocols = frozenset(p for p in (record.envelope_fields.get("protocol"),) if isinstance(p, str))
            envelope = dialect.decode(raw, ANY_SIZE, accept_protocols=protocols)
        except MalformedEnvelope:
            self.skipped += 1
            return None
        if not envelope.id:
            # The gateway gave it one; the journal has it beside the sender's own bytes.
            envelope = msgspec.structs.replace(envelope, id=record.id)
        about = self.ledger.observe(envelope, record.time, sender=record.text("who"))
        for made in record.made if envelope.kind == "moot/approve" else ():
            request = DIALECTS["mew"].decode(made, ANY_SIZE)
            self.ledger.observe(request, record.time, sender=record.text("who"))
        return about

    def _restore(self, record: JournalRecord) -> None:
        """What was decided where this journal has a gap is in no record of it, but the space knew it then."""
        state = record.fields.get("state")
        saved = state.get("ledger") if isinstance(state, dict) else None
        known = ProposalLedger.load(saved).proposals if isinstance(saved, dict) else {}
        for life in self.ledger:
            if life.status == "withdrawn" or life.outcome in ("done", "failed"):
                continue
            found, was_fulfilled = known.get(life.id), life.status == "fulfilled"
            if found is None:
                self.ledger.forget(life.id, record.time)
                continue
            told = _as_told(found, heard={each.by for each in life.rejections})
            self.ledger.restore_known(told, found.settled_at or record.time)
            life.is_restored = life.status == "fulfilled" and not was_fulfilled

    def read_all(self, records: Iterable[JournalRecord]) -> None:
        for record in records:
            self.read(record)

    def catch_up(self, folder: Path) -> None:
        """Read what the journal has since the last call."""
        self.read_all(read_records(folder, self.position))


def _as_told(record: ProposalRecord, *, heard: Collection[str]) -> GatewayProposal:
    """As the gateway tells it; `heard`: whose rejections are known, with the rules behind them."""
    rejected_by = [each for each in record.rejected_by if each not in heard]
    return GatewayProposal(
        record.id,
        record.state,
        expires_at=rfc3339(record.expires),
        approvals_needed=record.approvals_needed,
        approvals_missing=record.approvals_missing(),
        exempt=[*record.exempt],
        counters=[*record.counters],
        changed_by=record.changed_by,
        approved_by=[*record.approved_by],
        rejected_by=[*rejected_by],
        reject_reasons=[record.reject_reasons.get(by, "other") for by in rejected_by],
        settled_by=record.settled_by,
        fulfilled_by=record.fulfilled_by,
        asked=[*record.asked],
        waiting_for=[*record.waiting],
        outcome=record.outcome,
        reason=record.reason,
        wants_input=record.wanted_input is not None,
        failed=record.failed,
        assessed_by=record.assessed_by,
        note=record.note,
    )


def read_ledger(folder: Path, *, now: float | None = None) -> ProposalHistory:
    """Read all decisions of a journal folder (`DATA/spaces/NAME/journal`); `now` expires open ones."""
    ledger = ProposalHistory()
    JournalReader(ledger).read_all(read_records(folder))
    if now is not None:
        ledger.advance(now)
    return ledger
