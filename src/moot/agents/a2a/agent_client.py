"""Talks to a foreign agent by the official SDK: one message, its events, and the same task after a loss.

A message is sent once. If the connection breaks before the agent has named a task, whether it got the message
is not known, and that is what is said. Afterwards the task is followed: by its stream where the agent has
one, else by looking again and again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Final

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseError

from moot.agents.a2a.a2a_settings import JoinSettings
from moot.agents.a2a.agent_card import origin_of
from moot.errors import MootError
from moot.protocol.hidden_text import show_hidden
from moot.resilience.restart_loop import Backoff

# A connection to the agent; silence within a stream, after which it is opened again.
CONNECT_SECONDS: Final = 15.0
# One answer or stream of the agent: files come in it, too.
MAX_RESPONSE_BYTES: Final = 16 << 20
STREAM_IDLE_SECONDS: Final = 300.0
# Between two looks at a task of an agent that does not stream, or of one that is away.
POLL_FIRST_SECONDS: Final = 1.0
POLL_MAX_SECONDS: Final = 30.0
# An answer of the agent: a model writes for minutes.
ANSWER_SECONDS: Final = 600.0
# How long a lost connection to a running task is tried again.
RETRY_SECONDS: Final = 600.0
# How long a cancelled task may take to end.
CANCEL_SECONDS: Final = 10.0

ENDED: Final = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
# The agent does nothing more by itself.
SETTLED: Final = ENDED | {TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED}
# What the SDK raises when a server is away, refuses, or answers nonsense.
_FAULTS: Final = (
    A2AError,
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    ParseError,
    json.JSONDecodeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    NotImplementedError,
)
_MAX_FAULT_CHARS: Final = 500

Events = AsyncGenerator[StreamResponse, None]


class AgentFault(MootError):
    """The agent refused, is away or answered nonsense; the text is for people."""


class AgentTooMuch(AgentFault):
    """The agent does more than it may: its task is cancelled."""


class AgentClient:
    """One foreign agent. `close` it."""

    def __init__(self, card: AgentCard, settings: JoinSettings) -> None:
        origins = frozenset(origin_of(each.url, settings) for each in card.supported_interfaces)
        headers = {"Accept-Encoding": "identity"}
        if settings.agent_token:
            headers["Authorization"] = f"Bearer {settings.agent_token}"
        self._http = httpx.AsyncClient(
            transport=BoundedTransport(origins, MAX_RESPONSE_BYTES),
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )
        self.streams = card.capabilities.streaming
        config = ClientConfig(
            streaming=True,
            # An agent that does not stream names its task at once, and is asked for it again and again.
            polling=not self.streams,
            httpx_client=self._http,
            supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
        )
        self._client: Client = ClientFactory(config).create(card)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, message: Message) -> Events:
        """Send it once; everything that comes of it, until the task is settled. Raises AgentFault."""
        task_id = message.task_id
        try:
            sent = self._client.send_message(SendMessageRequest(message=message))
            async with aclosing(self._idle_bounded(sent)) as events:
                async for event in events:
                    task_id = task_id or task_id_of(event)
                    yield event
                    if is_answer(event) or state_of(event) in SETTLED:
                        return
        except (*_FAULTS, TimeoutError) as fault:
            if not task_id:
                raise AgentFault(_text_of(fault)) from None
            if message.task_id and not isinstance(fault, httpx.HTTPError | TimeoutError):
                # Refused: it was not for this task.
                raise AgentFault(_text_of(fault)) from None
        if not task_id:
            raise AgentFault("it ended its answer without a word")
        async with aclosing(self.follow(task_id)) as events:
            async for event in events:
                yield event

    async def follow(self, task_id: str) -> Events:
        """The state of a task and what comes of it, until it is settled. Raises AgentFault."""
        backoff = Backoff(POLL_FIRST_SECONDS, POLL_MAX_SECONDS)
        last_answer = time.monotonic()
        while True:
            try:
                if self.streams:
                    followed = self._idle_bounded(self._client.subscribe(SubscribeToTaskRequest(id=task_id)))
                    # One that has ended cannot be subscribed to: then it is asked for below.
                    with suppress(UnsupportedOperationError, NotImplementedError):
                        async with aclosing(followed) as events:
                            async for event in events:
                                last_answer = time.monotonic()
                                yield event
                                if state_of(event) in SETTLED:
                                    return
                task = await self.get(task_id)
                last_answer = time.monotonic()
                yield StreamResponse(task=task)
                if task.status.state in SETTLED:
                    return
            except TaskNotFoundError:
                raise AgentFault("it does not know this task any more") from None
            except (*_FAULTS, TimeoutError) as fault:
                if time.monotonic() - last_answer > RETRY_SECONDS:
                    raise AgentFault(f"no answer for {RETRY_SECONDS:g} s: {_text_of(fault)}") from None
            await asyncio.sleep(backoff.next_delay())

    async def get(self, task_id: str) -> Task:
        return await self._client.get_task(GetTaskRequest(id=task_id))

    async def cancel(self, task_id: str) -> str:
        """Ask the agent to stop; what it answered, in words."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                task = await self._client.cancel_task(CancelTaskRequest(id=task_id))
        except TimeoutError:
            return f"the agent did not answer within {CANCEL_SECONDS:g} s: it may go on"
        except _FAULTS as fault:
            return f"the agent did not stop it: {_text_of(fault)}"
        if task.status.state == TaskState.TASK_STATE_CANCELED:
            return "the agent has stopped it"
        return f"the agent says that it is {state_word(task.status.state)}"

    async def _idle_bounded(self, events: AsyncIterator[StreamResponse]) -> Events:
        """The same events; raises TimeoutError when none comes for too long."""
        seconds = STREAM_IDLE_SECONDS if self.streams else ANSWER_SECONDS
        try:
            while True:
                async with asyncio.timeout(seconds):
                    event = await anext(events, None)
                if event is None:
                    return
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()


def task_id_of(event: StreamResponse) -> str:
    if event.HasField("task"):
        return event.task.id
    return event.status_update.task_id or event.artifact_update.task_id


def state_of(event: StreamResponse) -> int:
    """The state of the task that an event tells, or 0."""
    if event.HasField("task"):
        return int(event.task.status.state)
    return int(event.status_update.status.state) if event.HasField("status_update") else 0


def is_answer(event: StreamResponse) -> bool:
    """Whether it is a message without a task, which ends the exchange."""
    return event.HasField("message")


def state_word(state: int) -> str:
    """`input required`, for people."""
    try:
        name = TaskState.Name(state)
    except ValueError:
        return "in a state that is not known here"
    return name.removeprefix("TASK_STATE_").lower().replace("_", " ")


def _text_of(fault: BaseException) -> str:
    text = str(fault) or type(fault).__name__
    return show_hidden(" ".join(text.split()))[:_MAX_FAULT_CHARS]


# The HTTP client for a foreign agent: only to the servers that were allowed, bounded, without redirects.
#
# A response is counted as it is read, and compression is refused: a small answer could become a large one.


class BoundedTransport(httpx.AsyncBaseTransport):
    """Refuses other servers, and responses above `max_bytes`."""

    def __init__(self, allowed_origins: frozenset[str], max_bytes: int) -> None:
        self._allowed = allowed_origins
        self._max_bytes = max_bytes
        self._inner = httpx.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        if f"{url.scheme}://{url.host.lower()}:{port}" not in self._allowed:
            raise httpx.UnsupportedProtocol("the agent leads to a server that was not allowed")
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx.DecodingError("the agent compressed its answer, which it was asked not to do")
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  # of an async transport
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_CountedStream(response.stream, self._max_bytes),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CountedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise httpx.ReadError(f"an answer of the agent is larger than {self._max_bytes} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
