"""One member's connection: joining, and reconnecting when it breaks.

    dialling ── upgrade ──> joining ── welcome ──> joined ── closed ──> dialling again, or the end
        └── refused for now, nobody there: wait (doubling, with jitter) and try again

What ends it for good: leaving, a close code that says so (`moot.protocol.close_codes`), being turned away, or
having tried for too long. A token goes into a header, or into a join frame when a runtime id is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import Final, Literal, Protocol

from moot.errors import ConnectionClosed, MalformedEnvelope, MootError, NotAdmitted, Unreachable
from moot.net import websocket_client
from moot.net.connect_errors import UpgradeRefused, explain_not_admitted, explain_unreachable
from moot.net.websocket_client import (
    ABNORMAL_CLOSE,
    ClientSocket,
    dial,
    should_reconnect,
)
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.envelope_sender import CloseReason
from moot.participant.connection.gateway_order import order_gateways
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.protocol.close_codes import POLICY, REMOVED
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame, read_frame
from moot.resilience.restart_loop import Backoff

# How long a welcome may take.
WELCOME_SECONDS: Final = 10.0
# How long one gateway of several may take to connect and welcome us before the next is tried. With three,
# of which one was killed and one hangs, a member is back well within 3 seconds. Doubles after each pass.
NEXT_GATEWAY_SECONDS: Final = 1.5
# With several gateways, one that is silent for so long is asked, and given as long to answer: a member of
# a machine that is gone without a word is at the next one within 7 seconds. For one alone, see `dial`.
SILENT_GATEWAY_SECONDS: Final = 2.5
# The wait before a lost connection is tried again, and what it grows to.
BACKOFF_FIRST_SECONDS: Final = 0.25
# A restarted gateway is found within seconds; a thousand members make some 250 tries a second.
BACKOFF_MAX_SECONDS: Final = 5.0
# How often a token that may be replaced is looked at; whoever replaces one does it well before its end.
TOKEN_RELOAD_SECONDS: Final = 5.0
# How long somebody who was let in before waits for another token when theirs is void: whoever replaces one
# has it before they have written it down.
TOKEN_REPLACED_SECONDS: Final = 5.0
_TOKEN_LOOK_SECONDS: Final = 0.1

log = logging.getLogger(__name__)

_JWT_DOTS: Final = 2
# Longer than any limit by then.
_MAX_DOUBLINGS: Final = 16
Phase = Literal["dialling", "joining", "joined", "closed"]


class EnvelopeReceiver(Protocol):
    """Gets what arrives on the connection, and its changes. Called from the loop; nothing here may raise."""

    def handle_joined(self, socket: ClientSocket, welcome: Envelope) -> None: ...

    def handle_envelope(self, envelope: Envelope) -> None: ...

    def handle_frame(self, frame: Frame) -> None: ...

    def handle_malformed(self, fault: MalformedEnvelope) -> None: ...

    def handle_lost(self, code: int, reason: str) -> None: ...

    def handle_closed(self, reason: CloseReason) -> None: ...


class Link:
    """Keeps one connection open and passes what arrives to a receiver."""

    def __init__(self, options: ConnectOptions, receiver: EnvelopeReceiver) -> None:
        self.phase: Phase = "dialling"
        self.reconnect = options.reconnect
        # Of the gateway that we are connected to, or try next.
        self.url = options.urls[0]
        # The gateways in the order in which they are tried, and those that are left of this pass.
        self._urls = list(options.urls)
        self._untried: list[str] = []
        self._options = options
        self._limits = options.limits
        self._receiver = receiver
        self._dialect = DIALECTS[options.dialect]
        self._socket: ClientSocket | None = None
        self._changed = asyncio.Event()
        self._closed: tuple[int, str] | None = None
        self._problem = ""
        # What we joined with, or told the gateway of since.
        self._token: str | None = None
        self.leaving: CloseReason | None = None

    async def run(self) -> None:
        """Run until it ends for good; raises NotAdmitted or Unreachable only if it never joined."""
        backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.connect_seconds
        has_joined = False
        # How often all of them were tried in vain.
        passes = 0
        try:
            self._urls = await self._order_gateways()
            self.url, *self._untried = self._urls
            while True:
                fault = await self._run_once(self._try_seconds(passes))
                if fault is None:
                    has_joined = True
                    final = self._final_reason(*(self._closed or (ABNORMAL_CLOSE, "")))
                    if final is not None:
                        return self._end(final)
                    backoff.reset()
                    # The others at once, the preferred one first.
                    self._untried = [each for each in self._urls if each != self.url]
                    passes = 0
                    deadline = loop.time() + self._limits.reconnect_seconds
                elif isinstance(fault, NotAdmitted) or loop.time() >= deadline:
                    if not has_joined:
                        raise fault
                    if not isinstance(fault, NotAdmitted) or not await self._is_replaced_soon():
                        return self._end(self.leaving or _close_reason_of(fault))
                if self.leaving is not None:
                    return self._end(self.leaving)
                if not self._untried:
                    delay = min(backoff.next_delay(), max(0.01, deadline - loop.time()))
                    await self._wait_before_retry(delay)
                    self._untried, passes = [*self._urls], passes + 1
                self.url = self._untried.pop(0)
        finally:
            self.phase = "closed"
            if self._socket is not None:
                self._socket.abort()

    def _try_seconds(self, passes: int) -> float:
        """How long one gateway may take until the welcome, while another one may be quicker.

        Twice as long after each pass, lest those who come to a busy gateway all go away half done.
        """
        if len(self._options.urls) == 1:
            return math.inf
        return NEXT_GATEWAY_SECONDS * 2.0 ** min(passes, _MAX_DOUBLINGS)

    async def _order_gateways(self) -> list[str]:
        return await order_gateways(self._options, NEXT_GATEWAY_SECONDS)

    async def _is_replaced_soon(self) -> bool:
        """Whether there is another token than the one that was refused, or will be in a moment."""
        if not callable(self._options.token_source):
            return False
        end = asyncio.get_running_loop().time() + TOKEN_REPLACED_SECONDS
        while self._options.token == self._token:
            if self.leaving is not None or asyncio.get_running_loop().time() >= end:
                return False
            await self._wait_before_retry(_TOKEN_LOOK_SECONDS)
        return True

    async def _wait_before_retry(self, seconds: float) -> None:
        """Leaving ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.leaving is None:
                    self._changed.clear()
                    await self._changed.wait()

    def leave(self, reason: CloseReason) -> None:
        """Close the connection and do not reconnect; the first `reason` is the one that is reported."""
        if self.leaving is None:
            self.leaving = reason
        if self._socket is not None:
            self._socket.close(1000, reason.reason)
        self._changed.set()

    def renew(self) -> None:
        """Tell the gateway of a newer token; not connected, it goes with the next join anyway."""
        join = self._options.join_frame()
        if join is not None and self._socket is not None and self.phase == "joined":
            self._token = self._options.token
            self._socket.send(join)

    def _renew_if_replaced(self) -> None:
        """A token of a provider is renewed on the connection; another one counts from the next join on."""
        token = self._options.token
        if token is not None and token != self._token and token.count(".") == _JWT_DOTS:
            self.renew()

    def _end(self, final: CloseReason) -> None:
        self.phase = "closed"
        self._receiver.handle_closed(self.leaving or final)

    async def _run_once(self, try_seconds: float) -> MootError | None:
        """Dial, join and wait until the connection closes; returns why it never joined."""
        began = asyncio.get_running_loop().time()
        has_others = len(self._options.urls) > 1
        ping_seconds = websocket_client.PING_SECONDS
        self._closed, self._problem = None, ""
        self._token = self._options.token
        self._set_phase("dialling")
        try:
            socket = await dial(
                self._options.websocket_url(self.url),
                self,
                headers=self._options.headers(),
                connect_seconds=min(websocket_client.CONNECT_SECONDS, try_seconds),
                ping_seconds=min(ping_seconds, SILENT_GATEWAY_SECONDS) if has_others else ping_seconds,
                open_socket=self._options.open_socket,
                tls=self._options.tls,
            )
        except UpgradeRefused as fault:
            if fault.is_temporary:
                return Unreachable(f"{self.url}: {fault}")
            return explain_not_admitted(self.url, fault, self._options.token)
        except Unreachable as fault:
            return explain_unreachable(self.url, fault)
        left_seconds = try_seconds - (asyncio.get_running_loop().time() - began)
        welcome_seconds = min(WELCOME_SECONDS, left_seconds)
        await self._wait_while_phase("joining", welcome_seconds)
        if self.phase == "joining":
            socket.abort()
            return Unreachable(f"no welcome within {welcome_seconds:.3g} s")
        if self.phase == "dialling":
            code, reason = self._closed or (ABNORMAL_CLOSE, "")
            if code == POLICY:
                return NotAdmitted(self._problem or reason or "the gateway did not let us in", code=code)
            return Unreachable(self._problem or reason or f"closed {code} before the welcome")
        # Of very many connections none looks for itself: who has them calls `renew`.
        may_be_replaced = callable(self._options.token_source) and self._options.hears == "all"
        reload_seconds = TOKEN_RELOAD_SECONDS if may_be_replaced else None
        while self.phase == "joined":
            await self._wait_while_phase("joined", reload_seconds)
            self._renew_if_replaced()
        return None

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self._changed.set()

    async def _wait_while_phase(self, phase: Phase, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                while self.phase == phase:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    # What the socket calls

    def opened(self, socket: ClientSocket) -> None:
        self._socket = socket
        self.phase = "joining"
        join = self._options.join_frame()
        if join is not None:
            socket.send(join)

    def received(self, data: bytes, binary: bool) -> None:
        try:
            # Stream data; no JSON text starts so.
            if data.startswith(b"#"):
                frame = read_frame(data, binary=binary, max_bytes=websocket_client.MESSAGE_BYTES)
                if self.phase == "joined":
                    self._receiver.handle_frame(frame)
                return
            envelope = self._dialect.decode(data, self._limits.envelope)
        except MalformedEnvelope as fault:
            self._receiver.handle_malformed(fault)
            self._problem = self._problem or f"the gateway sent something malformed: {fault.message}"
            return
        if self.phase == "joined":
            self._receiver.handle_envelope(envelope)
        elif self.phase == "joining" and self._socket is not None:
            self._handle_first_envelope(self._socket, envelope)

    def _handle_first_envelope(self, socket: ClientSocket, envelope: Envelope) -> None:
        if envelope.kind == "system/welcome":
            try:
                check_shape(envelope.kind, envelope.payload, envelope.correlation_id, envelope.context)
            except PayloadShapeError as fault:
                self._problem = f"the gateway's welcome cannot be read: {fault}"
                socket.close(1002, "that is no welcome")
                return
            self.phase = "joined"
            self._changed.set()
            self._receiver.handle_joined(socket, envelope)
        elif envelope.kind == "system/error":
            self._problem = str(envelope.payload.get("message", ""))

    def closed(self, code: int, reason: str) -> None:
        was_joined = self.phase == "joined"
        self._socket = None
        self._closed = (code, reason)
        self.phase = "dialling"
        self._changed.set()
        if not was_joined:
            return
        log.info("connection ended", extra={"code": code, "reason": reason})
        final = self._final_reason(code, reason)
        if final is None:
            self._receiver.handle_lost(code, reason)
        else:
            self._receiver.handle_closed(final)

    def _final_reason(self, code: int, reason: str) -> CloseReason | None:
        """Why it ended, if that was for good."""
        if self.leaving is not None:
            return self.leaving
        # The one that was ended may be an old one.
        has_another = code in (POLICY, REMOVED) and self._options.token != self._token
        may_return = self.reconnect and (has_another or should_reconnect(code))
        return None if may_return else CloseReason(code, reason)


def _close_reason_of(fault: MootError) -> CloseReason:
    if isinstance(fault, ConnectionClosed):
        return CloseReason(fault.code, fault.reason)
    return CloseReason(ABNORMAL_CLOSE, str(fault))
