"""HTTP beside the sockets: all routes of a gateway, and those that need no token (D-40, D-55).

Every answer is JSON with a code and words.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec
import yaml
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from moot.config.gateway_config import GatewayConfig, HttpConfig
from moot.errors import Refused
from moot.gateway.access import AccessDenied, SpaceDirectory
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.created_spaces import SpaceOperations
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.evidence.witness_service import WitnessService
from moot.gateway.host_origin_policy import HostOriginPolicy
from moot.gateway.http.admin_routes import AdminRoutes, ClusterOperations
from moot.gateway.http.chat_routes import ChatRoutes
from moot.gateway.http.console import MANIFEST, PAGE, WORKER, installed_console
from moot.gateway.http.content_routes import ContentRoutes
from moot.gateway.http.decision_routes import DecisionRoutes
from moot.gateway.http.history_routes import HistoryRoutes
from moot.gateway.http.http_replies import (
    HEADERS,
    RequestRefused,
    denied,
    json_response,
    kind_of,
    not_allowed,
    not_found,
    refused,
)
from moot.gateway.http.mcp_routes import McpRoutes
from moot.gateway.http.member_routes import MemberRoutes
from moot.gateway.http.oidc_routes import OidcRoutes
from moot.gateway.http.passkey_routes import PasskeyRoutes
from moot.gateway.http.push_routes import PushRoutes
from moot.gateway.http.receipt_routes import ReceiptRoutes
from moot.gateway.http.relayed_response import RelayedResponse
from moot.gateway.http.request_identity import RequestIdentity, address_of
from moot.gateway.http.sign_in_routes import SignInRoutes
from moot.gateway.http.witness_routes import LogRoutes, WitnessRoutes
from moot.gateway.notifications.push.devices import PushDevices
from moot.gateway.past_pages import PastPages
from moot.gateway.readiness import Readiness
from moot.gateway.sign_in.mcp_exchange import McpExchange
from moot.gateway.sign_in.passkey_service import PasskeyService
from moot.gateway.sign_in.sign_in_links import SignInLinks
from moot.gateway.sign_in.sign_in_service import SignInService
from moot.gateway.sign_in.token_rotation import TokenRotation
from moot.metrics import CONTENT_TYPE
from moot.net.http_protocol import RELAYED_HEADER
from moot.net.probes import LIVE_PATH, READY_PATH, liveness, readiness
from moot.protocol.dialects import DIALECTS
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.gateway.cluster.gateway_relay import GatewayRelay
    from moot.gateway.cluster.nats.shared_content import SharedContent

log = logging.getLogger(__name__)

# A browser asks again after ten minutes whether it may ask another origin.
_KEEP_SECONDS: Final = 600
# Where a request names the one space that it is for, by its path or its query. What tells of a gateway, and
# what makes spaces, is not among them.
_OF_ONE_SPACE: Final = (
    "/spaces/",
    "/participants/",
    "/admin/participants/",
    "/admin/passkeys",
    "/admin/tokens",
    "/admin/sign-in",
    "/admin/spaces/",
    "/oidc/mcp",
    "/oidc/token",
    "/chat-bindings",
)
# Where the console is turned off.
_STATUS_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Moot gateway</title>
<h1>Moot gateway</h1>
<p>This gateway is running. People, agents and tools meet in its spaces over WebSocket.</p>
<ul>
<li>WebSocket: <code>/ws?space=NAME</code> (MCPx: <code>/ws?topic=NAME</code>)
with <code>Authorization: Bearer TOKEN</code></li>
<li><a href="health">/health</a>: is it well</li>
<li><a href="openapi.json">/openapi.json</a>: the HTTP interface</li>
</ul>
</html>
"""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


async def _answer_again(scope: Scope, receive: Receive, send: Send) -> None:
    """By the route that was found for this request."""
    response = await scope["endpoint"](Request(scope, receive, send))
    await response(scope, receive, send)


class Endpoints:
    """The HTTP side of a gateway."""

    def __init__(
        self,
        directory: SpaceDirectory,
        origin_policy: HostOriginPolicy,
        config: GatewayConfig,
        *,
        access_limiter: AccessLimiter,
        readiness: Readiness,
        rotation: TokenRotation,
        sign_in_links: SignInLinks,
        passkeys: PasskeyService,
        devices: PushDevices,
        sign_in: SignInService | None,
        metrics: Callable[[], str],
        connections: Callable[[], list[dict[str, Json]]],
        cluster: ClusterOperations | None,
        spaces: SpaceOperations,
        shared_content: SharedContent | None,
        relay: GatewayRelay | None,
        logs: LogKeeper,
        witness: WitnessService | None,
        version: str,
    ) -> None:
        self.directory = directory
        self.origin_policy = origin_policy
        self.offered = config.http
        self._cluster_addresses = () if config.cluster is None else config.cluster.addresses
        self.readiness = readiness
        self._relay = relay
        self._metrics = metrics
        self._version = version
        # Pages and sockets of the other gateways: browsers do not take one for the other.
        pages = frozenset() if config.cluster is None else config.cluster.origins
        self._gateway_origins = sorted({*pages, *(each.replace("http", "ws", 1) for each in pages)})
        console = installed_console() if self.offered.console else None
        self._console = None if console is None else console.with_gateways(self._cluster_addresses)
        identity = RequestIdentity(directory, access_limiter, may_administer=self.offered.admin)
        self._identity = identity
        self._members = MemberRoutes(identity, config)
        self._admin = AdminRoutes(
            identity,
            rotation,
            connections=connections,
            cluster=cluster,
            spaces=spaces,
            max_minted_token_seconds=config.max_minted_token_seconds,
            sign_in=sign_in,
        )
        self._sign_in = SignInRoutes(
            identity.spaces,
            sign_in_links,
            identity.refuse_token,
            public_url=config.public_url,
            origins=origin_policy.origins,
        )
        self._chat = ChatRoutes(directory, identity, sign_in_links, self.relay_read)
        self._passkeys = PasskeyRoutes(identity, passkeys, sign_in_links, public_url=config.public_url)
        self._history = HistoryRoutes(identity, PastPages(config.data / "spaces", directory))
        self._decisions = DecisionRoutes(self._history)
        self._logs = LogRoutes(self._history, logs)
        self._receipts = ReceiptRoutes(self._history, logs)
        self._witness = None if witness is None else WitnessRoutes(witness)
        self._content = ContentRoutes(identity, config, shared=shared_content)
        self._push = PushRoutes(identity, config.notifications.push, devices)
        self._oidc = OidcRoutes(sign_in, identity.refuse_token)
        exchange = None if sign_in is None else McpExchange(sign_in, directory)
        self._mcp = McpRoutes(exchange, identity.refuse_token)

    def application(self) -> Starlette:
        routes = [
            self._route("/", self.page, "GET"),
            self._route("/console/{path:path}", self.console, "GET"),
            *(self._route(f"/{name}", self.console, "GET") for name in (WORKER, MANIFEST)),
            self._route("/status", self.status_page, "GET"),
            Route(LIVE_PATH, self.livez, methods=["GET"]),
            Route(READY_PATH, self.readyz, methods=["GET"]),
            self._route("/health", self.health, "GET", by_address=True),
            self._route("/openapi.json", self.openapi, "GET"),
            self._route("/spaces", self._members.spaces, "GET"),
            self._route("/spaces/{space}/proposals", self._members.proposals, "GET"),
            self._route("/spaces/{space}/proposals/{id:path}", self._members.proposal, "GET"),
            self._route("/spaces/{space}/content", self._content.add, "POST"),
            self._route("/spaces/{space}/content/{sha256}", self._content.get, "GET"),
            self._route("/sign-in-links", self._sign_in.create, "POST"),
            self._route("/sign-in-links/redeem", self._sign_in.redeem, "POST"),
            self._route("/chat-bindings", self._chat.bind, "POST"),
            self._route("/chat-bindings", self._chat.unbind, "DELETE"),
            self._route("/push-subscriptions", self._push.list, "GET"),
            self._route("/push-subscriptions", self._push.add, "POST"),
            self._route("/push-subscriptions/{id}", self._push.remove, "DELETE"),
            self._route("/passkeys", self._passkeys.own, "GET"),
            self._route("/passkeys", self._passkeys.add, "POST"),
            self._route("/passkey-options", self._passkeys.options, "POST"),
            self._route("/passkey-sign-in", self._passkeys.sign_in, "POST"),
            self._route("/passkey-sign-in/options", self._passkeys.sign_in_options, "POST"),
            self._route("/passkeys/{id}", self._passkeys.remove, "DELETE"),
            self._route("/spaces/{space}/passkey-challenges", self._passkeys.decision, "POST"),
            self._route("/oidc", self._oidc.providers, "GET"),
            self._route("/oidc/mcp", self._mcp.describe, "GET"),
            self._route("/oidc/token", self._mcp.token, "POST"),
            self._route("/oidc/sign-out", self._oidc.sign_out, "POST"),
            self._route("/oidc/backchannel-logout", self._oidc.backchannel_logout, "POST"),
            self._route("/participants/{id}/messages", self._members.messages, "GET", "POST"),
            self._route("/participants/{id}/roster", self._members.roster, "GET"),
            self._route("/admin/participants/{id}/capabilities", self._admin.capabilities, "POST"),
            self._route("/admin/participants/{id}/restore", self._admin.restore, "POST"),
            self._route("/admin/participants/{id}/token", self._admin.rotate, "POST"),
            self._route("/participants/{id}/tokens", self._members.mint_own, "POST"),
            self._route("/admin/participants/{id}/tokens", self._admin.mint, "POST"),
            self._route("/admin/participants/{id}/sign-out", self._admin.sign_out, "POST"),
            self._route("/admin/participants/{id}/passkey-link", self._passkeys.link, "POST"),
            self._route("/admin/passkeys", self._passkeys.of_space, "GET"),
            self._route("/admin/passkeys/{id}", self._passkeys.revoke, "DELETE"),
            self._route("/admin/tokens", self._admin.tokens, "GET"),
            self._route("/admin/tokens/{id}", self._admin.revoke_token, "DELETE"),
            self._route("/admin/sign-in-rules", self._admin.sign_in_rules, "GET"),
            self._route("/admin/sign-ins", self._admin.sign_ins, "GET"),
            self._route("/admin/connections", self._admin.connections, "GET"),
            self._route("/admin/spaces", self._admin.spaces, "GET"),
            self._route("/admin/spaces", self._admin.create_space, "POST"),
            self._route("/admin/spaces/{space}", self._admin.delete_space, "DELETE"),
            self._route("/admin/spaces/{space}/archive", self._admin.archive_space, "POST"),
            self._route("/admin/cluster", self._admin.cluster, "GET"),
            self._route("/admin/cluster/shards/{shard}", self._admin.serve_shard, "POST"),
            self._route("/admin/cluster/shards/{shard}", self._admin.leave_shard, "DELETE"),
            self._route("/admin/cluster/spaces/{space}", self._admin.drop_space, "DELETE"),
        ]
        if self.offered.poll:
            routes.append(self._route("/spaces/{space}/history", self._history.page, "GET"))
            routes.append(self._route("/spaces/{space}/decisions", self._decisions.report, "GET"))
            routes.append(self._route("/spaces/{space}/receipts/{id:path}", self._receipts.get, "GET"))
            routes.append(self._route("/spaces/{space}/log/{path:path}", self._logs.get, "GET"))
        if self._witness is not None:
            routes.append(self._route("/witness/add-checkpoint", self._witness.add_checkpoint, "POST"))
            routes.append(self._route("/witness/{hash}/checkpoint", self._witness.checkpoint, "GET"))
        if self.offered.metrics:
            routes.append(self._route("/metrics", self.metrics, "GET", by_address=True))
        return Starlette(
            routes=routes,
            exception_handlers={404: not_found, 405: not_allowed},
            middleware=_cross_origin(self.origin_policy.origins) if self._cluster_addresses else [],
        )

    def _route(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        *methods: str,
        by_address: bool = False,
    ) -> Route:
        async def guarded(request: Request) -> Response:
            host, origin = request.headers.get("host"), request.headers.get("origin")
            stranger = self.origin_policy.check(host, origin, by_address=by_address)
            if stranger is not None:
                return denied(stranger)
            if self.readiness.phase == "starting":
                return denied(
                    AccessDenied(503, "the gateway is starting: try again in a moment", retry_after=1)
                )
            try:
                return self.relayed(request) or await endpoint(request)
            except RequestRefused as refusal:
                return denied(refusal.denied)
            except Refused as refusal:
                return refused(refusal.code, refusal.message, refusal.details, kind_of(refusal))
            except ClientDisconnect:
                # It hung up in the middle of its body: nobody is there to be answered.
                return Response(status_code=400)
            except Exception:
                # A request's task: the peer gets no detail.
                log.exception("a request could not be handled")
                return json_response(
                    500, {"error": "internal", "message": "the gateway failed; its log says why"}
                )

        return Route(path, guarded, methods=list(methods))

    def relayed(
        self, request: Request, space: str | None = None, local: ASGIApp = _answer_again
    ) -> Response | None:
        """What another gateway answers, for a space that is served there and not here; None: it is ours.

        `local` answers if it is served here a moment later.
        """
        if self._relay is None:
            return None
        if space is None and request.url.path.startswith(_OF_ONE_SPACE):
            space = request.path_params.get("space") or request.query_params.get("space")
        is_relayed = RELAYED_HEADER.decode() in request.headers
        found = self._relay.relayed_space(space, is_relayed=is_relayed, peer=address_of(request))
        return None if found is None else RelayedResponse(self._relay, found, local)

    def relay_read(self, request: Request, space: str, body: Json) -> Response | None:
        """The same for a request that names no space, when its body has been read."""
        found = self.relayed(request, space)
        if isinstance(found, RelayedResponse):
            found.body_read = b"" if body is None else msgspec.json.encode(body)
        return found

    def relayed_app(self, scope: Scope, space: str, local: ASGIApp) -> Response | None:
        """The same for an application that is served at a path of this gateway for one space."""
        request = Request(scope)
        answer = self.relayed(request, space, local)
        if answer is None or self.readiness.phase != "running":
            return None
        stranger = self.origin_policy.check(request.headers.get("host"), request.headers.get("origin"))
        return answer if stranger is None else denied(stranger)

    # For everybody

    async def page(self, request: Request) -> Response:
        """The console; the status page where it is turned off."""
        if self._console is None:
            return await self.status_page(request)
        answer = self._console.answer(request, PAGE, [*self._oidc.origins(), *self._gateway_origins])
        return answer if answer is not None else await self.status_page(request)

    async def console(self, request: Request) -> Response:
        # The two files beside the page have a route each.
        path = request.path_params.get("path", request.url.path[1:])
        answer = self._console.answer(request, path) if self._console is not None else None
        return answer if answer is not None else denied(AccessDenied(404, "the console has no such file"))

    async def status_page(self, _: Request) -> Response:
        return Response(_STATUS_PAGE, media_type="text/html; charset=utf-8", headers=HEADERS)

    async def livez(self, _: Request) -> Response:
        return _probed(*liveness())

    async def readyz(self, request: Request) -> Response:
        reason, shard = self.readiness.reason, None
        if space := request.query_params.get("space"):
            space = self.directory.other_names.get(space, space)
            shard = self.directory.shard_of(space)
            if reason is None and not self.directory.serves(space):
                reason = "not_served"
        return _probed(*readiness(reason, shard=shard))

    async def health(self, _: Request) -> Response:
        """D-85: `degraded` while a journal cannot be written; `ok` only while every space is open (D-98)."""
        return json_response(
            200 if self.readiness.phase == "running" else 503,
            {
                "status": self.readiness.reason or "ok",
                "version": self._version,
                "protocols": sorted({dialect.protocol for dialect in DIALECTS.values()}),
                "spaces": len(self.directory.hosts),
                "participants": sum(
                    len(h.space.state.roster.present()) for h in self.directory.hosts.values()
                ),
            },
        )

    async def openapi(self, _: Request) -> Response:
        offered = msgspec.structs.replace(self.offered, admin=self._identity.has_administrators)
        return json_response(200, openapi(self._version, offered, witness=self._witness is not None))

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._metrics(), media_type=CONTENT_TYPE, headers=HEADERS)


def _probed(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json", headers=HEADERS)


def _cross_origin(origins: Collection[str]) -> list[Middleware]:
    """What lets the console's page of one gateway of a cluster ask the other gateways over HTTP.

    A browser shows a page the answers of its own origin alone, unless the other side names the page's origin
    (CORS). Only in a cluster with `addresses`, and only for the origins that are answered at all (D-84):
    pages of its gateways, and those of `allowed_origins`. No cookies: the page sends its token in a header.
    """
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
            allow_credentials=False,
            max_age=_KEEP_SECONDS,
        )
    ]


def openapi(version: str, offered: HttpConfig, *, witness: bool = True) -> Json:
    """OpenAPI 3.1 of what this gateway answers, and of nothing that is turned off."""
    document = _everything()
    paths = dict(document["paths"])
    messages = paths["/participants/{id}/messages"] = dict(paths["/participants/{id}/messages"])
    if not offered.poll:
        for part in ("history", "decisions", "receipts/{id}", "log/{path}"):
            del paths[f"/spaces/{{space}}/{part}"]
        del messages["get"]
    if not offered.inject:
        del messages["post"]
    hidden = [path for path in paths if path.startswith("/admin/") and not offered.admin]
    hidden += [] if offered.metrics else ["/metrics"]
    hidden += [] if witness else ["/witness/add-checkpoint", "/witness/{hash}/checkpoint"]
    hidden += [] if offered.console else ["/console/{path}", "/service-worker.js", "/manifest.webmanifest"]
    hidden += [] if messages else ["/participants/{id}/messages"]
    for path in hidden:
        del paths[path]
    return document | {"info": document["info"] | {"version": version}, "paths": paths}


@cache
def _everything() -> Json:
    """The file as it is; nobody changes what is returned here."""
    text = (resources.files("moot.gateway.http") / "openapi.yaml").read_text("utf-8")
    document = yaml.load(text, _LOADER)  # noqa: S506  # it is the safe one
    # Only a place for what is named more than once.
    del document["pieces"]
    return document
