"""Approvals that are confirmed with a passkey: a part of ladder step 10."""

from __future__ import annotations

from moot.errors import PasskeyInvalid, PasskeyRequired
from moot.protocol.envelope import Envelope
from moot.space.config import Name
from moot.space.members.member import Session
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.state import State
from moot.space.tokens.passkey_proof import (
    CHALLENGE_SECONDS,
    Assertion,
    challenge_key,
    decision_challenge,
    read_assertion,
)


def check_passkey(
    state: State, session: Session, envelope: Envelope, proposal: ProposalRecord, now: float
) -> None:
    """Raises PasskeyRequired and PasskeyInvalid unless this very decision was signed by its sender's key."""
    given, name = envelope.payload.get("passkey"), session.member.name
    if given is None:
        has_one = bool(state.passkeys.of(name))
        raise PasskeyRequired(
            "this is approved with a passkey: open the proposal in the console and approve it there"
            if has_one
            else "this is approved with a passkey, and you have none in this space: add one in the console "
            "(Passkeys, below your name), or ask your operator for a link (moot passkeys link)",
            proposal_id=proposal.id,
            has_passkey=has_one,
        )
    if len(state.ledger.named_in(envelope.correlation_id)) != 1:
        raise PasskeyInvalid("a passkey confirms one proposal: approve them one by one")
    assertion = read_assertion(given)
    key = state.passkeys.find(name, assertion)
    if not now < assertion.expires <= now + CHALLENGE_SECONDS:
        raise PasskeyInvalid("this was confirmed too long ago: approve it again", proposal_id=proposal.id)
    challenge = _challenge_of(state, session, proposal, assertion)
    if challenge_key(challenge) in proposal.used_challenges:
        raise PasskeyInvalid("this was used before: approve it again", proposal_id=proposal.id)
    state.passkeys.verify(key, assertion, challenge)


def _challenge_of(state: State, session: Session, proposal: ProposalRecord, assertion: Assertion) -> bytes:
    nonce, expires = assertion.nonce, assertion.expires
    return decision_challenge(
        state.config.name, proposal, session.member.name, "approve", nonce=nonce, expires=expires
    )


def note_passkey(
    state: State,
    session: Session,
    envelope: Envelope,
    proposal: ProposalRecord,
    now: float,
    *,
    counted_as: Name | None,
) -> None:
    """Of an approval that was accepted: nobody uses the same signature again for a vote that counts."""
    if not proposal.passkey or "passkey" not in envelope.payload:
        return
    assertion = read_assertion(envelope.payload["passkey"])
    if counted_as is not None:
        proposal.confirmed_with[counted_as] = assertion.credential_id
        proposal.used_challenges.append(challenge_key(_challenge_of(state, session, proposal, assertion)))
    key = state.passkeys.by_id.get(assertion.credential_id)
    if key is not None:
        state.passkeys.note_use(key, assertion, now)
