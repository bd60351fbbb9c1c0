"""One member's connection, kept up: coming in, and coming back when it breaks.

    dialling ── upgrade ──> joining ── welcome ──> joined ── closed ──> dialling again, or the end
        └── refused for now, nobody there: wait (doubling, with jitter) and try again

What ends it for good: leaving, a close code that says so (`moot.protocol.close_codes`), being turned away, or
having tried for too long. A token goes into a header, or into a join frame when a runtime id is wished for.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

import orjson

from moot.errors import ConnectionClosed, MalformedEnvelope, MootError, NotAdmitted, Unreachable
from moot.net.websocket_client import (
    ABNORMAL_CLOSE,
    ClientSocket,
    UpgradeRefused,
    dial,
    should_reconnect,
    websocket_url,
)
from moot.participant.calls.outcome import CloseReason
from moot.participant.connect_errors import not_admitted, unreachable
from moot.participant.connection.envelope_sender import Echo
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.participant.limits import ParticipantLimits
from moot.protocol.close_codes import POLICY
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.frames import Frame, is_frame, read_frame
from moot.protocol.operation import Json
from moot.resilience.backoff import Backoff

log = logging.getLogger(__name__)

Phase = Literal["dialling", "joining", "joined", "closed"]


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """Where to come in, and as whom."""

    url: str
    space: str
    token: str | None = field(repr=False)
    dialect: DialectName
    participant: str | None
    echo: Echo = True
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def address(self) -> str:
        """MEW connects with `?space=`, the older dialects with `?topic=`; frames are asked for there."""
        query: dict[str, str] = {}
        if self.dialect == "mew":
            if self.space:
                query["space"] = self.space
        else:
            query = {"topic": self.space, "dialect": self.dialect, "streams": "1"}
        if self.echo is not True:
            query["echo"] = self.echo or "0"
        return websocket_url(self.url, "/ws", query)

    def headers(self) -> dict[str, str]:
        if self.token is None or self.participant is not None:
            return {}
        return {"Authorization": f"Bearer {self.token}"}

    def join_frame(self) -> bytes | None:
        """D-20: only a join frame can wish for a runtime id (D-19)."""
        if self.participant is None:
            return None
        join: dict[str, Json] = {"type": "join", "participantId": self.participant}
        if self.space:
            join["space"] = self.space
        if self.token is not None:
            join["token"] = self.token
        return orjson.dumps(join)


class EnvelopeReceiver(Protocol):
    """Who lives on the connection. Called from the loop; nothing here may raise."""

    def joined(self, line: ClientSocket, welcome: Envelope) -> None: ...

    def heard(self, envelope: Envelope) -> None: ...

    def frame(self, frame: Frame) -> None: ...

    def broken(self, fault: MalformedEnvelope) -> None: ...

    def lost(self, code: int, reason: str) -> None: ...

    def ended(self, ending: CloseReason) -> None: ...


class Link:
    """The task that keeps one connection, and the listener on it."""

    def __init__(
        self, door: ConnectTarget, limits: ParticipantLimits, receiver: EnvelopeReceiver, *, reconnect: bool
    ) -> None:
        self.phase: Phase = "dialling"
        self.reconnect = reconnect
        self._door = door
        self._limits = limits
        self._receiver = receiver
        self._dialect = DIALECTS[door.dialect]
        self._line: ClientSocket | None = None
        self._changed = asyncio.Event()
        self._closed: tuple[int, str] | None = None
        self._complaint = ""
        self._leaving: str | None = None

    async def run(self) -> None:
        """Until the end; raises NotAdmitted or Unreachable only while it never was in."""
        backoff = Backoff(self._limits.backoff_first_seconds, self._limits.backoff_most_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.arrive_seconds
        has_been_in = False
        try:
            while True:
                fault = await self._visit()
                if fault is None:
                    has_been_in = True
                    ending = self._ending(*(self._closed or (ABNORMAL_CLOSE, "")))
                    if ending is not None:
                        return self._end(ending)
                    backoff.reset()
                    deadline = loop.time() + self._limits.reconnect_seconds
                elif isinstance(fault, NotAdmitted) or loop.time() >= deadline:
                    if not has_been_in:
                        raise fault
                    return self._end(_ending_of(fault))
                if self._leaving is not None:
                    return self._end(CloseReason(1000, self._leaving))
                await self._rest(min(backoff.next_delay(), max(0.01, deadline - loop.time())))
        finally:
            self.phase = "closed"
            if self._line is not None:
                self._line.abort()

    async def _rest(self, seconds: float) -> None:
        """Wait before the next try; leaving ends it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._leaving is None:
                    self._changed.clear()
                    await self._changed.wait()

    def leave(self, reason: str) -> None:
        """Say goodbye and do not come back."""
        self._leaving = reason
        if self._line is not None:
            self._line.close(1000, reason)
        self._changed.set()

    async def gone(self, within: float) -> None:
        if self._line is not None:
            await self._line.wait_closed(within)

    def _end(self, ending: CloseReason) -> None:
        self.phase = "closed"
        self._receiver.ended(ending)

    async def _visit(self) -> MootError | None:
        """One connection from its first byte to its last; returns why it never became one."""
        self._closed, self._complaint = None, ""
        self._to("dialling")
        try:
            line = await dial(
                self._door.address(),
                self,
                headers=self._door.headers(),
                limits=self._limits.dial,
                tls=self._door.tls,
            )
        except UpgradeRefused as fault:
            url = self._door.url
            return Unreachable(f"{url}: {fault}") if fault.is_temporary else not_admitted(url, fault)
        except Unreachable as fault:
            return unreachable(self._door.url, fault)
        await self._wait_while("joining", self._limits.welcome_seconds)
        if self.phase == "joining":
            line.abort()
            return Unreachable(f"no welcome within {self._limits.welcome_seconds:g} s")
        if self.phase == "dialling":
            code, reason = self._closed or (ABNORMAL_CLOSE, "")
            if code == POLICY:
                return NotAdmitted(self._complaint or reason or "the gateway did not let us in", code=code)
            return Unreachable(self._complaint or reason or f"closed {code} before the welcome")
        await self._wait_while("joined", None)
        return None

    def _to(self, phase: Phase) -> None:
        self.phase = phase
        self._changed.set()

    async def _wait_while(self, phase: Phase, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                while self.phase == phase:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    # What the line calls

    def opened(self, line: ClientSocket) -> None:
        self._line = line
        self.phase = "joining"
        join = self._door.join_frame()
        if join is not None:
            line.send(join)

    def received(self, data: bytes, binary: bool) -> None:
        try:
            if is_frame(data):
                frame = read_frame(data, binary=binary, max_bytes=self._limits.dial.message_bytes)
                if self.phase == "joined":
                    self._receiver.frame(frame)
                return
            envelope = self._dialect.decode(data, self._limits.envelope)
        except MalformedEnvelope as fault:
            self._receiver.broken(fault)
            self._complaint = self._complaint or f"the gateway speaks otherwise: {fault.message}"
            return
        if self.phase == "joined":
            self._receiver.heard(envelope)
        elif self.phase == "joining" and self._line is not None:
            self._first(self._line, envelope)

    def _first(self, line: ClientSocket, envelope: Envelope) -> None:
        if envelope.kind == "system/welcome":
            try:
                check_shape(envelope.kind, envelope.payload, envelope.correlation_id, envelope.context)
            except PayloadShapeError as fault:
                self._complaint = f"the gateway's welcome cannot be read: {fault}"
                line.close(1002, "that is no welcome")
                return
            self.phase = "joined"
            self._changed.set()
            self._receiver.joined(line, envelope)
        elif envelope.kind == "system/error":
            self._complaint = str(envelope.payload.get("message", ""))

    def closed(self, code: int, reason: str) -> None:
        was_in = self.phase == "joined"
        self._line = None
        self._closed = (code, reason)
        self.phase = "dialling"
        self._changed.set()
        if not was_in:
            return
        log.info("connection ended", extra={"code": code, "reason": reason})
        ending = self._ending(code, reason)
        if ending is None:
            self._receiver.lost(code, reason)
        else:
            self._receiver.ended(ending)

    def _ending(self, code: int, reason: str) -> CloseReason | None:
        """How it ended, if that was for good."""
        if self._leaving is not None:
            return CloseReason(1000, self._leaving)
        return None if self.reconnect and should_reconnect(code) else CloseReason(code, reason)


def _ending_of(fault: MootError) -> CloseReason:
    if isinstance(fault, ConnectionClosed):
        return CloseReason(fault.code, fault.reason)
    return CloseReason(ABNORMAL_CLOSE, str(fault))
