"""The context of a trace passes where nobody knows of it."""

from __future__ import annotations

import orjson

from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DEFAULT_LIMITS
from moot.tracing.call_tracer import CallTracer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INSIDE = "00-0af7651916cd43dd8448eb211c80319c-00ad6b7169203331-01"


def envelope(**more: str) -> bytes:
    payload = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"params": {"name": "a", "arguments": {}, "_meta": {"traceparent": INSIDE}}}
    head = {"protocol": "mew/v0.4", "id": "e1", "ts": "2026-01-31T12:00:00Z", "from": "a", "to": ["b"]}
    return orjson.dumps({**head, "kind": "mcp/request", "payload": {**payload, **params}, **more})


def test_the_envelope_s_context_wins_over_that_in_its_params() -> None:
    for raw, context in ((envelope(traceparent=PARENT), PARENT), (envelope(), INSIDE)):
        found = CallTracer.context_of(raw, orjson.loads(raw)["payload"])
        assert found is not None
        assert found["traceparent"] == context


def test_every_dialect_passes_it_on() -> None:
    read = DIALECTS["mew"].decode(envelope(traceparent=PARENT, tracestate="a=1"), limits=DEFAULT_LIMITS)
    for dialect in DIALECTS.values():
        written = orjson.loads(dialect.encode(read) or b"{}")
        assert (written["traceparent"], written["tracestate"]) == (PARENT, "a=1")
