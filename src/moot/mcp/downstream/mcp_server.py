"""The methods of the MCP server, whatever the transport and the era.

    result = await server.answer(request, client)     # in the shape of the client's era; or McpError

`client` reaches the sender of the request while it is being answered: with notifications, and in the
handshake era also with requests. Methods of one era only are in `handshake` and `stateless`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Literal, Self

from moot import tracing
from moot.errors import McpError
from moot.mcp.downstream import client_requests
from moot.mcp.downstream.backend import Backend, BackendCall, McpServerCounts, PendingCall
from moot.mcp.downstream.client_channel import TASKS, ClientChannel
from moot.mcp.downstream.client_requests import ClientRequests
from moot.mcp.downstream.limits import DEFAULT_LIMITS, McpServerLimits
from moot.mcp.downstream.rpc import NOT_DONE, RESOURCE_NOT_FOUND, RpcRequest
from moot.mcp.downstream.task_extension import McpTasks
from moot.mcp.eras import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_ERA_KEY,
    CLIENT_INFO_KEY,
    LISTS,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    Era,
    JsonObject,
    OfferKind,
    at_least,
    handshake_result,
    is_input_required,
    progress_token,
    stateless_result,
)
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND

CALL_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
# Client capabilities that matter to the server of the call.
_INPUT_CAPABILITIES: Final = ("elicitation", "sampling", "roots")
# Servers of the handshake era log without being asked; clients expect this level.
_DEFAULT_LOG_LEVEL: Final = "info"


class McpServer:
    """One backend, served to any number of clients, within `async with`: leaving it cancels what runs."""

    def __init__(
        self, backend: Backend, limits: McpServerLimits = DEFAULT_LIMITS, *, state_key: str | None = None
    ) -> None:
        """`state_key`: a secret word that is the same after a restart, for clients that answer then."""
        self.backend = backend
        self.limits = limits
        self.counts = McpServerCounts()
        # For traces: how clients reach it.
        self.transport: Literal["pipe", "tcp"] = "tcp"
        self.tasks = McpTasks(backend, self.spawn)
        # Not to be guessed, so that the request states of a tool server never look like ours.
        prefix = f"moot-{state_key or secrets.token_hex(8)}:"
        self.client_requests = ClientRequests(
            backend, limits, self.counts, self.tasks, prefix, spawn=self.spawn
        )
        self.open_subscriptions = 0
        # The tools that were listed last with an output schema, which clients keep.
        self._structured: dict[Era, set[Json]] = {}
        self.is_ending = False
        self._group = asyncio.TaskGroup()
        self._spawned: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_fault: Any) -> None:
        self.is_ending = True
        for task in tuple(self._spawned):
            task.cancel()
        # Without the exception of the block: the group would wrap it up, and nobody catches that.
        await self._group.__aexit__(None, None, None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside its request, at most until the server ends. `work` must not raise.

        Raises McpError when the server has ended.
        """
        if self.is_ending:
            work.close()
            raise McpError(NOT_DONE, "this server has just ended, and nothing was done: try again")
        task = self._group.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def capabilities(self, era: Era) -> JsonObject:
        """Everything is always declared: offers come and go, a declaration cannot."""
        made: JsonObject = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
        }
        # The stateless era has no request for it, but a server that logs still says so.
        made["logging"] = {}
        if era == "stateless":
            made["extensions"] = {TASKS: {}}
        return made

    async def answer(self, request: RpcRequest, client: ClientChannel) -> JsonObject:
        """The result; raises McpError. Cancelling cancels the call at the backend."""
        if tracing.active is None:
            return await self._answer(request, client)
        meta: Json = request.params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        with tracing.active.operation(
            "server",
            request.method,
            request.params,
            carrier=meta,
            jsonrpc__request__id=str(request.id),
            mcp__protocol__version=meta.get(PROTOCOL_VERSION_KEY),
            network__transport=self.transport,
        ) as operation:
            result = await self._answer(request, client)
            if operation is not None:
                operation.result = result
            return result

    async def _answer(self, request: RpcRequest, client: ClientChannel) -> JsonObject:
        method = request.method
        if method in CALL_METHODS:
            result = await self._run_call(request, client)
            if method == "tools/call" and request.params["name"] in self._structured.get(client.era, ()):
                result = _mark_unstructured(result)
        elif method in LISTS:
            result = await self._list(request, client)
        else:
            raise McpError(METHOD_NOT_FOUND, f"Method not found: {method[:64]}")
        return self.shape_result(method, result, client.era)

    def shape_result(self, method: str, result: JsonObject, era: Era) -> JsonObject:
        """A result in the shape of an era; unknown fields are kept."""
        if era == "handshake":
            made = handshake_result(method, result)
            if method == "tools/call" and not isinstance(made.get("structuredContent", {}), dict):
                # Any JSON value since 2026-07-28; before, an object, and the SDKs refuse the whole result.
                del made["structuredContent"]
            return made
        made = stateless_result(method, result)
        meta = made.get("_meta")
        if meta is None:
            made["_meta"] = {SERVER_INFO_KEY: self.backend.about.info}
        elif isinstance(meta, dict) and SERVER_INFO_KEY not in meta:
            made["_meta"] = {**meta, SERVER_INFO_KEY: self.backend.about.info}
        return made

    async def _list(self, request: RpcRequest, client: ClientChannel) -> JsonObject:
        if request.params.get("cursor") is not None:
            # Everything is on one page: several clients never ask for a second.
            raise McpError(INVALID_PARAMS, "unknown cursor: this list has one page")
        items = await self._wait_for_offers(LISTS[request.method], request, client)
        if request.method == "tools/list":
            if client.era == "handshake":
                items = [_handshake_tool(item) for item in items]
            self._structured[client.era] = {item["name"] for item in items if "outputSchema" in item}
        return {LISTS[request.method]: items}

    async def _wait_for_offers(
        self, kind: OfferKind, request: RpcRequest, client: ClientChannel
    ) -> list[JsonObject]:
        """The offers; a client that takes progress hears that they are waited for."""
        token = progress_token(request.params)
        if token is None:
            return await self.backend.offers(kind)

        async def report() -> None:
            for count in itertools.count(1):
                await asyncio.sleep(client_requests.PROGRESS_SECONDS)
                message = "Some members have not told yet what they offer"
                client.notify(
                    "notifications/progress", {"progressToken": token, "progress": count, "message": message}
                )

        reporting = self.spawn(report())
        try:
            return await self.backend.offers(kind)
        finally:
            reporting.cancel()

    async def _run_call(self, request: RpcRequest, client: ClientChannel) -> JsonObject:
        check_params(request.method, request.params)
        resumed = self.client_requests.resume(request, client)
        if resumed is not None:
            return await resumed
        call = self._backend_call(request, client)
        try:
            answer = await self.backend.perform(call)
            if isinstance(answer, PendingCall):
                return await self.client_requests.wait_for_decision(answer, client)
            if is_input_required(answer):
                return await self.client_requests.collect_input(call, answer, client)
        except McpError as fault:
            if fault.code == RESOURCE_NOT_FOUND and client.era == "stateless":
                raise McpError(INVALID_PARAMS, fault.message, fault.data) from None
            raise
        return answer

    def _backend_call(self, request: RpcRequest, client: ClientChannel) -> BackendCall:
        """The call for the backend: without the keys of the era, with those that serve the call."""
        params = request.params
        meta: Json = params.get("_meta")
        meta = {**meta} if isinstance(meta, dict) else {}
        meta.pop(PROTOCOL_VERSION_KEY, None)
        meta.pop(CLIENT_INFO_KEY, None)
        level = client.log_level
        if request.method == "completion/complete":
            meta.pop(CLIENT_CAPABILITIES_KEY, None)
        elif client.era == "handshake":
            meta[CLIENT_CAPABILITIES_KEY] = {
                name: client.capabilities[name] for name in _INPUT_CAPABILITIES if name in client.capabilities
            }
            level = level or _DEFAULT_LOG_LEVEL
            meta[LOG_LEVEL_KEY] = level
            # A tool may work in one era only: that of its client is the best guess.
            meta[CLIENT_ERA_KEY] = "handshake"
        params = {**params, "_meta": meta} if meta else {k: v for k, v in params.items() if k != "_meta"}

        def send_progress(progress: JsonObject) -> None:
            client.notify("notifications/progress", progress)

        def send_log(message: JsonObject) -> None:
            if level is not None and at_least(str(message.get("level")), level):
                client.notify("notifications/message", message)

        return BackendCall(
            request.method,
            params,
            progress=send_progress if progress_token(request.params) is not None else None,
            log=send_log if level is not None else None,
        )


def check_params(method: str, params: JsonObject) -> None:
    """Check the params that every call of a method needs; raises McpError."""
    if method == "resources/read":
        _check_text(params, "uri")
    elif method == "completion/complete":
        ref = params.get("ref")
        if not isinstance(ref, dict) or not isinstance(params.get("argument"), dict):
            raise McpError(INVALID_PARAMS, 'completion/complete needs the objects "ref" and "argument"')
        _check_text(ref, "uri" if ref.get("type") == "ref/resource" else "name")
    else:
        _check_text(params, "name")
        if not isinstance(params.get("arguments", {}), dict):
            raise McpError(INVALID_PARAMS, '"arguments" must be an object')
    if "inputResponses" in params and not isinstance(params["inputResponses"], dict):
        raise McpError(INVALID_PARAMS, '"inputResponses" must be an object')
    if not isinstance(params.get("requestState", ""), str):
        raise McpError(
            INVALID_PARAMS, '"requestState" must be the string that came with the request for input'
        )


def _check_text(params: Mapping[str, Json], name: str) -> None:
    if not isinstance(params.get(name), str) or not params[name]:
        raise McpError(INVALID_PARAMS, f'"{name}" must be a non-empty string')


def _mark_unstructured(result: JsonObject) -> JsonObject:
    """A text in place of what an output schema promises, such as that the call is pending or too large.

    Clients do not show it, but raise that there is no structured content, unless it says `isError`.
    """
    is_text = "content" in result and "structuredContent" not in result
    return {**result, "isError": True} if is_text else result


def _handshake_tool(tool: JsonObject) -> JsonObject:
    """A tool as clients before 2026-07-28 can use it."""
    made = tool
    schema, execution = tool.get("outputSchema"), tool.get("execution")
    if schema is not None and not (isinstance(schema, dict) and schema.get("type") == "object"):
        # An output schema describes an object there; the SDKs refuse the whole list otherwise.
        made = {key: value for key, value in made.items() if key != "outputSchema"}
    if isinstance(execution, dict) and "taskSupport" in execution:
        # We have no tasks of 2025-11-25, and the SDKs refuse to call a tool that requires one. Its bridge
        # makes the task.
        rest = {key: value for key, value in execution.items() if key != "taskSupport"}
        made = {key: value for key, value in made.items() if key != "execution"}
        made |= {"execution": rest} if rest else {}
    return made
