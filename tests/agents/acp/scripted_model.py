"""A model that wants a tool for every message that asks for one: four APIs of vendors, without a key.

What it is asked decides: `Create the file NAME` wants the tool that writes files, `touch NAME` the shell,
`Call TOOL {…}` exactly that tool with these arguments, anything else is answered with words. After the result
of a tool it says "Finished."
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.ports import held_port
from tests.waiting import until

_CREATE = re.compile(r"Create the file (\S+)")
_TOUCH = re.compile(r"touch (\S+)")
# The whole rest of its line, which may ask a helper to call something.
_HELPER = re.compile(r'"agent_id":"([\w-]+)"')
_CALL = re.compile(r"Call (\w+) (\{.*\})$", re.MULTILINE)


class ScriptedModel:
    """Answers in the form of the API that it is asked by, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.url = ""

    # Deciding

    def _want(self, text: str, names: set[str]) -> tuple[str, dict[str, Any]] | None:
        """The tool that this text asks for, and its arguments; the last thing asked for counts."""
        for call in reversed(list(_CALL.finditer(text))):
            if call[1] in names:
                return call[1], json.loads(call[2])
        create, touch = list(_CREATE.finditer(text)), list(_TOUCH.finditer(text))
        last = max([*create, *touch], key=lambda match: match.start(), default=None)
        if last is None:
            return None
        if last.re is _CREATE:
            for name in ("Write", "write_file", "write"):
                if name in names:
                    return name, {"filePath" if name == "write" else "file_path": last[1], "content": "probe"}
            patch = f"*** Begin Patch\n*** Add File: {last[1]}\n+probe\n*** End Patch\n"
            if "exec_command" in names:
                return "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF\n"}
            return "apply_patch", {"input": patch}
        command = f"touch {last[1]}"
        for name in ("Bash", "bash", "run_shell_command", "shell", "exec_command"):
            if name in names:
                more: dict[str, Any] = {"is_background": False} if name == "run_shell_command" else {}
                key = "cmd" if name == "exec_command" else "command"
                if name == "exec_command":
                    more = {"sandbox_permissions": "require_escalated", "justification": "probe"}
                return name, {key: command, "description": "probe", **more}
        return None

    # The four APIs

    async def anthropic(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(("anthropic", body))
        names = {tool.get("name") for tool in body.get("tools", [])}
        blocks: list[dict[str, Any]] = []
        # Since its last answer: reminders stand around the message, as messages of their own.
        for message in body["messages"]:
            content = message["content"]
            blocks = [] if message["role"] == "assistant" else blocks
            if message["role"] != "assistant":
                blocks += content if isinstance(content, list) else [{"type": "text", "text": content}]
        answered = any(block.get("type") == "tool_result" for block in blocks)
        text = "\n".join(block.get("text", "") for block in blocks if block.get("type") == "text")
        wanted = None if answered else self._want(text, names)
        begun: dict[str, Any] = (
            {"type": "text", "text": "Finished."}
            if wanted is None
            else {"type": "tool_use", "id": f"toolu_{len(self.asked):04}", "name": wanted[0], "input": {}}
        )
        delta = (
            {"type": "text_delta", "text": "Finished."}
            if wanted is None
            else {"type": "input_json_delta", "partial_json": json.dumps(wanted[1])}
        )
        stop = "end_turn" if wanted is None else "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        reply = {
            "id": f"msg_{len(self.asked)}", "type": "message", "role": "assistant", "model": body["model"],
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if not body.get("stream"):
            whole = {"type": "text", "text": "Finished."} if wanted is None else {**begun, "input": wanted[1]}
            return JSONResponse({**reply, "content": [whole], "stop_reason": stop})
        start = {**begun, "text": ""} if wanted is None else begun
        return _events(
            ("message_start", {"type": "message_start", "message": reply}),
            ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": start}),
            ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
            ("content_block_stop", {"type": "content_block_stop", "index": 0}),
            ("message_delta", {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}),
            ("message_stop", {"type": "message_stop"}),
        )

    async def gemini(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(("gemini", body))
        names = {
            each.get("name")
            for tool in body.get("tools", [])
            for each in tool.get("functionDeclarations", [])
        }
        parts = body["contents"][-1]["parts"]
        answered = any("functionResponse" in part for part in parts)
        text = "\n".join(part.get("text", "") for part in parts)
        wanted = None if answered or not names else self._want(text, names)
        part: dict[str, Any] = (
            {"text": "Finished."}
            if wanted is None
            else {"functionCall": {"name": wanted[0], "args": wanted[1]}}
        )
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 2}}
        if "stream" not in request.url.path:
            return JSONResponse(answer)
        return _events(("", answer))

    async def chat(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(("chat", body))
        names = {tool["function"]["name"] for tool in body.get("tools", [])}
        last = body["messages"][-1]
        parts = last["content"] if isinstance(last["content"], list) else [{"text": last["content"]}]
        text = "\n".join(str(part.get("text", "")) for part in parts)
        wanted = None if last["role"] == "tool" else self._want(text, names)
        call = {} if wanted is None else {"name": wanted[0], "arguments": json.dumps(wanted[1])}
        calls = [{"index": 0, "id": f"call_{len(self.asked)}", "type": "function", "function": call}]
        delta: dict[str, Any] = {"role": "assistant", "content": "Finished."}
        if wanted is not None:
            delta = {"role": "assistant", "content": None, "tool_calls": calls}
        finish = "stop" if wanted is None else "tool_calls"
        base = {"id": "c", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": finish}
            return JSONResponse({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**base, "object": "chat.completion.chunk"}
        return _events(
            ("", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
            ("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}),
            done=True,
        )

    async def responses(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(("responses", body))
        # Codex has the tools for its helpers in a namespace.
        spaces = {
            each["name"]: tool["name"]
            for tool in body.get("tools", [])
            if tool.get("type") == "namespace"
            for each in tool["tools"]
        }
        names = {tool.get("name") for tool in body.get("tools", [])} | set(spaces)
        last = body["input"][-1]
        answered = str(last.get("type", "")).endswith("_output")
        content = last.get("content")
        parts = content if isinstance(content, list) else [{"text": str(content)}]
        text = "\n".join(str(part.get("text", "")) for part in parts)
        wanted = None if answered else self._want(text, names)
        if answered and (helper := _HELPER.search(str(last.get("output")))) and "wait_agent" in names:
            # As its own models do: the turn goes on until the helper has ended.
            wanted = "wait_agent", {"targets": [helper[1]], "timeout_ms": 60_000}
        number = len(self.asked)
        item: dict[str, Any] = {
            "type": "message", "role": "assistant", "id": f"m{number}",
            "content": [{"type": "output_text", "text": "Finished."}],
        }  # fmt: skip
        if wanted is not None and wanted[0] == "apply_patch":
            item = {
                "type": "custom_tool_call",
                "id": f"i{number}",
                "call_id": f"c{number}",
                "name": "apply_patch",
                "input": wanted[1]["input"],
            }
        elif wanted is not None:
            item = {
                "type": "function_call",
                "id": f"i{number}",
                "call_id": f"c{number}",
                "name": wanted[0],
                "arguments": json.dumps(wanted[1]),
            }
            if wanted[0] in spaces:
                item["namespace"] = spaces[wanted[0]]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response = {"id": f"r{number}", "usage": usage}
        return _events(
            ("response.created", {"type": "response.created", "response": {"id": f"r{number}"}}),
            ("response.output_item.done", {"type": "response.output_item.done", "item": item}),
            ("response.completed", {"type": "response.completed", "response": response}),
        )

    async def other(self, request: Request) -> Response:
        if "enerateContent" in request.url.path:
            return await self.gemini(request)
        self.asked.append((str(request.url.path), None))
        return JSONResponse({"data": [], "models": [], "input_tokens": 1, "totalTokens": 1})


def _events(*events: tuple[str, Any], done: bool = False) -> Response:
    def lines() -> Iterator[str]:
        for name, data in events:
            if name:
                yield f"event: {name}\n"
            yield f"data: {json.dumps(data)}\n\n"
        if done:
            yield "data: [DONE]\n\n"

    return Response("".join(lines()), media_type="text/event-stream")


@asynccontextmanager
async def scripted_model() -> AsyncIterator[ScriptedModel]:
    """The model on loopback."""
    import asyncio

    model = ScriptedModel()
    app = Starlette(
        routes=[
            Route("/v1/messages", model.anthropic, methods=["POST"]),
            Route("/v1/chat/completions", model.chat, methods=["POST"]),
            Route("/v1/responses", model.responses, methods=["POST"]),
            Route("/{path:path}", model.other, methods=["GET", "POST", "HEAD"]),
        ]
    )
    with held_port() as port:
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        model.url = f"http://127.0.0.1:{port}"
        try:
            yield model
        finally:
            server.should_exit = True
            await serving
