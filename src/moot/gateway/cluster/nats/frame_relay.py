"""Frames of streams between gateways, by core NATS: quick, in order for each sender, and kept nowhere.

A frame says how far its sender's gateway had read the log. A gateway that is behind holds it until it knows
as much: the stream may just have been opened. So does one that has not heard of the log for too long: the
sender may have been revoked. What it cannot hold, or for too long, is dropped, as frames
are when anybody is too slow.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS

log = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">H")
_MAX_HELD_BYTES: Final = 4 << 20
_MAX_HELD_SECONDS: Final = 1.0


class FrameHead(msgspec.Struct, frozen=True):
    gateway: str
    space: str
    session: str
    # The last message of the space's log that the sender's gateway had applied.
    position: int
    binary: bool


class RelayedFrame(NamedTuple):
    head: FrameHead
    raw: bytes
    at: float


class FrameRelay:
    """Sends and receives the frames of one gateway."""

    def __init__(
        self,
        client: Client,
        subject: str,
        gateway: str,
        *,
        serves: Callable[[str], bool],
        position_of: Callable[[str], int],
        is_fresh: Callable[[str], bool],
        deliver: Callable[[FrameHead, bytes], None],
    ) -> None:
        self._client = client
        self._subject = subject
        self._gateway = gateway
        self._serves = serves
        self._position_of = position_of
        self._is_fresh = is_fresh
        self._deliver = deliver
        self._held: dict[str, deque[RelayedFrame]] = {}
        self._held_bytes = 0
        self._decoder = msgspec.json.Decoder(FrameHead)
        self.dropped = 0

    async def start(self) -> None:
        await self._client.subscribe(f"{self._subject}.*", cb=self._take)

    def encode(self, head: FrameHead, raw: bytes) -> bytes:
        encoded = msgspec.json.encode(head)
        return _SIZE.pack(len(encoded)) + encoded + raw

    async def send(self, head: FrameHead, raw: bytes) -> None:
        try:
            await self._client.publish(f"{self._subject}.{self._gateway}", self.encode(head, raw))
        except (*NATS_FAULTS, ValueError):
            self.dropped += 1

    async def _take(self, message: Msg) -> None:
        size = _SIZE.unpack_from(message.data)[0] if len(message.data) > _SIZE.size else 0
        try:
            head = self._decoder.decode(message.data[_SIZE.size : _SIZE.size + size])
        except msgspec.MsgspecError:
            self.dropped += 1
            return
        if head.gateway == self._gateway or not self._serves(head.space):
            return
        raw = message.data[_SIZE.size + size :]
        held = self._held.get(head.space)
        if held or self._position_of(head.space) < head.position or not self._is_fresh(head.space):
            if self._held_bytes + len(raw) > _MAX_HELD_BYTES:
                self.dropped += 1
                return
            self._held.setdefault(head.space, deque()).append(RelayedFrame(head, raw, time.monotonic()))
            self._held_bytes += len(raw)
        else:
            self._deliver(head, raw)

    def release(self) -> None:
        """The log was read further: deliver what waited for that."""
        for space in list(self._held):
            self._release_space(space, self._held[space])

    def _release_space(self, space: str, held: deque[RelayedFrame]) -> None:
        position = self._position_of(space) if self._is_fresh(space) else -1
        late = time.monotonic() - _MAX_HELD_SECONDS
        while held and (held[0].head.position <= position or held[0].at < late):
            frame = held.popleft()
            self._held_bytes -= len(frame.raw)
            if frame.at < late:
                self.dropped += 1
            else:
                self._deliver(frame.head, frame.raw)
        if not held:
            del self._held[space]
