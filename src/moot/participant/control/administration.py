"""Administration of a space (MEW 3.6, 3.9): grants, invitations, removals, and controls of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from moot.errors import TimedOut
from moot.participant.connection.envelope_sender import (
    Addressees,
    EnvelopeSender,
    SentEnvelope,
    addressees,
)
from moot.participant.connection.roster import Roster
from moot.participant.control.pending_acks import PendingAcks, Revocation
from moot.participant.conversation.transcript import Direction
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability


class Grant(msgspec.Struct, frozen=True):
    """A grant; its `id` revokes it. `acknowledged` is the answer of the recipient, if one came."""

    id: str
    recipient: str
    acknowledged: str | None


@dataclass(frozen=True, slots=True)
class Invitation:
    """The result of an invitation: `created`, `already_exists` or `error`. The token is for the invitee."""

    status: str
    participant_id: str
    token: str | None = field(repr=False)
    connection_url: str | None
    message: str | None


class Administration:
    """Changes members and their rights, as far as we may. Each method waits until the gateway has done it."""

    def __init__(self, sender: EnvelopeSender, roster: Roster, acks: PendingAcks) -> None:
        self._sender = sender
        self._roster = roster
        self._acks = acks

    # MEW 3.6

    async def grant(
        self,
        member: str,
        capabilities: Sequence[Json | Capability],
        *,
        reason: str | None = None,
        expires_in_seconds: float | None = None,
        max_uses: int | None = None,
        ack_timeout_seconds: float | None = None,
    ) -> Grant:
        """Grant a member capabilities that we have ourselves; waits a while for its acknowledgement.

        The gateway ends the grant after `expires_in_seconds` or `max_uses`, whatever comes first; without
        either it lasts until it is revoked.
        """
        payload = _with_reason({"recipient": member, "capabilities": _to_json(capabilities)}, reason)
        if expires_in_seconds is not None:
            payload["expires_in_seconds"] = expires_in_seconds
        if max_uses is not None:
            payload["max_uses"] = max_uses
        sent, _ = await self._sender.send_confirmed("capability/grant", payload, to=member)
        given = ack_timeout_seconds
        seconds = self._sender.limits.answer_seconds if given is None else given
        status: str | None = None
        if seconds > 0 and member in self._roster:
            try:
                ack = await self._acks.wait(sent, seconds, member)
                status = str(ack.payload.get("status", "accepted"))
            except TimedOut:
                # Nothing depends on it: the rights are granted (D-15, dialects.md section 2).
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
        """Revoke one grant, or everything granted that these patterns cover."""
        payload: dict[str, Json] = {"recipient": member}
        if grant_id is not None:
            payload["grant_id"] = grant_id
        if capabilities is not None:
            payload["capabilities"] = _to_json(capabilities)
        sent = self._sender.send("capability/revoke", _with_reason(payload, reason), to=member)
        revocation = Revocation(sent.id, member)
        self._acks.add_revocation(revocation)
        # The echo and the gateway's note on what remains arrive together.
        await self._sender.wait_for_echo(sent)
        return revocation

    async def invite(
        self,
        participant_id: str,
        capabilities: Sequence[Json | Capability] = (),
        *,
        email: str | None = None,
        reason: str | None = None,
    ) -> Invitation:
        """Invite somebody new; the token in the answer is sent to us alone (MEW 3.6.6)."""
        payload: dict[str, Json] = {
            "participant_id": participant_id,
            "initial_capabilities": _to_json(capabilities),
        }
        if email is not None:
            payload["email"] = email
        ack = (await self._send_and_wait("space/invite", _with_reason(payload, reason), (), None)).payload
        return Invitation(
            ack["status"],
            ack["participant_id"],
            ack.get("token"),
            ack.get("connection_url"),
            ack.get("message"),
        )

    async def kick(self, member: str, reason: str | None = None) -> SentEnvelope:
        """Remove a member; its token is invalid from now on."""
        payload = _with_reason({"participant_id": member}, reason)
        return (await self._sender.send_confirmed("space/kick", payload, to=member))[0]

    # MEW 3.9. Without a member a control is for everybody but us.

    async def pause(
        self, member: Addressees = (), *, reason: str | None = None, timeout_seconds: float | None = None
    ) -> SentEnvelope:
        """Pause members until they are resumed or the time is up."""
        payload = _with_reason({}, reason)
        if timeout_seconds is not None:
            payload["timeout_seconds"] = timeout_seconds
        return (await self._sender.send_confirmed("participant/pause", payload, to=member))[0]

    async def resume(
        self, member: Addressees = (), *, about: SentEnvelope | str | None = None
    ) -> SentEnvelope:
        """End a pause; `about` is the pause, if it is known."""
        id: Addressees = () if about is None else about if isinstance(about, str) else about.id
        return (await self._sender.send_confirmed("participant/resume", {}, to=member, about=id))[0]

    async def request_status(
        self, member: str, fields: Sequence[str] | None = None, *, timeout_seconds: float | None = None
    ) -> dict[str, Json]:
        """Ask a member for its status; `messages_in_context` is always in it."""
        payload: dict[str, Json] = {} if fields is None else {"fields": list(fields)}
        return dict(
            (
                await self._send_and_wait("participant/request-status", payload, member, timeout_seconds)
            ).payload
        )

    async def forget(
        self,
        member: str,
        direction: Direction,
        entries: int | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> Envelope:
        """Make a member forget its oldest or newest messages; returns its status or acknowledgement."""
        payload: dict[str, Json] = {"direction": direction}
        if entries is not None:
            payload["entries"] = entries
        return await self._send_and_wait("participant/forget", payload, member, timeout_seconds)

    async def compact(
        self,
        member: str,
        *,
        reason: str | None = None,
        target_tokens: int | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, Json]:
        """Make a member compact its context; returns its compact-done."""
        payload = _with_reason({}, reason)
        if target_tokens is not None:
            payload["target_tokens"] = target_tokens
        return dict(
            (await self._send_and_wait("participant/compact", payload, member, timeout_seconds)).payload
        )

    async def clear(self, member: str, *, timeout_seconds: float | None = None) -> Envelope:
        """Make a member forget everything; returns its status."""
        return await self._send_and_wait("participant/clear", {}, member, timeout_seconds)

    async def restart(self, member: str, *, timeout_seconds: float | None = None) -> Envelope:
        """Restart a member; returns its status."""
        return await self._send_and_wait("participant/restart", {}, member, timeout_seconds)

    async def shutdown(self, member: Addressees = (), *, reason: str | None = None) -> SentEnvelope:
        """Shut members down, until somebody starts them again."""
        return (
            await self._sender.send_confirmed("participant/shutdown", _with_reason({}, reason), to=member)
        )[0]

    async def _send_and_wait(
        self, kind: str, payload: dict[str, Json], to: Addressees, timeout_seconds: float | None
    ) -> Envelope:
        limits = self._sender.limits
        seconds = limits.answer_seconds if timeout_seconds is None else timeout_seconds
        sent = self._sender.send(kind, payload, to=to)
        who = ", ".join(addressees(to)) or "the gateway"
        return await self._acks.wait(sent, seconds, who)


def _with_reason(payload: dict[str, Json], reason: str | None) -> dict[str, Json]:
    return payload if reason is None else {**payload, "reason": reason}


def _to_json(capabilities: Sequence[Json | Capability]) -> list[Json]:
    return [each.original if isinstance(each, Capability) else each for each in capabilities]
