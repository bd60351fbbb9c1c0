"""Being controlled, and controlling (MEW 3.9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import (
    ConnectionClosed,
    Interrupted,
    McpError,
    Paused,
    UnsupportedByRecipient,
    UsageError,
)
from moot.participant import CompactionResult, Control, Controls, IncomingRequest, Transcript
from tests.participant.gateway_with_members import ReceivedEnvelopes, gateway_with, settled
from tests.waiting import HANG_SECONDS, bounded, until

ALL = ["*"]


@pytest.mark.requirement("MEW-3.9.1-1", "MEW-3.9.1-2", "MEW-3.9.2-2")
async def test_a_paused_member_holds_its_tongue_until_resumed(tmp_path: Path) -> None:
    """D-25: the SDK itself keeps to it; nothing is refused by the gateway because nothing is sent."""
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")
        answer: list[str | None] = []

        class Mine(Controls):
            async def on_pause(self, control: Control) -> None:
                answer.append(control.reason)

        agent.controls.on_pause = Mine().on_pause  # type: ignore[method-assign]
        chat = await human.chat("hello")
        await settled(agent)
        pause = await human.admin.pause("agent", reason="look at this")
        await until(lambda: agent.paused is not None)
        with pytest.raises(Paused, match="paused by human until participant/resume: look at this"):
            await agent.chat("anyway")
        with pytest.raises(Paused):
            await agent.request("human", "ping")
        received = ReceivedEnvelopes(human)
        await agent.chats.acknowledge(chat.id)
        await received.wait("chat/acknowledge")
        await until(lambda: answer == ["look at this"])
        await human.admin.resume("agent", about=pause)
        resume = await received.wait("participant/resume")
        assert resume.correlation_id == [pause.id]
        await agent.ready(HANG_SECONDS)
        await agent.chat("back")
        assert agent.counts.unasked_refusals == 0


async def test_answers_wait_for_the_end_of_a_pause(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")

        @agent.tool
        def hello() -> str:
            return "hi"

        pause = await human.admin.pause("agent")
        await until(lambda: agent.paused is not None)
        call = asyncio.create_task(human.call("agent", "hello"))
        await settled(human)
        assert not call.done()
        await human.admin.resume("agent", about=pause)
        assert (await call).text == "hi"


@pytest.mark.requirement("MEW-3.9.2-3", "MEW-3.9.2-4")
async def test_a_pause_with_a_time_ends_by_itself_and_is_told(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")
        received = ReceivedEnvelopes(human)
        told, resumed = asyncio.Event(), asyncio.Event()

        async def on_pause(control: Control) -> None:
            told.set()

        async def on_resume(control: Control | None) -> None:
            assert control is None
            resumed.set()

        agent.controls.on_pause = on_pause  # type: ignore[method-assign]
        agent.controls.on_resume = on_resume  # type: ignore[method-assign]
        # On a busy machine the time may be up before the agent speaks: once more then, with more of it.
        for seconds in (0.2, 2.0, 20.0, 200.0):
            told.clear()
            resumed.clear()
            pause = await human.admin.pause("agent", timeout_seconds=seconds)
            async with bounded():
                await told.wait()
            said = ""
            try:
                await agent.chat("too early")
            except Paused as fault:
                said = str(fault)
            async with bounded():
                await resumed.wait()
            if said:
                break
        assert "s more" in said
        assert agent.paused is None
        await received.wait(
            lambda each: each.kind == "participant/resume" and each.correlation_id == [pause.id]
        )
        await agent.chat("back")


async def test_pausing_again_only_prolongs(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")
        first = await human.admin.pause("agent", timeout_seconds=HANG_SECONDS)
        await until(lambda: agent.paused is not None)
        await human.admin.pause("agent", timeout_seconds=1)
        await settled(human)
        await until(lambda: agent.counts.received >= 4)
        assert agent.paused is not None
        assert agent.paused.id == first.id
        forever = await human.admin.pause((), reason="everybody")
        await until(lambda: agent.paused is not None and agent.paused.id == forever.id)
        await human.admin.resume()
        await agent.ready(HANG_SECONDS)


async def test_a_pause_from_before_we_joined_is_learnt_from_the_refusal(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human = await gateway.join("human")
        await human.admin.pause("agent", timeout_seconds=60)
        agent = await gateway.join("agent")
        assert agent.paused is None
        with pytest.raises(Exception, match="paused by human"):
            await agent.chat("hello")
        assert agent.paused is not None
        with pytest.raises(Paused):
            await agent.chat("hello")


@pytest.mark.requirement(
    "MEW-3-28",
    "MEW-3-29",
    "MEW-3.9.3-1",
    "MEW-3.9.3-3",
    "MEW-3.9.3-4",
    "MEW-3.9.4-1",
    "MEW-3.9.4-3",
    "MEW-3.9.4-4",
    "MEW-3.9.4-5",
)
async def test_a_status_tells_how_full_the_memory_is(tmp_path: Path) -> None:
    """The agent holds no right to send a status: it owes one (D-15)."""
    async with gateway_with(tmp_path, human=ALL, agent=["chat"], plain=[]) as gateway:
        human = await gateway.join("human")
        agent = await gateway.join("agent", transcript=Transcript(max_tokens=1000))
        received = ReceivedEnvelopes(human)
        for n in range(4):
            await human.chat(f"message {n}")
        await settled(human)
        async with bounded():
            status = await human.admin.request_status("agent")
        transcript = agent.transcript
        assert transcript is not None
        assert status["messages_in_context"] == len(transcript) == 4
        assert isinstance(status["tokens"], int)
        assert status["tokens"] == transcript.tokens > 0
        assert status["max_tokens"] == 1000
        answer = received.of("participant/status")[0]
        assert answer.correlation_id == [received.of("participant/request-status")[0].id]
        narrowed = await human.admin.request_status("agent", ["tokens", "no_such_metric"])
        assert set(narrowed) == {"tokens", "messages_in_context"}
        assert set(await human.admin.request_status("agent", [])) == {"messages_in_context"}
        # A member without any transcript answers, too.
        await gateway.join("plain")
        assert await human.admin.request_status("plain") == {"messages_in_context": 0}


@pytest.mark.requirement("MEW-3.9.4-2", "MEW-3.9.4-6", "MEW-3.9.4-7")
async def test_a_status_can_be_sent_unasked_with_metrics_of_ones_own(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")
        received = ReceivedEnvelopes(human)
        await agent.report_status(latency_ms=12)
        status = await received.wait("participant/status")
        assert status.payload == {"messages_in_context": 0, "latency_ms": 12}
        assert list(status.to) == []
        assert list(status.correlation_id) == []
        with pytest.raises(UsageError, match="snake_case"):
            await agent.report_status(latencyMs=12)


@pytest.mark.requirement("MEW-3-30", "MEW-3.9.5-1", "MEW-3.9.5-2", "MEW-3.9.5-3", "MEW-3-33", "MEW-3.9.8-4")
async def test_forgetting_and_clearing_are_followed_by_a_status(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=[]) as gateway:
        human = await gateway.join("human")
        agent = await gateway.join("agent", transcript=Transcript())
        transcript = agent.transcript
        assert transcript is not None
        for n in range(6):
            await human.chat(f"message {n}")
        await settled(human)
        status = await human.admin.forget("agent", "oldest", 2)
        assert status.kind == "participant/status"
        assert status.payload["messages_in_context"] == 4
        await human.admin.forget("agent", "newest", 1)
        texts = [entry.envelope.payload["text"] for entry in transcript.entries()]
        assert texts == ["message 2", "message 3", "message 4"]
        with pytest.raises(UsageError, match="oldest or newest"):
            await human.admin.forget("agent", "middle")  # type: ignore[arg-type]
        raw = await gateway.raw("human")
        await raw.say("participant/forget", {"direction": "middle"}, to=["agent"])
        await raw.fence()
        cleared = await human.admin.clear("agent")
        assert cleared.payload["messages_in_context"] == 0
        assert "cleared" not in cleared.payload
        assert len(transcript) == 0
        assert agent.violations.of("human") == {"bad_payload": 1}


@pytest.mark.requirement(
    "MEW-3-31",
    "MEW-3-32",
    "MEW-3.9.6-1",
    "MEW-3.9.6-2",
    "MEW-3.9.6-3",
    "MEW-3.9.6-4",
    "MEW-3.9.7-1",
    "MEW-3.9.7-2",
    "MEW-3.9.7-3",
    "MEW-3.9.7-6",
    "MEW-3.9.7-7",
)
async def test_compacting_is_told_before_and_after_and_done_once(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=[]) as gateway:
        human = await gateway.join("human")
        received = ReceivedEnvelopes(human)
        wished: list[int | None] = []

        class Mine(Controls):
            async def on_compact(
                self, control: Control | None, target_tokens: int | None
            ) -> CompactionResult | None:
                wished.append(target_tokens)
                return await super().on_compact(control, target_tokens)

        agent = await gateway.join("agent", controls=Mine(), transcript=Transcript(max_tokens=10_000))
        transcript = agent.transcript
        assert transcript is not None
        for n in range(10):
            await human.chat(f"message {n} " + "x" * 200)
        await settled(human)
        before = transcript.tokens
        done = await human.admin.compact("agent", reason="getting long", target_tokens=100)
        assert wished == [100]
        assert done["freed_messages"] == 10 - len(transcript)
        assert done["freed_tokens"] == before - transcript.tokens > 0
        assert done["status"] == "compacted"
        assert "skipped" not in done
        first, second = received.of("participant/status")
        assert (first.payload["status"], second.payload["status"]) == ("compacting", "compacted")
        assert first.payload["reason"] == "getting long"
        (only,) = received.of("participant/compact-done")
        assert only.correlation_id == [received.of("participant/compact")[0].id]
        await human.admin.compact("agent")
        await settled(human)
        assert len(received.of("participant/compact-done")) == 2


@pytest.mark.requirement("MEW-3.9.6-5", "MEW-3.9.6-6", "MEW-3.9.7-4", "MEW-3.9.7-5", "MEW-3.9.7-6")
async def test_a_member_with_nothing_to_compact_says_that_it_skipped(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=[], broken=[]) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("agent")
        assert await human.admin.compact("agent") == {"skipped": True, "reason": "nothing to compact"}

        class Broken(Controls):
            async def on_compact(
                self, control: Control | None, target_tokens: int | None
            ) -> CompactionResult | None:
                raise RuntimeError("no")

        await gateway.join("broken", controls=Broken())
        assert await human.admin.compact("broken") == {"skipped": True, "reason": "the compaction failed"}


@pytest.mark.requirement("MEW-3.9.4-9", "MEW-3.9.5-4", "MEW-3.9.5-5")
async def test_near_its_limit_a_member_says_so_and_compacts_by_itself(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=["participant/status"]) as gateway:
        human = await gateway.join("human")
        agent = await gateway.join(
            "agent",
            transcript=Transcript(
                max_tokens=10_000, max_messages=10, report_at_share=0.5, compact_at_share=0.9
            ),
        )
        received = ReceivedEnvelopes(human)
        for n in range(7):
            await human.chat(f"message {n}")
        near = await received.wait("participant/status")
        assert near.payload["status"] == "near_limit"
        assert len(received.of("participant/status")) == 1
        transcript = agent.transcript
        assert transcript is not None
        transcript.max_tokens = transcript.tokens + 10
        await human.chat("and one more")
        after = await received.wait(lambda each: each.payload.get("status") == "compacted")
        assert after.payload["freed_messages"] > 0
        assert after.payload["headroom_tokens"] == transcript.headroom > 0
        assert after.payload["compactions"] == 1
        assert list(after.correlation_id) == []
        assert (
            len(
                [each for each in received.of("participant/status") if each.payload["status"] == "near_limit"]
            )
            == 1
        )


@pytest.mark.requirement("MEW-3-34", "MEW-3.9.9-1", "MEW-3.9.9-3")
async def test_a_restart_ends_what_was_going_on(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=ALL, slow=ALL) as gateway:
        human, slow = await gateway.join("human"), await gateway.raw("slow")
        restarted: list[str] = []

        class Mine(Controls):
            async def on_restart(self, control: Control) -> None:
                restarted.append(control.sender)
                await super().on_restart(control)

        agent = await gateway.join("agent", controls=Mine(), transcript=Transcript())
        received = ReceivedEnvelopes(human)
        stopped = asyncio.Event()

        @agent.tool
        async def forever() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return ""

        await human.chat("remember me")
        waiting = asyncio.create_task(agent.request("slow", "x/y"))
        working = asyncio.create_task(human.call("agent", "forever"))
        stream = await agent.streams.open()
        await slow.hear("mcp/request")
        await until(lambda: agent.server.running == 1)
        status = await human.admin.restart("agent")
        assert status.payload["messages_in_context"] == 0
        assert restarted == ["human"]
        with pytest.raises(Interrupted, match="restarted"):
            await waiting
        with pytest.raises(McpError, match="restarted"):
            await working
        assert stopped.is_set()
        assert (await received.wait("stream/close")).payload["stream_id"] == stream.id
        await agent.chat("alive")


@pytest.mark.requirement("MEW-3.9.10-3")
async def test_a_shutdown_is_acknowledged_and_final(tmp_path: Path) -> None:
    """D-26: no coming back by itself; the member has a moment for last things."""
    async with gateway_with(tmp_path, human=ALL, agent=["stream/*"]) as gateway:
        human = await gateway.join("human")
        received = ReceivedEnvelopes(human)
        last: list[str] = []

        class Mine(Controls):
            async def on_shutdown(self, control: Control) -> None:
                last.append(control.sender)

        agent = await gateway.join("agent", controls=Mine())
        await agent.streams.open()
        shutdown = await human.admin.shutdown("agent", reason="good night")
        ending = await agent.stay()
        assert (ending.code, ending.reason) == (4002, "good night")
        assert last == ["human"]
        ack = await received.wait("chat/acknowledge")
        assert ack.correlation_id == [shutdown.id]
        assert received.of("stream/close")
        await until(lambda: "agent" not in human.roster)
        with pytest.raises(ConnectionClosed, match="4002"):
            await agent.chat("one more thing")
        # Somebody may start it again.
        await (await gateway.join("agent")).ready(HANG_SECONDS)


async def test_who_keeps_no_transcript_says_that_nothing_was_cleared(tmp_path: Path) -> None:
    """The model behind a door for MCP, for one, knows what it knew."""
    async with gateway_with(tmp_path, human=ALL, agent=[]) as gateway:
        human = await gateway.join("human")
        await gateway.join("agent")
        status = await human.admin.clear("agent")
        assert status.payload == {"messages_in_context": 0, "cleared": False}


async def test_a_control_that_fails_is_still_answered(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=[]) as gateway:
        human = await gateway.join("human")

        class Broken(Controls):
            async def on_clear(self, control: Control) -> None:
                raise RuntimeError("no")

        agent = await gateway.join("agent", controls=Broken())
        failed = await human.admin.clear("agent")
        assert failed.payload == {"messages_in_context": 0, "cleared": False}
        await until(lambda: agent.counts.failed_handlers == 1)
        assert await human.admin.request_status("agent") == {"messages_in_context": 0}


async def test_a_member_of_an_older_dialect_is_not_waited_for(tmp_path: Path) -> None:
    """D-56."""
    async with gateway_with(tmp_path, human=ALL, old=ALL) as gateway:
        human = await gateway.join("human")
        await gateway.raw("old", "&dialect=mcpx")
        with pytest.raises(UnsupportedByRecipient, match="expect no answer"):
            await human.admin.request_status("old")


async def test_requests_go_on_while_controls_are_obeyed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=ALL, agent=[]) as gateway:
        human = await gateway.join("human")
        go = asyncio.Event()

        class Slow(Controls):
            async def on_compact(
                self, control: Control | None, target_tokens: int | None
            ) -> CompactionResult | None:
                await go.wait()
                return None

        agent = await gateway.join("agent", controls=Slow())

        @agent.tool
        async def hello(request: IncomingRequest) -> str:
            return "hi"

        compacting = asyncio.create_task(human.admin.compact("agent"))
        assert (await human.call("agent", "hello")).text == "hi"
        go.set()
        assert (await compacting)["skipped"] is True
