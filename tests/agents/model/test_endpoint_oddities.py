"""What real endpoints send that the book does not foresee; each case names where it was seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from moot.agents.model.agent_settings import ModelSettings
from moot.agents.model.chat_completions import split_thoughts
from moot.agents.model.model import Model
from moot.agents.model.model_reply import ModelFailed, as_arguments
from moot.agents.model.server_sent_events import EventDecoder
from tests.agents.model.endpoint import deltas, endpoint, events
from tests.agents.model.test_model import asked, failure

Piece = dict[str, Any]


def piece(name: str | None = None, arguments: Any = None, **rest: Any) -> Piece:
    function = {"name": name, "arguments": arguments}
    return {**rest, "function": {key: value for key, value in function.items() if value is not None}}


def tools(*pieces: Piece) -> dict[str, Any]:
    return {"tool_calls": list(pieces)}


ADD_AND_MULTIPLY = [("add", {"a": 1}), ("multiply", {"b": 2})]


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("Gemini: no index, one call in each chunk, ids", [
            tools(piece("add", '{"a":1}', id="x")), tools(piece("multiply", '{"b":2}', id="y")),
        ]),
        ("Gemini: no index and an empty id", [
            tools(piece("add", '{"a":1}', id="")), tools(piece("multiply", '{"b":2}', id="")),
        ]),
        ("no index, both in one chunk, no ids", [
            tools(piece("add", '{"a":1}'), piece("multiply", '{"b":2}')),
        ]),
        ("no index, arguments of both in pieces by place in the list", [
            tools(piece("add", ""), piece("multiply", "")),
            tools(piece(None, '{"a"'), piece(None, '{"b"')),
            tools(piece(None, ":1}"), piece(None, ":2}")),
        ]),
        ("Ollama: index 0 for all, with ids", [
            tools(piece("add", '{"a":1}', id="x", index=0)),
            tools(piece("multiply", '{"b":2}', id="y", index=0)),
        ]),
        ("dynamo: index 0 for all, arguments in pieces, ids at the beginning only", [
            tools(piece("add", "", id="x", index=0)), tools(piece(None, '{"a"', index=0)),
            tools(piece(None, ":1}", index=0)), tools(piece("multiply", "", id="y", index=0)),
            tools(piece(None, '{"b":', index=0)), tools(piece(None, "2}", index=0)),
        ]),
        ("index 0 for all, mixed, ids on every piece", [
            tools(piece("add", '{"a"', id="x", index=0)), tools(piece("multiply", '{"b"', id="y", index=0)),
            tools(piece(None, ":1}", id="x", index=0)), tools(piece(None, ":2}", id="y", index=0)),
        ]),
        ("index 0 for all, no ids", [
            tools(piece("add", '{"a":1}', index=0)), tools(piece("multiply", '{"b":2}', index=0)),
        ]),
        ("by the book, mixed", [
            tools(piece("add", "", id="x", index=0)), tools(piece("multiply", "", id="y", index=1)),
            tools(piece(None, '{"b"', index=1)), tools(piece(None, '{"a":1}', index=0)),
            tools(piece(None, ":2}", index=1)),
        ]),
        ("id and name with every piece", [
            tools(piece("add", '{"a"', id="x", index=0)), tools(piece("add", ":1}", id="x", index=0)),
            tools(piece("add", "", id="x", index=0)),
            tools(piece("multiply", '{"b":2}', id="y", index=1)),
        ]),
        ("litellm: empty name and null id on later pieces", [
            tools(piece("add", "", id="x", index=0)), tools(piece("", '{"a":1}', id=None, index=0)),
            tools(piece("multiply", '{"b":2}', id="y", index=1)),
        ]),
        ("one id for both, with their own index", [
            tools(piece("add", '{"a":1}', id="x", index=0)),
            tools(piece("multiply", '{"b":2}', id="x", index=1)),
        ]),
        ("one id for both, no index", [
            tools(piece("add", '{"a":1}', id="x")), tools(piece("multiply", '{"b":2}', id="x")),
        ]),
        ("arguments as objects", [
            tools(piece("add", {"a": 1}, index=0)), tools(piece("multiply", {"b": 2}, index=0)),
        ]),
        ("the whole call once more at the end", [
            tools(piece("add", '{"a"', id="x", index=0)), tools(piece(None, ":1}", index=0)),
            tools(piece("add", '{"a":1}', id="x", index=0)),
            tools(piece("multiply", '{"b":2}', id="y", index=1)),
        ]),
        ("an empty object before the real one", [
            tools(piece("add", "{}", id="x", index=0)), tools(piece(None, '{"a":1}', index=0)),
            tools(piece("multiply", '{"b":2}', id="y", index=1)),
        ]),
        ("index as null", [
            tools(piece("add", '{"a":1}', id="x", index=None)),
            tools(piece("multiply", '{"b":2}', id="y", index=None)),
        ]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
async def test_parallel_calls_stay_apart(case: str, parts: list[dict[str, Any]], finish: str) -> None:
    reply, _ = await asked(events(*deltas(*parts, finish=finish), "data: [DONE]\n\n"))
    assert [(each.name, json.loads(each.arguments)) for each in reply.calls] == ADD_AND_MULTIPLY
    ids = [each.id for each in reply.calls]
    assert all(ids)
    assert len(set(ids)) == 2


async def test_two_equal_calls_are_two_calls() -> None:
    """Ollama: the same tool twice in parallel, index 0, no ids; and with ids."""
    for ids in ({"id": "x"}, {"id": "y"}), ({}, {}):
        parts = [tools(piece("add", '{"a":1}', index=0, **id)) for id in ids]
        reply, _ = await asked(events(*deltas(*parts)))
        assert len(reply.calls) == 2, ids


async def test_calls_without_arguments_stay_apart() -> None:
    """No ids, no arguments: with an index for all, with none, and with empty arguments."""
    for more in ({"index": 0, "type": "function"}, {"type": "function"}, {"arguments": ""}):
        arguments = more.get("arguments")
        rest = {key: value for key, value in more.items() if key != "arguments"}
        parts = [tools(piece(name, arguments, **rest)) for name in ("now", "later")]
        reply, _ = await asked(events(*deltas(*parts)))
        assert [(each.name, each.arguments) for each in reply.calls] == [("now", "{}"), ("later", "{}")], more
    # A name in two parts is one name.
    reply, _ = await asked(
        events(
            *deltas(tools(piece("la", index=0, id="x")), tools(piece("ter", index=0)), finish="tool_calls")
        )
    )
    assert [each.name for each in reply.calls] == ["later"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (None, "{}"),
        ("", "{}"),
        ("null", "{}"),
        ({"a": 1}, '{"a": 1}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("{", "{"),
    ],
)
async def test_arguments_of_every_shape(arguments: Any, meant: str) -> None:
    assert as_arguments(arguments) == meant
    message = {
        "content": None,
        "tool_calls": [{"id": "x", "function": {"name": "add", "arguments": arguments}}],
    }
    reply, _ = await asked(JSONResponse({"choices": [{"message": message}]}), stream=False)
    assert [each.arguments for each in reply.calls] == [meant]


@pytest.mark.parametrize(
    ("chunks", "text", "reasoning"),
    [
        (deltas({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "ab", ""),
        (
            deltas(
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
                {"content": "yes"},
            ),
            "yes",
            "hm",
        ),
        (deltas({"content": "<think>h"}, {"content": "m</thi"}, {"content": "nk>\n\nyes"}), "yes", "hm"),
        (deltas({"content": "hm, so</think>yes"}), "yes", "hm, so"),
        (deltas({"content": "<think>never en"}, {"content": "ds"}, finish="length"), "", "never ends"),
        (deltas({"reasoning_content": "hm", "content": None}, {"content": "yes"}), "yes", "hm"),
        (deltas({"reasoning": "hm", "content": ""}, {"content": "yes"}), "yes", "hm"),
        (deltas({"refusal": "I will not"}), "I will not", ""),
        (deltas({}, {"role": "assistant"}, {"content": "yes"}, {"content": None}), "yes", ""),
        ([{"choices": []}, *deltas({"content": "yes"}), {"choices": [], "usage": None}], "yes", ""),
        ([{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}], "whole", ""),
        ([*deltas({"content": "one"}), {"choices": [{"index": 1, "delta": {"content": "two"}}]}], "one", ""),
    ],
)
async def test_text_and_reasoning_of_every_shape(
    chunks: list[dict[str, Any]], text: str, reasoning: str
) -> None:
    reply, _ = await asked(events(*chunks))
    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_tags_in_the_middle_of_an_answer_belong_to_it() -> None:
    text = "Write `<think>` before and `</think>` after it."
    assert split_thoughts(text) == ("", text)


YES = '{"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    "answer",
    [
        events(": OPENROUTER PROCESSING\n\n", ": ping\n\n", f"data: {YES}\n\n"),
        events(f"data:{YES}\n\n"),
        events(f"event: message\r\nid: 7\r\ndata: {YES}\r\n\r\ndata: [DONE]\r\n\r\n"),
        events(f"data: {YES}\r\r"),
        events(b"\xef\xbb\xbf", f"data: {YES}\n\n"),
        events(f"data: {YES}"),
        events(f"data: {YES}\ndata: [DONE]\n"),
        events("data: \n\n", f"data: {YES}\n\n"),
        events(*[character.encode() for character in f"data: {YES}\n\n"]),
        events(f"data: {YES}\n\n", media_type="text/plain"),
        events(f"data: {YES}\n\n", media_type="application/octet-stream"),
        events('data: {"choices":[{"delta":{"content":"yes"}}]}\n\ndata: [DONE]\n\n'),
        JSONResponse({"choices": [{"message": {"content": "yes"}}]}),
    ],
)  # fmt: skip
async def test_streams_of_every_shape(answer: Response) -> None:
    reply, _ = await asked(answer)
    assert reply.text == "yes"


async def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    text = "one\u2028two\u0085three\x0cfour"
    chunk = json.dumps(
        {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}, ensure_ascii=False
    )
    reply, _ = await asked(events(f"data: {chunk}\n\n".replace("\\f", "\\u000c")))
    assert reply.text == text
    assert EventDecoder().feed("data: a\u2028b\x0cc\n\n".encode()) == ["a\u2028b\x0cc"]


@pytest.mark.parametrize(
    ("error", "asked_times"),
    [
        ({"error": {"code": 502, "message": "Provider returned error"}}, 2),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, 2),
        ({"error": "model crashed"}, 1),
        ({"error": {"code": "context_length_exceeded", "message": "too long"}}, 1),
        (
            {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "gone"}}]},
            2,
        ),
    ],
)
async def test_an_error_within_a_stream_is_tried_again_if_it_passes(
    error: dict[str, Any], asked_times: int
) -> None:
    if asked_times == 1:
        text = await failure(events(error))
        assert "the model stopped: " in text
        assert text.count("{") == 0
    else:
        reply, served = await asked(events(error), "At last.")
        assert (reply.text, len(served.asked)) == ("At last.", asked_times)


async def test_what_an_endpoint_wants_back_goes_back() -> None:
    """Gemini signs calls, DeepSeek and OpenRouter want the reasoning that led to them."""
    signed = piece("add", "{}", id="x", extra_content={"google": {"thought_signature": "s1"}})
    reply, _ = await asked(
        events(*deltas({"reasoning_content": "h"}, {"reasoning_content": "m"}, tools(signed)))
    )
    _, served = await asked_with(reply.as_message())
    message = served.asked[0]["messages"][-1]
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s1"}}
    assert "native" not in message


async def asked_with(message: dict[str, Any]) -> Any:
    async with endpoint() as served, Model(ModelSettings(base_url=served.url, model="m")) as model:
        return await model.complete([message], []), served


@pytest.mark.parametrize("field", ["stream_options", "temperature"])
async def test_an_optional_field_that_is_refused_is_left_out(field: str) -> None:
    refused = JSONResponse({"error": {"message": f"Unsupported parameter: '{field}'"}}, status_code=400)
    reply, served = await asked(refused, "Fine then.")
    assert reply.text == "Fine then."
    assert [field in body for body in served.asked] == [True, False]


async def test_an_error_as_a_list_is_understood() -> None:
    """Gemini."""
    answer = JSONResponse(
        [{"error": {"code": 400, "message": "missing a thought_signature"}}], status_code=400
    )
    assert "thought_signature" in await failure(answer)


async def test_a_wait_that_is_too_long_is_told_instead_of_waited_for() -> None:
    busy = PlainTextResponse("", status_code=429, headers={"retry-after": "3600"})
    assert "asks to wait 3600 seconds" in await failure(busy)


async def test_a_quota_that_is_used_up_is_not_asked_again() -> None:
    spent = JSONResponse({"error": {"message": "pay", "code": "insufficient_quota"}}, status_code=429)
    assert "insufficient_quota" in await failure(spent)


async def test_a_date_to_come_back_at_is_understood() -> None:
    past = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    reply, served = await asked(PlainTextResponse("", status_code=503, headers=past), "At last.")
    assert (reply.text, len(served.asked)) == ("At last.", 2)


async def test_a_redirection_is_not_followed_with_the_key() -> None:
    away = PlainTextResponse("", status_code=307, headers={"location": "http://127.0.0.1:9/"})
    assert "another address" in await failure(away)


async def test_an_answer_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = events(*deltas({"content": "x" * 1_000}, {"content": "y" * 1_000}, {"content": "z" * 1_000}))
    async with endpoint(endless) as served:
        monkeypatch.setattr("moot.agents.model.model.ANSWER_BYTES", 2_000)
        async with Model(ModelSettings(base_url=served.url, model="m")) as model:
            with pytest.raises(ModelFailed, match="longer than 2000 bytes"):
                await model.complete([{"role": "user", "content": "hi"}], [])
