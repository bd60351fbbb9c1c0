"""What gateways of a cluster tell each other of themselves when an operator asks, by core NATS.

Not by the log: a gateway that has trouble with the log is the one that is asked about. Nothing secret is in
it, and nobody goes by it but who reads it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Literal

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS

log = logging.getLogger(__name__)

GatewayState = Literal["serving", "unavailable", "cut off", "failed"]

_MAX_ANSWERS: Final = 64
# Most that are gone have ended, and whoever asks does not wait for them.
_GONE_SECONDS: Final = 0.2
_MAX_ANSWER_BYTES: Final = 1 << 20


class ShardStatus(msgspec.Struct, frozen=True):
    """How far one gateway is with one stream of the log."""

    shard: int
    # The last message that was applied.
    position: int
    # Since when nothing is known of this part of the log: the age of the own heartbeat that came back last.
    age_seconds: float
    # What waits to be written.
    pending_inputs: int
    pending_bytes: int
    # Hashes of the states of spaces behind this message; 0: none since this gateway started.
    hashed_at: int
    hashes: dict[str, str]
    # Why NATS does not take its messages; empty while it does.
    refusal: str = ""
    # Which time it is that this gateway serves it.
    epoch: int = 0


class GatewayStatus(msgspec.Struct, frozen=True):
    """One gateway as it sees itself."""

    gateway: str
    version: str
    # Which start of this gateway it is.
    epoch: int
    state: GatewayState
    shards: list[ShardStatus]
    # What its file says otherwise than the cluster does, as far as it knows.
    differences: list[str]
    # Spaces of the cluster that its file does not have.
    unknown_spaces: list[str]
    # Settings of gateway.cluster that may differ between gateways, and better do not.
    settings: dict[str, float]
    # Why it cannot go on.
    failure: str = ""
    # Spaces whose journal it cannot write; they go on by the log.
    unwritten_journals: list[str] = []
    # Whether the space that was asked about is in its file, also if it does not serve it; None: not asked.
    has_in_file: bool | None = None
    # Shards that it begins to serve just now, and those that it leaves to others.
    begins: list[int] = []
    refuses: list[int] = []


class StatusQuestion(msgspec.Struct, frozen=True):
    gateway: str
    # One space that is asked about; empty for none.
    space: str = ""


_questions: Final = msgspec.json.Decoder(StatusQuestion)
_answers: Final = msgspec.json.Decoder(GatewayStatus)


class StatusExchange:
    """Answers other gateways, and asks them."""

    def __init__(
        self, client: Client, subject: str, gateway: str, own_status: Callable[[str], GatewayStatus]
    ) -> None:
        self._client = client
        self._subject = subject
        self._gateway = gateway
        self._own_status = own_status

    async def start(self) -> None:
        await self._client.subscribe(self._subject, cb=self._answer)

    async def ask(
        self, living: Collection[str], gone: Collection[str], seconds: float, space: str = ""
    ) -> dict[str, GatewayStatus]:
        """What other gateways say of themselves, by name: until all that live have, or for so long.

        One that is gone by the log may only be cut off from it: a moment is given to it, too.
        """
        found: dict[str, GatewayStatus] = {}
        if not self._client.is_connected:
            # What is published now would be sent when nobody waits any more.
            return found
        answered = asyncio.Event()

        async def take(message: Msg) -> None:
            if len(found) >= _MAX_ANSWERS or len(message.data) > _MAX_ANSWER_BYTES:
                return
            try:
                status = _answers.decode(message.data)
            except msgspec.MsgspecError:
                log.warning("a status that cannot be read")
                return
            found[status.gateway] = status
            answered.set()

        async def wait_for(names: Collection[str], most_seconds: float) -> None:
            try:
                async with asyncio.timeout(most_seconds):
                    while not found.keys() >= set(names):
                        answered.clear()
                        await answered.wait()
            except TimeoutError:
                log.debug("not all gateways answered", extra={"answered": sorted(found)})

        try:
            inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(inbox, cb=take)
            question = msgspec.json.encode(StatusQuestion(self._gateway, space))
            await self._client.publish(self._subject, question, reply=inbox)
            await asyncio.gather(wait_for(living, seconds), wait_for(gone, _GONE_SECONDS))
            await subscription.unsubscribe()
        except NATS_FAULTS as fault:
            log.debug("gateways not asked", extra={"fault": repr(fault)})
        return found

    async def _answer(self, message: Msg) -> None:
        try:
            question = _questions.decode(message.data)
        except msgspec.MsgspecError:
            return
        if question.gateway == self._gateway or not message.reply:
            return
        try:
            await self._client.publish(message.reply, msgspec.json.encode(self._own_status(question.space)))
        except NATS_FAULTS as fault:
            log.debug("status not told", extra={"fault": repr(fault)})
