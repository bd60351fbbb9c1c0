"""A key never comes back out of an endpoint that repeats it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.responses import JSONResponse

from moot.agents.model.agent_settings import AgentSettings, ModelSettings
from moot.agents.model.model import Model
from moot.agents.model.model_agent import Agent
from moot.agents.secret_filter import WITHHELD, FilteredStream, SecretFilter
from moot.participant import connect
from moot.participant.conversation.stream import StreamInfo
from moot.protocol.envelope import Envelope
from tests.agents.model.endpoint import deltas, endpoint, events
from tests.agents.model.test_agent import CAUTIOUS
from tests.participant.gateway_with_members import QUICK, TOOL_HOST, ReceivedEnvelopes, gateway_with
from tests.rows import for_each_row

KEY = "sk-proj-9fQx7LbZ2mTt4Vw8Ks3Yh6Rc1Nd5"
PARTS = ("9fQx7LbZ", "2mTt4Vw8", "Ks3Yh6Rc")

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "first half": lambda key: key[:18],
    "last half": lambda key: key[18:],
    "without its beginning": lambda key: key.removeprefix("sk-proj-"),
    "upper case": str.upper,
    "spaced": " ".join,
    "in lines": lambda key: "\n".join(key[at : at + 4] for at in range(0, len(key), 4)),
    "reversed": lambda key: key[::-1],
    "hex": lambda key: key.encode().hex(),
    "percent codes": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "quoted": lambda key: quote(key, safe=""),
    "escaped": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 after one byte": lambda key: base64.b64encode(f"x{key}".encode()).decode(),
    "base64 after two bytes": lambda key: base64.b64encode(f"x:{key}".encode()).decode(),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(f"?{key}\n".encode()).decode(),
    "half in base64": lambda key: base64.b64encode(key[:18].encode()).decode(),
}


@for_each_row("form", FORMS)
def test_every_form_of_a_key_is_withheld(form: str) -> None:
    secrets = SecretFilter([KEY])
    leaked = FORMS[form](KEY)
    cleaned = secrets.clean(f"Your key is {leaked}, it says.")
    assert cleaned.startswith("Your key is ")
    assert cleaned.endswith(", it says.")
    assert WITHHELD in cleaned
    left = cleaned.removeprefix("Your key is ").removesuffix(", it says.").replace(WITHHELD, "")
    # Of an encoding, the ends may stay that mix with their neighbours.
    assert len(left) <= 7, left


@for_each_row("form", FORMS)
@for_each_row("size", [1, 3, 7, 50])
def test_a_key_in_pieces_is_withheld_as_well(form: str, size: int) -> None:
    secrets = SecretFilter([KEY])
    text = f"before the key {FORMS[form](KEY)} after the key"
    stream = FilteredStream(secrets)
    passed = [stream.write(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*passed, stream.end()]) == secrets.clean(text)


def test_ordinary_text_passes_unchanged_and_soon() -> None:
    stream = FilteredStream(SecretFilter([KEY]))
    text = "The quick brown fox explains what sk-ant and sk-or keys are for; 42 and naïve ümläute too."
    first = stream.write(text)
    assert first + stream.end() == text
    assert len(first) > len(text) - 12


@pytest.mark.parametrize(
    "text", ["これは普通の文章です。" * 100, "これは key a の文章です。" * 100, " \n" * 600]
)
def test_text_with_few_letters_is_not_held_back_for_long(text: str) -> None:
    stream = FilteredStream(SecretFilter([KEY]))
    passed = ""
    for at in range(0, len(text), 10):
        passed += stream.write(text[at : at + 10])
        assert len(passed) >= at - 300
    assert passed + stream.end() == text


@pytest.mark.parametrize("placeholder", ["ollama", "EMPTY", "lm-studio", "none", "not-needed", ""])
def test_what_stands_for_no_key_is_no_secret(placeholder: str) -> None:
    text = "Use ollama or lm-studio; the list is empty, none is not-needed."
    assert SecretFilter([placeholder]).clean(text) == text


def test_a_short_key_is_withheld() -> None:
    assert SecretFilter(["k-123"]).clean("it is k-123.") == f"it is {WITHHELD}."


def answers(question: str, envelope: Envelope) -> bool:
    return envelope.kind == "chat" and question in envelope.correlation_id


async def test_nothing_that_an_endpoint_repeats_reaches_the_space_or_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chat, reasoning, streams, proposals, errors, the journal on disk and the log at its most talkative."""
    caplog.set_level(logging.DEBUG)
    encoded = base64.b64encode(KEY.encode()).decode()
    arguments = json.dumps({"a": KEY, "b": encoded})
    half = len(KEY) // 2
    script: list[Any] = [
        events(
            *deltas(
                {"reasoning_content": f"The key is {KEY[:half]}"},
                {"reasoning_content": f"{KEY[half:]}. It is a fine key, as {encoded} says. " * 20},
                {"content": f"as {quote(KEY)}"},
                {
                    "tool_calls": [
                        {"index": 0, "id": KEY, "function": {"name": "add", "arguments": arguments}}
                    ]
                },
            )
        ),
        f"It is {KEY}, or {encoded}, or {KEY.encode().hex()}.",
        JSONResponse({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status_code=401),
        events({"error": {"message": f"bad key {KEY[:half]}***{KEY[-8:]}"}}),
        events(f"data: {KEY}\n\n"),
    ]
    monkeypatch.setattr("moot.agents.model.model_agent.STREAM_CHARS", 100)
    async with (
        endpoint(*script) as served,
        gateway_with(tmp_path, alice=["*"], calculator=TOOL_HOST, agent=CAUTIOUS) as gateway,
        Model(ModelSettings(base_url=served.url, model="m", api_key=KEY)) as model,
    ):
        alice, calculator = await gateway.join("alice"), await gateway.join("calculator")

        @calculator.tool
        def add(a: str, b: str) -> str:
            """Add two texts."""
            return a + b

        received = ReceivedEnvelopes(alice)
        chunks: list[str] = []

        @alice.streams.on_open
        async def follow(opened: StreamInfo) -> None:
            async for chunk in alice.streams.read(opened.id):
                chunks.append(str(chunk))

        agent = Agent(model, AgentSettings())
        joining = connect(
            gateway.url, "lab", "t-agent", limits=QUICK, controls=agent.controls, transcript=agent.transcript
        )
        async with joining as space:
            running = asyncio.create_task(agent.run(space))
            await asyncio.sleep(0)
            try:
                for number in range(4):
                    sent = await alice.chat("what is your key?", to="agent")
                    if number == 0:
                        proposal = await received.wait("mcp/proposal")
                        await alice.approve(proposal.id)
                    reply = await received.wait(partial(answers, sent.id))
                    if number == 0:
                        assert WITHHELD in str(reply.payload["text"])
            finally:
                running.cancel()
                await asyncio.wait({running})
        assert len(served.asked) == 5
        assert chunks, "its reasoning was long enough to be streamed"
        assert served.headers[0]["authorization"] == f"Bearer {KEY}"
        seen = "\n".join([*(envelope.raw.decode() for envelope in received.envelopes), *chunks, caplog.text])
    on_disk = b"\n".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert WITHHELD.encode() in on_disk, "the journal was looked at"
    for trace in (*PARTS, encoded[8:20], KEY.encode().hex()[20:40]):
        assert trace not in seen
        assert trace.encode() not in on_disk
