"""An MCP server made with the official SDK whose tools request input, each in the way of one era or of both.

python -m tests.mcp.servers.two_eras both 0                Streamable HTTP (the port is told on stderr)
python -m tests.mcp.servers.two_eras stateless-only 0      the same, but it refuses `initialize`
python -m tests.mcp.servers.two_eras stdio                 over stdio
"""

from __future__ import annotations

import sys
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("two-eras", version="1")
# The calls of tools that work in one era only, and the handshakes that were refused.
CALLS: list[str] = []


class Name(BaseModel):
    name: str


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
async def greet(name: Annotated[Name, Resolve(who)]) -> str:
    """Works in both eras."""
    return f"hello {name.name}"


@server.tool()
async def confirm(ctx: Context) -> str:
    """Sends a request to its client, which only the handshake era has."""
    CALLS.append("confirm")
    answer = await ctx.elicit("Really?", Name)
    return f"confirmed by {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool(structured_output=False)
async def inquire(ctx: Context) -> str | InputRequiredResult:
    """Answers `input_required` itself, which only the stateless era has."""
    CALLS.append("inquire")
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult) and answer.content:
        return f"told {answer.content['name']}"
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = ElicitRequestFormParams(message="Your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})


@server.tool()
async def look(ctx: Context) -> str:
    """Asks its client for roots, in the way of the handshake era."""
    roots = (await ctx.session.list_roots()).roots
    return " ".join(str(root.uri) for root in roots)


@server.tool()
def called() -> list[str]:
    """What was called."""
    return CALLS


class _StatelessOnly:
    """Refuses the handshake, and counts how often it was tried."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or dict(scope["headers"]).get(b"mcp-method"):
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).json()
        CALLS.append(body["method"])
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": []}}
        answer = JSONResponse({"jsonrpc": "2.0", "id": body.get("id"), "error": error}, 400)
        await answer(scope, receive, send)


class _Telling(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        for each in self.servers:
            print(f"port {each.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    app: ASGIApp = server.streamable_http_app()
    if sys.argv[1] == "stateless-only":
        app = _StatelessOnly(app)
    _Telling(uvicorn.Config(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")).run()


if __name__ == "__main__":
    main()
