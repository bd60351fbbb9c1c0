"""A request of the stateless era (2026-07-28): all it needs is in its `_meta`, nothing is kept after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from moot.errors import McpError
from moot.mcp.downstream.backend import Change, ListChanged
from moot.mcp.downstream.client_channel import ClientChannel, supports_tasks
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.rpc import NOT_DONE, RpcRequest
from moot.mcp.downstream.task_extension import METHODS as TASK_METHODS
from moot.mcp.downstream.task_extension import McpTask, missing_tasks
from moot.mcp.eras import (
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    PROTOCOL_VERSION_KEY,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID_KEY,
    UNSUPPORTED_VERSION,
    JsonObject,
)
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

# Open `subscriptions/listen` streams, and subscribed resources of one client.
MAX_LISTENERS: Final = 64
MAX_SUBSCRIPTIONS: Final = 256

Notify = Callable[[str, JsonObject], None]

_LIST_FIELDS: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class StatelessRequest:
    """The client of one stateless request."""

    __slots__ = ("_notify", "capabilities", "log_level")

    era: Final[Literal["stateless"]] = "stateless"
    # Who disconnects cancels.
    is_read: Final = True
    may_give_up_silently: Final = False

    def __init__(self, capabilities: JsonObject, log_level: str | None, notify: Notify) -> None:
        self.capabilities = capabilities
        self.log_level = log_level
        self._notify = notify

    def notify(self, method: str, params: JsonObject) -> None:
        self._notify(method, params)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        raise McpError(
            NOT_DONE, f"{method} with {len(params)} params: this era has no requests to the client"
        )


def is_stateless(params: JsonObject) -> bool:
    """Whether these params carry the key that only this era has."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta


def client_of(request: RpcRequest, notify: Notify, *, any_version: bool = False) -> StatelessRequest:
    """The sender of a request; raises McpError when required keys are missing or the version is unknown."""
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
    """Raises McpError naming the stateless versions that are supported."""
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version}
        raise McpError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


async def answer(server: McpServer, request: RpcRequest, notify: Notify) -> JsonObject:
    """The result of one request; raises McpError. Cancelling cancels the call."""
    client = client_of(request, notify)
    method = request.method
    if method == "server/discover":
        return server.shape_result(method, _discover_result(server), "stateless")
    if method == "subscriptions/listen":
        return server.shape_result(method, await _listen(server, request, client), "stateless")
    if method in TASK_METHODS:
        if not supports_tasks(client.capabilities):
            raise missing_tasks()
        params = {key: value for key, value in request.params.items() if key != "_meta"}
        return server.shape_result(method, await server.tasks.answer(method, params), "stateless")
    return await server.answer(request, client)


def _discover_result(server: McpServer) -> JsonObject:
    about = server.backend.about
    made: JsonObject = {
        "supportedVersions": list(STATELESS_VERSIONS),
        "capabilities": server.capabilities("stateless"),
    }
    if about.instructions:
        made["instructions"] = about.instructions
    return made


async def _listen(server: McpServer, request: RpcRequest, client: ClientChannel) -> JsonObject:
    """`subscriptions/listen`: acknowledge what is possible, then report changes until the client goes."""
    wanted: Json = request.params.get("notifications")
    if not isinstance(wanted, dict):
        raise McpError(INVALID_PARAMS, '"notifications" must say what to listen for')
    if wanted.get("taskIds") and not supports_tasks(client.capabilities):
        raise missing_tasks()
    if server.open_subscriptions >= MAX_LISTENERS:
        raise McpError(NOT_DONE, f"{MAX_LISTENERS} listen streams are open already; close one")
    subscription = StatelessSubscription(server, request, client)
    server.open_subscriptions += 1
    try:
        await subscription.start(wanted)
        await subscription.run()
    finally:
        server.open_subscriptions -= 1
        await subscription.close()
    return {"_meta": {SUBSCRIPTION_ID_KEY: request.id}}


class StatelessSubscription:
    """One listen stream. Repeated changes while the client reads slowly are reported once."""

    def __init__(self, server: McpServer, request: RpcRequest, client: ClientChannel) -> None:
        self._server = server
        self._client = client
        self._meta: JsonObject = {SUBSCRIPTION_ID_KEY: request.id}
        self._kinds: set[str] = set()
        self._uris: set[str] = set()
        self._tasks: list[McpTask] = []
        self._unsent: dict[str, tuple[str, JsonObject]] = {}
        self._wakeup = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None

    async def start(self, wanted: JsonObject) -> None:
        accepted: JsonObject = {}
        for field, kind in _LIST_FIELDS.items():
            if wanted.get(field) is True:
                self._kinds.add(kind)
                accepted[field] = True
        # Watch before subscribing, so that nothing is missed.
        self._unwatch = self._server.backend.watch(self._on_change)
        uris: Json = wanted.get("resourceSubscriptions")
        if isinstance(uris, list):
            for uri in dict.fromkeys(each for each in uris if isinstance(each, str)):
                if len(self._uris) < MAX_SUBSCRIPTIONS and await self._subscribe(uri):
                    self._uris.add(uri)
            if self._uris:
                accepted["resourceSubscriptions"] = sorted(self._uris)
        ids: Json = wanted.get("taskIds")
        if isinstance(ids, list):
            for id in ids:
                task = await self._server.tasks.find(id) if isinstance(id, str) else None
                if task is not None:
                    task.watchers.append(self._on_task_change)
                    self._tasks.append(task)
            if self._tasks:
                accepted["taskIds"] = [task.id for task in self._tasks]
        acknowledged = {"notifications": accepted, "_meta": self._meta}
        self._client.notify("notifications/subscriptions/acknowledged", acknowledged)

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            unsent, self._unsent = self._unsent, {}
            for method, params in unsent.values():
                self._client.notify(method, {**params, "_meta": self._meta})

    async def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        for task in self._tasks:
            task.watchers.remove(self._on_task_change)
        for uri in self._uris:
            await self._server.backend.unsubscribe(uri)

    async def _subscribe(self, uri: str) -> bool:
        try:
            await self._server.backend.subscribe(uri)
        except McpError:
            # This era refuses by leaving it out of the acknowledgement.
            return False
        return True

    def _on_change(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            if change.what in self._kinds:
                self._queue(change.what, f"notifications/{change.what}/list_changed", {})
        elif change.uri in self._uris:
            self._queue(f"uri {change.uri}", "notifications/resources/updated", {"uri": change.uri})

    def _on_task_change(self, task: McpTask) -> None:
        self._queue(f"task {task.id}", "notifications/tasks", self._server.tasks.to_json(task))

    def _queue(self, key: str, method: str, params: JsonObject) -> None:
        self._unsent[key] = (method, params)
        self._wakeup.set()
