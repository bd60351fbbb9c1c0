"""One space: everyone sees every message, nobody does what their capabilities don't allow.

`Space` is a synchronous state machine. Every input (join, leave, receive, frame, expire, and what
an operator does) carries the time and a mint of fresh ids, and returns effects in the order in which they
are to be carried out. The same inputs in the same order give the same state and the same effects,
so restart, audit and clustering are replay.

Where to read on: `ladder` is what happens to an envelope, `acts/` what the gateway itself executes.
`roster`, `grant_table`, `stream_table`, `proposal_ledger` and `id_window` are the tables, `state` holds them
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from moot.errors import InvalidRequest, RateLimited, Refused, UnauthorizedStreamWrite, UsageError
from moot.protocol import payloads
from moot.protocol.close_codes import SHUT_DOWN, TRY_AGAIN
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import Frame
from moot.protocol.kinds import UNKNOWN
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.space.acts import control, membership, proposals, streams
from moot.space.config import Name, SessionId, SpaceConfig
from moot.space.effects import Deliver, Disconnect, Effect, Mint, Reply, Token
from moot.space.grants import grant_limits
from moot.space.grants.delegations import DelegationTable
from moot.space.grants.grant_table import GrantTable
from moot.space.id_window import IdWindow
from moot.space.inputs import operator_changes, passkey_changes, sign_in
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.ladder import check_may_send, process_envelope
from moot.space.last_vote import process_vote
from moot.space.members.member import Options, Session, SpaceMember
from moot.space.proposals.budgets import BudgetTable
from moot.space.proposals.effect_keys import EffectTable
from moot.space.proposals.offer_owners import OfferOwners
from moot.space.proposals.proposal_ledger import ProposalLedger
from moot.space.state import State
from moot.space.stream_table import StreamTable
from moot.space.tokens.passkeys import PasskeyTable
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken, TemporaryTokens


class Space:
    """One space: what members and operators do to it. Each method is one input, and returns its effects."""

    def __init__(self, config: SpaceConfig, *, saved: Mapping[str, Any] | None = None) -> None:
        """A new space, or with `saved` the one that `save` described, under the same configuration."""
        self.state = _new_state(config) if saved is None else load_state(config, dict(saved))

    def save(self) -> dict[str, Json]:
        """The whole state as JSON values; `Space(config, saved=…)` gives the same space back."""
        return save_state(self.state)

    def find_token_owner(self, token_hash: str) -> Name | None:
        """The member with this token, if there is one."""
        return sign_in.owner_of_token(self.state, token_hash)

    # Joining and leaving

    def join(
        self,
        session_id: SessionId,
        name: str,
        dialect: DialectName,
        options: Options,
        now: float,
        mint: Mint,
    ) -> list[Effect]:
        """Let an authenticated participant join; raises Refused when it may not join like this."""
        return membership.join(self.state, session_id, name, dialect, options, now, mint)

    def leave(self, session_id: SessionId, now: float, mint: Mint) -> list[Effect]:
        """A connection ended. Unknown sessions are ignored: the space may have ended them itself."""
        return membership.leave(self.state, session_id, now, mint)

    # Messages

    def receive(
        self,
        session_id: SessionId,
        envelope: Envelope,
        now: float,
        mint: Mint,
        *,
        made: Sequence[bytes] = (),
    ) -> list[Effect]:
        """Process one envelope of one session. Never raises Refused: a refusal is an effect.

        `made`: of a vote that is replayed, the requests that were made by it (`last_vote`).
        """
        session = self.state.roster.sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id} has not joined")
        if envelope.kind == "moot/approve":
            return process_vote(self.state, session, envelope, now, mint, made=made)
        return process_envelope(self.state, session, envelope, now, mint)

    def check_rate_ahead(self, who: str, now: float) -> None:
        """Raises RateLimited if whatever this member sends next is too fast. Counts nothing."""
        member = self.state.roster.members.get(Name(who))
        if member is not None:
            member.send_limiter.check_rate_ahead(now, self.state.send_rate)

    def count_malformed(self, session_id: SessionId, size: int, now: float) -> None:
        """Count something that is no envelope toward the sender's rate: it cost as much as one."""
        session = self.state.roster.sessions.get(session_id)
        if session is not None:
            with suppress(RateLimited):
                session.member.send_limiter.check_rate(size, now, self.state.send_rate)

    def refuse(self, session_id: SessionId, refusal: Refused, now: float, mint: Mint) -> list[Effect]:
        """Answer something that is no envelope: malformed bytes (step 1), a malformed frame."""
        session = self.state.roster.sessions.get(session_id)
        if session is None:
            return []
        payload = payloads.error(refusal, attempted_kind=refusal.kind)
        ids = [refusal.about] if refusal.about else []
        notice = self.state.notice(
            "system/error", payload, now, mint, to=[session.member.id], correlation_id=ids
        )
        return [Reply(session_id, notice)]

    # Frames (MEW 3.10.3): they read the state and never change it.

    def frame(self, session_id: SessionId, frame: Frame, now: float, mint: Mint) -> list[Effect]:
        """One stream frame from one session: to its targets, or to everybody (D-36)."""
        state = self.state
        session = state.roster.sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id} has not joined")
        member = session.member
        try:
            member.send_limiter.check_rate(len(frame.raw), now, state.send_rate)
            if not session.takes_frames:
                raise InvalidRequest("this connection takes no stream frames: connect with streams=1")
            if member.pause is not None or session.closing_at is not None:
                check_may_send(state, session, UNKNOWN, now)
            stream = state.streams.find(frame.stream_id)
            if member.name not in stream.writers:
                raise UnauthorizedStreamWrite(
                    f"{member.id} may not write to {stream.id}: ask its owner for stream/grant-write",
                    stream_id=stream.id,
                )
        except Refused as refusal:
            return self.refuse(session_id, refusal, now, mint)
        if stream.target is None:
            receivers = (state.roster.sessions[id] for id in state.audiences.everyone())
        else:
            members = (state.roster.members.get(name) for name in stream.target)
            receivers = (
                s for m in members if m is not None for s in m.sessions.values() if not s.options.injected
            )
        sessions = tuple(s.id for s in receivers if s.takes_frames and (s is not session or s.options.echo))
        return [Deliver(sessions, frame)]

    def note_poll(self, who: str, now: float) -> list[Effect]:
        """A member polled over HTTP: it hears what is sent to it now, if it has no connection for that."""
        membership.note_poll(self.state, Name(who), now)
        return []

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` should next be called, if nothing else happens."""
        return self.state.deadlines.next_deadline()

    def is_due(self, now: float) -> bool:
        """Whether a deadline has come."""
        return self.state.deadlines.is_due(now)

    def expire(self, now: float, mint: Mint) -> list[Effect]:
        """Apply deadlines: requests, proposals and grants expire, pauses end, sessions and streams close."""
        state = self.state
        effects: list[Effect] = []
        for what, key in state.deadlines.pop_due(now):
            if what == "request":
                state.expire_pending_answers(key)
                effects += state.lose_track(state.ledger.executed_by(key), "timed_out", now, mint)
            elif what == "execution":
                effects += state.lose_track(state.ledger.executed_by(key), "timed_out", now, mint)
            elif what == "proposal":
                proposals.expire_proposal(state, key, now)
            elif what == "pause":
                member = state.roster.members.get(Name(key))
                if member is not None and member.pause is not None and member.pause_is_over(now):
                    control.lift_pause(state, member)
            elif what == "grant":
                # None: an earlier deadline removed the guest who held it.
                grant = state.grants.by_id.get(key)
                effects += grant_limits.end_grants(state, [grant] if grant else [], "expired", now, mint)
            elif what == "token":
                effects += membership.end_tokens(state, [key], membership.ENDED, now, mint)
            elif what == "poll":
                effects += membership.stop_polling(state, Name(key), now, mint)
            elif what == "shutdown":
                session = state.roster.sessions.get(SessionId(key))
                if session is not None and session.closing_at is not None and session.closing_at <= now:
                    effects.append(Disconnect(session.id, SHUT_DOWN, "shut down on request"))
                    effects += membership.remove_session(state, session, now, mint)
            else:
                stream = state.streams.open.get(key)
                if stream is not None and stream.closes_at is not None and stream.closes_at <= now:
                    effects += streams.close_by_gateway(state, stream, "owner_disconnected", now, mint)
        return effects

    def note_wall_clock(self, wall: float, now: float, mint: Mint) -> list[Effect]:
        """The wall clock was set. Grants and tokens until a time that has passed by now end.

        A machine without a battery starts with an old time and is told the right one later: a stop may
        have lasted longer than it seemed.
        """
        state = self.state
        latest = max(wall, now)
        over = [grant for grant in state.grants.by_id.values() if grant.is_over(latest)]
        effects = grant_limits.end_grants(state, over, "expired", now, mint)
        state.delegations.end_before(latest)
        ended = [
            token.hash for token in state.temporary_tokens.by_hash.values() if token.expires_at <= latest
        ]
        return effects + membership.end_tokens(state, ended, membership.ENDED, now, mint)

    # What operators do

    def reload(self, config: SpaceConfig, now: float, mint: Mint) -> list[Effect]:
        """Take a new configuration over. Who is no longer named is removed.

        Sessions that a token admitted which is void now are ended, those whose token carries other rights now
        are told (D-101), guests have what guests may do now, or leave if there are to be none; everybody else
        stays connected. Invited members and grants stay, and so does what
        an operator changed since, unless the configuration itself says something else now.
        """
        return operator_changes.reload(self.state, config, now, mint)

    def change_capabilities(
        self,
        name: str,
        add: Sequence[Capability],
        remove: Sequence[Capability],
        by: str,
        now: float,
        mint: Mint,
    ) -> list[Effect]:
        """MCPx 10.3, D-55: change a member's static rights, all or nothing; dependent grants go too."""
        return operator_changes.change_capabilities(self.state, name, add, remove, by, now, mint)

    def restore_member(self, name: str, mint: Mint, *, drops_added: bool = True) -> list[Effect]:
        """D-24: undo a kick, without what an administrator had added; a new token is minted."""
        return operator_changes.restore_member(self.state, name, mint, drops_added=drops_added)

    def begin_like(self, model: Space) -> None:
        """Before anything happens here: who was removed from the model is, and its void tokens are void.

        Also those who sign in: a token of their provider that was revoked there lets nobody in here.
        """
        roster = self.state.roster
        for other in model.state.roster.members.values():
            if other.kicked and other.subject is not None and other.name not in roster.members:
                removed = SpaceMember(other.name)
                removed.subject = other.subject
                roster.add(removed)
        self.state.temporary_tokens.begin_like(model.state.temporary_tokens)
        for name, member in roster.members.items():
            known = model.state.roster.members.get(name)
            held = () if known is None else known.credentials
            roster.set_credentials(member, tuple(each for each in member.credentials if each in held))
            member.kicked = known is None or known.kicked

    def rotate_credential(
        self, name: str, token: Token, now: float, mint: Mint, *, keep: bool
    ) -> list[Effect]:
        """Give a member another token; without `keep` the earlier ones end now, and their sessions too."""
        return operator_changes.rotate_credential(self.state, name, token, now, mint, keep=keep)

    def restart(self, now: float, mint: Mint, *, clock_lost: bool = False) -> list[Effect]:
        """The gateway restarted without its connections: everyone has left, and streams end with a reason.

        `clock_lost`: nobody can tell how long it was stopped, so that whatever was granted for a time ends.
        """
        effects = self.state.lose_track(self.state.ledger.unresolved(), "gateway_restarted", now, mint)
        for stream in list(self.state.streams.open.values()):
            effects += streams.close_by_gateway(self.state, stream, "gateway_restarted", now, mint)
        for session in list(self.state.roster.sessions):
            effects += membership.leave(self.state, session, now, mint)
        if clock_lost:
            timed = [grant for grant in self.state.grants.by_id.values() if grant.expires is not None]
            effects += grant_limits.end_grants(self.state, timed, "clock_lost", now, mint)
            self.state.delegations.end_before(float("inf"))
        for member in self.state.roster:
            member.polling_until = 0.0
        sign_in.restart(self.state, clock_lost=clock_lost)
        return effects

    def drop_sessions(self, sessions: Sequence[SessionId], now: float, mint: Mint) -> list[Effect]:
        """The gateway that held these connections is gone: their members have left (in a cluster)."""
        effects: list[Effect] = []
        for session in sessions:
            if session in self.state.roster.sessions:
                # Should it still be there, cut off from the others, then it closes them when it hears this.
                effects.append(Disconnect(session, TRY_AGAIN, "this gateway was cut off: connect again"))
                effects += membership.leave(self.state, session, now, mint)
        return effects

    # Tokens that end by themselves

    def sign_in(self, who: SignIn, now: float, mint: Mint) -> list[Effect]:
        """Admit somebody whom a provider of identities knows; raises Refused when they may not come in."""
        return sign_in.sign_in(self.state, who, now, mint)

    def add_token(self, token: TemporaryToken) -> list[Effect]:
        """Give a member a short-lived token; raises Refused."""
        sign_in.add_token(self.state, token)
        return []

    def add_passkey(self, told: PasskeyInput, now: float) -> list[Effect]:
        """Let a member have a passkey (more); raises Refused."""
        return passkey_changes.add_passkey(self.state, told, now)

    def remove_passkeys(self, ids: Sequence[str], now: float, mint: Mint) -> list[Effect]:
        """Remove passkeys, and end what was signed in with them."""
        return passkey_changes.remove_passkeys(self.state, ids, now, mint)

    def sign_in_with_passkey(self, told: PasskeyInput, now: float) -> list[Effect]:
        """Give the owner of a passkey a short-lived token; raises Refused."""
        return passkey_changes.sign_in_with_passkey(self.state, told, now)

    def sign_out(
        self,
        keys: Sequence[str],
        *,
        issued_before: float,
        forget_at: float,
        now: float,
        mint: Mint,
        tokens: Sequence[str] = (),
    ) -> list[Effect]:
        """End what was signed in under these keys, for good if issued before; and these tokens."""
        effects = sign_in.sign_out(
            self.state, list(keys), issued_before=issued_before, forget_at=forget_at, now=now, mint=mint
        )
        return effects + sign_in.revoke_tokens(self.state, tokens, now, mint)

    def renew(self, session_id: SessionId, token_hash: str, now: float, mint: Mint) -> list[Effect]:
        """Let a session go on under a newer token of the same person; raises Refused."""
        return sign_in.renew(self.state, session_id, token_hash, now, mint)

    def health(self, *, journal_writable: bool) -> list[Effect]:
        """D-85: whether the journal can be written decides what is accepted."""
        self.state.journal_writable = journal_writable
        self.state.verdicts_changed()
        return []


def _new_state(config: SpaceConfig) -> State:
    state = State(config)
    for name, participant in config.participants.items():
        member = SpaceMember(Name(name), participant.capabilities, exclusive=participant.exclusive)
        member.configured = participant
        member.credentials = participant.credentials
        state.roster.add(member)
    for member in state.roster:
        state.refresh(member)
    return state


def save_state(state: State) -> dict[str, Json]:
    return {
        "members": [member.save() for member in state.roster],
        "sessions": [session.save() for session in state.roster.sessions.values()],
        "grants": state.grants.save(),
        "streams": state.streams.save(),
        "ledger": state.ledger.save(),
        "window": state.window.save(),
        "temporary_tokens": state.temporary_tokens.save(),
        "offer_owners": state.offer_owners.save(),
        "journal_able": state.journal_writable,
        "sessions_joined": state.sessions_joined,
        "deadlines": state.deadlines.save(),
        # Left out while there is nothing: gateways of an earlier version compare what they know.
        **({"budgets": saved} if (saved := state.budgets.save()) else {}),
        **({"effects": saved} if (saved := state.effects.save()) else {}),
        **({"passkeys": keys} if (keys := state.passkeys.save()) else {}),
        **({"delegations": state.delegations.save()} if state.delegations else {}),
    }


def load_state(config: SpaceConfig, saved: dict[str, Any]) -> State:
    state = State(config)
    for row in saved["members"]:
        state.roster.add(SpaceMember.load(row))
    state.roster.aliases = {member.id: member for member in state.roster if member.id != member.name}
    state.temporary_tokens = TemporaryTokens.load(saved.get("temporary_tokens", {}))
    for row in saved["sessions"]:
        member = state.roster.members[row["member"]]
        # Without a number: saved by 0.1.
        number = row.get("number", 0)
        options = msgspec.convert(row["options"], Options)
        rights = state.token_rights(options.token)
        session = Session(row["id"], member, row["dialect"], options, number, rights)
        session.closing_at = row["closing_at"]
        member.sessions[session.id] = session
        state.roster.sessions[session.id] = session
    state.grants = GrantTable.load(saved["grants"])
    state.streams = StreamTable.load(saved["streams"])
    state.ledger = ProposalLedger.load(saved["ledger"])
    state.window = IdWindow.load(saved["window"], config.limits.max_recent_ids)
    pinned = state.window.pinned
    for request in state.ledger.resume_executions(lambda name: pinned[name].owed if name in pinned else ()):
        state.window.pin(request, pinned[request])
    state.offer_owners = OfferOwners.load(saved.get("offer_owners", ()))
    state.budgets = BudgetTable.load(saved.get("budgets", ()))
    state.effects = EffectTable.load(saved.get("effects", ()))
    state.passkeys = PasskeyTable.load(saved.get("passkeys", {}))
    state.delegations = DelegationTable.load(saved.get("delegations", []))
    state.journal_writable = saved["journal_able"]
    state.sessions_joined = saved.get("sessions_joined", 0)
    for when, what, key in saved["deadlines"]:
        state.deadlines.schedule(when, what, key)
    for member in state.roster:
        state.refresh(member)
    return state
