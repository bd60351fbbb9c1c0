"""Sending: every envelope of ours leaves through `EnvelopeSender.send`, which first checks whether it may.

In order: is there a connection, is the kind ours to send, has the payload its shape, are we paused, do our
rights allow it. The gateway checks all of that again; checking here gives a clear error at once, where the
mistake was made. A reply that somebody is entitled to needs no right (D-15).

`send_confirmed` waits for the gateway's decision: our own echo (D-02), or a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from moot import tracing
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
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.content_client import ContentClient
from moot.participant.connection.envelope_writer import NOTHING_MORE, Clock, claim_of, encode_envelope, new_id
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.participant.connection.pending_replies import PendingReplies
from moot.protocol.dialects import DIALECTS
from moot.protocol.dialects.mcpx import NO_CLAIM, LegacyDialect
from moot.protocol.envelope import (
    MAX_CORRELATIONS,
    MAX_KIND_CHARS,
    MAX_RECIPIENTS,
    Envelope,
    check_context,
    check_kind,
    check_names,
)
from moot.protocol.kinds import DELEGATED_KINDS, KINDS, MEMBERS_KINDS, UNKNOWN, is_reserved
from moot.protocol.operation import Json, Operation, Payload
from moot.protocol.patterns import Rights

NO_RIGHTS: Final = Rights(())


class SendCounts(msgspec.Struct):
    """Counters of one member since it joined."""

    sent: int = 0
    received: int = 0
    dropped: int = 0
    gaps: int = 0
    reconnects: int = 0
    skipped_notifications: int = 0
    unasked_refusals: int = 0
    # Ours that are in effect, and that a restart would undo: the gateway's disk fails.
    not_on_disk: int = 0
    failed_handlers: int = 0


class SentEnvelope(msgspec.Struct, frozen=True):
    """An envelope that we sent."""

    id: str
    ts: str
    kind: str
    to: tuple[str, ...] = ()


class CloseReason(msgspec.Struct, frozen=True):
    """Why a connection ended for good; `code` as in `moot.protocol.close_codes`, 1000 when we left."""

    code: int
    reason: str


class OwnPause(msgspec.Struct, frozen=True):
    """MEW 3.9.1: who paused us, by which envelope, why, and until when on the loop's clock."""

    id: str
    by: str
    reason: str | None
    until: float | None


Addressees = str | Sequence[str]


def addressees(to: Addressees) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to)


class EnvelopeSender:
    """Sends the envelopes of one member.

    `names_of` turns runtime ids into logical names, which capabilities are written in.
    """

    def __init__(
        self,
        options: ConnectOptions,
        counts: SendCounts,
        names_of: Callable[[Sequence[str]], Sequence[str]],
    ) -> None:
        self.dialect = options.dialect
        self.limits = options.limits
        self.counts = counts
        self.me = ""
        self.rights = NO_RIGHTS
        # What the gateway answers beyond MEW, by its latest welcome.
        self.extensions: frozenset[str] = frozenset()
        # As the space told us, where they are not the usual ones.
        self.envelope_limits = options.limits.envelope
        # What is too large for an envelope.
        self.content = ContentClient(options, lambda: self.envelope_limits.max_bytes)
        self.close_reason: CloseReason | None = None
        self.pause: OwnPause | None = None
        # Whether we may decide in somebody's place: the gateway knows then whether this is such a decision.
        self.decides_for_others: Callable[[], bool] = lambda: False
        self._echo = options.echo
        self._names_of = names_of
        self._legacy = found if isinstance(found := DIALECTS[options.dialect], LegacyDialect) else None
        self._clock = Clock()
        self._socket: ClientSocket | None = None
        self._ready = asyncio.Event()
        # By the id of what waits for its own echo.
        self.echoes: PendingReplies[Envelope] = PendingReplies()

    # The connection

    @property
    def socket(self) -> ClientSocket:
        """The open connection; raises ConnectionClosed or ConnectionLost when there is none."""
        socket = self._socket
        if socket is None or socket.is_closing:
            if self.close_reason is not None:
                raise ConnectionClosed(self.close_reason.code, self.close_reason.reason)
            raise ConnectionLost("not connected right now: reconnecting, `on_reconnected` tells when")
        return socket

    @property
    def is_joined(self) -> bool:
        return self._socket is not None and not self._socket.is_closing

    def attach(self, socket: ClientSocket, me: str) -> None:
        """We are joined, under this runtime id."""
        self._socket = socket
        self.me = me
        self._update_ready()

    def detach(self, fault: Callable[[], Exception]) -> None:
        """The connection is gone: whoever waits for an echo gets this fault."""
        self._socket = None
        if self.close_reason is None:
            self._ready.clear()
        else:
            self._ready.set()  # `ready` raises then
        self.echoes.fail_all(fault)

    def set_pause(self, pause: OwnPause | None) -> None:
        self.pause = pause
        self._ready.clear()
        self._update_ready()

    def _update_ready(self) -> None:
        if self._socket is not None and self.pause is None:
            self._ready.set()

    async def ready(self, timeout_seconds: float) -> None:
        """Wait until we are connected and not paused; raises TimedOut, ConnectionClosed."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    await self._ready.wait()
                    if self.close_reason is not None:
                        raise ConnectionClosed(self.close_reason.code, self.close_reason.reason)
                    if self.is_joined:
                        return
                    # Just closing: what comes of it is told. Who asks again and again must let that happen.
                    self._ready.clear()
        except TimeoutError:
            raise TimedOut(f"still away or paused after {timeout_seconds:g} s") from None

    # Checks

    def is_echoed(self, kind: str, about: Addressees = (), context: str | None = None) -> bool:
        """Whether an envelope of ours comes back to us."""
        if self._echo == "unanswered":
            return kind != "mcp/request" or bool(about or context)
        return self._echo

    def may(
        self,
        kind: str,
        payload: Payload | None = None,
        to: Addressees = (),
        request_operation: Operation | None = None,
    ) -> bool:
        """Whether the rights of the latest welcome allow it."""
        return self._allows(kind, {} if payload is None else payload, addressees(to), request_operation)

    def _allows(
        self, kind: str, body: Payload, to: Sequence[str], request_operation: Operation | None
    ) -> bool:
        names = self._names_of(to)
        claim = None if self._legacy is None else claim_of(kind, body, request_operation)
        return self.rights.allow(kind, body, names, request_operation, claim) or self.rights.allow_some(
            KINDS.get(kind, UNKNOWN).implied_by
        )

    def check_not_paused(self, kind: str) -> None:
        pause = self.pause
        if pause is None or KINDS.get(kind, UNKNOWN).passes_pause:
            return
        left = None if pause.until is None else max(0.0, pause.until - asyncio.get_running_loop().time())
        raise Paused(pause.by, pause.reason, left)

    # Sending

    def apply_limits(self, told: Json) -> None:
        """Use the limits of envelopes that a welcome tells, where a space has others than the usual ones."""
        most = told.get("max_bytes") if isinstance(told, dict) else None
        envelope = self.limits.envelope
        if isinstance(most, int) and most > 0:
            envelope = msgspec.structs.replace(envelope, max_bytes=most)
        self.envelope_limits = envelope

    def send(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
        check_rights: bool = True,
        request_operation: Operation | None = None,
        encoded: Json = None,
        to_bare_request: bool = False,
        id: str | None = None,
    ) -> SentEnvelope:
        """Send one envelope now. `encoded` is put on the wire instead of `payload`, which it must equal.

        `request_operation` is what a response answers; only the older dialects need it. `to_bare_request`: it
        answers a request without an id, and has none either (D-95).
        """
        socket = self._socket
        if socket is None or socket.is_closing:
            socket = self.socket
        body = {} if payload is None else payload
        named = to if to.__class__ is tuple else addressees(to)
        correlated = about if about.__class__ is tuple else addressees(about)
        self._check(kind, body, named, correlated, context, received=to_bare_request)
        if self.pause is not None:
            self.check_not_paused(kind)
        if (
            check_rights
            and not self._allows(kind, body, named, request_operation)
            and not (kind in DELEGATED_KINDS and correlated and self.decides_for_others())
        ):
            raise NotAllowed(
                f"your rights in this space do not allow {_describe(kind, body)}: ask for a grant"
                + (" or propose it" if kind == "mcp/request" else ""),
                missing=(kind,),
            )
        id, ts = id or new_id(), self._clock.now()
        more = NOTHING_MORE
        if tracing.active is not None:
            more = tracing.active.context_members()
            if more and encoded is None and kind in ("mcp/request", "mcp/proposal") and "params" in body:
                # Also inside: whoever approves it in a browser knows nothing of traces.
                body = {**body, "params": tracing.active.with_context(body["params"])}
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
            claim=NO_CLAIM if self._legacy is None else claim_of(kind, body, request_operation),
            limits=self.envelope_limits,
            more=more,
        )
        socket.send(raw)
        self.counts.sent += 1
        return SentEnvelope(id, ts, kind, named)

    async def send_confirmed(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
    ) -> tuple[SentEnvelope, Envelope]:
        """Send, and wait until the gateway has accepted it; raises the Refused that it answers with."""
        self._check_echo(kind)
        sent = self.send(kind, payload, to=to, about=about, context=context)
        return sent, await self.wait_for_echo(sent)

    async def wait_for_echo(self, sent: SentEnvelope) -> Envelope:
        """Our own envelope as everybody got it; raises the Refused that came instead."""
        self._check_echo(sent.kind)
        what = f"the gateway's answer to {sent.kind}"
        return await self.echoes.wait(sent.id, self.limits.answer_seconds, what)

    def _check_echo(self, kind: str) -> None:
        if not self.is_echoed(kind):
            what = f"no {kind} can" if self._echo else "nothing can"
            raise UsageError(f"{what} be confirmed on a connection without echo: connect(..., echo=True)")

    def fail_echo(self, id: str, refusal: Refused) -> bool:
        """Fail a wait for an echo that will not come; whether somebody was waiting."""
        return self.echoes.fail(id, refusal)

    def _check(
        self,
        kind: str,
        payload: Payload,
        to: Sequence[str],
        about: Sequence[str],
        context: str | None,
        *,
        received: bool,
    ) -> None:
        try:
            if kind.__class__ is not str or kind not in MEMBERS_KINDS:
                check_kind(kind, MAX_KIND_CHARS)
                if is_reserved(kind):
                    raise PayloadShapeError(f"{kind} is reserved for the gateway")
            if to:
                check_names(list(to), "to", MAX_RECIPIENTS)
            if about:
                check_names(list(about), "correlation_id", MAX_CORRELATIONS)
            if context is not None:
                check_context(context)
            if payload.__class__ is not dict and not isinstance(payload, dict):
                raise PayloadShapeError("payload must be a dict")
            check_shape(kind, payload, about, context, received=received)
        except (PayloadShapeError, Refused) as fault:
            raise UsageError(f"cannot be sent: {fault}") from None


def _describe(kind: str, payload: Payload) -> str:
    method = payload.get("method")
    return f"{kind} {method}" if isinstance(method, str) else kind
