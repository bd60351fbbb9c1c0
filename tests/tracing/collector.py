"""A collector of OTLP over HTTP on loopback: it keeps what it is sent, decoded as OpenTelemetry does."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moot.net.http_listener import bind_socket, serve_http
from tests.waiting import until


@dataclass(frozen=True)
class ReceivedSpan:
    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    is_error: bool


@dataclass
class Collector:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    histograms: set[str] = field(default_factory=set)

    async def span(self, service: str, name: str, kind: int) -> ReceivedSpan:
        """The span of a program, when it has come."""
        wanted = (service, name, kind)
        found = await until(
            lambda: [one for one in self.spans if (one.service, one.name, one.kind) == wanted]
        )
        return found[0]

    async def receive_traces(self, request: Request) -> Response:
        sent = ExportTraceServiceRequest.FromString(await _body(request))
        for resource in sent.resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    made = ReceivedSpan(
                        service,
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        _values(span.attributes),
                        span.status.code == 2,
                    )
                    self.spans.append(made)
        return Response()

    async def receive_metrics(self, request: Request) -> Response:
        sent = ExportMetricsServiceRequest.FromString(await _body(request))
        self.histograms |= {
            metric.name
            for resource in sent.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.HasField("histogram")
        }
        return Response()


async def _body(request: Request) -> bytes:
    raw = await request.body()
    return gzip.decompress(raw) if request.headers.get("content-encoding") == "gzip" else raw


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = Starlette(
        routes=[
            Route("/v1/traces", collector.receive_traces, methods=["POST"]),
            Route("/v1/metrics", collector.receive_metrics, methods=["POST"]),
        ]
    )
    listening = bind_socket("127.0.0.1", 0)
    collector.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with serve_http(app, listening):
        yield collector
