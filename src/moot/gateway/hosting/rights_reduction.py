"""Acts that reduce rights, applied without asking who did them: for records that cannot be replayed (D-98).

When a journal has a hole, the state behind it is not known, so that the records behind it cannot be replayed.
But each of them says that something was accepted. What took rights away is applied all the same; what
gave rights is not. So rights come out narrower than they were, never wider.
"""

from __future__ import annotations

from moot.errors import Refused, UsageError
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.stored_input import StoredInput, stored_capabilities
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import KINDS, UNKNOWN
from moot.protocol.patterns import covers, read_capabilities
from moot.space.acts.delegations import end_delegation
from moot.space.acts.membership import remove_member
from moot.space.acts.requests import charges_of, uses_of
from moot.space.config_json import load_config
from moot.space.effects import Token
from moot.space.id_window import SeenEnvelope
from moot.space.last_vote import read_made
from moot.space.members.member import PauseRecord
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.space import Space


def describe_reduction(stored: StoredInput) -> str | None:
    """What an input takes away, in a few words; None when it takes nothing away."""
    if stored.input == "capabilities" and stored.remove:
        return f"{stored.by or 'an administrator'} removed capabilities of {stored.who}"
    if stored.input == "rotate" and not stored.keep:
        return f"the token of {stored.who} was replaced"
    if stored.input == "sign_out":
        return f"{stored.by or 'somebody'} signed somebody out"
    if stored.input == "passkey_remove":
        return f"{stored.by or 'somebody'} removed a passkey of {stored.who}"
    if stored.input == "passkey_add":
        return f"a passkey of {stored.who} is lost: the next one comes by a link"
    if stored.input == "reload" and stored.config is not None:
        return "a configuration was loaded"
    envelope = _envelope_of(stored)
    if envelope is None:
        return None
    if not (KINDS.get(envelope.kind, UNKNOWN).shrinks_rights or _fulfilments(stored, envelope)):
        return None
    about = envelope.payload.get("participant_id") or envelope.payload.get("recipient")
    named = about if isinstance(about, str) else ", ".join([*envelope.to, *envelope.correlation_id])
    return f"{envelope.kind} by {stored.who}" + (f" on {named}" if named else "")


def reduce_rights(space: Space, stored: StoredInput) -> None:
    """Apply what this input takes away, as far as what it names is known here."""
    try:
        _reduce(space, stored)
    except (Refused, UsageError, ValueError):
        # It names what is not here: there is nothing to take away.
        return


def _reduce(space: Space, stored: StoredInput) -> None:
    state, now, mint = space.state, stored.t, FreshMint()
    match stored.input:
        case "capabilities":
            remove = stored_capabilities(stored.remove)
            space.change_capabilities(stored.who, (), remove, stored.by, now, mint)
        case "sign_out":
            space.sign_out(
                stored.keys,
                issued_before=stored.issued_before,
                forget_at=stored.forget_at,
                now=now,
                mint=mint,
                tokens=stored.tokens,
            )
        case "passkey_remove" if stored.passkey is not None:
            space.remove_passkeys(stored.passkey.ids, now, mint)
        case "passkey_add" if stored.passkey is not None and stored.passkey.key is not None:
            # The key is lost; whoever had one gets the next by a link.
            state.passkeys.known.add(stored.passkey.key.member)
        case "rotate" if not stored.keep:
            space.rotate_credential(stored.who, Token(stored.tokens[0]), now, mint, keep=False)
        case "reload" if stored.config is not None:
            space.reload(load_config(stored.config), now, mint)
        case _:
            envelope = _envelope_of(stored)
            if envelope is None:
                return
            for made in _requests(stored, envelope):
                sender, to = state.roster.find(stored.who).name, state.resolve_names(made.to)
                state.budgets.count(charges_of(state, sender, made), now)
                state.effects.record(uses_of(state, made), made.id, sender, None, to, now)
            if envelope.kind == "space/kick":
                member = state.roster.find(str(envelope.payload.get("participant_id")))
                remove_member(state, member, "kicked", now, mint)
            elif envelope.kind == "capability/revoke":
                _revoke(space, stored, envelope)
            elif envelope.kind == "participant/pause":
                _pause(space, stored, envelope)
            elif envelope.kind == "moot/end-delegation":
                end_delegation(state, state.roster.find(stored.who).name, envelope)
            elif envelope.kind == "mcp/withdraw":
                for proposal in _open_ones(space, envelope):
                    state.settle_proposal(proposal, "withdrawn", envelope.id, now)
            elif fulfilments := _fulfilments(stored, envelope):
                author = state.roster.find(stored.who).name
                for request in fulfilments:
                    seen = SeenEnvelope(author, request.kind)
                    for proposal in _open_ones(space, request):
                        # D-99: it was carried out as far as anybody knows, and the answer is not known.
                        asked = state.resolve_names(request.to)
                        state.fulfil_proposal(proposal, request.id, seen, asked, now)
                        state.ledger.lose_track(proposal, "gateway_restarted", now)
            elif envelope.kind == "mcp/reject":
                for proposal in state.ledger.named_in(envelope.correlation_id):
                    who = state.roster.find(stored.who).name
                    state.ledger.reject(proposal, who, envelope.payload.get("reason"), now)


def _revoke(space: Space, stored: StoredInput, envelope: Envelope) -> None:
    """Without asking whose grant it is: at that time it was allowed."""
    state, payload = space.state, envelope.payload
    recipient = state.roster.find(str(payload.get("recipient")))
    grant_id = payload.get("grant_id")
    patterns = (
        () if grant_id is not None else read_capabilities(payload.get("capabilities"), place=stored.dialect)
    )
    for grant in state.grants.to(recipient.name):
        if grant_id is not None:
            left = () if grant.id == grant_id else grant.capabilities
        else:
            left = tuple(c for c in grant.capabilities if not any(covers(p, c) for p in patterns))
        if left != grant.capabilities:
            state.grants.keep(grant.id, left)
            state.forget_grant(grant)
    state.revoke_unsupported()


def _pause(space: Space, stored: StoredInput, envelope: Envelope) -> None:
    seconds = envelope.payload.get("timeout_seconds")
    until = stored.t + float(seconds) if isinstance(seconds, int | float) else None
    for name in envelope.to:
        member = space.state.roster.resolve(name)
        if member is not None and (member.pause is None or member.pause.until is not None):
            member.pause = PauseRecord(envelope.id, space.state.roster.find(stored.who).name, until)
            if until is not None:
                space.state.deadlines.schedule(until, "pause", member.name)
    space.state.verdicts_changed()


def _open_ones(space: Space, envelope: Envelope) -> list[ProposalRecord]:
    named = space.state.ledger.named_in(envelope.correlation_id)
    return [proposal for proposal in named if proposal.state == "open"]


def _fulfilments(stored: StoredInput, envelope: Envelope) -> list[Envelope]:
    """The requests that may have carried a proposal out: it must not be carried out again."""
    return [each for each in _requests(stored, envelope) if each.correlation_id]


def _requests(stored: StoredInput, envelope: Envelope) -> list[Envelope]:
    # The last vote of a quorum makes one.
    return [envelope] if envelope.kind == "mcp/request" else [read_made(bytes(each)) for each in stored.made]


def _envelope_of(stored: StoredInput) -> Envelope | None:
    if stored.input not in ("receive", "post") or stored.out != "accepted" or not bytes(stored.raw):
        return None
    try:
        return DIALECTS[stored.dialect].decode(bytes(stored.raw))
    except Refused:
        return None
