"""A small local server that speaks the OpenAI chat API: scripted words, and a memory of what it was asked."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.agents.model.vendor_apis import VENDOR_APIS

Asked = dict[str, Any]
# What to answer: words, tool calls, a status, or a function of what was asked.
Line = str | dict[str, Any] | Response | Callable[[Asked], Any]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """The model wants a tool."""
    return {"calls": [(name, arguments)]}


def events(*parts: dict[str, Any] | str | bytes, media_type: str = "text/event-stream") -> Response:
    """A stream of exactly these parts: chunks as events, strings and bytes as they are."""

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            if isinstance(part, dict):
                yield b"data: " + json.dumps(part).encode() + b"\n\n"
            else:
                yield part.encode() if isinstance(part, str) else part

    return StreamingResponse(body(), media_type=media_type)


def deltas(*deltas: dict[str, Any], finish: str | None = "stop") -> list[dict[str, Any]]:
    """Chunks of a chat completion, the last one with the reason why it ends."""
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    if finish is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return chunks


class Endpoint:
    """Answers with the next line of its script; without one, with `Fine.`"""

    def __init__(self, script: list[Line]) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.hold: asyncio.Event | None = None

    @property
    def last(self) -> list[dict[str, Any]]:
        """The messages that it was sent last."""
        messages: list[dict[str, Any]] = self.asked[-1]["messages"]
        return messages

    async def complete(self, request: Request) -> Response:
        """Whatever the API, what it is asked for is kept and the next line is answered."""
        body = json.loads(await request.body())
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if self.hold is not None:
            await self.hold.wait()
        line: Any = self.script.pop(0) if self.script else "Fine."
        if callable(line) and not isinstance(line, Response):
            line = line(body)
        if isinstance(line, Response):
            return line
        answer = {"text": line} if isinstance(line, str) else line
        if (write := VENDOR_APIS.get(request.url.path.rpartition("/")[2])) is not None:
            return write(answer, body.get("stream", False))
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        if body.get("stream"):
            return StreamingResponse(_stream(answer, usage), media_type="text/event-stream")
        message: dict[str, Any] = {"role": "assistant", "content": answer.get("text")}
        if answer.get("thoughts"):
            message["reasoning_content"] = answer["thoughts"]
        if answer.get("calls"):
            message["tool_calls"] = [
                {
                    "id": f"c{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for n, (name, arguments) in enumerate(answer["calls"])
            ]
        return JSONResponse({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})


async def _stream(answer: dict[str, Any], usage: dict[str, int]) -> AsyncIterator[bytes]:
    def event(**chunk: Any) -> bytes:
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    def delta(**delta: Any) -> bytes:
        return event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])

    yield b": keep-alive\n\n"
    yield delta(role="assistant", content="")
    for name in ("thoughts", "text"):
        text = answer.get(name) or ""
        for at in range(0, len(text), 50):
            yield delta(**{"reasoning_content" if name == "thoughts" else "content": text[at : at + 50]})
            await asyncio.sleep(0)
    for n, (name, arguments) in enumerate(answer.get("calls") or ()):
        written = json.dumps(arguments)
        yield delta(tool_calls=[{"index": n, "id": f"c{n}", "function": {"name": name, "arguments": ""}}])
        for at in range(0, len(written), 7):
            yield delta(tool_calls=[{"index": n, "function": {"arguments": written[at : at + 7]}}])
    yield event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield event(choices=[], usage=usage)
    yield b"data: [DONE]\n\n"


@asynccontextmanager
async def endpoint(*script: Line) -> AsyncIterator[Endpoint]:
    served = Endpoint(list(script))
    paths = ("chat/completions", *VENDOR_APIS)
    app = Starlette(routes=[Route(f"/v1/{path}", served.complete, methods=["POST"]) for path in paths])
    listening = socket.create_server(("127.0.0.1", 0))
    served.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield served
    finally:
        server.should_exit = True
        if served.hold is not None:
            served.hold.set()
        await task
        listening.close()
