"""Talking, thinking aloud, and contexts (MEW 3.4, 3.5)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from moot.errors import NotAllowed, ReasoningCancelled, UsageError
from moot.participant import Chunk, IncomingRequest, JoinedSpace, format_of, is_within, levels
from moot.participant.programs.chat_intake import ChatIntake
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.participant.gateway_with_members import ReceivedEnvelopes, gateway_with, settled
from tests.waiting import bounded, until

ALL = ["*"]


@pytest.mark.requirement(
    "MEW-3-45", "MEW-3.4-1", "MEW-3.4-2", "MEW-3.4-3", "MEW-3.4-4", "MEW-3.4-5", "MEW-3-57", "MEW-6.4-6"
)
async def test_chat_is_a_kind_of_its_own_and_has_text(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)
        first = await alice.chat("hello")
        plain = await received.wait("chat")
        assert (plain.kind, plain.payload, list(plain.to)) == ("chat", {"text": "hello"}, [])
        assert format_of(plain) == "plain"
        await alice.chat("*hello*", format="markdown", to="bob", about=first.id)
        marked = await received.wait("chat", 2)
        assert format_of(marked) == "markdown"
        assert marked.to == ["bob"]
        assert bob.correlations.parents(marked.id) == (first.id,)
        with pytest.raises(UsageError, match="non-empty string"):
            await alice.chat("")
        with pytest.raises(UsageError, match="plain or markdown"):
            await alice.chat("x", format="html")  # type: ignore[arg-type]
        raw = await gateway.raw("alice")
        await raw.say("chat", {"text": ""})
        await raw.say("chat", {"note": "no text"})
        await raw.say("chat", {"text": 5})
        await raw.fence()
        await settled(bob)
        assert len(received.of("chat")) == 2
        assert bob.violations.of("alice") == {"bad_payload": 3}


@pytest.mark.requirement(
    "MEW-3-46",
    "MEW-3-47",
    "MEW-3.4.1-1",
    "MEW-3.4.1-2",
    "MEW-3.4.1-3",
    "MEW-3.4.1-4",
    "MEW-3.4.2-1",
    "MEW-3.4.2-2",
    "MEW-3.4.2-3",
)
async def test_chats_wait_until_they_are_acknowledged_or_cancelled(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, carol=ALL) as gateway:
        alice, bob, carol = [await gateway.join(name) for name in ("alice", "bob", "carol")]
        received = ReceivedEnvelopes(alice)
        one, two, three = [await alice.chat(text) for text in ("one", "two", "three")]
        await alice.chat("for carol", to="carol")
        await settled(bob)
        await settled(carol)
        assert [chat.id for chat in bob.chats.pending()] == [one.id, two.id, three.id]
        assert len(carol.chats.pending()) == 4
        assert alice.chats.pending() == []
        await bob.chats.acknowledge(bob.chats.pending()[0])
        await bob.chats.acknowledge(two.id, "read")
        await settled(bob)
        assert [chat.id for chat in bob.chats.pending()] == [three.id]
        await received.wait("chat/acknowledge", 2)
        first, second = received.of("chat/acknowledge")
        assert (first.correlation_id, first.payload) == ([one.id], {"status": "received"})
        assert (second.correlation_id, second.payload) == ([two.id], {"status": "read"})
        assert alice.chats.acknowledgements(two.id) == {"bob": "read"}
        # Another's acknowledgement clears nobody else's queue.
        assert one.id in [chat.id for chat in carol.chats.pending()]
        await alice.chats.cancel(three)
        cancel = await received.wait("chat/cancel")
        assert (cancel.correlation_id, cancel.payload) == ([three.id], {"reason": "handled_elsewhere"})
        await settled(bob)
        assert bob.chats.pending() == []
        assert len(received.of("chat")) == 4


async def test_an_agent_takes_no_chat_that_was_cancelled_before_its_turn_came(tmp_path: Path) -> None:
    """Both come with one read, so the handler of the chat has not had its first step."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        taken: list[str] = []

        async def take(chat: Envelope) -> None:
            taken.append(chat.payload["text"])

        def arrive(kind: str, id: str, about: list[str], payload: dict[str, Json]) -> None:
            bob._session.handle_envelope(
                Envelope("mew", kind, id, "", "alice", ["bob"], about, None, payload, b"")
            )

        ChatIntake(bob, take, answers="named").start()
        await alice.chat("one", to="bob")
        await until(lambda: taken == ["one"])
        arrive("chat", "c-2", [], {"text": "two"})
        arrive("chat/cancel", "c-3", ["c-2"], {"reason": "no_longer_needed"})
        await alice.chat("three", to="bob")
        await until(lambda: "three" in taken)
        assert taken == ["one", "three"]
        # Whoever cancels very much does not make bob answer again what he has answered.
        arrive("chat", "c-4", [], {"text": "four"})
        await until(lambda: "four" in taken)
        arrive("chat/cancel", "c-5", [f"x-{number}" for number in range(20_000)], {"reason": "flood"})
        arrive("chat", "c-4", [], {"text": "four"})
        await alice.chat("five", to="bob")
        await until(lambda: "five" in taken)
        assert taken == ["one", "three", "four", "five"]


@pytest.mark.requirement(
    "MEW-3-16",
    "MEW-3-17",
    "MEW-3-18",
    "MEW-3-63",
    "MEW-3-64",
    "MEW-3.5-1",
    "MEW-3.5.1-1",
    "MEW-3.5.1-2",
    "MEW-3.5.1-4",
    "MEW-3.5.1-6",
    "MEW-3.5.1-9",
    "MEW-3.5.2-1",
    "MEW-3.5.3-1",
    "MEW-3.5.3-2",
    "MEW-3.5.4-1",
    "MEW-3.5.6-1",
)
async def test_reasoning_about_a_request(tmp_path: Path) -> None:
    """MEW 3.5.1, the response pattern."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, watch=ALL) as gateway:
        alice, bob, watcher = [await gateway.join(name) for name in ("alice", "bob", "watch")]
        received = ReceivedEnvelopes(watcher)
        thought_of = asyncio.Event()

        async def think(request: IncomingRequest) -> dict[str, Json]:
            async with bob.reasoning("Shall I?", about=request.envelope.id) as reasoning:
                await reasoning.thought("It is cheap.")
                await thought_of.wait()
                await reasoning.chat("thinking…")
                await reasoning.conclude("Yes.")
            return {"answer": "yes"}

        bob.server.use_handler(think)
        call = asyncio.create_task(alice.request("bob", "decide"))
        # A thought is out while the thinking goes on.
        thought = await received.wait("reasoning/thought")
        assert received.of("reasoning/conclusion") == []
        (sequence,) = watcher.contexts.active()
        assert sequence.thoughts() == ["It is cheap."]
        thought_of.set()
        assert await call == {"answer": "yes"}
        start, conclusion = received.of("reasoning/start")[0], await received.wait("reasoning/conclusion")
        request = received.of("mcp/request")[0]
        assert start.correlation_id == [request.id]
        assert start.payload == {"message": "Shall I?"}
        assert thought.context == start.id
        assert thought.payload == {"message": "It is cheap."}
        assert (conclusion.context, conclusion.payload) == (start.id, {"message": "Yes."})
        chat = received.of("chat")[0]
        assert chat.context == start.id
        assert received.of("mcp/response")[0].correlation_id == [request.id]
        assert sequence.state == "concluded"
        assert sequence.conclusion == "Yes."
        assert [item.kind for item in sequence.items] == ["reasoning/thought", "chat", "reasoning/conclusion"]
        assert watcher.contexts.active() == []
        # Nobody answered a thought, and the chat queue holds chat alone.
        assert alice.counts.sent == 1
        assert [each.kind for each in watcher.chats.pending()] == ["chat"]


@pytest.mark.requirement(
    "MEW-3.5.1-3", "MEW-3.5.1-5", "MEW-3.5.1-7", "MEW-3.5.1-8", "MEW-3.5.1-10", "MEW-3.5.5-4"
)
async def test_reasoning_without_a_trigger_or_thoughts_and_what_ends_it(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, watch=ALL) as gateway:
        alice, watcher = await gateway.join("alice"), await gateway.join("watch")
        received = ReceivedEnvelopes(watcher)
        async with alice.reasoning("Idle thoughts"):
            pass
        assert (await received.wait("reasoning/conclusion")).payload == {"message": "done"}
        start = received.of("reasoning/start")[0]
        assert list(start.correlation_id) == []
        sequence = watcher.contexts.get(start.id)
        assert sequence is not None
        assert sequence.thoughts() == []
        assert len(alice._parts.requests) == 0
        with pytest.raises(ZeroDivisionError):
            async with alice.reasoning("Broken"):
                raise ZeroDivisionError
        cancel = await received.wait("reasoning/cancel")
        assert cancel.payload == {"reason": "error"}
        assert cancel.context == received.of("reasoning/start")[1].id
        # A sequence that just stops, without any conclusion, is fine for whoever watches.
        raw = await gateway.raw("alice")
        id = await raw.say("reasoning/start", {"message": "and then nothing"})
        await raw.fence()
        await settled(watcher)
        assert [each.id for each in watcher.contexts.active()] == [id]
        assert watcher.violations.total == 0


@pytest.mark.requirement(
    "MEW-3-19", "MEW-3.5.5-1", "MEW-3.5.5-2", "MEW-3.5.5-3", "MEW-3.5.5-5", "MEW-3.5.5-4"
)
async def test_anybody_with_the_right_stops_a_reasoner(tmp_path: Path) -> None:
    """D-31: it stops at once, and no thought follows."""
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, mute=["chat"]) as gateway:
        alice, bob, mute = [await gateway.join(name) for name in ("alice", "bob", "mute")]
        received = ReceivedEnvelopes(bob)
        trigger = await bob.chat("think!")

        async def think() -> None:
            async with alice.reasoning("Long", about=trigger.id) as reasoning:
                await reasoning.thought("one")
                await asyncio.Event().wait()

        task = asyncio.create_task(think())
        await received.wait("reasoning/thought")
        (sequence,) = bob.contexts.active()
        with pytest.raises(NotAllowed):
            await mute.cancel_reasoning(sequence.id)
        with pytest.raises(UsageError, match="must name"):
            await bob.cancel_reasoning("")
        with pytest.raises(UsageError, match="context"):
            await bob.send("reasoning/cancel", {"reason": "x"})
        await bob.cancel_reasoning(sequence.id, "timeout", about=trigger.id)
        with pytest.raises(ReasoningCancelled, match="bob cancelled this reasoning: timeout"):
            await task
        cancel = received.of("reasoning/cancel")[0]
        assert (cancel.context, cancel.payload, cancel.correlation_id) == (
            sequence.id,
            {"reason": "timeout"},
            [trigger.id],
        )
        assert sequence.state == "cancelled"
        assert (sequence.cancelled_by, sequence.reason, sequence.conclusion) == ("bob", "timeout", None)
        assert bob.contexts.active() == []
        # Without being stopped, one can look, and thoughts are not sent any more.
        async with alice.reasoning("Careful", stop=False) as reasoning:
            await settled(bob)
            await bob.cancel_reasoning(reasoning.id)
            async with bounded():
                await reasoning.cancelled.wait()
            with pytest.raises(ReasoningCancelled):
                await reasoning.thought("too late")
        await settled(bob)
        assert len(received.of("reasoning/thought")) == 1
        # Cancelling what nobody knows does no harm.
        await bob.cancel_reasoning("unknown-start")


async def test_a_task_that_is_cancelled_from_outside_stays_cancelled(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)

        inside = asyncio.Event()

        async def think() -> None:
            async with alice.reasoning("Long"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(think())
        await received.wait("reasoning/start")
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await received.wait("reasoning/cancel")).payload == {"reason": "superseded"}


@pytest.mark.requirement("MEW-3.5.6-5", "MEW-3-62")
async def test_parallel_and_nested_sequences_stay_apart(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, watch=ALL) as gateway:
        alice, bob, watcher = [await gateway.join(name) for name in ("alice", "bob", "watch")]
        async with alice.reasoning("A") as a, bob.reasoning("B") as b:
            for n in range(3):
                await a.thought(f"a{n}")
                await b.thought(f"b{n}")
            async with a.sub("A inside") as inner:
                assert levels(inner.context) == (a.id, inner.id)
                await inner.thought("deep")
                async with inner.sub("deeper") as deepest:
                    assert levels(deepest.context) == (a.id, inner.id, deepest.id)
            await a.conclude("A over")
        await settled(alice)
        await settled(watcher)
        mine, other = watcher.contexts.get(a.id), watcher.contexts.get(b.id)
        assert mine is not None
        assert other is not None
        assert mine.thoughts() == ["a0", "a1", "a2"]
        assert other.thoughts() == ["b0", "b1", "b2"]
        inside = watcher.contexts.get(inner.id)
        assert inside is not None
        assert inside.thoughts() == ["deep"]
        assert inside.path == f"{a.id}/{inner.id}"
        # Nobody thinks in another's name.
        raw = await gateway.raw("watch")
        start = await bob.send("reasoning/start", {"message": "mine"}, confirm=True)
        await raw.say("reasoning/thought", {"message": "forged"}, context=start.id)
        await raw.fence()
        await settled(alice)
        sequence = alice.contexts.get(start.id)
        assert sequence is not None
        assert sequence.thoughts() == []
        assert alice.violations.of("watch") == {"not_owner": 1}


@pytest.mark.requirement("MEW-3-62", "MEW-3.5.6-4")
def test_a_context_is_a_path() -> None:
    assert levels("a/b/c") == ("a", "b", "c")
    assert is_within("a/b", "a/")
    assert is_within("a/b/c", "a/b")
    assert is_within("a", "a")
    assert not is_within("ab", "a")
    assert not is_within("a", "a/b")
    assert not is_within(None, "a")


@pytest.mark.requirement("MEW-3-66")
async def test_a_request_is_answered_whatever_its_context(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        def hello() -> str:
            return "hi"

        async with alice.reasoning("asking inside") as reasoning:
            outcome = await reasoning.perform("bob", "tools/call", {"name": "hello"})
            assert outcome.text == "hi"
        outcome = await alice.call("bob", "hello", context="a/foreign/place")
        assert outcome.text == "hi"


@pytest.mark.requirement("MEW-3.10.1-16")
async def test_long_reasoning_has_a_stream_beside_it(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)
        async with alice.reasoning("Long", stream=True) as reasoning:
            assert reasoning.stream is not None
            await reasoning.stream.write("first ")
            await reasoning.stream.write("second")
            await until(lambda: bool(bob.streams.active))
            (info,) = bob.streams
            chunks = asyncio.create_task(_texts(bob, info.id))
        assert await chunks == ["first ", "second"]
        request = received.of("stream/request")[0]
        assert request.correlation_id == [reasoning.id]
        assert (request.payload["content_type"], request.payload["format"]) == ("text/plain", "reasoning")
        assert (await received.wait("stream/close")).payload["reason"] == "complete"


@pytest.mark.requirement("MEW-3.10.4-4")
@pytest.mark.parametrize("by", ["itself", "another", "another, and it goes on"])
async def test_the_stream_of_reasoning_that_is_cancelled_does_not_end_as_complete(
    tmp_path: Path, by: str
) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(bob)
        with suppress(ReasoningCancelled):
            async with alice.reasoning("Long", stream=True, stop=by == "another") as reasoning:
                if by == "itself":
                    await reasoning.cancel("superseded")
                else:
                    await bob.cancel_reasoning(reasoning.id)
                    await reasoning.cancelled.wait()
        assert (await received.wait("stream/close")).payload["reason"] == "cancelled"


async def _texts(space: JoinedSpace, id: str) -> list[str]:
    return [chunk.text async for chunk in space.streams.read(id) if isinstance(chunk, Chunk)]
