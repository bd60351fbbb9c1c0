"""HTTP beside the sockets: posting, polling, probes, health, metrics, administration (D-40, D-55).

Every answer is JSON with a code and words. The ladder is the space's own; here its words become statuses.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from moot.config.notification_config import PushConfig
from moot.errors import InvalidEnvelope, InvalidRequest, Refused, Unauthorized
from moot.gateway.access import AccessDenied, HostOriginPolicy, SpaceDirectory, TokenIdentity, bearer
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.console import MANIFEST, PAGE, WORKER, installed_console
from moot.gateway.delivery import encode_entry, id_of
from moot.gateway.history_routes import HistoryRoutes
from moot.gateway.http_read_limiter import HttpReadLimiter
from moot.gateway.http_replies import (
    HEADERS,
    RequestRefused,
    accepted,
    body_of,
    check_json,
    denied,
    in_effect,
    json_response,
    kind_of,
    moment,
    not_allowed,
    not_found,
    object_of,
    refused,
)
from moot.gateway.journal_history import HistoryLimits
from moot.gateway.notifications.push.devices import PushDevices
from moot.gateway.oidc.mcp_exchange import McpExchange
from moot.gateway.oidc.mcp_routes import McpRoutes
from moot.gateway.oidc.oidc_routes import OidcRoutes
from moot.gateway.oidc.sign_in_service import SignInService
from moot.gateway.public_pages import STATUS_PAGE, openapi
from moot.gateway.push_routes import PushRoutes
from moot.gateway.readiness import Readiness
from moot.gateway.short_lived_tokens import MAX_TOKEN_REQUEST_BYTES, mint_token, read_token_request
from moot.gateway.sign_in_links import SignInLinks
from moot.gateway.sign_in_routes import SignInRoutes
from moot.gateway.space_host import SpaceHost
from moot.gateway.token_rotation import TokenRotation
from moot.metrics import CONTENT_TYPE
from moot.net.probes import LIVE_PATH, READY_PATH, liveness, readiness
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.effects import Reply
from moot.space.proposal_listing import ProposalReader, find_proposals, list_proposals
from moot.space.roster import Options

log = logging.getLogger(__name__)


class ReportCluster(Protocol):
    """Tells the state of the cluster that a gateway is one of."""

    async def __call__(self, *, compare: bool) -> dict[str, Json]: ...


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which endpoints there are, and how large a body may be."""

    inject: bool = True
    poll: bool = True
    admin: bool = True
    metrics: bool = True
    console: bool = True
    max_body_bytes: int = 2 << 20
    max_minted_token_seconds: float = 86_400
    history_pages_per_second: float = 10
    sign_in_links_per_minute: float = 10


class Endpoints:
    """The HTTP side of a gateway."""

    def __init__(
        self,
        directory: SpaceDirectory,
        origin_policy: HostOriginPolicy,
        settings: HttpSettings,
        *,
        access_limiter: AccessLimiter,
        readiness: Readiness,
        rotation: TokenRotation,
        sign_in_links: SignInLinks,
        history_limits: HistoryLimits,
        push: PushConfig,
        devices: PushDevices,
        sign_in: SignInService | None,
        metrics: Callable[[], str],
        connections: Callable[[], list[dict[str, Json]]],
        cluster: ReportCluster | None,
        version: str,
    ) -> None:
        self.directory = directory
        self.origin_policy = origin_policy
        self.settings = settings
        self.access_limiter = access_limiter
        self.readiness = readiness
        self._reads = HttpReadLimiter()
        self._rotation = rotation
        self._metrics = metrics
        self._connections = connections
        self._cluster = cluster
        self._version = version
        self._console = installed_console() if settings.console else None
        self._sign_in = SignInRoutes(
            directory, sign_in_links, self._refuse_token, links_per_minute=settings.sign_in_links_per_minute
        )
        self._history = HistoryRoutes(
            directory,
            self._refuse_token,
            limits=history_limits,
            pages_per_second=settings.history_pages_per_second,
        )
        self._push = PushRoutes(directory, push, devices, self._refuse_token)
        self._oidc = OidcRoutes(sign_in, self._refuse_token)
        exchange = None if sign_in is None else McpExchange(sign_in, directory)
        self._mcp = McpRoutes(exchange, self._refuse_token)

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
            self._route("/spaces", self.spaces, "GET"),
            self._route("/spaces/{space}/proposals", self.proposals, "GET"),
            self._route("/spaces/{space}/proposals/{id:path}", self.proposal, "GET"),
            self._route("/sign-in-links", self._sign_in.create, "POST"),
            self._route("/sign-in-links/redeem", self._sign_in.redeem, "POST"),
            self._route("/push-subscriptions", self._push.list, "GET"),
            self._route("/push-subscriptions", self._push.add, "POST"),
            self._route("/push-subscriptions/{id}", self._push.remove, "DELETE"),
            self._route("/oidc", self._oidc.providers, "GET"),
            self._route("/oidc/mcp", self._mcp.describe, "GET"),
            self._route("/oidc/token", self._mcp.token, "POST"),
            self._route("/oidc/sign-out", self._oidc.sign_out, "POST"),
            self._route("/oidc/backchannel-logout", self._oidc.backchannel_logout, "POST"),
            self._route("/participants/{id}/messages", self.messages, "GET", "POST"),
            self._route("/participants/{id}/roster", self.roster, "GET"),
            self._route("/admin/participants/{id}/capabilities", self.capabilities, "POST"),
            self._route("/admin/participants/{id}/restore", self.restore, "POST"),
            self._route("/admin/participants/{id}/token", self.rotate, "POST"),
            self._route("/participants/{id}/tokens", self.mint_own, "POST"),
            self._route("/admin/participants/{id}/tokens", self.mint, "POST"),
            self._route("/admin/connections", self.connections, "GET"),
            self._route("/admin/cluster", self.cluster, "GET"),
        ]
        if self.settings.poll:
            routes.append(self._route("/spaces/{space}/history", self._history.page, "GET"))
        if self.settings.metrics:
            routes.append(self._route("/metrics", self.metrics, "GET", by_address=True))
        return Starlette(routes=routes, exception_handlers={404: not_found, 405: not_allowed})

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
                return await endpoint(request)
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

    # For everybody

    async def page(self, request: Request) -> Response:
        """The console; the status page where it is turned off."""
        if self._console is None:
            return await self.status_page(request)
        answer = self._console.answer(request, PAGE, self._oidc.origins())
        return answer if answer is not None else await self.status_page(request)

    async def console(self, request: Request) -> Response:
        # The two files beside the page have a route each.
        path = request.path_params.get("path", request.url.path[1:])
        answer = self._console.answer(request, path) if self._console is not None else None
        return answer if answer is not None else denied(AccessDenied(404, "the console has no such file"))

    async def status_page(self, _: Request) -> Response:
        return Response(STATUS_PAGE, media_type="text/html; charset=utf-8", headers=HEADERS)

    async def livez(self, _: Request) -> Response:
        return _probed(*liveness())

    async def readyz(self, _: Request) -> Response:
        return _probed(*readiness(self.readiness.reason))

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
        return json_response(200, openapi(self._version, self.settings))

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._metrics(), media_type=CONTENT_TYPE, headers=HEADERS)

    # For participants

    async def spaces(self, request: Request) -> Response:
        """The spaces that the caller's token opens."""
        token = bearer(request.headers.get("authorization"))
        if not token:
            return denied(AccessDenied(401, "a token is needed: send Authorization: Bearer …"))
        identities, refusal = self.directory.identify_everywhere(token)
        if not identities:
            return denied(self._refuse_token(refusal, request))
        found: list[Json] = []
        for each in identities:
            dialects: list[Json] = [*sorted(each.host.space.state.config.dialects)]
            found.append({"name": each.host.name, "participant": each.name, "dialects": dialects})
        return json_response(200, {"spaces": found})

    async def messages(self, request: Request) -> Response:
        identity = self._participant(request)
        if isinstance(identity, AccessDenied):
            return denied(identity)
        if request.method == "POST":
            return await self._post(request, identity)
        # HEAD as well: what asks only for headers changes nothing.
        return self._poll(request, identity)

    async def proposals(self, request: Request) -> Response:
        """D-96: what is open, and what came of approved calls is not known of; a page at a time."""
        host, reader = self._proposal_reader(request)
        try:
            after = int(request.query_params.get("after", "0"))
        except ValueError:
            after = -1
        if after < 0:
            raise InvalidRequest("after is the number that `next` said before")
        page = list_proposals(host.space.state, reader, after=after, now=host.journaled.clock())
        return self._reads.charge(host, reader.member.name, json_response(200, page.payload))

    async def proposal(self, request: Request) -> Response:
        """D-96: one proposal by its id, open or settled, and what came of it."""
        host, reader = self._proposal_reader(request)
        id = request.path_params["id"]
        page = find_proposals(host.space.state, reader, [id], now=host.journaled.clock())
        if page.payload["not_known"]:
            return json_response(
                404,
                {"error": "proposal_not_found", "message": f"no proposal {id!r} is known here (any more)"},
            )
        return self._reads.charge(host, reader.member.name, json_response(200, page.payload["proposals"][0]))

    def _proposal_reader(self, request: Request) -> tuple[SpaceHost, ProposalReader]:
        token = bearer(request.headers.get("authorization"))
        if not token:
            raise RequestRefused(AccessDenied(401, "a token is needed: send Authorization: Bearer …"))
        identity = self.directory.identify(request.path_params["space"], token)
        if isinstance(identity, AccessDenied):
            wrong = identity.status in (401, 403)
            raise RequestRefused(self._refuse_token(identity, request) if wrong else identity)
        identity.admit()
        member = identity.host.space.state.roster.find(identity.name)
        self._reads.check(identity.host, identity.name)
        return identity.host, ProposalReader(member, _dialect(request, b""), whole=True)

    async def roster(self, request: Request) -> Response:
        """Who is here and which streams are open, page by page, for whoever may join as this participant."""
        identity = self._participant(request)
        if isinstance(identity, AccessDenied):
            return denied(identity)
        dialect = _dialect(request, b"")
        self._reads.check(identity.host, identity.name)
        options = Options(injected=True, token=identity.token)
        page = identity.host.describe_roster(
            identity.name, dialect, options, request.query_params.get("after")
        )
        return self._reads.charge(identity.host, identity.name, json_response(200, page))

    def _participant(self, request: Request) -> TokenIdentity | AccessDenied:
        header = request.headers.get("authorization")
        token = bearer(header)
        if not token:
            return AccessDenied(401, "a token is needed: send Authorization: Bearer …")
        identity = self.directory.identify(request.query_params.get("space"), token)
        if isinstance(identity, AccessDenied):
            # D-40: a token that is given but wrong is 403 here, as existing clients expect.
            wrong = AccessDenied(403, identity.message) if identity.status == 401 else identity
            return self._refuse_token(wrong, request, request.path_params["id"])
        identity.admit()
        member = identity.host.space.state.roster.resolve(request.path_params["id"])
        if member is None or member.name != identity.name:
            return AccessDenied(403, "this token is another participant's")
        return identity

    async def _post(self, request: Request, identity: TokenIdentity) -> Response:
        if not self.settings.inject:
            return denied(AccessDenied(404, "posting is turned off here: connect a WebSocket"))
        check_json(request)
        body = await body_of(request, self.settings.max_body_bytes)
        if body is None:
            return denied(AccessDenied(413, f"a body has at most {self.settings.max_body_bytes} bytes"))
        options = Options(injected=True, token=identity.token)
        host = identity.host
        host.check_rate_ahead(identity.name, body)
        strict_json.check_containers(body, host.space.state.limits.envelope.max_containers)
        outcome = await host.post(identity.name, _dialect(request, body), body, options)
        if isinstance(outcome, Reply):
            payload = dict(outcome.notice.payload)
            shown = orjson.loads(DIALECTS["mew"].encode_notice(outcome.notice) or b"{}").get(
                "payload", payload
            )
            code = str(payload.get("error"))
            return refused(code, "", shown, str(payload.get("attempted_kind", "")), payload.get("detail"))
        return json_response(*accepted(outcome))

    def _poll(self, request: Request, identity: TokenIdentity) -> Response:
        if not self.settings.poll:
            return denied(AccessDenied(404, "polling is turned off here: connect a WebSocket"))
        since = moment(request.query_params.get("since"))
        if since > identity.host.journaled.clock():
            # No cursor of ours, but a time by a wall clock that was set since the start.
            since -= max(0.0, identity.host.journaled.wall_ahead_seconds)
        dialect = _dialect(request, b"")
        self._reads.check(identity.host, identity.name)
        history = identity.host.delivery.history
        since = max(since, history.visible_since(identity.name))
        wanted = request.query_params.get("id")
        messages = []
        latest = since
        for entry in history.since(since, identity.name):
            if wanted is not None and id_of(entry) != wanted:
                continue
            raw = encode_entry(entry, dialect)
            if raw is not None:
                messages.append(orjson.Fragment(raw))
            latest = entry.at
        if wanted is None:
            identity.host.note_poll(identity.name)
        answer = json_response(200, {"messages": messages, "next": repr(latest)})
        return self._reads.charge(identity.host, identity.name, answer)

    # For administrators

    async def capabilities(self, request: Request) -> Response:
        self._administered(request)
        check_json(request)
        body = await object_of(request, self.settings.max_body_bytes)
        host, admin = self._administered(request)
        unknown = set(body) - {"add", "remove"}
        if unknown:
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))}; give add and remove")
        if not all(isinstance(items, list) for items in body.values()):
            raise InvalidRequest("add and remove are lists of capabilities")
        place: DialectName = "mcpx" if _all_strings(body) else "mew"
        add = read_capabilities(body.get("add", []), place=place)
        remove = read_capabilities(body.get("remove", []), place=place)
        done = await host.rights.change_capabilities(request.path_params["id"], add, remove, admin)
        return json_response(*in_effect(done, done.results[0].fields))

    async def restore(self, request: Request) -> Response:
        host, admin = self._administered(request)
        return json_response(200, await self._rotation.restore(host, request.path_params["id"], admin))

    async def rotate(self, request: Request) -> Response:
        """Give a participant another token, shown once; the earlier ones are void unless `keep` is true."""
        self._administered(request)
        check_json(request)
        body = await object_of(request, self.settings.max_body_bytes)
        # Again: an administrator's token may be gone by the time that the whole body is here.
        host, admin = self._administered(request)
        if set(body) - {"keep"} or not isinstance(body.get("keep", False), bool):
            raise InvalidRequest('the body is {} or {"keep": true}')
        who, keep = request.path_params["id"], body.get("keep", False)
        return json_response(200, await self._rotation.rotate(host, who, admin, keep=keep))

    async def mint(self, request: Request) -> Response:
        """Give a participant a short-lived token, shown once."""
        host, admin = self._administered(request)
        self._check_mint(host, request.path_params["id"], ("admin", admin))
        check_json(request)
        seconds, only = read_token_request(await object_of(request, MAX_TOKEN_REQUEST_BYTES))
        host, admin = self._administered(request)
        most, who = self.settings.max_minted_token_seconds, request.path_params["id"]
        made = await mint_token(host, who, admin, seconds=seconds, only=only, max_seconds=most)
        return json_response(201, made)

    async def mint_own(self, request: Request) -> Response:
        """A short-lived token with no more than the caller's own, shown once."""
        identity = self._participant(request)
        if isinstance(identity, AccessDenied):
            return denied(identity)
        # Before the body is read: whoever asks in a loop is told cheaply.
        self._check_mint(identity.host, identity.name, ("member", identity.name))
        check_json(request)
        seconds, only = read_token_request(await object_of(request, MAX_TOKEN_REQUEST_BYTES))
        # Again: it may be void by the time that the whole body is here.
        identity = self._participant(request)
        if isinstance(identity, AccessDenied):
            return denied(identity)
        made = await mint_token(
            identity.host,
            identity.name,
            identity.name,
            seconds=seconds,
            only=only,
            max_seconds=self.settings.max_minted_token_seconds,
            own_token=identity.token,
        )
        return json_response(201, made)

    def _check_mint(self, host: SpaceHost, member: str, by: tuple[str, str]) -> None:
        """Raises RequestRefused when so many were asked for that this one has to wait."""
        wait = self.access_limiter.check_mint(host.name, member, by)
        if wait is not None:
            raise RequestRefused(wait)

    async def connections(self, request: Request) -> Response:
        """MEW 10.1: what the gateway keeps of each connection."""
        if self._administrator(request) is None:
            return denied(AccessDenied(403, "an administrator's token is needed"))
        return json_response(200, {"connections": self._connections()})

    async def cluster(self, request: Request) -> Response:
        """The gateways of the cluster, the log, and what is wrong; with `compare=true` their states, too."""
        if self._administrator(request) is None:
            return denied(AccessDenied(403, "an administrator's token is needed"))
        if self._cluster is None:
            return denied(AccessDenied(404, "this gateway is alone: gateway.cluster is not configured"))
        compare = request.query_params.get("compare", "false")
        if compare not in ("true", "false"):
            raise InvalidRequest("compare is true or false")
        found = await self._cluster(compare=compare == "true")
        # It may have taken a while.
        if self._administrator(request) is None:
            return denied(AccessDenied(403, "an administrator's token is needed"))
        return json_response(200, found)

    def _administrator(self, request: Request) -> str | None:
        """Who administers with the token of this request; raises RequestRefused after too many wrong ones."""
        if not self.settings.admin:
            return None
        token = bearer(request.headers.get("authorization"))
        admin = self.directory.administrator(token)
        if admin is None and token:
            wrong = self._refuse_token(AccessDenied(403, ""), request)
            if wrong.retry_after is not None:
                raise RequestRefused(wrong)
        return admin

    def _refuse_token(self, wrong: AccessDenied, request: Request, name: str | None = None) -> AccessDenied:
        address = request.client.host if request.client is not None else ""
        return self.access_limiter.refuse_token(wrong, address, name)

    def _administered(self, request: Request) -> tuple[SpaceHost, str]:
        admin = self._administrator(request)
        if admin is None:
            raise Unauthorized("an administrator's token is needed")
        host = self.directory.space(request.query_params.get("space"))
        if isinstance(host, AccessDenied):
            raise RequestRefused(host)
        return host, admin


def _probed(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json", headers=HEADERS)


def _all_strings(body: Mapping[str, Json]) -> bool:
    items = [*body.get("add", []), *body.get("remove", [])]
    return bool(items) and all(isinstance(item, str) for item in items)


def _dialect(request: Request, body: bytes) -> DialectName:
    """dialects.md section 1: MEW, unless the query or the body's `protocol` says otherwise."""
    asked = request.query_params.get("dialect")
    if asked is not None:
        if asked not in DIALECTS:
            raise InvalidEnvelope(f"unknown dialect: use one of {', '.join(DIALECTS)}")
        return DIALECTS[asked].name  # type: ignore[index]  # looked up just now
    return "mcpx" if _protocol(body) == "mcpx/v0.1" else "mew"


def _protocol(body: bytes) -> Json:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return fields.get("protocol") if isinstance(fields, dict) else None
