"""Changes at a server: of its lists, and of the resources that callers watch.

A handshake server sends list changes by itself and takes `resources/subscribe`. A stateless server sends
nothing that was not requested in `subscriptions/listen`, whose stream stays open: when the watched resources
change, a new stream is opened, and the old one is closed once the new one is acknowledged, so that nothing
is missed. When a stream breaks, it is unknown what was missed: every list and resource counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from moot.errors import McpError
from moot.mcp.eras import LIST_CHANGED, CallerInfo, JsonObject, with_caller
from moot.mcp.upstream.connection import PendingExchange, RpcConnection
from moot.mcp.upstream.server_session import ServerSession
from moot.mcp.upstream.server_settings import UpstreamLimits
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_REQUEST, METHOD_NOT_FOUND
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

# Feature → the field of `subscriptions/listen` that requests its list changes.
_LIST_FIELDS: Final = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
# Watched at once; a caller who watches more than this has forgotten to stop.
MAX_WATCHED_RESOURCES: Final = 1_024
# Between two attempts to listen: doubled each time, back to the first after a stream that lasted.
_RELISTEN_SECONDS: Final = 1.0
_MAX_RELISTEN_SECONDS: Final = 60.0


class ChangeWatch:
    """Which caller watches which resource, kept across connections."""

    def __init__(
        self,
        limits: UpstreamLimits,
        *,
        on_list_changed: Callable[[str], None],
        on_resource_updated: Callable[[JsonObject, tuple[str, ...]], None],
    ) -> None:
        self._limits = limits
        self._on_list_changed = on_list_changed
        self._on_resource_updated = on_resource_updated
        self._watchers: dict[str, set[str]] = {}
        # Watched resources that the stream of a stateless server does not cover.
        self.subscribed_elsewhere: set[str] = set()
        self._watches_changed = asyncio.Event()
        # URIs that the open stream covers, and who waits until it covers more.
        self._covered: frozenset[str] = frozenset()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def check_capacity(self, uri: str) -> None:
        """Raises McpError when no more can be watched."""
        most = MAX_WATCHED_RESOURCES
        if uri not in self._watchers and len(self._watchers) >= most:
            raise McpError(
                INVALID_REQUEST,
                f"{most} resources are watched already; unsubscribe some",
            )

    def add(self, uri: str, owner: str) -> bool:
        """Note a watcher; True if nobody watched this resource before."""
        first = uri not in self._watchers
        self._watchers.setdefault(uri, set()).add(owner)
        return first

    def remove(self, uri: str, owner: str) -> bool:
        """Forget a watcher; True if nobody watches this resource any more."""
        owners = self._watchers.get(uri)
        if owners is None or owner not in owners:
            return False
        owners.discard(owner)
        if owners:
            return False
        del self._watchers[uri]
        self.subscribed_elsewhere.discard(uri)
        return True

    def uris_of(self, owner: str) -> list[str]:
        """The resources that one caller watches."""
        return [uri for uri, owners in self._watchers.items() if owner in owners]

    @property
    def owners(self) -> frozenset[str]:
        """The callers that watch anything."""
        return frozenset(owner for owners in self._watchers.values() for owner in owners)

    @property
    def uris(self) -> list[str]:
        return list(self._watchers)

    # Notifications of the server

    def process_notification(self, method: str, params: JsonObject) -> bool:
        """Report a change; False when this notification is none."""
        if method in LIST_CHANGED:
            self._on_list_changed(LIST_CHANGED[method])
        elif method == _UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str):
                self._on_resource_updated(params, self._watchers_of(uri))
        else:
            return False
        return True

    def _watchers_of(self, uri: str) -> tuple[str, ...]:
        # MCP: the URI may be a part of the resource that was subscribed to.
        owners = {
            owner
            for watched, names in self._watchers.items()
            if uri == watched or uri.startswith((f"{watched.rstrip('/')}/", f"{watched}#", f"{watched}?"))
            for owner in names
        }
        return tuple(sorted(owners))

    # The stream of a stateless server

    async def wait_until_covered(self, uri: str, timeout_seconds: float) -> None:
        """Wait until the stream covers a resource; raises McpError when the server does not accept it."""
        if uri in self._covered:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uri, []).append(waiter)
        self._watches_changed.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter
        except TimeoutError:
            raise McpError(
                INVALID_REQUEST, f"the MCP server did not confirm the subscription to {uri}"
            ) from None
        finally:
            waiting = self._waiting.get(uri, [])
            if waiter in waiting:
                waiting.remove(waiter)

    def refresh(self) -> None:
        """Open a new stream: other resources are watched now."""
        self._watches_changed.set()

    async def listen(self, session: ServerSession, caller: CallerInfo) -> None:
        """Keep the stream of a stateless server open until the connection ends."""
        connection, info = session.connection, session.info
        lists = {
            field: True for feature, field in _LIST_FIELDS.items() if info.declares(feature, "listChanged")
        }
        open_now: PendingExchange | None = None
        backoff = Backoff(_RELISTEN_SECONDS, _MAX_RELISTEN_SECONDS)
        loop = asyncio.get_running_loop()
        self._covered = frozenset()
        try:
            while not connection.ended.done():
                self._watches_changed.clear()
                wanted: JsonObject = dict(lists)
                if uris := self._watchers.keys() - self.subscribed_elsewhere:
                    wanted["resourceSubscriptions"] = sorted(uris)
                if not wanted:
                    self._covered = frozenset()
                    self._close(connection, open_now)
                    open_now = None
                    await self._watches_changed.wait()
                    continue
                stream, accepted = await self._open(connection, wanted, caller)
                self._close(connection, open_now)
                open_now = stream
                self._resolve_waiters(wanted, accepted)
                if accepted is not None:
                    begun = loop.time()
                    if not await self._wait_for_end(stream):
                        continue
                    if loop.time() - begun > _MAX_RELISTEN_SECONDS:
                        backoff.reset()
                    self._report_all_changed(lists)
                    self._covered = frozenset()
                elif _is_unsupported(stream):
                    # It has no streams: nothing to do until somebody watches again.
                    await self._watches_changed.wait()
                    continue
                await asyncio.sleep(backoff.next_delay())
        except McpError as gone:
            log.debug("listening ended", extra={"reason": gone.message})

    async def _open(
        self, connection: RpcConnection, wanted: JsonObject, caller: CallerInfo
    ) -> tuple[PendingExchange, JsonObject | None]:
        acknowledged: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

        def on_stream_message(method: str, params: JsonObject) -> None:
            if method == _ACKNOWLEDGED:
                if not acknowledged.done():
                    accepted = params.get("notifications")
                    acknowledged.set_result(accepted if isinstance(accepted, dict) else {})
            else:
                self.process_notification(method, params)

        stream = connection.start(
            "subscriptions/listen", with_caller({"notifications": wanted}, caller), listener=on_stream_message
        )
        either: list[asyncio.Future[Any]] = [acknowledged, stream.outcome]
        await asyncio.wait(
            either,
            timeout=self._limits.health_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return stream, acknowledged.result() if acknowledged.done() else None

    async def _wait_for_end(self, stream: PendingExchange) -> bool:
        """Wait for the end of the stream (True), or for other resources to be watched (False)."""
        changed = asyncio.ensure_future(self._watches_changed.wait())
        either: list[asyncio.Future[Any]] = [changed, stream.outcome]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return stream.outcome.done()

    def _close(self, connection: RpcConnection, stream: PendingExchange | None) -> None:
        if stream is not None:
            connection.abandon(stream, "replaced")

    def _resolve_waiters(self, wanted: JsonObject, accepted: JsonObject | None) -> None:
        uris: Json = accepted.get("resourceSubscriptions") if accepted is not None else None
        self._covered = frozenset(filter(_is_text, uris if isinstance(uris, list) else ()))
        # A resource watched while the stream was being opened is not in it yet, and waits for the next.
        for uri in wanted.get("resourceSubscriptions", ()):
            for waiter in self._waiting.pop(uri, ()):
                if waiter.done():
                    continue
                if uri in self._covered:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(
                        McpError(INVALID_REQUEST, f"the MCP server does not accept a subscription to {uri}")
                    )

    def _report_all_changed(self, lists: JsonObject) -> None:
        for feature, field in _LIST_FIELDS.items():
            if field in lists:
                self._on_list_changed(feature)
        for uri in self.uris:
            self._on_resource_updated({"uri": uri}, self._watchers_of(uri))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_unsupported(stream: PendingExchange) -> bool:
    fault = stream.outcome.exception() if stream.outcome.done() else None
    return isinstance(fault, McpError) and fault.code == METHOD_NOT_FOUND
