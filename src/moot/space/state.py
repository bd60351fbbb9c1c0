"""The tables of one space, and what every step needs from them: rights, audiences, notices, deadlines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from moot.protocol.envelope import rfc3339
from moot.protocol.kinds import UNSUPPORTED_BY_LEGACY
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Rights, read_capability
from moot.protocol.payloads import GatewayNotice
from moot.space.audiences import Audiences
from moot.space.config import Name, SessionId, SpaceConfig
from moot.space.deadlines import Deadline, Deadlines
from moot.space.effects import Deliver, Effect, Mint
from moot.space.grants.delegations import DelegationTable
from moot.space.grants.grant_table import GrantRecord, GrantTable
from moot.space.id_window import IdWindow, SeenEnvelope
from moot.space.members.member import Session, SpaceMember, TokenRights, load_capabilities
from moot.space.members.roster import SpaceRoster
from moot.space.members.send_rate import UNLIMITED, SendRate, SendRateLimiter
from moot.space.proposals.budgets import BudgetTable
from moot.space.proposals.call_rules import SpaceRules
from moot.space.proposals.effect_keys import EffectTable, describe_open
from moot.space.proposals.offer_owners import OfferOwners
from moot.space.proposals.proposal_ledger import ProposalLedger, ProposalRecord, Settled, UnknownReason
from moot.space.stream_table import StreamRecord, StreamTable
from moot.space.tokens.passkeys import PasskeyTable
from moot.space.tokens.temporary_tokens import TemporaryTokens

# What counts against max_open_requests. Not what stops or frees a member: that is never refused for a limit.
COUNTED: Final = frozenset({"mcp/request", *UNSUPPORTED_BY_LEGACY})

# D-14: existing clients look for this very entry among a tool's capabilities.
_COMPAT_BASELINE = read_capability({"kind": "mcp/response"})


class State:
    """Everything a space knows. Only `Space` and its acts change it."""

    def __init__(self, config: SpaceConfig) -> None:
        self.config = config
        self.rules = SpaceRules(config)
        self.limits = config.limits
        self._configured_rate = self.send_rate = SendRate.of(config.limits)
        self._rate_at_edge = False
        # Of all guests together: whoever is known by nothing could come as many.
        self.guest_limiter = SendRateLimiter()
        self.roster = SpaceRoster()
        self.grants = GrantTable()
        self.streams = StreamTable()
        self.ledger = ProposalLedger()
        self.window = IdWindow(config.limits.max_recent_ids)
        self.temporary_tokens = TemporaryTokens()
        self.offer_owners = OfferOwners()
        self.budgets = BudgetTable()
        self.effects = EffectTable()
        self.passkeys = PasskeyTable()
        self.delegations = DelegationTable()
        self.journal_writable = True
        # How many sessions have joined, but for posts: the number of the last one.
        self.sessions_joined = 0
        # Set while the journal is played again: what was accepted once is not held against later rules.
        self.replaying = False
        self.deadlines = Deadlines(self._is_live)
        self.audiences = Audiences(self)
        # Counts up with every change of what the ladder's verdict on later envelopes depends on, so that a
        # verdict may be kept while it stays the same (the fast path does).
        self.verdict_epoch = 0

    def verdicts_changed(self) -> None:
        """Call after any change of members, rights, pauses, shutdowns, approvals or the configuration."""
        self.verdict_epoch += 1

    def limit_rate_at_edge(self) -> None:
        """Let every message pass step 2: whoever calls has counted it. What was counted is no part of the
        saved state, so gateways that share a space would come to different verdicts."""
        self._rate_at_edge = True
        self._set_send_rate()

    def set_replaying(self, replaying: bool) -> None:
        """Call before and after a record is played again. What was counted then is not known any more: a
        restart forgets it, and the journal does not. So no rate is held against what was accepted."""
        self.replaying = replaying
        self._set_send_rate()

    def _set_send_rate(self) -> None:
        self.send_rate = UNLIMITED if self._rate_at_edge or self.replaying else self._configured_rate

    def configure(self, config: SpaceConfig) -> None:
        """Take new rules and limits over."""
        self.config = config
        self.rules = SpaceRules(config)
        self.limits = config.limits
        self._configured_rate = SendRate.of(config.limits)
        self._set_send_rate()
        self.window.resize(config.limits.max_recent_ids)
        self.budgets.keep(config.budgets)
        for member in self.roster:
            # How long one may be is a rule as well.
            member.description = None
        self.membership_changed()

    # Rights

    def static_of(self, name: Name) -> tuple[Capability, ...]:
        """What a member holds without anybody's grant."""
        member = self.roster.members.get(name)
        if member is None or member.kicked:
            return ()
        return (*self._common_of(member), *member.rights_by_sign_in)

    def _common_of(self, member: SpaceMember) -> tuple[Capability, ...]:
        """What a member holds without a grant, whichever token a connection of it has."""
        if member.kicked:
            return ()
        if self.config.reference_compat and _COMPAT_BASELINE not in member.static_capabilities:
            return (*member.static_capabilities, _COMPAT_BASELINE)
        return member.static_capabilities

    def refresh(self, member: SpaceMember) -> bool:
        """Work out a member's rights anew; tells whether they changed, or those of a connection of it."""
        static = self.static_of(member.name)
        member.common = self._common_of(member)
        member.granted = tuple(self.grants.held(member.name))
        member.lasting_granted = tuple(self.grants.lasting(member.name))
        held = tuple(dict.fromkeys([*static, *member.granted]))
        lasting = tuple(dict.fromkeys([*static, *member.lasting_granted]))
        is_same = held == member.rights.capabilities and lasting == member.lasting_rights.capabilities
        if is_same and not member.signed_in:
            return False
        if not is_same:
            member.rights = Rights(held)
            member.lasting_rights = member.rights if lasting == held else Rights(lasting)
            member.description = None
        changed = [session for session in member.sessions.values() if session.refresh()]
        if is_same and not changed:
            return False
        self.verdicts_changed()
        return True

    def revoke_unsupported(self) -> list[SpaceMember]:
        """Revoke the grants that no right supports any more. Returns the members whose rights changed."""
        if self.config.delegation == "covered":
            for grant in self.grants.drop_unsupported(self.static_of):
                self.forget_grant(grant)
        return [member for member in self.roster if self.refresh(member)]

    def forget_grant(self, grant: GrantRecord) -> None:
        """Forget the id of a grant that has just ended; nobody has to acknowledge it any more."""
        if grant.id not in self.grants.by_id:
            self.cancel_pending_answers(grant.id)
            self.window.unpin(grant.id)

    def token_rights(self, token_hash: str | None) -> TokenRights | None:
        """What a token of a provider gives whoever came with it; None for every other token."""
        token = None if token_hash is None else self.temporary_tokens.get(token_hash)
        if token is None or token.rights is None:
            return None
        return TokenRights(token.client, load_capabilities(token.rights))

    def token_limit(self, token_hash: str) -> tuple[Capability, ...] | None:
        """What a token carries, where that is less than all rights of its member (MEW 5.1)."""
        temporary = self.temporary_tokens.get(token_hash)
        if temporary is None:
            return self.config.token_limits.get(token_hash)
        return None if temporary.limited_to is None else load_capabilities(temporary.limited_to)

    # Members and their sessions

    def forget_member(self, member: SpaceMember) -> None:
        """Forget a member that belongs to the space no more, and which names are its own."""
        self.roster.remove(member)
        self.offer_owners.forget(member.name)

    def membership_changed(self) -> None:
        """Call after any session came or went."""
        self.audiences.forget()
        self.verdicts_changed()

    def session_came(self, session: Session) -> None:
        self.audiences.add(session)
        self.verdicts_changed()

    def session_went(self, session: Session) -> None:
        self.audiences.remove(session)
        self.verdicts_changed()

    def sessions_of(self, members: Iterable[SpaceMember]) -> tuple[SessionId, ...]:
        return tuple(
            session.id
            for member in members
            for session in member.sessions.values()
            if not session.options.injected
        )

    def resolve_names(self, names: Sequence[str]) -> tuple[Name, ...]:
        """Logical names for whatever names were addressed; unknown ones stay as they are."""
        if not self.roster.aliases:
            return tuple(names)  # type: ignore[arg-type]  # without aliases every known id is a logical name
        return tuple(
            Name(name) if (member := self.roster.resolve(name)) is None else member.name for name in names
        )

    def runtime_ids(self, names: Iterable[Name]) -> list[str]:
        """Runtime ids, as the wire shows them (D-19)."""
        return [name if (member := self.roster.members.get(name)) is None else member.id for name in names]

    # Notices of the gateway

    def notice(
        self,
        kind: str,
        payload: dict[str, Json],
        now: float,
        mint: Mint,
        *,
        to: Sequence[str] = (),
        correlation_id: Sequence[str] = (),
    ) -> GatewayNotice:
        return GatewayNotice(kind, mint.id(), rfc3339(now), payload, tuple(to), tuple(correlation_id))

    def announce(
        self,
        kind: str,
        payload: dict[str, Json],
        now: float,
        mint: Mint,
        *,
        to: Sequence[str] = (),
        correlation_id: Sequence[str] = (),
    ) -> Deliver:
        """A notice for everybody."""
        audience = self.audiences.of_notice(kind)
        return Deliver(audience, self.notice(kind, payload, now, mint, to=to, correlation_id=correlation_id))

    def describe_stream(self, stream: StreamRecord) -> dict[str, Json]:
        """MEW 3.8.1 and 3.10.8: all fields of the request, and what the gateway knows, which wins."""
        entry: dict[str, Json] = stream.request | {
            "stream_id": stream.id,
            "owner": self.runtime_ids([stream.owner])[0],
            "authorized_writers": self.runtime_ids(stream.writers),
            "direction": stream.direction,
            "created": stream.created,
            "encoding": stream.encoding,
        }
        if stream.target is not None:
            entry["target"] = self.runtime_ids(stream.target)
        return entry

    # Pending answers

    def record_pending_answer(
        self, id: str, record: SeenEnvelope, names: tuple[Name, ...], now: float
    ) -> None:
        """These members may answer envelope `id` without a capability of their own (D-15), for a while."""
        if names:
            record.owed = names
            record.expires = now + self.limits.request_seconds
            self.window.pin(id, record)
            if record.kind in COUNTED:
                self.roster.members[record.author].open_requests += 1
            self.deadlines.schedule(record.expires, "request", id)

    def record_answer(self, id: str, record: SeenEnvelope, name: Name | None) -> None:
        """Note that `name` has answered; None: nobody has to any more."""
        if not record.owed:
            return
        alone = len(record.owed) == 1 and record.owed[0] == name
        record.owed = () if alone or name is None else tuple([each for each in record.owed if each != name])
        if not record.owed:
            self.window.unpin(id)
            author = self.roster.members.get(record.author)
            # A member who was removed and invited anew starts counting afresh.
            if author is not None and author.open_requests and record.kind in COUNTED:
                author.open_requests -= 1

    def forget_pending_answers(self, name: Name) -> None:
        """A member is gone for good: it owes no answers, and is owed none."""
        for id, record in list(self.window.pinned.items()):
            if record.author == name:
                self.expire_pending_answers(id)
            elif name in record.owed:
                self.record_answer(id, record, name)

    def may_repeat_id(self, id: str, session: Session) -> bool:
        """Whether this session may use an id that the window knows (D-94).

        Clients of the reference number their messages from 1 in every process. So under `reference_compat` an
        id may come again from its author, in a session that joined later, while nothing open hangs on it. A
        post is no such session: one that is sent twice must not act twice.
        """
        known = self.window.get(id)
        if not self.config.reference_compat or known is None or session.options.injected:
            return False
        settled = self.ledger.get(id)
        open_objects = self.window.pins_of(id) - (settled is not None and settled.is_over)
        return known.author == session.member.name and known.session < session.number and not open_objects

    def forget_settled(self, id: str) -> None:
        """An id came again: a correlation to it means the newer envelope, not the proposal that it was."""
        if id in self.ledger.proposals:
            self.unpin(self.ledger.forget(id))

    def cancel_pending_answers(self, id: str) -> None:
        """Nobody owes an answer to this envelope any more."""
        record = self.window.get(id)
        if record is not None:
            self.record_answer(id, record, None)

    def expire_pending_answers(self, id: str) -> None:
        """The time for an answer is over; one that comes late still counts (D-99)."""
        record = self.window.get(id)
        if record is not None:
            record.late = record.owed
            self.record_answer(id, record, None)

    # Proposals

    def settle_proposal(self, proposal: ProposalRecord, state: Settled, by: str | None, now: float) -> None:
        """Close a proposal. Its id stays taken for as long as the ledger remembers it (D-07)."""
        self.unpin(self.ledger.settle(proposal, state, by, now))

    def fulfil_proposal(
        self,
        proposal: ProposalRecord,
        request: str,
        record: SeenEnvelope,
        asked: tuple[Name, ...],
        now: float,
    ) -> None:
        """Close a proposal by the request that carries it out, whose id stays known until it is answered."""
        self.window.pin(request, record)
        self.unpin(self.ledger.fulfil(proposal, request, record.author, asked, now))
        if not asked:
            # Nobody owes an answer, so that no other deadline ends the wait for one.
            self.deadlines.schedule(now + self.limits.request_seconds, "execution", request)

    def resume_call(self, proposal: ProposalRecord, request: str, record: SeenEnvelope, now: float) -> None:
        """Go on with an approved call whose proposer has sent the input that its host asked for."""
        self.window.pin(request, record)
        self.effects.move(proposal.settled_by or "", request)
        self.unpin(self.ledger.resume(proposal, request, now))

    def unpin(self, ids: Iterable[str]) -> None:
        for id in ids:
            self.window.unpin(id)

    def lose_track(
        self, proposals: Iterable[ProposalRecord], reason: UnknownReason, now: float, mint: Mint
    ) -> list[Effect]:
        """D-99: nobody can tell what came of these; everybody is told so, once."""
        news = [each for each in proposals if self.ledger.lose_track(each, reason, now)]
        if self.replaying:
            # An older version announced nothing, and drew no id for it.
            return []
        return [self._announce_unknown(each, now, mint) for each in news]

    def _announce_unknown(self, proposal: ProposalRecord, now: float, mint: Mint) -> Deliver:
        payload: dict[str, Json] = {
            "proposal_id": proposal.id,
            "request_id": proposal.settled_by,
            "outcome": "unknown",
            "reason": proposal.reason,
            "asked": self.runtime_ids(proposal.asked),
            "waiting_for": self.runtime_ids(proposal.waiting),
        }
        if about := self.effects.about(proposal.settled_by or ""):
            payload["effects"] = [describe_open(each) for each in about]
        ids = [id for id in (proposal.settled_by, proposal.id) if id is not None]
        return self.announce("moot/outcome", payload, now, mint, correlation_id=ids)

    def host_gone(self, name: Name, reason: UnknownReason, now: float, mint: Mint) -> list[Effect]:
        """A member is not here any more: what it was carrying out may have happened or not."""
        lost = [each for each in self.ledger.unresolved() if name in each.waiting]
        return self.lose_track(lost, reason, now, mint)

    # Deadlines

    def _is_live(self, when: float, what: Deadline, key: str) -> bool:
        """Whether a deadline still refers to something, at the time that it has now."""
        if what == "request":
            record = self.window.pinned.get(key)
            return record is not None and bool(record.owed) and record.expires == when
        if what == "proposal":
            proposal = self.ledger.proposals.get(key)
            return proposal is not None and proposal.state == "open" and proposal.expires == when
        if what == "execution":
            return any(each.outcome == "pending" for each in self.ledger.executed_by(key))
        if what == "pause":
            member = self.roster.members.get(Name(key))
            return member is not None and member.pause is not None and member.pause.until == when
        if what == "shutdown":
            session = self.roster.sessions.get(SessionId(key))
            return session is not None and session.closing_at == when
        if what == "grant":
            grant = self.grants.by_id.get(key)
            return grant is not None and grant.expires == when
        if what == "token":
            token = self.temporary_tokens.get(key)
            return token is not None and token.expires_at == when
        if what == "poll":
            member = self.roster.members.get(Name(key))
            return member is not None and member.polling_until == when
        stream = self.streams.open.get(key)
        return stream is not None and stream.closes_at == when
