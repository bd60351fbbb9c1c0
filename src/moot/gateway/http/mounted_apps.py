"""Paths of a gateway that are served by an application from outside: MCP, which the gateway cannot import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from moot.gateway.access import AccessDenied
from moot.gateway.http.http_replies import denied

_NOT_YET = "this endpoint is starting: try again in a moment"


class MountedApps:
    """Sends requests for some paths to whoever serves them, and everything else to the gateway's own."""

    def __init__(
        self,
        own: ASGIApp,
        reserved: Mapping[str, str],
        relayed: Callable[[Scope, str, ASGIApp], ASGIApp | None] = lambda *_: None,
    ) -> None:
        """`reserved`: the space of each path. `relayed`: what answers instead if that is not served here."""
        self._own = own
        self._spaces = reserved
        self._relayed = relayed
        # Path → who serves it; None: not yet.
        self._apps: dict[str, ASGIApp | None] = dict.fromkeys(reserved)

    def mount(self, paths: Iterable[str], app: ASGIApp | None) -> None:
        """Let an application serve these paths; with None they answer that they are not ready."""
        self._apps |= dict.fromkeys(paths, app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
        if path not in self._apps:
            await self._own(scope, receive, send)
            return
        space = self._spaces.get(path)
        relayed = None if space is None else self._relayed(scope, space, self._answer)
        await (relayed or self._answer)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """By whoever serves the path when it is answered, which may be a while after it was asked."""
        app = self._apps[scope["path"].rstrip("/")] or denied(AccessDenied(503, _NOT_YET, retry_after=1))
        await app(scope, receive, send)
