"""Limits of an agent of others in a space, and keys that its card names itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.types import AgentCapabilities, AgentCard, Message, Part, Role
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm

from moot.agents.a2a.a2a_member import A2aMember
from moot.agents.a2a.a2a_settings import JoinSettings
from moot.agents.a2a.agent_client import AgentClient, AgentFault
from moot.agents.a2a.task_file import Question, TaskFile
from moot.errors import MootError, UsageError
from moot.participant import connect
from tests.agents.a2a.foreign_agent import Exchange, ForeignAgent, card_of, foreign_agent
from tests.agents.a2a.test_join import ForeignAgentSpace, agent_space, joined
from tests.waiting import bounded, until


@asynccontextmanager
async def answering_bytes(answer: bytes) -> AsyncIterator[str]:
    """A server that answers every request with this, and then says nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_card_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (b"", b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{"):
        async with answering_bytes(answer) as url, bounded():
            monkeypatch.setattr("moot.agents.a2a.agent_card.CARD_SECONDS", 0.05)
            settings = JoinSettings(url=url, gateway="", state_folder=tmp_path)
            with pytest.raises(MootError):
                await A2aMember(settings).start()


async def test_a_connection_that_is_not_made_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the connection, and never says its part of the TLS handshake."""
    async with answering_bytes(b"") as url, bounded():
        monkeypatch.setattr("moot.agents.a2a.agent_client.STREAM_IDLE_SECONDS", 1e6)
        monkeypatch.setattr("moot.agents.a2a.agent_client.CONNECT_SECONDS", 0.05)
        monkeypatch.setattr("moot.agents.a2a.agent_client.ANSWER_SECONDS", 1e6)
        settings = JoinSettings(url=url, gateway="", state_folder=tmp_path)
        client = AgentClient(card_of(url.replace("http:", "https:")), settings)
        message = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="Hello")])
        with pytest.raises(AgentFault):
            await anext(aiter(client.send(message)))
        await client.close()


async def hang(exchange: Exchange) -> None:
    """Names the task, and is silent."""
    await exchange.begin()
    await exchange.updater.start_work()
    await asyncio.Event().wait()


async def seen(lab: ForeignAgentSpace, agent: ForeignAgent) -> str:
    """A chat whose task was asked for again and again."""
    chat = await lab.ask()
    await until(lambda: sum(path == "/rpc" for path, _ in agent.requests) > 2)
    return chat


async def never(exchange: Exchange) -> None:
    await asyncio.Event().wait()


async def test_an_agent_that_is_silent_is_asked_again_or_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_space(tmp_path) as lab:
        # A stream without a word is opened again: the message is not sent again.
        monkeypatch.setattr("moot.agents.a2a.agent_client.STREAM_IDLE_SECONDS", 1)
        async with foreign_agent(hang) as agent, joined(lab, agent) as member:
            await lab.alice.chats.cancel(await seen(lab, agent))
            await lab.wait_for("chat", "cancelled the message; the agent has stopped it")
            await until(lambda: not member.file.record.open_chats)
            assert len(agent.got) == 1
        monkeypatch.setattr("moot.agents.a2a.a2a_member.TASK_SECONDS", 0.1)
        async with foreign_agent(hang) as agent, joined(lab, agent) as member:
            await lab.ask()
            await lab.wait_for("chat", "longer than 0.1 s")
            await until(lambda: not member.file.record.open_chats)
        monkeypatch.setattr("moot.agents.a2a.a2a_member.TASK_SECONDS", 86_400.0)
        monkeypatch.setattr("moot.agents.a2a.agent_client.ANSWER_SECONDS", 0.05)
        card = AgentCapabilities(streaming=False)
        async with foreign_agent(never, capabilities=card) as agent, joined(lab, agent):
            await lab.ask()
            await lab.wait_for("chat", "I have not repeated it")
            # On a busy machine the time may be up before it got there at all.
            assert len(agent.got) <= 1


async def test_a_task_whose_agent_is_away_is_given_up_and_so_is_a_cancel_without_an_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stubborn(ForeignAgent):
        async def cancel(self, context: Any, event_queue: Any) -> None:
            self.cancelled.append(context.task_id)
            await asyncio.Event().wait()

    monkeypatch.setattr("moot.agents.a2a.agent_client.CANCEL_SECONDS", 0.5)
    monkeypatch.setattr("moot.agents.a2a.agent_client.RETRY_SECONDS", 0.05)
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(hang, hang, made=Stubborn) as agent,
        joined(lab, agent) as member,
    ):
        chat = await lab.ask()
        await until(lambda: any(each.task_id for each in member.file.record.open_chats))
        await lab.alice.chats.cancel(chat)
        await lab.wait_for("chat", "the agent did not answer within 0.5 s: it may go on")
        assert len(agent.cancelled) <= 1
        await until(lambda: not member.file.record.open_chats)
        await lab.ask()
        await until(lambda: any(each.task_id for each in member.file.record.open_chats))
        agent.is_away = True
        agent.cut.set()
        await lab.wait_for("chat", "no answer for 0.05 s")


async def test_answers_artifacts_texts_and_data_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def huge(exchange: Exchange) -> None:
        await exchange.queue.enqueue_event(exchange.said("x" * 200_000))

    async def many(exchange: Exchange) -> None:
        await exchange.begin()
        for number in range(4):
            await exchange.updater.add_artifact([Part(text="a")], artifact_id=str(number))
        await asyncio.Event().wait()

    async def long(exchange: Exchange) -> None:
        data = Part()
        data.data.string_value = "d" * 500
        for number in range(5):
            await exchange.begin() if not number else None
            await exchange.updater.start_work(exchange.said(f"Step {number}."))
        await exchange.updater.add_artifact([Part(text="y" * 250)], artifact_id="t", last_chunk=True)
        await exchange.updater.add_artifact([data], artifact_id="d", last_chunk=True)
        await exchange.updater.complete()

    monkeypatch.setattr("moot.agents.a2a.task_turn.MAX_STATUS_UPDATES", 2)
    monkeypatch.setattr("moot.agents.a2a.task_turn.MAX_DATA_CHARS", 50)
    monkeypatch.setattr("moot.agents.a2a.task_turn.MAX_TEXT_CHARS", 100)
    monkeypatch.setattr("moot.agents.a2a.task_turn.MAX_ARTIFACTS", 3)
    monkeypatch.setattr("moot.agents.a2a.agent_client.MAX_RESPONSE_BYTES", 100_000)
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(huge, many, long) as agent,
        joined(lab, agent),
    ):
        await lab.ask("one")
        await lab.wait_for("chat", "an answer of the agent is larger than 100000 bytes")
        await lab.ask("two")
        await lab.wait_for("chat", "more than 3 artifacts in one task; the agent has stopped it")
        before = len(lab.chats())
        await lab.ask("three")
        await lab.wait_for("chat", "(502 characters in all)")
        assert lab.chats()[before : before + 3] == ["y" * 100, "y" * 100, "y" * 50]
        thoughts = [each.payload["message"] for each in lab.envelopes if each.kind == "reasoning/thought"]
        assert [each for each in thoughts if each.startswith("Step")] == ["Step 0.", "Step 1."]


async def test_chats_that_wait_run_and_come_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[asyncio.Event] = []

    async def waits(exchange: Exchange) -> None:
        running.append(asyncio.Event())
        await running[-1].wait()
        await exchange.answer("Done.")

    monkeypatch.setattr("moot.agents.a2a.a2a_member.MAX_QUEUED_CHATS", 1)
    monkeypatch.setattr("moot.agents.a2a.a2a_member.MAX_TASKS", 1)
    monkeypatch.setattr("moot.agents.a2a.a2a_member.MAX_CHATS_PER_MINUTE", 3)
    async with (
        agent_space(tmp_path) as lab,
        foreign_agent(*[waits] * 4) as agent,
        joined(lab, agent) as member,
    ):
        await lab.ask("first")
        await until(lambda: len(running) == 1)
        await lab.ask("second")
        await until(lambda: member._queue.waiting == 1)
        await lab.ask("third")
        await lab.wait_for("chat", "messages wait already: write again later")
        assert len(running) == 1
        # Told once: another agent would answer each time.
        for _ in range(3):
            await lab.ask("more")
        await lab.wait_for("chat", "messages a minute")
        running[0].set()
        await until(lambda: len(running) == 2)
        async with connect(lab.gateway.url, "lab", "t-bob") as bob:
            await bob.chat("mine", to="weather")
            running[1].set()
            await until(lambda: len(running) == 3)
            running[2].set()
            await until(lambda: len(lab.chats()) >= 6)
        assert [text.split()[-1] for text in agent.got] == ["first", "second", "mine"]
        assert sum("messages a minute" in text for text in lab.chats()) == 1


def test_the_oldest_question_is_forgotten(tmp_path: Path) -> None:
    file = TaskFile(tmp_path / "tasks.json")
    for number in range(4):
        file.ask(Question(f"t{number}", "c", "alice", f"q{number}"), 2)
    assert [each.task_id for each in TaskFile(tmp_path / "tasks.json").record.questions] == ["t2", "t3"]
    assert file.take_question("alice", ("q0",)) is None


async def test_keys_that_a_card_names_are_taken_from_its_own_server_alone(tmp_path: Path) -> None:
    """They say no more than TLS does; a card that does not fit them was changed on the way."""
    private = ec.generate_private_key(ec.SECP256R1())
    other = ec.generate_private_key(ec.SECP256R1())
    key = PyJWK.from_dict(json.loads(ECAlgorithm.to_jwk(private)) | {"alg": "ES256"}).key

    def key_set(of: ec.EllipticCurvePrivateKey) -> bytes:
        jwk = json.loads(ECAlgorithm.to_jwk(of.public_key())) | {"kid": "k1", "alg": "ES256"}
        return json.dumps({"keys": [jwk]}).encode()

    def signed_by(jku: str) -> Any:
        return create_agent_card_signer(key, {"kid": "k1", "alg": "ES256", "jku": jku, "typ": "JOSE"})

    def own(card: AgentCard) -> AgentCard:
        jku = card.supported_interfaces[0].url.replace("/rpc", "/keys.json")
        return signed_by(jku)(card)  # type: ignore[no-any-return]

    def forged(card: AgentCard) -> AgentCard:
        card = own(card)
        card.description = "Knows everything."
        return card

    async def start(agent: ForeignAgent) -> str:
        member = A2aMember(JoinSettings(url=agent.url, gateway="", state_folder=tmp_path))
        try:
            async with bounded():
                await member.start()
        except UsageError as fault:
            return str(fault)
        await member.stop()
        return member.found.signature if member.found is not None else ""

    async with foreign_agent(change_card=own, keys=key_set(private)) as agent:
        assert await start(agent) == "signed, and checked with a key of its own server"
    async with foreign_agent(change_card=own, keys=key_set(other)) as agent:
        assert "signature of the agent card is wrong" in await start(agent)
    async with foreign_agent(change_card=forged, keys=key_set(private)) as agent:
        assert "signature of the agent card is wrong" in await start(agent)
    # Keys that are none say nothing, neither does a server that has none.
    for keys in (b"", b"[]", b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}]}'):
        async with foreign_agent(change_card=own, keys=keys) as agent:
            assert "not checked" in await start(agent)
    # Another server is not even asked.
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        elsewhere = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys.json"
        async with foreign_agent(change_card=signed_by(elsewhere)) as agent:
            assert "not checked" in await start(agent)
    assert asked == []
