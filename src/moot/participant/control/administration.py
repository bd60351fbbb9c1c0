"""Acting on the space and its members (MEW 3.6, 3.9): grants, invitations, removals, controls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moot.errors import MootError, TimedOut
from moot.participant.calls.outcome import SentEnvelope
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.connection.roster import Roster
from moot.participant.conversation.transcript import Direction
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights that were given; `id` takes them back. `acknowledged` is the recipient's word, if one came."""

    id: str
    recipient: str
    acknowledged: str | None


@dataclass(slots=True)
class Revocation:
    """Rights that were taken back. `remaining` are rights that the same pattern still touches (D-18)."""

    id: str
    recipient: str
    remaining: list[Json] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Invitation:
    """What an invitation came to: `created`, `already_exists` or `error`. The token is for the invitee."""

    status: str
    participant_id: str
    token: str | None = field(repr=False)
    connection_url: str | None
    message: str | None


# What answers what. Other controls are followed by a status or an acknowledgement, as the member likes.
_ANSWERS: Final[Mapping[str, str]] = {
    "participant/compact": "participant/compact-done",
    "capability/grant": "capability/grant-ack",
    "space/invite": "space/invite-ack",
}
_TOLD: Final = "told"


class PendingAcks:
    """Answers to our controls, grants and invitations, by what they refer to."""

    def __init__(self) -> None:
        self._replies: PendingReplies[Envelope] = PendingReplies()
        self._revocations: dict[str, Revocation] = {}
        # Rights that were given to us and that we have not acknowledged yet.
        self._grants: list[Envelope] = []

    async def wait(self, sent: SentEnvelope, within: float, who: str) -> Envelope:
        key = f"{_ANSWERS.get(sent.kind, _TOLD)} {sent.id}"
        return await self._replies.wait(key, within, f"{who}'s answer to {sent.kind}")

    def hear(self, envelope: Envelope) -> None:
        """A status, an acknowledgement, a compact-done, an invite-ack."""
        kind = envelope.kind if envelope.kind in _ANSWERS.values() else _TOLD
        for id in envelope.correlation_id:
            self._replies.resolve(f"{kind} {id}", envelope)

    def granted(self, envelope: Envelope) -> None:
        """MEW 3.6.1: acknowledged once the new rights are known here, which the next welcome tells."""
        self._grants = [*self._grants[-63:], envelope]

    def acknowledge_grants(self, voice: EnvelopeSender) -> None:
        """The welcome with the new rights is there."""
        grants, self._grants = self._grants, []
        for grant in grants:
            try:
                voice.say(
                    "capability/grant-ack", {"status": "accepted"}, to=grant.sender, about=grant.id, owed=True
                )
            except MootError as fault:
                log.debug("a grant was not acknowledged", extra={"why": type(fault).__name__})

    def failed(self, id: str, fault: Exception) -> bool:
        """Whether somebody was waiting for an answer that will not come."""
        return any(self._replies.fail(f"{kind} {id}", fault) for kind in (*_ANSWERS.values(), _TOLD))

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        self._replies.fail_all(fault)

    def revoking(self, revocation: Revocation) -> None:
        if len(self._revocations) >= 64:
            del self._revocations[next(iter(self._revocations))]
        self._revocations[revocation.id] = revocation

    def incomplete(self, id: str, details: Mapping[str, Json]) -> bool:
        """D-18: the revoked pattern still touches rights; told right after the revocation was accepted."""
        revocation = self._revocations.get(id)
        remaining = details.get("remaining")
        if revocation is None or not isinstance(remaining, list):
            return False
        revocation.remaining = remaining
        return True


class Managing:
    """What a member with the rights for it can do to others. Each waits until the gateway has done it."""

    _voice: EnvelopeSender
    _answers: PendingAcks
    roster: Roster

    # MEW 3.6

    async def grant(
        self,
        member: str,
        capabilities: Sequence[Json | Capability],
        *,
        reason: str | None = None,
        ack_within: float | None = None,
    ) -> Grant:
        """Give a member rights that we hold ourselves; waits for its acknowledgement, which need not come."""
        payload = _with_reason({"recipient": member, "capabilities": _plain(capabilities)}, reason)
        sent, _ = await self._voice.confirmed("capability/grant", payload, to=member)
        within = self._voice.limits.answer_seconds if ack_within is None else ack_within
        status: str | None = None
        if within > 0 and member in self.roster:
            try:
                ack = await self._answers.wait(sent, within, member)
                status = str(ack.payload.get("status", "accepted"))
            except TimedOut:
                # Nothing depends on it: the rights are there (D-15, dialects.md section 2).
                status = None
        return Grant(sent.id, member, status)

    async def revoke(
        self,
        member: str,
        *,
        grant_id: str | None = None,
        capabilities: Sequence[Json | Capability] | None = None,
        reason: str | None = None,
    ) -> Revocation:
        """Take rights back: one grant, or everything granted that a pattern covers."""
        payload: dict[str, Json] = {"recipient": member}
        if grant_id is not None:
            payload["grant_id"] = grant_id
        if capabilities is not None:
            payload["capabilities"] = _plain(capabilities)
        sent = self._voice.say("capability/revoke", _with_reason(payload, reason), to=member)
        revocation = Revocation(sent.id, member)
        self._answers.revoking(revocation)
        # The echo and what the gateway adds to it arrive together.
        await self._voice.echo(sent)
        return revocation

    async def invite(
        self,
        participant_id: str,
        capabilities: Sequence[Json | Capability] = (),
        *,
        email: str | None = None,
        reason: str | None = None,
    ) -> Invitation:
        """Invite somebody new; the token in the answer is told to us and nobody else (MEW 3.6.6)."""
        payload: dict[str, Json] = {
            "participant_id": participant_id,
            "initial_capabilities": _plain(capabilities),
        }
        if email is not None:
            payload["email"] = email
        ack = (await self._ask("space/invite", _with_reason(payload, reason), (), None)).payload
        return Invitation(
            ack["status"],
            ack["participant_id"],
            ack.get("token"),
            ack.get("connection_url"),
            ack.get("message"),
        )

    async def kick(self, member: str, reason: str | None = None) -> SentEnvelope:
        """Remove a member; its token is void from now on (D-24)."""
        payload = _with_reason({"participant_id": member}, reason)
        return (await self._voice.confirmed("space/kick", payload, to=member))[0]

    # MEW 3.9. Without an addressee a control is for everybody but us.

    async def pause(
        self, member: Addressees = (), *, reason: str | None = None, timeout_seconds: float | None = None
    ) -> SentEnvelope:
        """Make members fall silent until they are resumed or the time is up."""
        payload = _with_reason({}, reason)
        if timeout_seconds is not None:
            payload["timeout_seconds"] = timeout_seconds
        return (await self._voice.confirmed("participant/pause", payload, to=member))[0]

    async def resume(
        self, member: Addressees = (), *, about: SentEnvelope | str | None = None
    ) -> SentEnvelope:
        """Lift a pause; `about` is the pause, if it is known."""
        id: Addressees = () if about is None else about if isinstance(about, str) else about.id
        return (await self._voice.confirmed("participant/resume", {}, to=member, about=id))[0]

    async def request_status(
        self, member: str, fields: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, Json]:
        """A member's telemetry; `messages_in_context` is always in it."""
        payload: dict[str, Json] = {} if fields is None else {"fields": list(fields)}
        return dict((await self._ask("participant/request-status", payload, member, timeout)).payload)

    async def forget(
        self,
        member: str,
        direction: Direction,
        entries: int | None = None,
        *,
        timeout: float | None = None,
    ) -> Envelope:
        """Make a member drop records at one end; returns its status or acknowledgement."""
        payload: dict[str, Json] = {"direction": direction}
        if entries is not None:
            payload["entries"] = entries
        return await self._ask("participant/forget", payload, member, timeout)

    async def compact(
        self,
        member: str,
        *,
        reason: str | None = None,
        target_tokens: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Json]:
        """Make a member compact its memory; returns its compact-done."""
        payload = _with_reason({}, reason)
        if target_tokens is not None:
            payload["target_tokens"] = target_tokens
        return dict((await self._ask("participant/compact", payload, member, timeout)).payload)

    async def clear(self, member: str, *, timeout: float | None = None) -> Envelope:
        """Make a member forget everything; returns its status."""
        return await self._ask("participant/clear", {}, member, timeout)

    async def restart(self, member: str, *, timeout: float | None = None) -> Envelope:
        """Take a member back to its beginning; returns its status."""
        return await self._ask("participant/restart", {}, member, timeout)

    async def shutdown(self, member: Addressees = (), *, reason: str | None = None) -> SentEnvelope:
        """End a member for good, until somebody starts it again (D-26)."""
        return (await self._voice.confirmed("participant/shutdown", _with_reason({}, reason), to=member))[0]

    async def _ask(
        self, kind: str, payload: dict[str, Json], to: Addressees, timeout: float | None
    ) -> Envelope:
        limits = self._voice.limits
        within = limits.answer_seconds if timeout is None else timeout
        sent = self._voice.say(kind, payload, to=to)
        who = ", ".join(addressees(to)) or "the gateway"
        return await self._answers.wait(sent, within, who)


def _with_reason(payload: dict[str, Json], reason: str | None) -> dict[str, Json]:
    return payload if reason is None else {**payload, "reason": reason}


def _plain(capabilities: Sequence[Json | Capability]) -> list[Json]:
    return [each.original if isinstance(each, Capability) else each for each in capabilities]
