"""What changes at a server: lists, and the resources that somebody watches.

A handshake server sends list changes by itself and takes `resources/subscribe`. A stateless server sends
nothing that was not asked for in `subscriptions/listen`, whose stream stays open: a change of what is
watched opens a new stream, and the old one is closed once the new one is acknowledged, so that nothing
falls between. When a stream breaks, what was missed is unknown: every list and resource counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from moot.errors import McpError
from moot.mcp.eras import INVALID_REQUEST, LIST_CHANGED, METHOD_NOT_FOUND, JsonObject, with_caller
from moot.mcp.eras import CallerInfo as McpCaller
from moot.mcp.upstream.connection import PendingExchange, RpcConnection
from moot.mcp.upstream.negotiation import ServerInfo
from moot.mcp.upstream.server_settings import UpstreamLimits
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# Feature → the word by which a stateless client asks to hear of its list.
_LISTENED: Final = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
# Between two attempts to listen: doubled each time, back to the first after a stream that lasted.
_RELISTEN_SECONDS: Final = 1.0
_RELISTEN_SECONDS_AT_MOST: Final = 60.0


class ChangeWatch:
    """Who watches what, carried from one connection to the next."""

    def __init__(
        self,
        limits: UpstreamLimits,
        *,
        changed: Callable[[str], None],
        updated: Callable[[JsonObject, tuple[str, ...]], None],
    ) -> None:
        self._limits = limits
        self._tell_changed = changed
        self._tell_updated = updated
        self._watchers: dict[str, set[str]] = {}
        self._stirred = asyncio.Event()
        # URIs that the open stream covers, and who waits to hear of it.
        self._covered: frozenset[str] = frozenset()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def check_room(self, uri: str) -> None:
        """Raises McpError when no more can be watched."""
        if uri not in self._watchers and len(self._watchers) >= self._limits.watched:
            raise McpError(
                INVALID_REQUEST, f"{self._limits.watched} resources are watched already; unsubscribe some"
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
        return True

    def of(self, owner: str) -> list[str]:
        """What one watches."""
        return [uri for uri, owners in self._watchers.items() if owner in owners]

    @property
    def owners(self) -> frozenset[str]:
        """Who watches anything."""
        return frozenset(owner for owners in self._watchers.values() for owner in owners)

    @property
    def uris(self) -> list[str]:
        return list(self._watchers)

    # What a server says

    def noticed(self, method: str, params: JsonObject) -> bool:
        """Hand on a change; False when this notification is none."""
        if method in LIST_CHANGED:
            self._tell_changed(LIST_CHANGED[method])
        elif method == _UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str):
                self._tell_updated(params, self._watchers_of(uri))
        else:
            return False
        return True

    def _watchers_of(self, uri: str) -> tuple[str, ...]:
        # MCP: the URI may be that of a part of what was subscribed to.
        owners = {
            owner
            for watched, names in self._watchers.items()
            if uri == watched or uri.startswith((f"{watched.rstrip('/')}/", f"{watched}#", f"{watched}?"))
            for owner in names
        }
        return tuple(sorted(owners))

    # The stream of a stateless server

    async def covered(self, uri: str, within: float) -> None:
        """Wait until the stream covers a resource; raises McpError when the server does not take it."""
        if uri in self._covered:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uri, []).append(waiter)
        self._stirred.set()
        try:
            async with asyncio.timeout(within):
                await waiter
        except TimeoutError:
            raise McpError(INVALID_REQUEST, f"the MCP server did not confirm to watch {uri}") from None
        finally:
            waiting = self._waiting.get(uri, [])
            if waiter in waiting:
                waiting.remove(waiter)

    def stir(self) -> None:
        """What is watched has changed."""
        self._stirred.set()

    async def listen(self, connection: RpcConnection, greeting: ServerInfo, caller: McpCaller) -> None:
        """Keep the stream of a stateless server open until the connection ends."""
        lists = {word: True for feature, word in _LISTENED.items() if greeting.tells(feature, "listChanged")}
        open_now: PendingExchange | None = None
        pause = _RELISTEN_SECONDS
        loop = asyncio.get_running_loop()
        self._covered = frozenset()
        try:
            while not connection.ended.done():
                self._stirred.clear()
                wanted: JsonObject = dict(lists)
                if self._watchers:
                    wanted["resourceSubscriptions"] = sorted(self._watchers)
                if not wanted:
                    self._covered = frozenset()
                    self._close(connection, open_now)
                    open_now = None
                    await self._stirred.wait()
                    continue
                stream, honoured = await self._open(connection, wanted, caller)
                self._close(connection, open_now)
                open_now = stream
                self._settle(wanted, honoured)
                if honoured is not None:
                    begun = loop.time()
                    if not await self._broken(stream):
                        continue
                    if loop.time() - begun > _RELISTEN_SECONDS_AT_MOST:
                        pause = _RELISTEN_SECONDS
                    self._tell_all(lists)
                    self._covered = frozenset()
                elif _unknown(stream):
                    # It knows no streams: nothing more to hear unless somebody asks again.
                    await self._stirred.wait()
                    continue
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RELISTEN_SECONDS_AT_MOST)
        except McpError as gone:
            log.debug("listening ended", extra={"reason": gone.message})

    async def _open(
        self, connection: RpcConnection, wanted: JsonObject, caller: McpCaller
    ) -> tuple[PendingExchange, JsonObject | None]:
        acknowledged: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

        def heard(method: str, params: JsonObject) -> None:
            if method == _ACKNOWLEDGED:
                if not acknowledged.done():
                    honoured = params.get("notifications")
                    acknowledged.set_result(honoured if isinstance(honoured, dict) else {})
            else:
                self.noticed(method, params)

        stream = connection.start(
            "subscriptions/listen", with_caller({"notifications": wanted}, caller), listener=heard
        )
        either: list[asyncio.Future[Any]] = [acknowledged, stream.outcome]
        await asyncio.wait(
            either,
            timeout=self._limits.health_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return stream, acknowledged.result() if acknowledged.done() else None

    async def _broken(self, stream: PendingExchange) -> bool:
        """Wait for the end of the stream (True), or for a change of what is wanted (False)."""
        stirred = asyncio.ensure_future(self._stirred.wait())
        either: list[asyncio.Future[Any]] = [stirred, stream.outcome]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stirred.cancel()
        return stream.outcome.done()

    def _close(self, connection: RpcConnection, stream: PendingExchange | None) -> None:
        if stream is not None:
            connection.abandon(stream, "replaced")

    def _settle(self, wanted: JsonObject, honoured: JsonObject | None) -> None:
        uris: Json = honoured.get("resourceSubscriptions") if honoured is not None else None
        self._covered = frozenset(filter(_is_text, uris if isinstance(uris, list) else ()))
        # Who asked while the stream was being opened is not in it yet, and waits for the next.
        for uri in wanted.get("resourceSubscriptions", ()):
            for waiter in self._waiting.pop(uri, ()):
                if waiter.done():
                    continue
                if uri in self._covered:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(McpError(INVALID_REQUEST, f"the MCP server does not watch {uri}"))

    def _tell_all(self, lists: JsonObject) -> None:
        for feature, word in _LISTENED.items():
            if word in lists:
                self._tell_changed(feature)
        for uri in self.uris:
            self._tell_updated({"uri": uri}, self._watchers_of(uri))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _unknown(stream: PendingExchange) -> bool:
    fault = stream.outcome.exception() if stream.outcome.done() else None
    return isinstance(fault, McpError) and fault.code == METHOD_NOT_FOUND
