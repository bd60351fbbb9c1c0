"""A question leads to a bounded number of proposals, whatever people explain and the model tries."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from moot.agents.model import model_agent
from moot.protocol.envelope import Envelope
from tests.agents.model.endpoint import Line, call
from tests.agents.model.test_agent import CAUTIOUS, Scene, agent_scene
from tests.waiting import HANG_SECONDS, until


async def reject_all(scene: Scene, explanation: str | None) -> None:
    """Alice rejects whatever is proposed."""
    async for envelope in scene.alice.envelopes():
        if isinstance(envelope, Envelope) and envelope.kind == "mcp/proposal":
            await scene.alice.reject(envelope.id, "unsafe", explanation=explanation)


async def test_a_model_that_never_takes_no_is_stopped_after_two_rejections(tmp_path: Path) -> None:
    variants = [call("add", a=number, b=1) for number in range(40)]
    async with agent_scene(tmp_path, *variants, rights=CAUTIOUS) as scene:
        rejecting = asyncio.create_task(reject_all(scene, "agent, do not do that"))
        answer = await scene.answer("add something")
        assert answer.startswith("I stopped: 2 proposals came to nothing (rejected by alice: unsafe; ")
        # Time for a turn that an explanation would begin.
        await scene.alice.chats.cancel((await scene.alice.chat("never mind", to="agent")).id)
        await until(lambda: scene.agent._current is None and scene.waiting == 0)
        rejecting.cancel()
        assert len(scene.received.of("mcp/proposal")) == 2
        assert scene.agent.status.turns <= 2
        results = [
            message["content"] for message in scene.model.asked[2]["messages"] if message["role"] == "tool"
        ]
        assert len(results) == 2
        assert all("Rejected by alice: unsafe. agent, do not do that" in text for text in results)


async def test_after_two_rejections_the_model_may_say_how_far_it_came(tmp_path: Path) -> None:
    script: list[Line] = [call("add", a=1, b=1), call("add", a=2, b=1), "Alice does not want that."]
    async with agent_scene(tmp_path, *script, rights=CAUTIOUS) as scene:
        rejecting = asyncio.create_task(reject_all(scene, None))
        assert await scene.answer("add something") == "Alice does not want that."
        rejecting.cancel()


async def test_what_was_rejected_is_not_proposed_again_in_the_same_words(tmp_path: Path) -> None:
    script: list[Line] = [call("add", a=1, b=1), call("add", a=1, b=1), "I see."]
    async with agent_scene(tmp_path, *script, rights=CAUTIOUS) as scene:
        rejecting = asyncio.create_task(reject_all(scene, None))
        assert await scene.answer("add something") == "I see."
        rejecting.cancel()
        assert len(scene.received.of("mcp/proposal")) == 1
        assert scene.model.last[-1]["content"].startswith("Not proposed again")


async def test_parallel_proposals_count_one_by_one(tmp_path: Path) -> None:
    many = {"calls": [("add", {"a": number, "b": 1}) for number in range(6)]}
    async with agent_scene(tmp_path, many, "Enough.", rights=CAUTIOUS) as scene:
        rejecting = asyncio.create_task(reject_all(scene, None))
        assert await scene.answer("add something") == "Enough."
        rejecting.cancel()
        assert len(scene.received.of("mcp/proposal")) == 2
        results = [message["content"] for message in scene.model.last if message["role"] == "tool"]
        assert [text.startswith("Not called: 2 proposals came to nothing") for text in results] == [
            False, False, True, True, True, True,
        ]  # fmt: skip


async def test_a_late_explanation_begins_no_turn_and_is_remembered(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, call("add", a=1, b=2), "Then not.", rights=CAUTIOUS) as scene:
        asking = asyncio.create_task(scene.answer("add 1 and 2"))
        proposal = await scene.received.wait("mcp/proposal")
        rejected = await scene.alice.reject(proposal.id, "unsafe")
        assert await asking == "Then not."
        for about in (rejected.id, proposal.id):
            await scene.alice.chat("agent, because it is Sunday", to="agent", about=about)
        assert await scene.answer("and now?") == "Fine."
        assert scene.agent.status.turns == 2
        assert "because it is Sunday" in str(scene.model.last)


async def test_calls_and_tokens_of_a_turn_are_bounded_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, words in (
        (("MAX_TOOL_CALLS", 3), "3 calls were made"),
        (("TURN_TOKENS", 30), "36 tokens were used"),
    ):
        folder = tmp_path / words.split()[0]
        folder.mkdir()
        script = [call("add", a=1, b=1)] * 20
        with monkeypatch.context() as patched:
            patched.setattr(model_agent, *limit)
            async with agent_scene(folder, *script) as scene:
                answer = await scene.answer("go on")
                assert answer.startswith("I stopped: ")
                assert words in answer
                assert len(scene.model.asked) <= 5


async def test_a_turn_ends_when_its_asker_has_left_and_what_it_proposed_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.model.model_agent.ASKER_AWAY_SECONDS", 0.05)
    async with agent_scene(tmp_path, call("add", a=1, b=2), rights=CAUTIOUS) as scene:
        bob = await scene.gateway.join("bob")
        asked = await bob.chat("add 1 and 2", to="agent")
        proposal = await scene.received.wait("mcp/proposal")
        await bob.chat("and something else", to="agent")
        await until(lambda: scene.waiting == 1)
        await bob.close()
        answer = await scene.received.wait(lambda e: e.kind == "chat" and e.sender == "agent")
        assert answer.payload["text"] == "I stopped: bob, who asked, has left."
        assert list(answer.correlation_id) == [asked.id]
        await scene.received.wait(lambda e: e.kind == "mcp/withdraw" and proposal.id in e.correlation_id)
        assert await scene.answer("are you free?") == "Fine."
        assert scene.agent.status.turns == 2


async def test_an_asker_that_comes_back_gets_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.model.model_agent.ASKER_AWAY_SECONDS", HANG_SECONDS)
    async with agent_scene(tmp_path, call("add", a=1, b=2), "3", rights=CAUTIOUS) as scene:
        bob = await scene.gateway.join("bob")
        await bob.chat("add 1 and 2", to="agent")
        proposal = await scene.received.wait("mcp/proposal")
        await bob.close()
        space = scene.agent._space
        assert space is not None
        await until(lambda: "bob" not in space.roster)
        await scene.gateway.join("bob")
        await until(lambda: "bob" in space.roster)
        # The time is up.
        scene.agent._drop_turns_of("bob")
        await scene.alice.approve(proposal.id)
        answer = await scene.received.wait(lambda e: e.kind == "chat" and e.sender == "agent")
        assert answer.payload["text"] == "3"


async def test_an_empty_answer_is_told_of(tmp_path: Path) -> None:
    from tests.agents.model.endpoint import deltas, events

    script = (events(*deltas({"content": ""})), events(*deltas({"content": "half"}, finish="length")))
    async with agent_scene(tmp_path, *script) as scene:
        assert (await scene.answer("hello?")).startswith("The model answered nothing")
        assert (
            "[incomplete: its answer reached the limit of tokens: raise --max-tokens]"
            in await scene.answer("go on")
        )


async def test_who_asks_too_often_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.model.question_inbox.MAX_TURNS_PER_MINUTE", 1)
    async with agent_scene(tmp_path) as scene:
        assert await scene.answer("hello") == "Fine."
        assert "1 questions a minute" in await scene.answer("hello again")
        await scene.alice.chat("and again", to="agent")
        bob = await scene.gateway.join("bob")
        await bob.chat("and I?", to="agent")
        await scene.received.wait(lambda e: e.kind == "chat" and e.sender == "agent" and "bob" in e.to)
        assert len([e for e in scene.received.of("chat") if e.sender == "agent" and "alice" in e.to]) == 2


async def test_a_question_that_waited_stands_last_in_the_prompt(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "One.", "Two.") as scene:
        scene.model.hold = asyncio.Event()
        first = asyncio.create_task(scene.answer("first question"))
        await until(lambda: len(scene.model.asked) == 1)
        second = asyncio.create_task(scene.answer("second question"))
        await until(lambda: scene.waiting == 1)
        scene.model.hold.set()
        assert (await first, await second) == ("One.", "Two.")
        assert scene.model.last[-1] == {
            "role": "user",
            "content": "Now answer alice, who said: second question",
        }


async def test_a_remark_on_a_pending_proposal_is_read_in_the_same_turn(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, call("add", a=1, b=2), "Noted.", rights=CAUTIOUS) as scene:
        asking = asyncio.create_task(scene.answer("add 1 and 2"))
        proposal = await scene.received.wait("mcp/proposal")
        await scene.alice.chat("use larger numbers next time", to="agent", about=proposal.id)
        await until(lambda: scene.remarks == 1)
        await scene.alice.approve(proposal.id)
        assert await asking == "Noted."
        assert scene.model.last[-1]["content"] == (
            "(approved by alice)\n3\nalice says about your proposal: use larger numbers next time"
        )
        assert scene.agent.status.turns == 1


async def test_names_that_vendors_refuse_are_changed_for_the_model_and_found_again(tmp_path: Path) -> None:
    """MCP allows dots in names of tools; OpenAI and Anthropic do not."""

    def use(asked: dict[str, Any]) -> dict[str, Any]:
        names = [tool["function"]["name"] for tool in asked["tools"]]
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
        assert all("properties" in tool["function"]["parameters"] for tool in asked["tools"])
        return call(next(name for name in names if name.startswith("notes_list_")))

    async with agent_scene(tmp_path, use, "Done.") as scene:
        bob = await scene.gateway.join("bob")

        @bob.tool(name="notes.list")
        def list_notes() -> str:
            return "three notes"

        await until(lambda: scene.agent._offers.find("tools", "notes.list") is not None)
        assert await scene.answer("list my notes") == "Done."
        assert scene.model.last[-1]["content"] == "three notes"
