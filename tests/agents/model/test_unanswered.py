"""No question goes unanswered in silence: tools that come late, an agent that was away, a lost connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.agents.model.agent_settings import AgentSettings, ModelSettings
from moot.agents.model.model import Model
from moot.participant.programs import offer_discovery
from tests.agents.model.endpoint import call, endpoint
from tests.agents.model.test_agent import CAUTIOUS, TRUSTED, Scene, agent_scene, running_agent
from tests.gateway.running_gateway import Client
from tests.participant.gateway_with_members import ReceivedEnvelopes, away, gateway_with
from tests.waiting import HANG_SECONDS, until

WRITE: dict[str, Any] = {"name": "write_file", "description": "Write.", "inputSchema": {"type": "object"}}


@pytest.fixture(autouse=True)
def patient_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked for its tools here answers when the test says so, however long that takes."""
    monkeypatch.setattr(offer_discovery, "_LIST_SECONDS", HANG_SECONDS)
    monkeypatch.setattr("moot.agents.model.toolbox.LIST_SECONDS", HANG_SECONDS)


async def tools_request(server: Client, count: int = 1) -> dict[str, Any]:
    """The n-th request for the server's tools; joining may have passed over it already.

    Everybody hears what others are asked, and no answer of this server would be one to that.
    """
    me = server.received[0]["payload"]["you"]["id"]

    def requests() -> list[dict[str, Any]]:
        asked = [each for each in server.received if each["payload"].get("method") == "tools/list"]
        return [each for each in asked if me in each["to"]]

    await until(lambda: len(requests()) >= count)
    return requests()[count - 1]


async def answer_tools(server: Client, request: dict[str, Any]) -> None:
    body = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {"tools": [WRITE]}}
    await server.say("mcp/response", body, to=[request["from"]], about=[request["id"]])


def names_of_tools(asked: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in asked.get("tools", [])}


async def test_a_question_waits_for_the_tools_of_a_server_that_has_just_joined(tmp_path: Path) -> None:
    """`moot up` on a busy machine: the agent is there first, and somebody asks before the server answers."""
    async with agent_scene(tmp_path, call("write_file", path="a"), rights=CAUTIOUS) as scene:
        server = await scene.gateway.raw("late")
        request = await tools_request(server)
        asking = asyncio.create_task(scene.answer("write a plan"))
        await scene.received.wait("reasoning/start")
        assert scene.model.asked == []
        await answer_tools(server, request)
        proposal = await scene.received.wait("mcp/proposal")
        assert proposal.payload["params"]["name"] == "write_file"
        assert names_of_tools(scene.model.asked[0]) == {"add", "write_file"}
        await scene.alice.reject(proposal.id, "disagree", explanation="no")
        await asking


async def test_a_name_that_the_model_knows_is_looked_for_again(tmp_path: Path) -> None:
    """Its instructions name it; the server joins while the model thinks."""
    async with agent_scene(tmp_path, call("write_file", path="a"), rights=CAUTIOUS) as scene:
        scene.model.hold = asyncio.Event()
        asking = asyncio.create_task(scene.answer("write a plan"))
        await until(lambda: len(scene.model.asked) == 1)
        server = await scene.gateway.raw("late")
        request = await tools_request(server)
        scene.model.hold.set()
        scene.model.hold = None
        await until(lambda: scene.agent.status.tool_calls == 1)
        await answer_tools(server, request)
        await scene.alice.reject((await scene.received.wait("mcp/proposal")).id, "disagree", explanation="no")
        await asking


async def test_whose_tools_are_not_known_is_said_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.model.toolbox.LIST_SECONDS", 0.05)
    async with agent_scene(tmp_path) as scene:
        await tools_request(await scene.gateway.raw("late"))
        await scene.answer("write a plan")
        assert "which tools these offer: late." in scene.model.last[0]["content"]


async def test_nothing_is_waited_for_from_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console lists no tools and does not answer."""
    monkeypatch.setattr(offer_discovery, "FIRST_LIST_SECONDS", 10 * HANG_SECONDS)
    monkeypatch.setattr("moot.agents.model.toolbox.LIST_SECONDS", 10 * HANG_SECONDS)
    async with agent_scene(tmp_path) as scene:
        # Those who were here before are learned together, for which nobody must be silent.
        await until(lambda: scene.agent._offers.offers_of("calculator", "tools"))
        bob = await scene.gateway.raw("bob")
        asked = await bob.say("chat", {"text": "hello"}, to=["agent"])
        answer = await bob.hear(lambda each: each["kind"] == "chat" and each["from"] == "agent")
        assert (answer["correlation_id"], answer["payload"]["text"]) == ([asked], "Fine.")


async def test_a_server_that_did_not_answer_is_asked_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offer_discovery, "_LIST_SECONDS", 1)
    monkeypatch.setattr(offer_discovery, "_LIST_RETRY_SECONDS", 0.01)
    async with agent_scene(tmp_path) as scene:
        server = await scene.gateway.raw("late")
        await tools_request(server)
        # The second one has all the time it needs: there is no third.
        monkeypatch.setattr(offer_discovery, "_LIST_SECONDS", HANG_SECONDS)
        await answer_tools(server, await tools_request(server, 2))
        await until(lambda: scene.agent._offers.offers_of("late", "tools"))


async def test_what_was_asked_while_it_was_away_is_answered_when_it_comes(tmp_path: Path) -> None:
    """Before it joined, and while its connection was lost; what was withdrawn or is not for it is not."""
    async with (
        endpoint("Here I am.", "Back.") as model,
        gateway_with(tmp_path, alice=["*"], bob=["*"], agent=TRUSTED) as gateway,
        Model(ModelSettings(base_url=model.url, model="m")) as client,
    ):
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(alice)
        asked = await alice.chat("are you there?", to="agent")
        await alice.chats.cancel(await alice.chat("never mind", to="agent"))
        await alice.chat("bob, hello", to="bob")
        proposal = await bob.propose("alice", "tools/call", {"name": "x", "arguments": {}})
        await alice.chat("what I think of it", to="agent", about=proposal.id)
        async with running_agent(gateway, client, AgentSettings()) as agent:
            first = await received.wait(Scene.is_said)
            assert (first.correlation_id, first.payload["text"]) == ([asked.id], "Here I am.")
            space = agent._space
            assert space is not None
            async with away(space):
                again = await alice.chat("still there?", to="agent")
            second = await received.wait(Scene.is_said, 2)
            assert (second.correlation_id, second.payload["text"]) == ([again.id], "Back.")
        async with running_agent(gateway, client, AgentSettings()):
            # A third run has nothing left to answer.
            await alice.chat("goodbye", to="agent")
            assert (await received.wait(Scene.is_said, 3)).payload["text"] == "Fine."
        assert len(model.asked) == 3


async def test_a_question_that_a_run_began_with_is_not_begun_again_and_its_asker_is_told(
    tmp_path: Path,
) -> None:
    """A crash in the middle of a turn: nobody knows what was done, so nothing is done twice.

    Whoever stopped a turn knows that, and is told nothing.
    """
    async with (
        endpoint() as model,
        gateway_with(tmp_path, alice=["*"], agent=TRUSTED) as gateway,
        Model(ModelSettings(base_url=model.url, model="m")) as client,
    ):
        alice = await gateway.join("alice")
        received = ReceivedEnvelopes(alice)
        model.hold = asyncio.Event()
        async with running_agent(gateway, client, AgentSettings()) as agent:
            await alice.chat("think", to="agent")
            await until(lambda: len(model.asked) == 1)
            await alice.cancel_reasoning((await received.wait("reasoning/start")).id)
            await until(lambda: agent._current is None)
            asked = await alice.chat("delete the old files", to="agent")
            await until(lambda: len(model.asked) == 2)
        model.hold.set()
        model.hold = None
        async with running_agent(gateway, client, AgentSettings()):
            answer = await received.wait(Scene.is_said)
            assert answer.correlation_id == [asked.id]
            assert "restarted before I could answer" in answer.payload["text"]
        async with running_agent(gateway, client, AgentSettings()):
            await alice.chat("thanks", to="agent")
            assert (await received.wait(Scene.is_said, 2)).payload["text"] == "Fine."
        assert len(model.asked) == 3


async def test_an_answer_waits_for_the_connection_to_come_back(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "The answer.") as scene:
        scene.model.hold = asyncio.Event()
        asking = asyncio.create_task(scene.answer("what is it?"))
        await until(lambda: len(scene.model.asked) == 1)
        space = scene.agent._space
        assert space is not None
        async with away(space):
            scene.model.hold.set()
            scene.model.hold = None
            await until(lambda: scene.agent.status.completion_tokens > 0)
        assert await asking == "The answer."
        # Once, and nobody is told anything else.
        assert len([e for e in scene.received.of("chat") if e.sender == "agent"]) == 1


async def test_whoever_asked_is_told_when_the_agent_is_restarted_or_cleared(tmp_path: Path) -> None:
    """Also who still waited for a turn."""
    async with agent_scene(tmp_path) as scene:
        for count, (control, why) in enumerate(
            ((scene.alice.admin.restart, "restarted"), (scene.alice.admin.clear, "cleared"))
        ):
            scene.model.hold = asyncio.Event()
            ids = [(await scene.alice.chat(text, to="agent")).id for text in ("one", "two")]
            await until(lambda count=count: len(scene.model.asked) == count + 1 and scene.waiting == 1)  # type: ignore[misc]
            await control("agent")
            for nth, id in enumerate(ids):
                answer = await scene.received.wait(Scene.is_said, 2 * count + nth + 1)
                assert (answer.correlation_id, answer.payload["text"]) == (
                    [id],
                    f"I stopped: I was {why}. Ask again.",
                )
            scene.model.hold.set()
            scene.model.hold = None


async def test_an_answer_that_is_too_long_is_cut_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.model.question_inbox.CHAT_CHARS", 10)
    async with agent_scene(tmp_path, "0123456789abc") as scene:
        assert await scene.answer("count") == "0123456789\n[… 3 more characters are not shown]"
