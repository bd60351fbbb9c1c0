"""Questions about spaces that a gateway does not serve: asked of those that do, by core NATS.

    asks ─▶ for each shard one gateway that has told to serve it ─▶ reads the log to its end ─▶ answers

Whoever is asked answers only for what it serves, so what gateways tell of themselves may be late. Nobody
there: the next one is asked. No answer in time: nobody knows, and whoever asked is told so. An answer knows
all that was in the log when the question came, so somebody revoked before is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from moot.errors import Refused, Unavailable
from moot.gateway.access import SpaceDirectory
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection
from moot.gateway.other_spaces import AskedSpaces
from moot.net.address_order import score
from moot.protocol.operation import Json, Payload
from moot.protocol.refusals import payload_of, refusal_of
from moot.resilience.task_set import TaskSet

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode

log = logging.getLogger(__name__)

# At a time, of all that come to this gateway and of all that it asks.
_MAX_QUESTIONS: Final = 64
_TOO_MANY: Final = "too many questions about other spaces at a time: try again"


class SpaceQuestion(msgspec.Struct, frozen=True):
    """What is asked, about the spaces of these shards."""

    about: str
    shards: frozenset[int]
    facts: Json


class SpaceAnswer(msgspec.Struct, frozen=True):
    """What is found in the spaces of these shards, or why that cannot be said."""

    shards: frozenset[int] = frozenset()
    found: Json = None
    refusal: Payload | None = None


_questions: Final = msgspec.json.Decoder(SpaceQuestion)
_answers: Final = msgspec.json.Decoder(SpaceAnswer)


class ShardQuestions:
    """Asks the other gateways, and answers them."""

    def __init__(self, node: ClusterNode, directory: SpaceDirectory, tasks: TaskSet) -> None:
        self._node = node
        self._directory = directory
        self._tasks = tasks
        self._asking = self._answering = 0

    async def start(self, connection: ClusterConnection) -> None:
        """Answer the other gateways from now on, and ask them."""
        self._connection = connection
        await connection.client.subscribe(self._subject_of(self._node.name), cb=self._take)
        self._directory.others.asking = self

    def _subject_of(self, gateway: str) -> str:
        return f"{self._node.config.name}.ask.{gateway}"

    # Asking

    async def ask(self, about: str, facts: Json, of: str | None) -> list[Json]:
        """What is found in all shards that are not served here now, or in one space's. Raises Refused."""
        asked = self._node.shards if of is None else [self._node.shard_of(of)]
        left = {shard.index for shard in asked if shard.state != "served"}
        if not left:
            return []
        try:
            # A question that is answered later than this is not asked again.
            async with self._counted(), asyncio.timeout(self._node.config.unavailable_seconds):
                return await self._ask(about, facts, left)
        except TimeoutError:
            raise Unavailable("a gateway of this cluster did not answer in time: try again") from None

    async def ask_files(self, about: str, facts: Json, who: str | None) -> dict[str, Json]:
        """What the files of one gateway have, or of all that live."""
        node, question = self._node, SpaceQuestion(about, frozenset(), facts)
        asked = [name for name, _ in node.common.others_of(node.name)] if who is None else [who]

        async def request(gateway: str) -> Json:
            with suppress(Unavailable):
                answer = await self._request(gateway, question)
                return None if answer.refusal is not None else answer.found
            return None

        async with self._counted():
            found = await asyncio.gather(*map(request, asked))
        return {gateway: each for gateway, each in zip(asked, found, strict=True) if each is not None}

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        if self._asking >= _MAX_QUESTIONS:
            raise Unavailable(_TOO_MANY)
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    async def _ask(self, about: str, facts: Json, left: set[int]) -> list[Json]:
        found: list[Json] = []
        tried: set[tuple[str, int]] = set()
        while left:
            plan: dict[str, set[int]] = defaultdict(set)
            for index in left:
                who = next((each for each in self._serving(index) if (each, index) not in tried), None)
                if who is None:
                    raise Unavailable("a part of this cluster's spaces is served by nobody now: try again")
                plan[who].add(index)
                tried.add((who, index))
            # Each is asked for other shards, so nothing is done twice.
            answers = await asyncio.gather(
                *(self._request(who, SpaceQuestion(about, frozenset(of), facts)) for who, of in plan.items())
            )
            for answer in answers:
                if answer.refusal is not None:
                    raise refusal_of(answer.refusal)
            for (_, wanted), answer in zip(plan.items(), answers, strict=True):
                if answered := wanted & answer.shards:
                    found.append(answer.found)
                    left -= answered
        return found

    def _serving(self, index: int) -> list[str]:
        """Gateways that have told to serve a shard, in an order for each shard."""
        told = self._node.told_to_serve(index)
        return sorted(told, key=lambda name: score(index, name), reverse=True)

    async def _request(self, gateway: str, question: SpaceQuestion) -> SpaceAnswer:
        """Raises Unavailable if nobody knows whether it was answered."""
        client = self._connection.client
        if not client.is_connected:
            # It would be sent when nobody waits any more.
            raise Unavailable("this gateway is not connected to its cluster: try again, or another one")
        try:
            answer = await client.request(
                self._subject_of(gateway),
                msgspec.json.encode(question),
                timeout=self._node.config.unavailable_seconds,
            )
            return _answers.decode(answer.data)
        except nats.errors.NoRespondersError:
            return SpaceAnswer()
        except msgspec.MsgspecError:
            raise Unavailable(f"the answer of gateway {gateway} cannot be read") from None
        except NATS_FAULTS:
            raise Unavailable(f"gateway {gateway} did not answer: try again") from None

    # Answering

    async def _take(self, message: Msg) -> None:
        # The next message does not wait for this one.
        self._tasks.start(self._answer(message))

    async def _answer(self, message: Msg) -> None:
        answer = _refuse(Unavailable(_TOO_MANY))
        if self._answering < _MAX_QUESTIONS:
            self._answering += 1
            try:
                answer = await self._find(_questions.decode(message.data))
            except Refused as refusal:
                answer = _refuse(refusal)
            except msgspec.MsgspecError:
                log.warning("a question of a gateway cannot be read")
                return
            except Exception:
                # A request's task: whoever asked gets no detail.
                log.exception("a question of a gateway could not be answered")
                answer = _refuse(Unavailable("the gateway that was asked failed; its log says why"))
            finally:
                self._answering -= 1
        encoded = msgspec.json.encode(answer)
        if len(encoded) > self._connection.max_payload_bytes:
            encoded = msgspec.json.encode(
                _refuse(Unavailable("this is more than gateways tell each other: ask those that serve it"))
            )
        try:
            await message.respond(encoded)
        except NATS_FAULTS as fault:
            log.debug("question not answered", extra={"fault": repr(fault)})

    async def _find(self, question: SpaceQuestion) -> SpaceAnswer:
        node, others = self._node, self._directory.others
        if (of_files := others.of_files.get(question.about)) is not None:
            return SpaceAnswer(found=await of_files(question.facts))
        shards = [each for each in node.served if each.index in question.shards]
        if not shards:
            return SpaceAnswer()
        await self._directory.wait_current()
        known = self._directory.hosts
        hosts = [known[name] for shard in shards for name in shard.orders if name in known]
        asked = AskedSpaces(hosts, lambda name: node.shard_of(name) in shards)
        found = await others.find(question.about, question.facts, asked)
        for shard in shards:
            # It may have been left meanwhile; another one serves it then.
            node.check_current(shard)
        return SpaceAnswer(frozenset(shard.index for shard in shards), found)


def _refuse(refusal: Refused) -> SpaceAnswer:
    return SpaceAnswer(refusal=payload_of(refusal))
