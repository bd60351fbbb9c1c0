"""The public pages over HTTP: where the endpoint is, what it offers, and its health (XP 7.3, 8.1).

    /.well-known/xprotocol-endpoint   the discovery document
    /xp/schemas                       every contract, as one JSON list
    /health                           ok or degraded, and why
    /livez, /readyz                   the same for probes: a status and nothing else
    /metrics                          counts for Prometheus, if `discovery.metrics`

All pages are public and read-only. They hold no credentials, arguments or answers.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moot.metrics import CONTENT_TYPE
from moot.net.http_listener import bind_socket, serve_http
from moot.net.probes import LIVE_PATH, PROBE_HEADERS, READY_PATH, liveness, readiness
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.contracts.contracts import Contract, contract_json

WELL_KNOWN_PATH: Final = "/.well-known/xprotocol-endpoint"
SCHEMAS_PATH: Final = "/xp/schemas"
HEADERS: Final = {"X-Content-Type-Options": "nosniff"}
# A name or an address and a port, and nothing that could break out of a URL.
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class SchemaPage:
    """Every contract as one JSON list, encoded on demand and cached until something changes."""

    def __init__(self, contracts: Callable[[], Iterable[Contract]]) -> None:
        self._contracts = contracts
        self._cached: tuple[str, bytes] | None = None

    def invalidate(self) -> None:
        self._cached = None

    def page(self) -> tuple[str, bytes]:
        """ETag and body. The tag is a hash: lists of resources change without a version (D-78)."""
        if self._cached is None:
            body = encode([contract_json(contract) for contract in self._contracts()])
            self._cached = (sha256(body).hexdigest(), body)
        return self._cached


class WellKnownPages:
    """The pages, each from a function that gives the current content."""

    def __init__(
        self,
        *,
        document: Callable[[str], dict[str, Json]],
        schemas: Callable[[], tuple[str, bytes]],
        health: Callable[[], dict[str, Json]],
        metrics: Callable[[], str] | None,
        address: str | None = None,
    ) -> None:
        """`document` gets the base address; `schemas` returns an ETag and the body."""
        self._document = document
        self._schemas = schemas
        self._health = health
        self._metrics = metrics
        self.address = address
        # Where it is served; empty until then.
        self.own_address = ""

    def application(self) -> Starlette:
        routes = [
            Route(WELL_KNOWN_PATH, self.document, methods=["GET"]),
            Route(SCHEMAS_PATH, self.schemas, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route(LIVE_PATH, self.livez, methods=["GET"]),
            Route(READY_PATH, self.readyz, methods=["GET"]),
        ]
        if self._metrics is not None:
            routes.append(Route("/metrics", self.metrics, methods=["GET"]))
        return Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_allowed})

    async def document(self, request: Request) -> Response:
        return _json(200, self._document(self._base(request)), {"Cache-Control": "max-age=60"})

    async def schemas(self, request: Request) -> Response:
        name, body = self._schemas()
        tag = f'"{name}"'
        headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    async def health(self, _: Request) -> Response:
        return _json(200, self._health(), {"Cache-Control": "no-store"})

    async def livez(self, _: Request) -> Response:
        return _probe_response(*liveness())

    async def readyz(self, _: Request) -> Response:
        return _probe_response(*readiness(None if self._health()["ready"] else "degraded"))

    async def metrics(self, _: Request) -> Response:
        body = "" if self._metrics is None else self._metrics()
        return Response(body, media_type=CONTENT_TYPE, headers={**HEADERS, "Cache-Control": "no-store"})

    def _base(self, request: Request) -> str:
        """The configured public address, else the address that this client used."""
        if self.address is not None:
            return self.address
        host = request.headers.get("host", "")
        return f"http://{host}" if _HOST.fullmatch(host) else self.own_address


def _json(status: int, value: Json, headers: dict[str, str] | None = None) -> Response:
    return Response(
        encode(value), status, media_type="application/json", headers={**HEADERS, **(headers or {})}
    )


def _probe_response(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json", headers=PROBE_HEADERS)


async def _not_found(_request: Request, _fault: Exception) -> Response:
    paths = f"{WELL_KNOWN_PATH}, {SCHEMAS_PATH}, /health"
    return _json(404, {"error": "not_found", "message": f"this is an XProtocol endpoint; it has {paths}"})


async def _not_allowed(_request: Request, _fault: Exception) -> Response:
    return _json(405, {"error": "not_allowed", "message": "read-only: use GET"})


@asynccontextmanager
async def serve_pages(pages: WellKnownPages, host: str, port: int) -> AsyncIterator[str]:
    """Serve the pages for the length of the block; yields the address. Raises what `bind_socket` raises."""
    listener = bind_socket(
        host, port, host_name="discovery.well_known_host", port_name="discovery.well_known_port"
    )
    port_in_use: int = listener.getsockname()[1]
    url_host = f"[{host}]" if ":" in host else host
    pages.own_address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '') else url_host}:{port_in_use}"  # noqa: S104
    async with serve_http(pages.application(), listener, keep_alive_seconds=15):
        yield pages.own_address
