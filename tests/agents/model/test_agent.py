"""An agent in a real space, its model a local server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.agents.model.agent_settings import AgentLimits, AgentSettings, Api, ModelSettings
from moot.agents.model.model import Model
from moot.agents.model.model_agent import Agent
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.agents.model.endpoint import Endpoint, Line, call, endpoint
from tests.participant.gateway_with_members import (
    QUICK,
    TOOL_HOST,
    GatewayWithMembers,
    ReceivedEnvelopes,
    away,
    gateway_with,
)
from tests.waiting import until

LISTS: Json = {"kind": "mcp/request", "payload": {"method": "*/list"}}
CAUTIOUS: Sequence[Json] = (
    "chat", "chat/acknowledge", "mcp/proposal", "mcp/withdraw", "reasoning/*", "stream/*",
    "participant/status", LISTS,
)  # fmt: skip
TRUSTED: Sequence[Json] = (*CAUTIOUS, {"kind": "mcp/request", "payload": {"method": "tools/call"}})


class Scene:
    """Alice, a calculator, and an agent whose model is scripted."""

    def __init__(
        self, gateway: GatewayWithMembers, alice: JoinedSpace, agent: Agent, model: Endpoint
    ) -> None:
        self.gateway = gateway
        self.alice = alice
        self.agent = agent
        self.model = model
        self.received = ReceivedEnvelopes(alice)

    @property
    def waiting(self) -> int:
        """Questions that wait for their turn."""
        return self.agent.inbox.queue.waiting if self.agent.inbox is not None else 0

    @property
    def remarks(self) -> int:
        return len(self.agent.inbox.remarks) if self.agent.inbox is not None else 0

    @staticmethod
    def is_said(envelope: Envelope) -> bool:
        return envelope.kind == "chat" and envelope.sender == "agent"

    async def answer(self, text: str, **options: Any) -> str:
        """What the agent says to a chat."""
        sent = await self.alice.chat(text, to="agent", **options)
        reply = await self.received.wait(
            lambda e: e.kind == "chat" and e.sender == "agent" and sent.id in e.correlation_id
        )
        return str(reply.payload["text"])


@asynccontextmanager
async def agent_scene(
    folder: Path,
    *script: Line,
    rights: Sequence[Json] = TRUSTED,
    settings: AgentSettings | None = None,
    api: Api = "chat",
) -> AsyncIterator[Scene]:
    settings = settings or AgentSettings()
    async with (
        endpoint(*script) as model,
        gateway_with(
            folder, alice=["*"], bob=["*"], calculator=TOOL_HOST, late=TOOL_HOST, agent=rights
        ) as gateway,
        Model(ModelSettings(base_url=model.url, model="scripted", api=api)) as client,
    ):
        alice, calculator = await gateway.join("alice"), await gateway.join("calculator")

        @calculator.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        async with running_agent(gateway, client, settings) as agent:
            yield Scene(gateway, alice, agent, model)


@asynccontextmanager
async def running_agent(
    gateway: GatewayWithMembers, client: Model, settings: AgentSettings
) -> AsyncIterator[Agent]:
    agent = Agent(client, settings)
    join = connect(
        gateway.url,
        "lab",
        "t-agent",
        limits=QUICK,
        controls=agent.controls,
        transcript=agent.transcript,
    )
    async with join as space:
        running = asyncio.create_task(agent.run(space))
        await asyncio.sleep(0)  # it listens from here on
        try:
            yield agent
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_it_calls_a_tool_that_it_may_call_and_answers(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, call("add", a=2, b=40), "It is 42.") as scene:
        assert await scene.answer("what is 2 + 40?") == "It is 42."
        first, second = scene.model.asked
        assert [tool["function"]["name"] for tool in first["tools"]] == ["add"]
        assert first["messages"][0]["role"] == "system"
        assert first["messages"][-1] == {"role": "user", "content": "alice: what is 2 + 40?"}
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": "c0", "content": "42"}
        kinds = [
            e.kind for e in scene.received.envelopes if e.sender == "agent" and e.kind.startswith("reasoning")
        ]
        assert kinds == ["reasoning/start", "reasoning/conclusion"]
        # MEW 3: what is done within a sequence carries its context.
        calls = [e for e in scene.received.of("mcp/request") if e.payload["method"] == "tools/call"]
        assert [e.context for e in calls] == [scene.received.of("reasoning/start")[0].id]
        assert scene.received.of("chat/acknowledge")[0].sender == "agent"


async def test_what_it_may_not_call_it_proposes_and_learns_the_outcome(tmp_path: Path) -> None:
    """MEW 9.1 with a model at one end."""
    async with agent_scene(tmp_path, call("add", a=1, b=2), "Three.", rights=CAUTIOUS) as scene:
        asking = asyncio.create_task(scene.answer("add 1 and 2"))
        proposal = await scene.received.wait("mcp/proposal")
        assert proposal.payload["params"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
        await scene.alice.approve(proposal.id)
        assert await asking == "Three."
        assert scene.model.last[-1]["content"] == "(approved by alice)\n3"


async def test_a_rejection_reaches_the_model_with_its_explanation(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, call("add", a=1, b=2), "Understood.", rights=CAUTIOUS) as scene:
        asking = asyncio.create_task(scene.answer("add 1 and 2"))
        proposal = await scene.received.wait("mcp/proposal")
        await scene.alice.reject(proposal.id, "unsafe", explanation="not on a Sunday")
        assert await asking == "Understood."
        assert scene.model.last[-1]["content"] == "Rejected by alice: unsafe. not on a Sunday"


async def test_it_answers_when_it_is_meant_and_is_quiet_otherwise(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "Yes?") as scene:
        await scene.alice.chat("reagent-grade acid is expensive")
        await scene.alice.chat("bob, look at this", to="bob")
        await scene.alice.chat("@agent are you there?")
        await scene.received.wait(lambda e: e.kind == "chat" and e.sender == "agent")
        assert len(scene.model.asked) == 1
        assert "are you there" in scene.model.last[-1]["content"]


@pytest.mark.requirement("MEW-3.5.6-1")
async def test_thoughts_of_other_agents_stay_out_of_its_prompt(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as scene:
        bob = await scene.gateway.join("bob")
        async with bob.reasoning("bob's secret plan") as thinking:
            await thinking.thought("nobody needs to know this thought")
            await thinking.chat("said within the sequence")
        await bob.chat("out in the open")
        await scene.answer("what did bob say?")
        answer = str(scene.model.last)
        assert "out in the open" in answer
        for hidden in ("secret plan", "nobody needs to know", "said within the sequence"):
            assert hidden not in answer


async def test_somebody_stops_a_thought_and_no_answer_comes(tmp_path: Path) -> None:
    """MEW 3.5.5."""
    async with agent_scene(tmp_path) as scene:
        scene.model.hold = asyncio.Event()
        await scene.alice.chat("think hard", to="agent")
        start = await scene.received.wait("reasoning/start")
        await until(lambda: len(scene.model.asked) == 1)
        await scene.alice.cancel_reasoning(start.id, "interrupted")
        await until(lambda: scene.agent._current is None)
        scene.model.hold.set()
        scene.model.hold = None
        assert await scene.answer("and now?") == "Fine."
        assert len([e for e in scene.received.of("chat") if e.sender == "agent"]) == 1


async def test_a_cancelled_chat_gets_no_answer(tmp_path: Path) -> None:
    """MEW 3.4.2, also for one that still waits for its turn."""
    async with agent_scene(tmp_path) as scene:
        scene.model.hold = asyncio.Event()
        first = await scene.alice.chat("first", to="agent")
        await until(lambda: len(scene.model.asked) == 1)
        second = await scene.alice.chat("second", to="agent")
        await until(lambda: scene.waiting == 1)
        await scene.alice.chats.cancel(first.id)
        await scene.alice.chats.cancel(second.id)
        await until(lambda: scene.agent._current is None and scene.waiting == 0)
        scene.model.hold.set()
        scene.model.hold = None
        await scene.answer("third")
        assert [e.payload["text"] for e in scene.received.of("chat") if e.sender == "agent"] == ["Fine."]


async def test_a_paused_agent_waits_and_goes_on_when_it_may(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, call("add", a=1, b=1), "Two.") as scene:
        scene.model.hold = asyncio.Event()
        asking = asyncio.create_task(scene.answer("1 + 1?"))
        await until(lambda: len(scene.model.asked) == 1)
        pause = await scene.alice.admin.pause("agent", reason="lunch")
        scene.model.hold.set()
        scene.model.hold = None
        status = await scene.alice.admin.request_status("agent")
        assert status["turns"] == 1
        calls = [e for e in scene.received.of("mcp/request") if e.payload["method"] == "tools/call"]
        assert not calls
        await scene.alice.admin.resume("agent", about=pause.id)
        assert await asking == "Two."


@pytest.mark.requirement("MEW-3.9.4-3", "MEW-3.9.6-1")
async def test_compacting_really_compacts_and_the_model_sees_the_summary(tmp_path: Path) -> None:
    def summary(asked: dict[str, Any]) -> str:
        assert asked["messages"][0]["content"].startswith("Summarise")
        return "Alice likes the number 7."

    async with agent_scene(tmp_path, "Noted.", summary) as scene:
        await scene.answer("my favourite number is 7 " + "and I say so at length " * 200)
        before = await scene.alice.admin.request_status("agent")
        done = await scene.alice.admin.compact("agent", target_tokens=10)
        assert done["freed_messages"] > 0
        after = await scene.alice.admin.request_status("agent")
        assert after["tokens"] < before["tokens"]
        assert after["messages_in_context"] < before["messages_in_context"]
        await scene.answer("which number do I like?")
        answer = scene.model.last
        assert "Alice likes the number 7." in answer[0]["content"]
        assert "at length" not in str(answer)


@pytest.mark.requirement("MEW-3.9.5-4", "MEW-3.9.5-5", "MEW-3.9.4-9")
async def test_near_its_limit_it_says_so_and_compacts_by_itself(tmp_path: Path) -> None:
    settings = AgentSettings(limits=AgentLimits(context_tokens=2_000))
    async with agent_scene(tmp_path, settings=settings) as scene:
        for number in range(12):
            await scene.alice.chat(f"{number}: " + "words " * 150, to="bob")
        done = await scene.received.wait(
            lambda e: (
                e.kind == "participant/status" and e.sender == "agent" and e.payload.get("compactions", 0) > 0
            )
        )
        assert done.payload["tokens"] < 2_000
        assert done.payload["headroom_tokens"] > 0
        summaries = [
            asked for asked in scene.model.asked if asked["messages"][0]["content"].startswith("Summarise")
        ]
        assert summaries


async def test_clear_and_forget_change_what_the_model_sees(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as scene:
        await scene.answer("the password of the day is swordfish")
        await scene.alice.admin.clear("agent")
        await scene.answer("what is the password?")
        assert "swordfish" not in str(scene.model.last)


async def test_long_reasoning_is_streamed_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MEW 3.10.1: everybody can follow; the space keeps one thought of bounded length."""
    monkeypatch.setattr("moot.agents.model.model_agent.STREAM_CHARS", 200)
    thoughts = "".join(f"[{number}] first this, then that; " for number in range(100))
    line = {"thoughts": thoughts, "calls": [("add", {"a": 1, "b": 2})]}
    async with agent_scene(tmp_path, line, "3") as scene:
        opened: list[str] = []
        scene.alice.on("stream/open")(lambda envelope: opened.append(str(envelope.payload["stream_id"])))
        assert await scene.answer("think long") == "3"
        assert opened
        thought = await scene.received.wait("reasoning/thought")
        assert thought.payload["message"] == thoughts[:200] + " …"


async def test_a_model_that_fails_is_told_of_in_the_space(tmp_path: Path) -> None:
    from starlette.responses import JSONResponse

    refused = JSONResponse({"error": {"message": "no such key"}}, status_code=401)
    async with agent_scene(tmp_path, refused) as scene:
        answer = await scene.answer("hello?")
        assert answer.startswith("I cannot answer: the model's endpoint answered 401")
        assert "--api-key-env" in answer
        # A sequence that began is ended.
        await scene.received.wait(lambda e: e.kind in ("reasoning/cancel", "reasoning/conclusion"))


async def test_a_model_that_calls_for_ever_is_stopped(tmp_path: Path) -> None:
    settings = AgentSettings(limits=AgentLimits(max_steps=3))
    script = [call("add", a=1, b=1)] * 10
    async with agent_scene(tmp_path, *script, settings=settings) as scene:
        assert "3 steps" in await scene.answer("go on")
        assert len(scene.model.asked) == 3


async def test_nonsense_of_the_model_comes_back_to_it_in_words(tmp_path: Path) -> None:
    nothing: Line = {"calls": [("no_such_tool", {})]}
    async with agent_scene(tmp_path, nothing, call("add", a="x", b=2), "I give up.") as scene:
        assert await scene.answer("try") == "I give up."
        answer = [message["content"] for message in scene.model.last if message["role"] == "tool"]
        assert answer[0].startswith("Not called: no tool is called 'no_such_tool'")
        assert answer[1]


async def test_two_agents_do_not_talk_each_other_into_the_ground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.model.question_inbox.MAX_TURNS_PER_MINUTE", 2)
    async with agent_scene(tmp_path) as scene:
        for _ in range(2):
            await scene.answer("hello")
        await scene.alice.chat("hello again", to="agent")
        bob = await scene.gateway.join("bob")
        await bob.chat("and I?", to="agent")
        await scene.received.wait(lambda e: e.kind == "chat" and e.sender == "agent" and "bob" in e.to)
        assert len(scene.model.asked) == 3


async def test_a_shutdown_ends_it(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as scene:
        await scene.alice.admin.shutdown("agent")
        await until(lambda: "agent" not in scene.alice.roster)


@pytest.mark.parametrize("query", ["add numbers", "arithmetic"])
async def test_it_finds_a_tool_by_its_words(tmp_path: Path, query: str) -> None:
    script = (call("find_tools", query=query), "Found.")
    async with agent_scene(tmp_path, *script) as scene:
        assert await scene.answer("is there a tool for that?") == "Found."
        answer = scene.model.asked[1]["messages"][-1]["content"]
        found = "These can be called now:\nadd: Add two numbers."
        assert answer == (found if query == "add numbers" else "No tool fits that.")


async def test_a_question_that_came_while_the_connection_was_lost_is_answered_once(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "Here.", "Back again.") as scene:
        assert await scene.answer("are you there?") == "Here."
        space = scene.agent._space
        assert space is not None
        async with away(space):
            await scene.alice.chat("and now?", to="agent")
        await scene.received.wait(lambda each: each.payload.get("text") == "Back again.")
        assert scene.agent.status.turns == 2
