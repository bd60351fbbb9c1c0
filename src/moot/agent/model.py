"""A language model behind an OpenAI-compatible endpoint: messages in, text and tool calls out.

One HTTP client as long as the agent runs. Busy and failing endpoints are tried again, after the time that
they name or with growing pauses; everything else is a `ModelFailed` that says what to check. No error
contains the key.
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
TextHandler = Callable[[str], Awaitable[None]]

_FIRST_RETRY_SECONDS: Final = 0.5
# HTTP statuses that are tried again.
_RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Fields in which endpoints send the reasoning of a model.
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_ADVICE: Final = {
    400: "the endpoint did not understand the request; does this model take tools?",
    401: "the endpoint refused the key: check the variable that --api-key-env names",
    403: "the endpoint refused the key: may it use this model?",
    404: "nothing is there: check --base-url and --model",
    413: "the conversation is too long for this endpoint: lower --context-tokens",
}


class ModelFailed(MootError):
    """The model gave no answer; the text says what to check."""


class _Retryable(Exception):
    """May work the next time; not tried again if part of an answer was passed on already."""

    def __init__(self, fault: ModelFailed, has_begun: bool, retry_after: str | None = None) -> None:
        self.fault = fault
        self.has_begun = has_begun
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model. `arguments` is as the model wrote it and may not be valid JSON."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class ModelReply:
    """One answer of the model."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0

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
        self, messages: list[Message], tools: list[Message], on_text: TextHandler | None = None
    ) -> ModelReply:
        """The model's next answer; `on_text` is awaited with its reasoning and text as they come.

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
                return await self._post_with_retries(orjson.dumps(body), on_text)
        except TimeoutError:
            limit = self._limits.answer_seconds
            raise ModelFailed(f"the model did not finish within answer_seconds {limit:g}") from None

    async def _post_with_retries(self, body: bytes, on_text: TextHandler | None) -> ModelReply:
        backoff = Backoff(_FIRST_RETRY_SECONDS, self._limits.retry_seconds)
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._post(body, on_text)
            except _Retryable as retryable:
                if attempt == self._limits.retries or retryable.has_begun:
                    raise retryable.fault from None
                await asyncio.sleep(self._retry_delay(backoff, retryable.retry_after))
        raise ModelFailed("no request was made: retries is negative")

    async def _post(self, body: bytes, on_text: TextHandler | None) -> ModelReply:
        has_begun = False

        async def handle_text(text: str) -> None:
            nonlocal has_begun
            has_begun = True
            if on_text is not None:
                await on_text(text)

        headers = {"Content-Type": "application/json"}
        try:
            post = self._client.stream("POST", "chat/completions", content=body, headers=headers)
            async with post as response:
                if response.status_code == 200:
                    return await _read(response, handle_text)
                await response.aread()
                if response.status_code in _RETRIED:
                    raise _Retryable(_failure_of(response), has_begun, response.headers.get("retry-after"))
                raise _failure_of(response)
        except httpx2.TimeoutException:
            silence = f"the model sent nothing for silence_seconds {self._limits.silence_seconds:g}"
            raise _Retryable(ModelFailed(silence), has_begun) from None
        except httpx2.HTTPError as error:
            unreachable = f"the endpoint cannot be reached ({type(error).__name__}): check --base-url"
            raise _Retryable(ModelFailed(unreachable), has_begun) from None

    def _retry_delay(self, backoff: Backoff, retry_after: str | None) -> float:
        """As long as the endpoint asks for, within bounds; otherwise by back-off."""
        try:
            return min(self._limits.retry_seconds, max(0.0, float(retry_after or "")))
        except ValueError:
            return backoff.next_delay()


def _failure_of(response: httpx2.Response) -> ModelFailed:
    detail = ""
    try:
        error = orjson.loads(response.content)["error"]
        detail = str(error["message"] if isinstance(error, dict) else error)[:300]
    except (ValueError, KeyError, TypeError):
        pass
    advice = _ADVICE.get(response.status_code, "try again later")
    return ModelFailed(
        f"the model's endpoint answered {response.status_code}: {advice}" + (f" ({detail})" if detail else "")
    )


async def _read(response: httpx2.Response, on_text: TextHandler) -> ModelReply:
    if "text/event-stream" in response.headers.get("content-type", ""):
        return await _read_stream(response, on_text)
    try:
        answer = orjson.loads(await response.aread())
        message = answer["choices"][0]["message"]
        reply = ModelReply(text=message.get("content") or "", reasoning=_reasoning_in(message))
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
    if reply.reasoning or reply.text:
        await on_text(reply.reasoning or reply.text)
    return reply


async def _read_stream(response: httpx2.Response, on_text: TextHandler) -> ModelReply:
    reply = ModelReply()
    # By index: the parts of several calls may be mixed.
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
                reasoning, text = _reasoning_in(delta), delta.get("content") or ""
                reply.reasoning += reasoning
                reply.text += text
                for piece in delta.get("tool_calls") or ():
                    _add_piece(calls, piece)
                if choice.get("finish_reason"):
                    finished = True
                if reasoning or text:
                    await on_text(reasoning or text)
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


def _reasoning_in(delta: dict[str, Any]) -> str:
    return next((text for name in _REASONING_FIELDS if isinstance(text := delta.get(name), str) and text), "")


def _count(reply: ModelReply, usage: Any) -> None:
    if isinstance(usage, dict):
        reply.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        reply.completion_tokens = int(usage.get("completion_tokens") or 0)


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """The data of server-sent events; comments and other fields are ignored."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)
