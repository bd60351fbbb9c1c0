"""A language model behind an HTTP endpoint: messages in, text and tool calls out.

One HTTP client as long as the agent runs; what an API looks like is in `chat_completions` and its siblings.
Busy and failing endpoints are tried again, after the time that they name or with growing pauses; everything
else is a `ModelFailed` that says what to check. Nothing that leaves this module contains a key: text,
reasoning, calls and errors are filtered here.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

import httpx2
import orjson

from moot.agents.model.agent_settings import Api, ModelSettings
from moot.agents.model.anthropic_messages import AnthropicMessages
from moot.agents.model.chat_completions import ChatCompletions
from moot.agents.model.model_reply import (
    Message,
    ModelEndpointFault,
    ModelFailed,
    ModelReply,
    TextHandler,
    ToolCall,
)
from moot.agents.model.openai_responses import OpenAIResponses
from moot.agents.model.server_sent_events import decode_events
from moot.agents.secret_filter import FilteredStream, SecretFilter
from moot.config.secrets.secret import Secret
from moot.net.outbound import verification_for
from moot.resilience.restart_loop import Backoff

# How long a model may send nothing, and how long the whole answer may take.
SILENCE_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 600.0
# Bytes of one answer as it is sent, with all its events.
ANSWER_BYTES: Final = 16 << 20
# How often a busy or failing endpoint is tried again, and the longest wait before that.
MAX_RETRIES: Final = 4
RETRY_SECONDS: Final = 30.0

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 0.5
# HTTP statuses that are tried again.
_RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Words of a 429 that no waiting helps against.
_USED_UP: Final = ("insufficient_quota", "billing", "credit")
_ADVICE: Final = {
    400: "the endpoint did not understand the request; does this model take tools?",
    401: "the endpoint refused the key: check the variable that --api-key-env names",
    402: "the account at the endpoint has no credit left",
    403: "the endpoint refused the key: may it use this model?",
    404: "nothing is there: check --base-url, --api and --model",
    405: "nothing is there: check --base-url and --api",
    413: "the conversation is too long for this endpoint: lower --context-tokens",
    429: "it is asked too often, or its quota is used up: try again later",
}
_NONSENSE: Final = "is not that of {}: check --base-url and --api"
# What the common tokenisers come to on English and JSON.
_BYTES_PER_TOKEN: Final = 4
# More than any answer costs: a number beyond it is nonsense.
_MAX_TOKENS: Final = 1_000_000_000
# Of an error that is shown.
_DETAIL_CHARS: Final = 300


class AnswerStream(Protocol):
    """Puts one streamed answer together."""

    finished: bool

    def feed(self, chunk: Any) -> str:
        """Take one event; returns what it adds to reasoning or text. Raises ModelEndpointFault."""

    def reply(self) -> ModelReply:
        """The whole answer."""


class ModelApi(Protocol):
    """How one vendor's API writes requests and answers."""

    @property
    def path(self) -> str: ...
    @property
    def replaceable(self) -> dict[str, str | None]:
        """Optional fields that an endpoint may refuse, and what is sent instead."""

    def headers(self, settings: ModelSettings) -> dict[str, str]: ...
    def body(
        self, settings: ModelSettings, messages: list[Message], tools: list[Message]
    ) -> dict[str, Any]: ...
    def stream(self) -> AnswerStream: ...
    def read(self, answer: Any) -> ModelReply: ...


_APIS: Final[dict[Api, Callable[[], ModelApi]]] = {
    "chat": ChatCompletions,
    "anthropic": AnthropicMessages,
    "responses": OpenAIResponses,
}
_API_NAMES: Final[dict[Api, str]] = {
    "chat": "an OpenAI-compatible API",
    "anthropic": "Anthropic's Messages API",
    "responses": "OpenAI's Responses API",
}


class _Retryable(Exception):
    """May work the next time; not tried again if part of an answer was passed on already."""

    def __init__(self, fault: ModelFailed, has_begun: bool, retry_after: float | None = None) -> None:
        self.fault = fault
        self.has_begun = has_begun
        self.retry_after = retry_after


def _text(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


class Model:
    """Use as a block: `async with Model(settings) as model`."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._api = _APIS[settings.api]()
        secrets = [each.reveal() for each in settings.headers.values() if isinstance(each, Secret)]
        self._secrets = SecretFilter([settings.api_key or "", *secrets])
        # Optional fields that this endpoint refused once.
        self._refused: set[str] = set()
        headers = {"Accept": "text/event-stream, application/json", **self._api.headers(settings)}
        own = {name: _text(value) for name, value in settings.headers.items()}
        self._client = httpx2.AsyncClient(
            base_url=settings.base_url.rstrip("/") + "/",
            headers=headers | own,
            timeout=httpx2.Timeout(SILENCE_SECONDS, connect=10.0),
            # A key is for the endpoint that was configured, not for where that one points to.
            follow_redirects=False,
            verify=verification_for(settings.base_url),
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
        body = self._api.body(self.settings, messages, tools)
        if self.settings.temperature is not None:
            body["temperature"] = self.settings.temperature
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return self._filter(await self._post_with_retries(body, on_text))
        except TimeoutError:
            limit = ANSWER_SECONDS
            raise ModelFailed(f"the model did not finish within {limit:g} s") from None
        except ModelFailed as fault:
            raise ModelFailed(self._secrets.clean(str(fault))) from None

    def _filter(self, reply: ModelReply) -> ModelReply:
        clean = self._secrets.clean
        reply.text, reply.reasoning = clean(reply.text), clean(reply.reasoning)
        reply.calls = [ToolCall(call.id, clean(call.name), clean(call.arguments)) for call in reply.calls]
        return reply

    async def _post_with_retries(self, body: dict[str, Any], on_text: TextHandler | None) -> ModelReply:
        backoff = Backoff(_FIRST_RETRY_SECONDS, RETRY_SECONDS)
        attempt = 0
        while True:
            try:
                return await self._post(self._without_refused(body), on_text)
            except _Retryable as retryable:
                if attempt >= MAX_RETRIES or retryable.has_begun:
                    raise retryable.fault from None
                await asyncio.sleep(self._retry_delay(backoff, retryable))
                attempt += 1
            except _FieldRefused as refused:
                # Each field once, so this ends.
                self._refused.add(refused.field)
                log.warning("the endpoint refused a field, which is left out", extra={"field": refused.field})

    def _without_refused(self, body: dict[str, Any]) -> dict[str, Any]:
        body = dict(body)
        for name in self._refused & body.keys():
            value, other = body.pop(name), self._api.replaceable[name]
            if other is not None:
                body[other] = value
        return body

    async def _post(self, body: dict[str, Any], on_text: TextHandler | None) -> ModelReply:
        has_begun = False
        passed_on = FilteredStream(self._secrets)

        async def handle_text(text: str) -> None:
            nonlocal has_begun
            has_begun = True
            if on_text is not None and (ready := passed_on.write(text)):
                await on_text(ready)

        content = orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        try:
            post = self._client.stream("POST", self._api.path, content=content, headers=headers)
            async with post as response:
                if response.status_code != 200:
                    raise await self._refusal_of(response, body)
                reply = await _read_answer(self._api, response, ANSWER_BYTES, handle_text)
                if on_text is not None and (rest := passed_on.end()):
                    await on_text(rest)
                _estimate_tokens(reply, content)
                return reply
        except ModelEndpointFault as fault:
            failed = ModelFailed(f"the model stopped: {str(fault)[:_DETAIL_CHARS]}")
            if fault.retryable:
                raise _Retryable(failed, has_begun) from None
            raise failed from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            nonsense = _NONSENSE.format(_API_NAMES[self.settings.api])
            raise ModelFailed(f"the endpoint's answer {nonsense}") from None
        except httpx2.TimeoutException:
            silence = f"the model sent nothing for {SILENCE_SECONDS:g} s"
            raise _Retryable(ModelFailed(silence), has_begun) from None
        except httpx2.HTTPError as error:
            unreachable = f"the endpoint cannot be reached ({type(error).__name__}): check --base-url"
            raise _Retryable(ModelFailed(unreachable), has_begun) from None

    async def _refusal_of(self, response: httpx2.Response, body: dict[str, Any]) -> Exception:
        """What an answer with another status than 200 means."""
        detail = _detail_of(await _read_bounded(response, ANSWER_BYTES))
        if response.status_code in (400, 422):
            for name in self._api.replaceable:
                if name in body and name in detail:
                    return _FieldRefused(name)
        if 300 <= response.status_code < 400:
            advice = "it points to another address: give that as --base-url if you trust it"
        else:
            advice = _ADVICE.get(response.status_code, "try again later")
        shown = f" ({detail[:_DETAIL_CHARS]})" if detail else ""
        failed = ModelFailed(f"the model's endpoint answered {response.status_code}: {advice}{shown}")
        if response.status_code not in _RETRIED or any(word in detail for word in _USED_UP):
            return failed
        wait = _retry_after(response.headers)
        if wait is not None and wait > RETRY_SECONDS:
            # A quota that is used up for an hour: people are told, nobody waits.
            return ModelFailed(f"{failed}; the endpoint asks to wait {wait:.0f} seconds")
        return _Retryable(failed, False, wait)

    def _retry_delay(self, backoff: Backoff, retryable: _Retryable) -> float:
        """As long as the endpoint asks for; otherwise by back-off."""
        delay = backoff.next_delay()
        return delay if retryable.retry_after is None else retryable.retry_after


class _FieldRefused(Exception):
    """The endpoint does not know an optional field of the request."""

    def __init__(self, field: str) -> None:
        self.field = field


async def _read_answer(
    api: ModelApi, response: httpx2.Response, max_bytes: int, on_text: TextHandler
) -> ModelReply:
    """Read an answer with status 200, as a stream of events or as a whole."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        # Some endpoints send events under another type, or no events although they were asked for.
        body = await _read_bounded(response, max_bytes)
        if not body.lstrip().startswith((b"data:", b"event:", b":")):
            reply = api.read(orjson.loads(body))
            await on_text(reply.reasoning or reply.text)
            return reply
        parts = _each(body)
    else:
        parts = _bounded(response, max_bytes)
    async with aclosing(parts):
        return await _read_events(api.stream(), parts, on_text)


async def _read_events(stream: AnswerStream, parts: AsyncIterator[bytes], on_text: TextHandler) -> ModelReply:
    has_events = False
    async for data in decode_events(parts):
        if data.strip() == "[DONE]":
            stream.finished = True
            break
        for chunk in _documents(data):
            has_events = True
            if text := stream.feed(chunk):
                await on_text(text)
    if not has_events:
        raise ValueError("no events")
    if not stream.finished:
        raise ModelEndpointFault("the endpoint ended its answer in the middle", retryable=True)
    return stream.reply()


def _estimate_tokens(reply: ModelReply, request: bytes) -> None:
    """Count what an endpoint did not count, so that no budget depends on its good will."""
    reply.prompt_tokens = min(reply.prompt_tokens, _MAX_TOKENS)
    reply.completion_tokens = min(reply.completion_tokens, _MAX_TOKENS)
    # Nor does a negative count give anything back.
    if reply.prompt_tokens <= 0:
        reply.prompt_tokens = len(request) // _BYTES_PER_TOKEN
    if reply.completion_tokens <= 0:
        written = [reply.text, reply.reasoning, *(call.arguments for call in reply.calls)]
        reply.completion_tokens = (
            sum(len(text.encode("utf-8", "replace")) for text in written) // _BYTES_PER_TOKEN
        )


def _documents(data: str) -> list[Any]:
    """The JSON of one event; of several, where an endpoint leaves out the empty lines between them."""
    if not data.strip():
        return []
    try:
        return [orjson.loads(data)]
    except orjson.JSONDecodeError:
        if "\n" not in data:
            raise
        lines = [line.strip() for line in data.split("\n")]
        return [orjson.loads(line) for line in lines if line not in ("", "[DONE]")]


async def _each(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _bounded(response: httpx2.Response, max_bytes: int) -> AsyncGenerator[bytes, None]:
    received = 0
    async for part in response.aiter_bytes():
        received += len(part)
        if received > max_bytes:
            raise ModelEndpointFault(f"its answer is longer than {max_bytes} bytes")
        yield part


async def _read_bounded(response: httpx2.Response, max_bytes: int) -> bytes:
    return b"".join([part async for part in _bounded(response, max_bytes)])


def _detail_of(body: bytes) -> str:
    """What an error says: {"error": {"message": …}}, a list of that (Gemini), or another common shape."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    while isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return ""
    error = answer.get("error") or answer.get("message") or answer.get("detail") or ""
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    kind = error.get("code") or error.get("type")
    text = error.get("message")
    return " ".join(each for each in (text, kind) if isinstance(each, str))


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that the endpoint asks to wait: a number, a number of milliseconds, or a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name, "")) * unit)
        except ValueError:
            pass
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, TypeError):
        return None
