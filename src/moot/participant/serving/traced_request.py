"""A request of somebody else as a span of its trace, if calls are traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot import tracing
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant.serving.request_server import IncomingRequest, RequestHandler


async def run_traced(request: IncomingRequest, handler: RequestHandler) -> dict[str, Json] | None:
    if tracing.active is None:
        return await handler(request)
    envelope = request.envelope
    with tracing.active.operation(
        "server",
        request.method,
        request.params,
        carrier=tracing.active.context_of(envelope.raw, envelope.payload),
        jsonrpc__request__id=None if request.rpc_id is None else str(request.rpc_id),
        moot__member=request.sender,
        network__transport="tcp",
    ) as operation:
        result = await handler(request)
        if operation is not None:
            operation.result = result
        return result
