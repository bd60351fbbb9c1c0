"""Who the people of a decision are, as far as they signed in at a provider: from the journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.store.journal_reader import read_records

if TYPE_CHECKING:
    from moot.trust.history.proposal_history import HistoryProposal

# Most records are of other kinds, and are not parsed.
_MARK = b'"in":"sign_in"'


def sign_in_notes(journal: Path, decision: HistoryProposal) -> list[str]:
    """How the proposer and whoever decided had signed in when they did; nothing of others."""
    names = {decision.case.proposer, decision.by, *decision.votes}
    until = decision.at if decision.at is not None else float("inf")
    found = last_sign_ins(journal, {name for name in names if name}, until)
    return [_in_words(name, details) for name, details in sorted(found.items())]


def last_sign_ins(journal: Path, names: Collection[str], until: float) -> dict[str, Mapping[str, Any]]:
    """By name, the last sign-in up to a time: issuer, subject, rule, client."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in read_records(journal):
        if _MARK not in record.line:
            continue
        fields = record.fields
        if fields.get("in") == "sign_in" and fields.get("who") in names and fields["t"] <= until:
            found[fields["who"]] = fields["sign_in"].get("details", {})
    return found


def _in_words(name: str, details: Mapping[str, Any]) -> str:
    client = f" with {details['client']}" if "client" in details else ""
    profile = f", profile {details['profile']}" if "profile" in details else ""
    return (
        f"{name} signed in at {details.get('issuer')} as {details.get('subject')}{client}"
        f" (rule {details.get('rule')} of gateway.oidc{profile})"
    )
