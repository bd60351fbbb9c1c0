"""A request of somebody else as a span of its trace, if calls are traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant.serving.request_server import IncomingRequest, RequestHandler
    from moot.tracing.call_tracer import CallTracer


async def run_traced(
    tracer: CallTracer, request: IncomingRequest, handler: RequestHandler
) -> dict[str, Json] | None:
    envelope = request.envelope
    with tracer.operation(
        "server",
        request.method,
        request.params,
        carrier=tracer.context_of(envelope.raw, envelope.payload),
        jsonrpc__request__id=None if request.rpc_id is None else str(request.rpc_id),
        moot__member=request.sender,
        network__transport="tcp",
    ) as operation:
        result = await handler(request)
        if operation is not None:
            operation.result = result
        return result
