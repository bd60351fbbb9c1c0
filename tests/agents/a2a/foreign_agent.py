"""A foreign agent, served by the official SDK over a real socket, that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from a2a.helpers import get_message_text
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from moot.net.http_listener import bind_socket, serve_http

# What the agent does with one message.
Act = Callable[["Exchange"], Awaitable[None]]


@dataclass(slots=True)
class Exchange:
    """One message to the agent, and what it can do about it."""

    text: str
    context: RequestContext
    queue: EventQueue
    updater: TaskUpdater

    def said(self, text: str) -> Any:
        return self.updater.new_agent_message([Part(text=text)])

    async def begin(self) -> None:
        """Name the task."""
        if self.context.current_task is None:
            await self.queue.enqueue_event(
                Task(
                    id=self.context.task_id,
                    context_id=self.context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                )
            )

    async def answer(self, text: str) -> None:
        await self.begin()
        await self.updater.add_artifact([Part(text=text)], name="answer", last_chunk=True)
        await self.updater.complete()


@dataclass(slots=True)
class ForeignAgent(AgentExecutor):
    """Runs the acts in their order, one for each message."""

    acts: list[Act]
    url: str = ""
    got: list[str] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    # Paths that were asked for, with the token that came along.
    requests: list[tuple[str, str]] = field(default_factory=list)
    # Cuts the streams that are open.
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    # Serves nobody.
    is_away: bool = False
    # The content of /keys.json, if it has one.
    keys: bytes = b""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        text = get_message_text(context.message)
        self.got.append(text)
        self.contexts.append(context.context_id)
        act = self.acts.pop(0) if self.acts else _fine
        await act(
            Exchange(
                text, context, event_queue, TaskUpdater(event_queue, context.task_id, context.context_id)
            )
        )

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        self.cancelled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def _fine(exchange: Exchange) -> None:
    await exchange.answer("Fine.")


def card_of(url: str, **more: Any) -> AgentCard:
    fields: dict[str, Any] = {
        "name": "Weather",
        "description": "Knows the weather.",
        "version": "1.2",
        "provider": AgentProvider(organization="Weather Inc.", url="https://weather.example"),
        "capabilities": AgentCapabilities(streaming=True),
        "supported_interfaces": [
            AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        "default_input_modes": ["text/plain"],
        "default_output_modes": ["text/plain"],
        "skills": [AgentSkill(id="w", name="forecast", description="Tomorrow.", tags=["weather"])],
    }
    return AgentCard(**(fields | more))


@asynccontextmanager
async def foreign_agent(
    *acts: Act,
    change_card: Callable[[AgentCard], AgentCard] | None = None,
    port: int = 0,
    made: type[ForeignAgent] | None = None,
    keys: bytes = b"",
    **card: Any,
) -> AsyncIterator[ForeignAgent]:
    """The agent on a port of its own, by JSON-RPC (1.0 and 0.3) and REST."""
    agent = (made or ForeignAgent)(list(acts), keys=keys)
    listening = bind_socket("127.0.0.1", port)
    agent.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    shown = card_of(agent.url, **card)
    shown = change_card(shown) if change_card is not None else shown
    handler = DefaultRequestHandler(agent_executor=agent, task_store=InMemoryTaskStore(), agent_card=shown)
    app = Starlette(
        routes=[
            *create_agent_card_routes(shown),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
    )
    try:
        async with serve_http(_Watched(app, agent), listening):
            yield agent
    finally:
        await handler.aclose()


class _Watched:
    """Notes what is asked for, and cuts streams."""

    def __init__(self, app: ASGIApp, agent: ForeignAgent) -> None:
        self._app = app
        self._agent = agent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self._agent.requests.append((request.url.path, request.headers.get("authorization", "")))
        if request.url.path == "/elsewhere.json":
            await Response(status_code=302, headers={"location": "/.well-known/agent-card.json"})(
                scope, receive, send
            )
            return
        if self._agent.is_away:
            await Response(status_code=503)(scope, receive, send)
            return
        if request.url.path == "/keys.json" and self._agent.keys:
            await Response(self._agent.keys)(scope, receive, send)
            return
        serving = asyncio.ensure_future(self._app(scope, receive, send))
        cut = asyncio.ensure_future(self._agent.cut.wait())
        await asyncio.wait([serving, cut], return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if not serving.done():
            serving.cancel()
            await asyncio.wait([serving])
            return
        await serving
