"""Saying something: every envelope of ours leaves through `Voice.say`, which first asks whether it may.

In order: is there a connection, is the kind ours to send, has the payload its shape, are we paused, do our
rights allow it. All of that is asked again by the gateway; asking here gives a clear error at once, where the
mistake was made. What we owe somebody (D-15) needs no right.

`confirmed` waits for what the gateway makes of it: our own echo (D-02), or a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from moot.errors import (
    ConnectionClosed,
    ConnectionLost,
    NotAllowed,
    Paused,
    Refused,
    TimedOut,
    UsageError,
)
from moot.net.websocket_client import ClientSocket
from moot.participant.calls.outcome import CloseReason, SentEnvelope
from moot.participant.connection.envelope_writer import Clock, claim_of, encode_envelope, fresh_id
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.participant.connection.pending_replies import PendingReplies
from moot.participant.limits import ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.dialects.mcpx import NO_CLAIM, Legacy
from moot.protocol.envelope import DialectName, Envelope, check_context, check_kind, check_names
from moot.protocol.kinds import KINDS, UNKNOWN, is_reserved
from moot.protocol.operation import Json, Operation, Payload
from moot.protocol.patterns import Rights

NO_RIGHTS: Final = Rights(())
# Kinds of the table that members send: their names need no look.
_MEMBERS_KINDS: Final = frozenset(kind for kind in KINDS if not is_reserved(kind))


@dataclass(slots=True)
class SendCounts:
    """What happened so far, for whoever watches."""

    sent: int = 0
    received: int = 0
    dropped: int = 0
    gaps: int = 0
    reconnects: int = 0
    skipped_notifications: int = 0
    unasked_refusals: int = 0
    failed_handlers: int = 0


@dataclass(frozen=True, slots=True)
class OwnPause:
    """MEW 3.9.1: who paused us, by which envelope, why, and until when on the loop's clock."""

    id: str
    by: str
    reason: str | None
    until: float | None


Addressees = str | Sequence[str]
# D-02, what of our own comes back to us: everything, nothing, or what nobody answers: all but requests that
# refer to nothing and belong to no context, whose answer or refusal says enough.
Echo = bool | Literal["unanswered"]


def addressees(to: Addressees) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to)


class EnvelopeSender:
    """One member's mouth. `names` turns runtime ids into logical names, which capabilities are written in."""

    def __init__(self, dialect: DialectName, limits: ParticipantLimits, *, echo: Echo = True) -> None:
        self.dialect = dialect
        self._echo = echo
        self.limits = limits
        self.counts = SendCounts()
        self.me = ""
        self.rights = NO_RIGHTS
        self.ending: CloseReason | None = None
        self.pause: OwnPause | None = None
        self.names: Callable[[Sequence[str]], Sequence[str]] = lambda ids: ids
        self._legacy = found if isinstance(found := DIALECTS[dialect], Legacy) else None
        self._clock = Clock()
        self._line: ClientSocket | None = None
        self._ready = asyncio.Event()
        self._echoes: PendingReplies[Envelope] = PendingReplies()

    # The connection behind it

    @property
    def line(self) -> ClientSocket:
        """The open connection; raises ConnectionClosed or ConnectionLost when there is none."""
        line = self._line
        if line is None or line.is_closing:
            if self.ending is not None:
                raise ConnectionClosed(self.ending.code, self.ending.reason)
            raise ConnectionLost("not connected right now: it is being tried again, `rejoined` tells when")
        return line

    @property
    def is_joined(self) -> bool:
        return self._line is not None and not self._line.is_closing

    def attach(self, line: ClientSocket) -> None:
        self._line = line
        self._tell_if_ready()

    def detach(self, fault: Callable[[], Exception]) -> None:
        """The connection is away: whoever waits for an echo hears of it."""
        self._line = None
        if self.ending is None:
            self._ready.clear()
        else:
            self._ready.set()  # whoever waits for it hears that it will not come
        self._echoes.fail_all(fault)

    def set_pause(self, pause: OwnPause | None) -> None:
        self.pause = pause
        self._ready.clear()
        self._tell_if_ready()

    def _tell_if_ready(self) -> None:
        if self._line is not None and self.pause is None:
            self._ready.set()

    async def ready(self, within: float) -> None:
        """Wait until we are connected and not paused; raises TimedOut, ConnectionClosed."""
        try:
            async with asyncio.timeout(within):
                await self._ready.wait()
                if self.ending is not None:
                    raise ConnectionClosed(self.ending.code, self.ending.reason)
        except TimeoutError:
            raise TimedOut(f"still away or paused after {within:g} s") from None

    # Asking beforehand

    def hears_itself(self, kind: str, about: Addressees = (), context: str | None = None) -> bool:
        """Whether an envelope of ours comes back to us."""
        if self._echo == "unanswered":
            return kind != "mcp/request" or bool(about or context)
        return self._echo

    def may(
        self, kind: str, payload: Payload | None = None, to: Addressees = (), asked: Operation | None = None
    ) -> bool:
        """Whether the rights of the latest welcome allow it."""
        body = {} if payload is None else payload
        names = self.names(addressees(to))
        if self._legacy is None:
            return self.rights.allow(kind, body, names, asked)
        return self.rights.allow(kind, body, names, asked, claim_of(kind, body, asked))

    def check_not_paused(self, kind: str) -> None:
        pause = self.pause
        if pause is None or KINDS.get(kind, UNKNOWN).passes_pause:
            return
        left = None if pause.until is None else max(0.0, pause.until - asyncio.get_running_loop().time())
        raise Paused(pause.by, pause.reason, left)

    # Speaking

    def say(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
        owed: bool = False,
        asked: Operation | None = None,
        encoded: Json = None,
    ) -> SentEnvelope:
        """Send one envelope now. `encoded` stands on the wire instead of `payload`, which it must equal."""
        line = self.line
        body = {} if payload is None else payload
        named, correlated = addressees(to), addressees(about)
        self._check(kind, body, named, correlated, context)
        if self.pause is not None:
            self.check_not_paused(kind)
        if not owed and not self.may(kind, body, named, asked):
            raise NotAllowed(
                f"your rights in this space do not allow {_shown(kind, body)}: ask for a grant"
                + (" or propose it" if kind == "mcp/request" else ""),
                missing=(kind,),
            )
        id, ts = fresh_id(), self._clock.now()
        raw = encode_envelope(
            self._legacy,
            id=id,
            ts=ts,
            sender=self.me,
            kind=kind,
            to=named,
            about=correlated,
            context=context,
            payload=body if encoded is None else encoded,
            claim=NO_CLAIM if self._legacy is None else claim_of(kind, body, asked),
            limits=self.limits.envelope,
        )
        line.send(raw)
        self.counts.sent += 1
        return SentEnvelope(id, ts, kind, named)

    async def confirmed(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
        encoded: Json = None,
    ) -> tuple[SentEnvelope, Envelope]:
        """Send, and wait until the gateway has accepted it; raises the Refused that it answers with."""
        self._check_echo(kind)
        sent = self.say(kind, payload, to=to, about=about, context=context, encoded=encoded)
        return sent, await self.echo(sent)

    async def echo(self, sent: SentEnvelope) -> Envelope:
        """Our own envelope as everybody got it."""
        self._check_echo(sent.kind)
        what = f"the gateway's word on {sent.kind}"
        return await self._echoes.wait(sent.id, self.limits.confirm_seconds, what)

    def _check_echo(self, kind: str) -> None:
        if not self.hears_itself(kind):
            what = f"no {kind} can" if self._echo else "nothing can"
            raise UsageError(f"{what} be confirmed on a connection without echo: connect(..., echo=True)")

    def hear_echo(self, envelope: Envelope) -> None:
        self._echoes.resolve(envelope.id, envelope)

    def hear_refusal(self, id: str, refusal: Refused) -> bool:
        """Whether somebody was waiting for the echo that will not come."""
        return self._echoes.fail(id, refusal)

    def _check(
        self, kind: str, payload: Payload, to: Sequence[str], about: Sequence[str], context: str | None
    ) -> None:
        limits = self.limits.envelope
        try:
            if kind.__class__ is not str or kind not in _MEMBERS_KINDS:
                check_kind(kind, limits.max_kind_chars)
                if is_reserved(kind):
                    raise PayloadShapeError(f"{kind} is sent by the gateway alone")
            if to:
                check_names(list(to), "to", limits.max_recipients, limits)
            if about:
                check_names(list(about), "correlation_id", limits.max_correlations, limits)
            if context is not None:
                check_context(context, limits)
            if payload.__class__ is not dict and not isinstance(payload, dict):
                raise PayloadShapeError("payload must be a dict")
            check_shape(kind, payload, about, context)
        except (PayloadShapeError, Refused) as fault:
            raise UsageError(f"cannot be sent: {fault}") from None


def _shown(kind: str, payload: Payload) -> str:
    method = payload.get("method")
    return f"{kind} {method}" if isinstance(method, str) else kind
