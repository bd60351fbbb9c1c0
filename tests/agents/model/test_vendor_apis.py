"""Anthropic's Messages and OpenAI's Responses: judged by the vendors' own SDKs, then spoken by the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter
from starlette.responses import JSONResponse

from moot.agents.model.agent_settings import Api, ModelSettings
from moot.agents.model.model import Model
from moot.agents.model.model_reply import ModelFailed, ModelReply
from tests.agents.model.endpoint import Endpoint, Line, call, endpoint, events
from tests.agents.model.test_agent import CAUTIOUS, agent_scene
from tests.agents.model.test_model import KEY

SAID: dict[str, Any] = {
    "thoughts": "Hm, let me think. " * 3,
    "text": "Both, then.",
    "calls": [("add", {"a": 1, "text": "ü\n"}), ("list", {}), ("add", {"a": 2})],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]
APIS: tuple[Api, ...] = ("anthropic", "responses")
ALL_APIS: tuple[Api, ...] = get_args(Api)


async def asked(
    api: Api, *script: Line, stream: bool = True, messages: list[dict[str, Any]] | None = None
) -> tuple[ModelReply, Endpoint, str]:
    """What the model says, what the endpoint was asked, and what could be followed meanwhile."""
    received: list[str] = []

    async def hear(text: str) -> None:
        received.append(text)

    async with endpoint(*script) as served:
        settings = ModelSettings(base_url=served.url, model="m", api_key=KEY, stream=stream, api=api)
        async with Model(settings) as model:
            reply = await model.complete(messages or [{"role": "user", "content": "hi"}], TOOLS, hear)
            return reply, served, "".join(received)


# The local endpoint is right: the SDKs understand it


async def test_the_sdk_of_anthropic_understands_the_local_endpoint() -> None:
    anthropic = pytest.importorskip("anthropic")
    async with endpoint(SAID) as served:
        client = anthropic.AsyncAnthropic(base_url=served.url.removesuffix("/v1"), api_key=KEY, max_retries=0)
        async with (
            client,
            client.messages.stream(
                model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]
            ) as stream,
        ):
            message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", *["tool_use"] * 3]
    assert message.content[0].thinking == SAID["thoughts"]
    assert [(block.name, block.input) for block in message.content[2:]] == SAID["calls"]
    assert message.stop_reason == "tool_use"


async def test_the_sdk_of_openai_understands_the_local_endpoint() -> None:
    openai = pytest.importorskip("openai")
    async with endpoint(SAID) as served:
        client = openai.AsyncOpenAI(base_url=served.url, api_key=KEY, max_retries=0)
        async with client, client.responses.stream(model="m", input="hi") as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert response.output_text == SAID["text"]
    calls = [item for item in response.output if item.type == "function_call"]
    assert [(each.name, json.loads(each.arguments)) for each in calls] == SAID["calls"]


# The agent's requests are right: the SDKs' types allow them


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_requests_have_the_shape_that_the_vendors_declare(api: Api, stream: bool) -> None:
    if api == "anthropic":
        declared = pytest.importorskip("anthropic.types.message_create_params").MessageCreateParams
    else:
        declared = pytest.importorskip("openai.types.responses.response_create_params").ResponseCreateParams
    reply, _, _ = await asked(api, SAID, stream=stream)
    history = conversation(reply)
    _, served, _ = await asked(api, stream=stream, messages=history)
    body = served.asked[0]
    adapter: TypeAdapter[Any] = TypeAdapter(declared)
    adapter.validate_python(body)
    broken = {**body, "messages": 7, "input": 7}
    with pytest.raises(ValueError, match="validation error"):
        adapter.validate_python(broken)


def conversation(reply: ModelReply) -> list[dict[str, Any]]:
    results = [{"role": "tool", "tool_call_id": each.id, "content": "42"} for each in reply.calls]
    return [
        {"role": "system", "content": "Be good."},
        {"role": "assistant", "content": "I am here."},
        {"role": "user", "content": "alice: add"},
        reply.as_message(),
        *results,
    ]


# The agent understands them


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_text_reasoning_calls_and_counts_come(api: Api, stream: bool) -> None:
    reply, served, received = await asked(api, SAID, stream=stream)
    assert (reply.text, reply.reasoning) == (SAID["text"], SAID["thoughts"])
    assert [(each.name, json.loads(each.arguments)) for each in reply.calls] == SAID["calls"]
    assert len({each.id for each in reply.calls}) == 3
    assert (reply.prompt_tokens, reply.completion_tokens) == (11, 7)
    assert received.startswith("Hm, let me think.")
    header = "x-api-key" if api == "anthropic" else "authorization"
    assert KEY in served.headers[0][header]


@pytest.mark.parametrize("stream", [True, False])
async def test_anthropic_gets_back_what_it_signed_and_results_in_one_message(stream: bool) -> None:
    reply, _, _ = await asked("anthropic", SAID, stream=stream)
    _, served, _ = await asked("anthropic", messages=conversation(reply))
    body = served.asked[0]
    assert body["system"] == "Be good."
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    thinking, text, *uses = body["messages"][3]["content"]
    assert (thinking["signature"], text["text"]) == ("signed", SAID["text"])
    assert [use["input"] for use in uses] == [arguments for _, arguments in SAID["calls"]]
    results = body["messages"][4]["content"]
    assert [result["tool_use_id"] for result in results] == [use["id"] for use in uses]


@pytest.mark.parametrize("stream", [True, False])
async def test_responses_gets_back_sealed_reasoning_and_calls_without_ids_of_what_is_not_stored(
    stream: bool,
) -> None:
    reply, _, _ = await asked("responses", SAID, stream=stream)
    _, served, _ = await asked("responses", messages=conversation(reply))
    body = served.asked[0]
    assert body["store"] is False
    kinds = [item.get("type") or item["role"] for item in body["input"]]
    assert kinds == [
        "system", "assistant", "user", "reasoning", "assistant",
        *["function_call"] * 3, *["function_call_output"] * 3,
    ]  # fmt: skip
    assert body["input"][3]["encrypted_content"] == "sealed"
    assert not any("id" in item for item in body["input"] if item.get("type") == "function_call")


@pytest.mark.parametrize(
    ("api", "stop", "words"),
    [
        ("anthropic", "max_tokens", "--max-tokens"),
        ("anthropic", "refusal", "refused"),
        ("responses", "max_output_tokens", "--max-tokens"),
        ("responses", "content_filter", "content filter"),
    ],
)
async def test_an_answer_that_ended_early_says_why(api: Api, stop: str, words: str) -> None:
    reply, _, _ = await asked(api, {"text": "half", "stop": stop})
    assert words in reply.cut_short


PASSING: dict[Api, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "responses": {"type": "error", "code": "server_error", "message": "oops", "sequence_number": 1},
}
LASTING: dict[Api, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}},
    "responses": {
        "type": "response.failed",
        "response": {"error": {"code": "invalid_prompt", "message": "no such thing"}},
    },
}


@pytest.mark.parametrize("api", APIS)
async def test_errors_within_a_stream_are_tried_again_or_told(api: Api) -> None:
    reply, served, _ = await asked(api, events(PASSING[api]), "At last.")
    assert (reply.text, len(served.asked)) == ("At last.", 2)
    with pytest.raises(ModelFailed, match="no such thing"):
        await asked(api, events(LASTING[api]))


@pytest.mark.parametrize("api", APIS)
async def test_an_endpoint_of_another_api_is_a_clear_failure(api: Api) -> None:
    chat = {"choices": [{"message": {"content": "hello"}}]}
    for answer in (JSONResponse(chat), events(chat)):
        with pytest.raises(ModelFailed, match="check --base-url and --api"):
            await asked(api, answer)


@pytest.mark.parametrize("api", ALL_APIS)
async def test_a_key_that_is_repeated_is_withheld_with_every_api(api: Api) -> None:
    line = {"thoughts": f"It is {KEY}.", "text": f"Take {KEY}.", "calls": [("add", {"key": KEY})]}
    for stream in (True, False):
        reply, _, received = await asked(api, line, stream=stream)
        assert KEY not in f"{reply.text} {reply.reasoning} {reply.calls} {received}"
        assert json.loads(reply.calls[0].arguments) == {"key": "[key withheld]"}


@pytest.mark.parametrize("api", APIS)
async def test_an_agent_calls_proposes_and_answers_with_every_api(tmp_path: Path, api: Api) -> None:
    async with agent_scene(tmp_path, call("add", a=1, b=2), "Three.", rights=CAUTIOUS, api=api) as scene:
        sent = await scene.alice.chat("add 1 and 2", to="agent")
        proposal = await scene.received.wait("mcp/proposal")
        assert proposal.payload["params"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
        await scene.alice.approve(proposal.id)
        answer = await scene.received.wait(lambda e: e.kind == "chat" and sent.id in e.correlation_id)
        assert answer.payload["text"] == "Three."
        assert "(approved by alice)\\n3" in json.dumps(scene.model.asked[1])
