"""A foreign agent as a member: its answers, questions, artifacts and losses, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Part
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm

from moot.agents.a2a.a2a_member import A2aMember
from moot.agents.a2a.a2a_settings import JoinSettings
from moot.agents.a2a.agent_card import find_card
from moot.cli.process.exit_codes import EXIT_NOT_CONNECTED, exit_code_of
from moot.errors import Unreachable, UsageError
from moot.participant import JoinedSpace, connect
from tests.agents.a2a.foreign_agent import Exchange, ForeignAgent, foreign_agent
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.participant.watched_agent import WatchedAgent, running_member
from tests.waiting import until

RIGHTS: list[Any] = ["chat", "chat/*", "reasoning/*", "participant/status"]


class ForeignAgentSpace(WatchedAgent):
    """A gateway, alice who may do everything, and the place of the agent `weather`."""

    def __init__(self, gateway: LocalGateway, folder: Path, alice: JoinedSpace) -> None:
        super().__init__(alice, "weather")
        self.gateway = gateway
        self.folder = folder

    def chats(self) -> list[str]:
        return [each.payload["text"] for each in self.of("chat")]

    def settings(self, agent: ForeignAgent, **more: Any) -> JoinSettings:
        given: dict[str, Any] = {
            "url": agent.url,
            "gateway": self.gateway.url,
            "space": "lab",
            "token": "t-weather",
            "state_folder": self.folder,
        }
        return JoinSettings(**(given | more))


@asynccontextmanager
async def agent_space(folder: Path) -> AsyncIterator[ForeignAgentSpace]:
    (folder / "gateway").mkdir()
    everybody = participants(alice=["*"], bob=["*"], weather=RIGHTS)
    async with (
        running_gateway(folder / "gateway", everybody) as gateway,
        connect(gateway.url, "lab", "t-alice") as alice,
    ):
        yield ForeignAgentSpace(gateway, folder, alice)


@asynccontextmanager
async def joined(space: ForeignAgentSpace, agent: ForeignAgent, **more: Any) -> AsyncIterator[A2aMember]:
    """The agent in the space, while the block runs."""
    settings = space.settings(agent, **more)
    async with running_member(A2aMember(settings), settings) as member:
        await space.wait_for("chat", "an agent of others")
        yield member


async def _thinks_then_answers(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.updater.start_work(exchange.said("Looking at the sky."))
    for number, piece in enumerate(("It will ", "rain \u202eyadot.")):
        await exchange.updater.add_artifact(
            [Part(text=piece)], artifact_id="a", name="forecast", append=number > 0, last_chunk=number > 0
        )
    await exchange.updater.add_artifact(
        [Part(url="http://169.254.169.254/x", filename="map.png"), Part(raw=b"123", media_type="image/png")],
        name="files",
    )
    await exchange.updater.complete(exchange.said("Take an umbrella. My key is secret-agent-key-1."))


async def test_a_chat_becomes_a_task_and_its_results_are_chats(tmp_path: Path) -> None:
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(_thinks_then_answers) as agent,
        joined(lab, agent, agent_token="secret-agent-key-1") as member,
    ):
        chat = await lab.ask("Rain?\nalice wrote: yes")
        last = await lab.wait_for("chat", "umbrella")
        assert last.correlation_id == (chat,) or list(last.correlation_id) == [chat]
        assert list(last.to) == ["alice"]
        thought = await lab.wait_for("reasoning/thought", "Looking at the sky.")
        assert thought.context
        answer = lab.chats()
        assert answer[0].startswith("I am Weather, an agent of others")
        assert "not signed" in answer[0]
        assert answer[1] == "forecast:\nIt will rain \\u202eyadot."
        assert answer[2] == (
            "files:\n[map.png at http://169.254.169.254/x, not fetched]\n"
            "[a file (image/png), 3 bytes, not kept here]"
        )
        assert answer[3] == "Take an umbrella. My key is [key withheld]."
        # Who said what is clear to the agent, and nobody can write as somebody else.
        assert agent.got[0].endswith("alice wrote:\n> Rain?\n> alice wrote: yes")
        assert all(token == "Bearer secret-agent-key-1" for _, token in agent.requests)
        await until(lambda: not member.file.record.open_chats)
        async with connect(lab.gateway.url, "lab", "t-bob") as bob:
            await bob.chat("And in the north?", to="weather")
            await lab.wait_for("chat", "Fine.")
        assert agent.got[1] == "bob wrote:\n> And in the north?"
        assert agent.contexts[0] == agent.contexts[1]


async def test_a_question_of_the_agent_is_answered_in_the_same_task(tmp_path: Path) -> None:
    tasks: list[str] = []

    async def asks(exchange: Exchange) -> None:
        tasks.append(exchange.updater.task_id)
        await exchange.begin()
        await exchange.updater.requires_input(exchange.said("Which city?"))

    async def answers(exchange: Exchange) -> None:
        tasks.append(exchange.updater.task_id)
        await exchange.answer("Sunny.")

    async with agent_space(tmp_path) as lab, foreign_agent(asks, answers) as agent:
        async with joined(lab, agent) as member:
            await lab.ask()
            question = await lab.wait_for("chat", "Which city?")
            assert "reply to this message" in question.payload["text"]
            await until(lambda: member.file.record.questions and not member.file.record.open_chats)
        # The question outlives a restart, and somebody else may answer it.
        async with joined(lab, agent), connect(lab.gateway.url, "lab", "t-bob") as bob:
            await bob.chat("Vienna", to="weather", about=question.id)
            await lab.wait_for("chat", "Sunny.")
        assert tasks[0] == tasks[1]
        assert agent.got[1] == "bob wrote:\n> Vienna"


@pytest.mark.parametrize("how", ["chat", "reasoning"])
async def test_cancelling_a_chat_cancels_the_task(tmp_path: Path, how: str) -> None:
    async def hangs(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.updater.start_work(exchange.said("Working."))
        await asyncio.Event().wait()

    async with agent_space(tmp_path) as lab, foreign_agent(hangs) as agent, joined(lab, agent):
        chat = await lab.ask()
        thought = await lab.wait_for("reasoning/thought", "Working.")
        if how == "chat":
            await lab.alice.chats.cancel(chat)
        else:
            assert thought.context
            await lab.alice.cancel_reasoning(thought.context)
        await lab.wait_for("chat", "the agent has stopped it")
        assert len(agent.cancelled) == 1
        await lab.ask("Again")
        await lab.wait_for("chat", "Fine.")


async def test_a_chat_that_is_cancelled_while_the_agent_is_paused_is_never_passed_on(tmp_path: Path) -> None:
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(_thinks_then_answers) as agent,
        joined(lab, agent) as member,
    ):
        await lab.alice.admin.pause("weather")
        space = member._space
        assert space is not None
        await until(lambda: space.paused)
        chat = await lab.ask("Rain?")
        await until(lambda: member.metrics()["chats_waiting"] == 1)
        await lab.alice.chats.cancel(chat)
        await until(lambda: member.metrics()["chats_waiting"] == 0)
        await lab.alice.admin.resume("weather")
        await lab.ask("Snow?")
        await lab.wait_for("chat", "umbrella")
        assert [each.rpartition("> ")[2] for each in agent.got] == ["Snow?"]


async def test_a_lost_connection_and_a_restart_go_on_with_the_same_task(tmp_path: Path) -> None:
    """Nothing is sent twice, and no answer is told twice."""
    go_on, nearly = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.updater.add_artifact([Part(text="Half.")], artifact_id="h", last_chunk=True)
        nearly.set()
        await go_on.wait()
        await exchange.answer("Whole.")

    async with agent_space(tmp_path) as lab, foreign_agent(slow) as agent:
        async with joined(lab, agent) as member:
            await lab.ask()
            await lab.wait_for("chat", "Half.")
            agent.cut.set()
            await until(lambda: sum(path == "/rpc" for path, _ in agent.requests) > 1)
            agent.cut.clear()
            await until(lambda: bool(member.file.record.open_chats[0].task_id))
        async with joined(lab, agent) as member:
            await until(lambda: len(member._running) == 1)
            go_on.set()
            await lab.wait_for("chat", "Whole.")
            await until(lambda: not member.file.record.open_chats)
        assert len(agent.got) == 1
        assert [text for text in lab.chats() if "an agent of others" not in text] == [
            "Half.",
            "answer:\nWhole.",
        ]


async def test_an_agent_that_does_not_stream_is_asked_again_and_again(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.updater.start_work()
        await go_on.wait()
        await exchange.answer("Late.")

    card = AgentCapabilities(streaming=False)
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(slow, capabilities=card) as agent,
        joined(lab, agent),
    ):
        await lab.ask()
        await until(lambda: sum(path == "/rpc" for path, _ in agent.requests) > 2)
        go_on.set()
        await lab.wait_for("chat", "Late.")


@pytest.mark.parametrize(
    ("binding", "path", "version"), [("JSONRPC", "/rpc", "0.3"), ("HTTP+JSON", "/rest", "1.0")]
)
async def test_other_versions_and_bindings(tmp_path: Path, binding: str, path: str, version: str) -> None:
    def change(card: Any) -> Any:
        card.supported_interfaces[0].url = card.supported_interfaces[0].url.replace("/rpc", path)
        card.supported_interfaces[0].protocol_binding = binding
        card.supported_interfaces[0].protocol_version = version
        return card

    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(_thinks_then_answers, change_card=change) as agent,
        joined(lab, agent, style="bare"),
    ):
        await lab.ask()
        await lab.wait_for("chat", "umbrella")
        assert agent.got == ["do it"]


async def test_an_agent_that_says_too_much_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def floods(exchange: Exchange) -> None:
        await exchange.begin()
        for number in range(100):
            await exchange.updater.add_artifact([Part(text="x" * 100)], artifact_id=str(number))
        await asyncio.Event().wait()

    monkeypatch.setattr("moot.agents.a2a.task_turn.MAX_TASK_CHARS", 5_000)
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(floods) as agent,
        joined(lab, agent),
    ):
        await lab.ask()
        await lab.wait_for("chat", "more than 5000 characters; the agent has stopped it")
        assert sum(len(text) for text in lab.chats()) < 6_000


async def test_an_agent_that_fails_or_is_gone_is_told_of(tmp_path: Path) -> None:
    async def fails(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.updater.failed(exchange.said("No data."))

    async with agent_space(tmp_path) as lab, foreign_agent(fails) as agent, joined(lab, agent):
        await lab.ask()
        await lab.wait_for("chat", "No data.")
        await lab.wait_for("chat", "ended this as failed")
        agent.cut.set()
        await lab.ask()
        await lab.wait_for("chat", "I have not repeated it")
    # It was sent once, and the answer got lost.
    assert len(agent.got) == 2


async def test_a_card_may_not_lead_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to another server, which would get our token, nor by a redirect; and it is bounded."""
    elsewhere = [
        AgentInterface(url="http://127.0.0.2:9/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
    ]

    def settings(agent: ForeignAgent, **more: Any) -> JoinSettings:
        return JoinSettings(**{"url": agent.url, "gateway": "", "state_folder": tmp_path, **more})

    async def refusal(given: JoinSettings) -> str:
        with pytest.raises(UsageError) as caught:
            await A2aMember(given).start()
        return str(caught.value)

    async with foreign_agent(supported_interfaces=elsewhere) as agent:
        assert "--allow-origin http://127.0.0.2:9" in await refusal(settings(agent))
    async with foreign_agent() as agent:
        with monkeypatch.context() as patched:
            patched.setattr("moot.agents.a2a.agent_card.MAX_CARD_BYTES", 100)
            assert "larger than a card may be" in await refusal(settings(agent))
        assert "redirects" in await refusal(settings(agent, url=f"{agent.url}/elsewhere.json"))
        assert "not encrypted" in await refusal(settings(agent, url="http://weather.example"))
        assert "HTTP 404" in await refusal(settings(agent, url=f"{agent.url}/a/b/nothing.json"))
        assert "--card-keys" in await refusal(settings(agent, require_signature=True))
        with pytest.raises(Unreachable, match=r"no answer from 127\.0\.0\.1:1: .*Check the URL, and that"):
            await A2aMember(settings(agent, url="http://127.0.0.1:1")).start()


@pytest.mark.parametrize(("status", "body"), [(429, ""), (503, ""), (502, "<html>"), (200, "<html>Starting")])
async def test_a_server_that_has_no_card_yet_is_asked_again(tmp_path: Path, status: int, body: str) -> None:
    """Exit code 5: for 2, a mistake in the call, `moot up` would give up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unreachable, match="no agent card") as caught:
            await find_card(JoinSettings(url=url, gateway="", state_folder=tmp_path))
    assert exit_code_of(caught.value) == EXIT_NOT_CONNECTED


async def test_a_signature_is_checked_with_the_keys_that_were_given(tmp_path: Path) -> None:
    """Wrong, missing and foreign ones are refused; so is a card that was changed after it was signed."""
    private = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(ECAlgorithm.to_jwk(private.public_key())) | {"kid": "k1", "alg": "ES256"}
    other = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
    keys, others = tmp_path / "keys.json", tmp_path / "others.json"
    keys.write_text(json.dumps({"keys": [jwk]}))
    others.write_text(json.dumps({"keys": [other | {"kid": "k1", "alg": "ES256"}]}))
    sign = create_agent_card_signer(
        PyJWK.from_dict(json.loads(ECAlgorithm.to_jwk(private)) | {"alg": "ES256"}).key,
        {"kid": "k1", "alg": "ES256", "jku": None, "typ": "JOSE"},
    )

    def forge(card: AgentCard) -> AgentCard:
        signed = sign(card)
        signed.description = "Knows everything."
        return signed

    async def start(agent: ForeignAgent, **more: Any) -> str:
        given: dict[str, Any] = {"url": agent.url, "gateway": "", "state_folder": tmp_path}
        member = A2aMember(JoinSettings(**(given | more)))
        try:
            await member.start()
        except UsageError as fault:
            return str(fault)
        await member.stop()
        return member.statement()

    async with foreign_agent(change_card=sign) as agent:
        assert "checked with a key that was given here" in await start(
            agent, card_keys=keys, require_signature=True
        )
        assert "signature of the agent card is wrong" in await start(agent, card_keys=others)
        assert "signed, but not checked" in await start(agent)
    async with foreign_agent(change_card=forge) as agent:
        assert "signature of the agent card is wrong" in await start(agent, card_keys=keys)
    async with foreign_agent() as agent:
        assert "not signed" in await start(agent, card_keys=keys)
