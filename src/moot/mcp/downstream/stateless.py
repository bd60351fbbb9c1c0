"""A request of the stateless era (2026-07-28): all it needs is in its `_meta`, nothing is kept after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from moot.errors import McpError
from moot.mcp.downstream.backend import Change, ListChanged
from moot.mcp.downstream.client_channel import ClientChannel, takes_tasks
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.rpc import NOT_DONE, RpcRequest
from moot.mcp.downstream.task_extension import METHODS as TASK_METHODS
from moot.mcp.downstream.task_extension import McpTask, missing_tasks
from moot.mcp.eras import (
    CLIENT_CAPABILITIES_KEY,
    INVALID_PARAMS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    PROTOCOL_VERSION_KEY,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
    JsonObject,
)
from moot.protocol.operation import Json

Notify = Callable[[str, JsonObject], None]

_WISHES: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class StatelessRequest:
    """The client as one stateless request shows it."""

    __slots__ = ("_notify", "capabilities", "log_level")

    era: Final[Literal["stateless"]] = "stateless"

    def __init__(self, capabilities: JsonObject, log_level: str | None, notify: Notify) -> None:
        self.capabilities = capabilities
        self.log_level = log_level
        self._notify = notify

    def notify(self, method: str, params: JsonObject) -> None:
        self._notify(method, params)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        raise McpError(
            NOT_DONE, f"{method} with {len(params)} params: this era has no questions to the client"
        )


def is_stateless(params: JsonObject) -> bool:
    """Whether these params carry the key that only this era has."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta


def client_of(request: RpcRequest, notify: Notify, *, any_version: bool = False) -> StatelessRequest:
    """Who sent this; raises McpError when it does not say what it must, or speaks an unknown version."""
    meta: Json = request.params.get("_meta")
    if not isinstance(meta, dict):
        raise McpError(INVALID_PARAMS, f"params._meta must hold {PROTOCOL_VERSION_KEY} and more")
    missing = [key for key in (PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise McpError(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version, capabilities = meta[PROTOCOL_VERSION_KEY], meta[CLIENT_CAPABILITIES_KEY]
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise McpError(INVALID_PARAMS, "params._meta: the version is a string, capabilities are an object")
    if not any_version:
        check_version(version)
    level = meta.get(LOG_LEVEL_KEY)
    return StatelessRequest(capabilities, level if level in LOG_LEVELS else None, notify)


def check_version(version: str) -> None:
    """Raises McpError naming the versions that are spoken here without a handshake."""
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version}
        raise McpError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


async def answer(face: McpServer, request: RpcRequest, notify: Notify) -> JsonObject:
    """The result of one request; raises McpError. Cancelling it takes back what was begun."""
    client = client_of(request, notify)
    method = request.method
    if method == "server/discover":
        return face.shaped(method, _discovered(face), "stateless")
    if method == "subscriptions/listen":
        return face.shaped(method, await _listen(face, request, client), "stateless")
    if method in TASK_METHODS:
        if not takes_tasks(client.capabilities):
            raise missing_tasks()
        params = {key: value for key, value in request.params.items() if key != "_meta"}
        return face.shaped(method, await face.tasks.answer(method, params), "stateless")
    return await face.answer(request, client)


def _discovered(face: McpServer) -> JsonObject:
    about = face.backend.about
    made: JsonObject = {
        "supportedVersions": list(STATELESS_VERSIONS),
        "capabilities": face.capabilities("stateless"),
    }
    if about.instructions:
        made["instructions"] = about.instructions
    return made


async def _listen(face: McpServer, request: RpcRequest, client: ClientChannel) -> JsonObject:
    """`subscriptions/listen`: acknowledge what can be had, then tell of it until the client goes away."""
    wanted: Json = request.params.get("notifications")
    if not isinstance(wanted, dict):
        raise McpError(INVALID_PARAMS, '"notifications" must say what to listen for')
    if wanted.get("taskIds") and not takes_tasks(client.capabilities):
        raise missing_tasks()
    if face.listening >= face.limits.listeners:
        raise McpError(NOT_DONE, f"{face.limits.listeners} listen streams are open already; close one")
    listening = StatelessSubscription(face, request, client)
    face.listening += 1
    try:
        await listening.begin(wanted)
        await listening.tell()
    finally:
        face.listening -= 1
        await listening.end()
    return {"_meta": {SUBSCRIPTION_ID_KEY: request.id}}


class StatelessSubscription:
    """One listen stream. What happens while the client reads slowly is told once: each is "look again"."""

    def __init__(self, face: McpServer, request: RpcRequest, client: ClientChannel) -> None:
        self._face = face
        self._client = client
        self._meta: JsonObject = {SUBSCRIPTION_ID_KEY: request.id}
        self._kinds: set[str] = set()
        self._uris: set[str] = set()
        self._followed: list[McpTask] = []
        self._news: dict[str, tuple[str, JsonObject]] = {}
        self._woken = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None

    async def begin(self, wanted: JsonObject) -> None:
        honoured: JsonObject = {}
        for wish, kind in _WISHES.items():
            if wanted.get(wish) is True:
                self._kinds.add(kind)
                honoured[wish] = True
        # Watch before subscribing, so that nothing falls between.
        self._unwatch = self._face.backend.watch(self._changed)
        uris: Json = wanted.get("resourceSubscriptions")
        if isinstance(uris, list):
            for uri in dict.fromkeys(each for each in uris if isinstance(each, str)):
                if len(self._uris) < self._face.limits.subscriptions and await self._subscribed(uri):
                    self._uris.add(uri)
            if self._uris:
                honoured["resourceSubscriptions"] = sorted(self._uris)
        ids: Json = wanted.get("taskIds")
        if isinstance(ids, list):
            for id in ids:
                task = self._face.tasks.get(id) if isinstance(id, str) else None
                if task is not None:
                    task.watchers.append(self._task_changed)
                    self._followed.append(task)
            if self._followed:
                honoured["taskIds"] = [task.id for task in self._followed]
        acknowledged = {"notifications": honoured, "_meta": self._meta}
        self._client.notify("notifications/subscriptions/acknowledged", acknowledged)

    async def tell(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            news, self._news = self._news, {}
            for method, params in news.values():
                self._client.notify(method, {**params, "_meta": self._meta})

    async def end(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        for task in self._followed:
            task.watchers.remove(self._task_changed)
        for uri in self._uris:
            await self._face.backend.unsubscribe(uri)

    async def _subscribed(self, uri: str) -> bool:
        try:
            await self._face.backend.subscribe(uri)
        except McpError:
            # The acknowledgement leaves it out: that is how this era says no.
            return False
        return True

    def _changed(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            if change.what in self._kinds:
                self._tell(change.what, f"notifications/{change.what}/list_changed", {})
        elif change.uri in self._uris:
            self._tell(f"uri {change.uri}", "notifications/resources/updated", {"uri": change.uri})

    def _task_changed(self, task: McpTask) -> None:
        self._tell(f"task {task.id}", "notifications/tasks", self._face.tasks.shown(task))

    def _tell(self, key: str, method: str, params: JsonObject) -> None:
        self._news[key] = (method, params)
        self._woken.set()
