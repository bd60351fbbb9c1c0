"""Spans and histograms of calls, named as OpenTelemetry's conventions for MCP name them (in development).

    tools/call write_note    SERVER  `moot mcp`, asked by its client           (parent: the client's span)
      tools/call write_note  CLIENT  the member proposes, or requests
        approval             INTERNAL  until somebody has decided; `moot.approval.*` says who and how
        tools/call …         CLIENT  whoever approves makes the call
          tools/call …       SERVER  the member that has the tool, such as a bridge
            tools/call …     CLIENT  the bridge asks its MCP server            (`params._meta.traceparent`)

The context travels as `traceparent` and `tracestate`: in `params._meta` of a request or proposal, and beside
the other members of an envelope, which count where an approved call keeps the bytes that were proposed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import orjson
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from moot import __version__
from moot.errors import McpError, NotAllowed

Span = trace.Span
Side = Literal["client", "server"]
Carrier = Mapping[str, Any] | None

# Only these begin a trace; whatever else runs, such as lists that are asked for in the background, joins one.
CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
MEMBERS: Final = ("traceparent", "tracestate")
# As the conventions advise.
_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
# Of what the conventions give spans, what a histogram can count by: few values each.
_COUNTED: Final = frozenset(
    {
        "mcp.method.name",
        "gen_ai.tool.name",
        "gen_ai.prompt.name",
        "gen_ai.operation.name",
        "network.transport",
    }
)
# Of arguments and results, where somebody asked for them.
_MAX_CONTENT_CHARS: Final = 8_192
_KINDS: Final = {"client": SpanKind.CLIENT, "server": SpanKind.SERVER}

_propagator: Final = TraceContextTextMapPropagator()


class Operation:
    """One call as one side sees it; without a span where nothing is traced."""

    def __init__(self, tracer: CallTracer, side: Side, span: Span, facts: dict[str, Any]) -> None:
        self._tracer, self._side, self.span, self._facts = tracer, side, span, facts
        self._started = time.perf_counter()
        self._context = trace.set_span_in_context(span)
        self.result: Mapping[str, Any] | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """What is sent in the block belongs to it."""
        token = contexts.attach(self._context)
        try:
            yield
        finally:
            contexts.detach(token)

    def start_wait(self, proposal: str) -> Span:
        """The wait for somebody's decision."""
        return self._tracer.tracer.start_span(
            "approval", context=self._context, attributes={"moot.proposal.id": proposal}
        )

    def end(self, fault: BaseException | None = None) -> None:
        code = str(fault.code) if isinstance(fault, McpError) else None
        if isinstance(fault, asyncio.CancelledError):
            error: str | None = "cancelled"
        elif fault is not None:
            error = code or type(fault).__name__
        else:
            error = "tool_error" if self.result is not None and self.result.get("isError") is True else None
        counted = {key: value for key, value in self._facts.items() if key in _COUNTED}
        if error is not None:
            counted["error.type"] = error
            self.span.set_attribute("error.type", error)
            self.span.set_status(Status(StatusCode.ERROR))
        if code is not None:
            counted["rpc.response.status_code"] = code
            self.span.set_attribute("rpc.response.status_code", code)
        if self._tracer.with_content and self.result is not None:
            self.span.set_attribute("gen_ai.tool.call.result", _text(self.result))
        self._tracer.durations[self._side].record(
            time.perf_counter() - self._started, counted, context=self._context
        )
        self.span.end()


class CallTracer:
    """Makes the spans of this process."""

    def __init__(self, traces: TracerProvider, metrics: MeterProvider, *, with_content: bool) -> None:
        """`with_content`: spans carry arguments and results, too."""
        self.tracer = traces.get_tracer("moot", __version__)
        self.with_content = with_content
        meter = metrics.get_meter("moot", __version__)
        self.durations = {
            side: meter.create_histogram(
                f"mcp.{side}.operation.duration", unit="s", explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for side in ("client", "server")
        }

    def start(
        self, side: Side, method: str, params: Carrier, *, carrier: Carrier = None, **facts: Any
    ) -> Operation | None:
        """An operation that its caller ends; None for one that neither begins a trace nor belongs to one.

        `carrier` has the context of whoever asked, and wins over what runs here, which is linked then.
        `facts` have the names of attributes with `__` for dots.
        """
        context = contexts.get_current()
        here = trace.get_current_span(context).get_span_context()
        links = []
        if carrier is not None:
            told = _propagator.extract(
                {key: value for key in MEMBERS if isinstance(value := carrier.get(key), str)}
            )
            there = trace.get_current_span(told).get_span_context()
            if there.is_valid:
                links = [Link(here)] if here.is_valid and here.span_id != there.span_id else []
                context, here = told, there
        if not here.is_valid and method not in CALLS:
            return None
        params = params or {}
        attributes: dict[str, Any] = {"mcp.method.name": method}
        target = params.get("name")
        if method == "tools/call":
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": str(target)}
        elif method == "prompts/get":
            attributes["gen_ai.prompt.name"] = str(target)
        elif method.startswith("resources/") and isinstance(params.get("uri"), str):
            attributes["mcp.resource.uri"], target = params["uri"], None
        attributes |= {key.replace("__", "."): value for key, value in facts.items() if value}
        if self.with_content and method == "tools/call":
            attributes["gen_ai.tool.call.arguments"] = _text(params.get("arguments") or {})
        name = f"{method} {target}" if isinstance(target, str) else method
        span = self.tracer.start_span(name, context, _KINDS[side], attributes=attributes, links=links)
        return Operation(self, side, span, attributes)

    @contextmanager
    def operation(
        self, side: Side, method: str, params: Carrier, *, carrier: Carrier = None, **facts: Any
    ) -> Iterator[Operation | None]:
        """An operation that lasts as long as the block, which may set its `result`."""
        made = self.start(side, method, params, carrier=carrier, **facts)
        if made is None:
            yield None
            return
        try:
            with made.current():
                yield made
        except NotAllowed:
            # Nothing was sent, and most often it is proposed now: a span that never ends is not told.
            raise
        except BaseException as fault:
            made.end(fault)
            raise
        made.end()

    @staticmethod
    def context_of(raw: bytes, payload: Mapping[str, Any]) -> Carrier:
        """The context that an envelope carries: its own, else that in the params of its payload."""
        if b'"traceparent"' not in raw:
            return None
        members = orjson.loads(raw)
        if isinstance(members.get("traceparent"), str):
            return {key: members.get(key) for key in MEMBERS}
        params = payload.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        return meta if isinstance(meta, dict) else None

    def context_members(self) -> dict[str, str]:
        """The context of what runs here as `traceparent` and `tracestate`; nothing where there is none."""
        members: dict[str, str] = {}
        _propagator.inject(members)
        return members

    def with_context(self, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Params with the context of what runs here in `_meta`, in place of that of whoever asked."""
        made, members = dict(params or {}), self.context_members()
        if members:
            meta = made.get("_meta")
            kept = (
                {key: value for key, value in meta.items() if key not in MEMBERS}
                if isinstance(meta, dict)
                else {}
            )
            made["_meta"] = {**kept, **members}
        return made


def add_ids_to_logs() -> None:
    """Every line of the log that is written while something is traced says in which trace."""
    make_record = logging.getLogRecordFactory()
    if getattr(make_record, "adds_trace_ids", False):
        return

    def make(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make_record(*arguments, **more)
        here = trace.get_current_span().get_span_context()
        if here.is_valid:
            record.trace_id, record.span_id = f"{here.trace_id:032x}", f"{here.span_id:016x}"
        return record

    make.adds_trace_ids = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make)


def _text(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()[:_MAX_CONTENT_CHARS]
