"""A language model behind an OpenAI-compatible endpoint: messages in, words and tool calls out.

One HTTP client for the life of the agent. Busy and failing endpoints are asked again, as they say or with
growing pauses; everything else is a `ModelFailed` that says what to look at. No key stands in an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import orjson

from moot.agent.agent_settings import AgentLimits, ModelSettings
from moot.errors import MootError
from moot.resilience.backoff import Backoff

Message = dict[str, Any]
Hear = Callable[[str], Awaitable[None]]

_FIRST_RETRY_SECONDS: Final = 0.5
# Statuses that may be others the next time.
_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Names under which endpoints give what a model thinks before it speaks.
_THOUGHTS: Final = ("reasoning_content", "reasoning")
_WHAT_TO_DO: Final = {
    400: "the endpoint did not understand the request; does this model take tools?",
    401: "the endpoint refused the key: check the variable that --api-key-env names",
    403: "the endpoint refused the key: may it use this model?",
    404: "nothing is there: check --base-url and --model",
    413: "the conversation is too long for this endpoint: lower --context-tokens",
}


class ModelFailed(MootError):
    """The model gave no answer; the text says what to look at."""


class _Busy(Exception):
    """May be another the next time, unless half an answer was heard: the same words twice are worse."""

    def __init__(self, fault: ModelFailed, was_heard: bool, asked: str | None = None) -> None:
        self.fault = fault
        self.was_heard = was_heard
        self.asked = asked


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool. `arguments` is its JSON as it wrote it, which may be none."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class ModelReply:
    """One answer of the model."""

    text: str = ""
    thoughts: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = ""

    def as_message(self) -> Message:
        message: Message = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        return message


class Model:
    """Use as a block: `async with Model(settings, limits) as model`."""

    def __init__(self, settings: ModelSettings, limits: AgentLimits) -> None:
        self.settings = settings
        self._limits = limits
        headers = {"Accept": "text/event-stream, application/json"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        self._client = httpx2.AsyncClient(
            base_url=settings.base_url.rstrip("/") + "/",
            headers=headers,
            timeout=httpx2.Timeout(limits.silence_seconds, connect=10.0),
        )

    async def __aenter__(self) -> Model:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def complete(
        self, messages: list[Message], tools: list[Message], hear: Hear | None = None
    ) -> ModelReply:
        """The model's next answer; `hear` is awaited with its thoughts and words as they come.

        Raises ModelFailed. Cancelling is safe and ends the request.
        """
        body: dict[str, Any] = {"model": self.settings.model, "messages": messages}
        if tools:
            body["tools"] = tools
        if self.settings.temperature is not None:
            body["temperature"] = self.settings.temperature
        if self.settings.max_tokens is not None:
            body["max_tokens"] = self.settings.max_tokens
        if self.settings.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with asyncio.timeout(self._limits.answer_seconds):
                return await self._ask(orjson.dumps(body), hear)
        except TimeoutError:
            limit = self._limits.answer_seconds
            raise ModelFailed(f"the model did not finish within answer_seconds {limit:g}") from None

    async def _ask(self, body: bytes, hear: Hear | None) -> ModelReply:
        backoff = Backoff(_FIRST_RETRY_SECONDS, self._limits.retry_seconds)
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._once(body, hear)
            except _Busy as busy:
                if attempt == self._limits.retries or busy.was_heard:
                    raise busy.fault from None
                await asyncio.sleep(self._retry_delay(backoff, busy.asked))
        raise ModelFailed("the model was not asked: retries is negative")

    async def _once(self, body: bytes, hear: Hear | None) -> ModelReply:
        was_heard = False

        async def pass_on(text: str) -> None:
            nonlocal was_heard
            was_heard = True
            if hear is not None:
                await hear(text)

        headers = {"Content-Type": "application/json"}
        try:
            post = self._client.stream("POST", "chat/completions", content=body, headers=headers)
            async with post as response:
                if response.status_code == 200:
                    return await _read(response, pass_on)
                await response.aread()
                if response.status_code in _AGAIN:
                    raise _Busy(_refused(response), was_heard, response.headers.get("retry-after"))
                raise _refused(response)
        except httpx2.TimeoutException:
            silence = f"the model said nothing for silence_seconds {self._limits.silence_seconds:g}"
            raise _Busy(ModelFailed(silence), was_heard) from None
        except httpx2.HTTPError as error:
            away = f"the endpoint cannot be reached ({type(error).__name__}): check --base-url"
            raise _Busy(ModelFailed(away), was_heard) from None

    def _retry_delay(self, backoff: Backoff, retry_after: str | None) -> float:
        """As long as the endpoint asks for, within bounds; where it asks for nothing, by back-off."""
        try:
            return min(self._limits.retry_seconds, max(0.0, float(retry_after or "")))
        except ValueError:
            return backoff.next_delay()


def _refused(response: httpx2.Response) -> ModelFailed:
    said = ""
    try:
        error = orjson.loads(response.content)["error"]
        said = str(error["message"] if isinstance(error, dict) else error)[:300]
    except (ValueError, KeyError, TypeError):
        pass
    advice = _WHAT_TO_DO.get(response.status_code, "try again later")
    return ModelFailed(
        f"the model's endpoint answered {response.status_code}: {advice}" + (f" ({said})" if said else "")
    )


async def _read(response: httpx2.Response, hear: Hear) -> ModelReply:
    if "text/event-stream" in response.headers.get("content-type", ""):
        return await _read_stream(response, hear)
    try:
        answer = orjson.loads(await response.aread())
        message = answer["choices"][0]["message"]
        reply = ModelReply(text=message.get("content") or "", thoughts=_thoughts_in(message))
        reply.finish = answer["choices"][0].get("finish_reason") or ""
        for position, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            arguments = function.get("arguments") or "{}"
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            reply.calls.append(ToolCall(call.get("id") or f"call-{position}", function["name"], arguments))
        _count(reply, answer.get("usage"))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ModelFailed(
            "the endpoint's answer is not that of an OpenAI-compatible API: check --base-url"
        ) from None
    if reply.thoughts or reply.text:
        await hear(reply.thoughts or reply.text)
    return reply


async def _read_stream(response: httpx2.Response, hear: Hear) -> ModelReply:
    reply = ModelReply()
    # By index: pieces of one call come one after the other, of several calls mixed.
    calls: dict[int, dict[str, str]] = {}
    finished = False
    async for data in _events(response):
        if data == "[DONE]":
            finished = True
            break
        try:
            chunk = orjson.loads(data)
            _count(reply, chunk.get("usage"))
            if "error" in chunk:
                raise ModelFailed(f"the model stopped: {str(chunk['error'])[:300]}")
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                thoughts, text = _thoughts_in(delta), delta.get("content") or ""
                reply.thoughts += thoughts
                reply.text += text
                for piece in delta.get("tool_calls") or ():
                    _add_piece(calls, piece)
                if choice.get("finish_reason"):
                    reply.finish = choice["finish_reason"]
                    finished = True
                if thoughts or text:
                    await hear(thoughts or text)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ModelFailed("the endpoint's stream is not that of an OpenAI-compatible API") from None
    if not finished:
        raise ModelFailed("the endpoint ended its answer in the middle")
    reply.calls = [
        ToolCall(call["id"] or f"call-{index}", call["name"], call["arguments"] or "{}")
        for index, call in sorted(calls.items())
        if call["name"]
    ]
    return reply


def _add_piece(calls: dict[int, dict[str, str]], piece: dict[str, Any]) -> None:
    call = calls.setdefault(int(piece.get("index") or 0), {"id": "", "name": "", "arguments": ""})
    function = piece.get("function") or {}
    call["id"] = call["id"] or piece.get("id") or ""
    call["name"] += function.get("name") or ""
    call["arguments"] += function.get("arguments") or ""


def _thoughts_in(delta: dict[str, Any]) -> str:
    return next((text for name in _THOUGHTS if isinstance(text := delta.get(name), str) and text), "")


def _count(reply: ModelReply, usage: Any) -> None:
    if isinstance(usage, dict):
        reply.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        reply.completion_tokens = int(usage.get("completion_tokens") or 0)


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of server-sent events; comments and other fields are passed over."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)
