"""A server with all that MCP's own conformance suite asks of one, in both eras, made with the official SDK.

    python -m tests.mcp.servers.fixtures                  over stdio
    python -m tests.mcp.servers.fixtures --http PORT      over Streamable HTTP
    python -m tests.mcp.servers.fixtures --handshake      over stdio, without the stateless era
    … --one-era                                           tools that ask their client do so in one era only

Names and texts are the suite's; it compares them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.mcp.servers import fixture_tools
from tests.mcp.servers.fixture_tools import (
    ANYTHING,
    BUS,
    EXTRA,
    EXTRA_PROMPTS,
    IMAGE,
    SCHEMAS,
    TOOLS,
    Call,
    Context,
    Result,
    needs,
    question,
    text,
)

warnings.simplefilter("ignore", MCPDeprecationWarning)


async def list_tools(_ctx: Context, _params: Any) -> Any:
    tools = [
        {"name": name, "description": name.replace("_", " "), "inputSchema": SCHEMAS.get(name, ANYTHING)}
        for name in [*TOOLS, *EXTRA]
    ]
    return {"tools": tools, "ttlMs": 0, "cacheScope": "private"}


async def call_tool(ctx: Context, params: Any) -> Any:
    if params.name in EXTRA:
        return text(params.name)
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await tool(ctx, params.arguments or {}, Call(params))


# Resources and prompts


async def list_resources(_ctx: Context, _params: Any) -> Any:
    names = ("static-text", "static-binary", "watched-resource")
    resources = [{"uri": f"test://{name}", "name": name} for name in names]
    return {"resources": resources, "ttlMs": 0, "cacheScope": "private"}


async def list_templates(_ctx: Context, _params: Any) -> Any:
    templates = [{"uriTemplate": "test://template/{id}/data", "name": "template"}]
    return {"resourceTemplates": templates, "ttlMs": 0, "cacheScope": "private"}


async def read_resource(ctx: Context, params: Any) -> Any:
    uri = str(params.uri)
    content: dict[str, Any] = {"uri": uri, "mimeType": "text/plain"}
    match uri.removeprefix("test://").split("/"):
        case ["static-text"]:
            content["text"] = "This is the content of the static text resource."
        case ["watched-resource"]:
            content["text"] = "Watched."
        case ["static-binary"]:
            content |= {"mimeType": "image/png", "blob": IMAGE}
        case ["template", id, "data"]:
            data = {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}
            content |= {"mimeType": "application/json", "text": json.dumps(data)}
        case _:
            code = types.INVALID_PARAMS if ctx.protocol_version >= "2026" else -32002
            raise MCPError(code, "Resource not found", {"uri": uri})
    return {"contents": [content], "ttlMs": 0, "cacheScope": "private"}


async def nothing(*_: Any) -> Any:
    return {}


PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(_ctx: Context, _params: Any) -> Any:
    prompts = [
        {
            "name": name,
            "description": name.replace("_", " "),
            "arguments": [{"name": each, "description": each, "required": True} for each in arguments],
        }
        for name, arguments in [*PROMPTS.items(), *((name, []) for name in EXTRA_PROMPTS)]
    ]
    return {"prompts": prompts, "ttlMs": 0, "cacheScope": "private"}


def said(*contents: dict[str, Any]) -> Result:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


async def get_prompt(_ctx: Context, params: Any) -> Any:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return said({"type": "text", "text": "This is a simple prompt for testing."})
        case "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return said({"type": "text", "text": words})
        case "test_prompt_with_embedded_resource":
            resource = {
                "uri": given.get("resourceUri", ""),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }
            last = {"type": "text", "text": "Please process the embedded resource above."}
            return said({"type": "resource", "resource": resource}, last)
        case "test_prompt_with_image":
            last = {"type": "text", "text": "Please analyze the image above."}
            return said({"type": "image", "data": IMAGE, "mimeType": "image/png"}, last)
        case "test_input_required_result_prompt":
            answer = Call(params).answer("user_context")
            if answer is None:
                return needs(
                    {"user_context": question("What context should the prompt use?", context="string")}
                )
            return said({"type": "text", "text": f"Context: {answer.get('content', {}).get('context')}"})
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


async def complete(_ctx: Context, _params: Any) -> Any:
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


def finished(handler: Callable[[Context, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """The SDK wants plain results to say themselves that they are complete, in the era with that word."""

    async def handle(ctx: Context, params: Any) -> Any:
        result = await handler(ctx, params)
        return {"resultType": "complete"} | result if ctx.protocol_version >= "2026" else result

    return handle


def server() -> Server[Any]:
    made: Server[Any] = Server(
        "fixtures",
        version="1",
        on_list_tools=finished(list_tools),
        on_call_tool=finished(call_tool),
        on_list_resources=finished(list_resources),
        on_list_resource_templates=finished(list_templates),
        on_read_resource=finished(read_resource),
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(BUS),
        on_list_prompts=finished(list_prompts),
        on_get_prompt=finished(get_prompt),
        on_completion=finished(complete),
        on_set_logging_level=nothing,
    )
    return made


async def over_stdio(*, handshake: bool) -> None:
    async with stdio_server() as (source, sink):
        made = server()
        if handshake:
            await serve_loop(made, source, sink, lifespan_state={})
        else:
            await made.run(source, sink, made.create_initialization_options())


def main() -> None:
    arguments = sys.argv[1:]
    fixture_tools.ONE_ERA = "--one-era" in arguments
    if "--http" in arguments:
        port = int(arguments[arguments.index("--http") + 1])
        uvicorn.run(server().streamable_http_app(), port=port, log_level="error")
    else:
        asyncio.run(over_stdio(handshake="--handshake" in arguments))


if __name__ == "__main__":
    main()
