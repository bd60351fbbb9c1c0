"""The tools that MCP's own conformance suite asks of a server. It compares names and texts."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import zlib
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

Context = Any
Result = dict[str, Any]
Tool = Callable[[Context, dict[str, Any], "Call"], Awaitable[Result]]


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = chunk(b"IHDR", (1).to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00")
    made = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    return base64.b64encode(made + chunk(b"IEND", b"")).decode()


def _wav() -> str:
    """One sample of silence."""
    form = (
        b"fmt "
        + (16).to_bytes(4, "little")
        + b"\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00"
    )
    body = b"WAVE" + form + b"data" + (2).to_bytes(4, "little") + b"\x00\x00"
    return base64.b64encode(b"RIFF" + len(body).to_bytes(4, "little") + body).decode()


IMAGE, AUDIO = _png(), _wav()
BUS = InMemorySubscriptionBus()
SECRET = b"only this process knows"
# Whether tools that send requests to their client know no other way: so are those of most servers.
ONE_ERA = False


class Call:
    """What a call brings besides its arguments."""

    def __init__(self, params: Any) -> None:
        raw = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.responses: dict[str, Any] = raw.get("inputResponses") or {}
        self.state: str | None = raw.get("requestState")

    def answer(self, key: str) -> dict[str, Any] | None:
        found = self.responses.get(key)
        return found if isinstance(found, dict) else None


def text(words: str, **more: Any) -> Result:
    return {"content": [{"type": "text", "text": words}], **more}


def needs(requests: dict[str, Any], state: str | None = None) -> Result:
    made: Result = {"resultType": "input_required", "inputRequests": requests}
    return made if state is None else made | {"requestState": state}


def question(message: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(words: str, most: int = 100) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": most}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}


def sealed(words: str) -> str:
    return f"{words}.{hmac.new(SECRET, words.encode(), sha256).hexdigest()}"


def opened(state: str | None) -> str:
    words = (state or "").rpartition(".")[0]
    if state is None or not hmac.compare_digest(state, sealed(words)):
        raise MCPError(types.INVALID_PARAMS, "the request state was changed on its way")
    return words


# Tools


async def simple_text(*_: Any) -> Result:
    return text("This is a simple text response for testing.")


async def image(*_: Any) -> Result:
    return {"content": [{"type": "image", "data": IMAGE, "mimeType": "image/png"}]}


async def audio(*_: Any) -> Result:
    return {"content": [{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]}


async def embedded(*_: Any) -> Result:
    resource = {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    return {"content": [{"type": "resource", "resource": resource}]}


async def mixed(*_: Any) -> Result:
    data = json.dumps({"test": "data", "value": 123})
    resource = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": data}
    return {
        "content": [
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": IMAGE, "mimeType": "image/png"},
            {"type": "resource", "resource": resource},
        ]
    }


async def logging(ctx: Context, *_: Any) -> Result:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)
    return text("logged")


async def progress(ctx: Context, *_: Any) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return text("progressed")


async def fails(*_: Any) -> Result:
    return text("This tool intentionally returns an error for testing", isError=True)


async def sampling(ctx: Context, arguments: dict[str, Any], call: Call) -> Result:
    prompt = str(arguments.get("prompt", ""))
    if not ONE_ERA and not ctx.session.can_send_request:
        given = call.answer("sampled")
        return (
            needs({"sampled": sample(prompt)})
            if given is None
            else text(f"LLM response: {given['content']['text']}")
        )
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    result = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return text(f"LLM response: {result.content.text}")


async def _elicited(ctx: Context, call: Call, message: str, schema: dict[str, Any], says: str) -> Result:
    if not ONE_ERA and not ctx.session.can_send_request:
        given = call.answer("elicited")
        if given is None:
            asks = {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}
            return needs({"elicited": asks})
        return text(f"{says}: action={given['action']}, content={json.dumps(given.get('content') or {})}")
    result = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return text(f"{says}: action={result.action}, content={json.dumps(result.content or {})}")


async def streaming_elicitation(_ctx: Context, arguments: dict[str, Any], call: Call) -> Result:
    """Called in the stateless era only."""
    message = str(arguments.get("message", ""))
    return needs({"elicited": question(message)}) if call.answer("elicited") is None else text("answered")


async def elicitation(ctx: Context, arguments: dict[str, Any], call: Call) -> Result:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return await _elicited(ctx, call, str(arguments.get("message", "")), schema, "User response")


async def defaults(ctx: Context, _: Any, call: Call) -> Result:
    properties: dict[str, Any] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return await _elicited(ctx, call, "Who is it?", schema, "Elicitation completed")


async def enums(ctx: Context, _: Any, call: Call) -> Result:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "First"), (2, "Second"))]
    properties: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    schema = {"type": "object", "properties": properties, "required": []}
    return await _elicited(ctx, call, "Which ones?", schema, "Elicitation completed")


async def ask_name(_ctx: Context, _arguments: Any, call: Call) -> Result:
    given = call.answer("user_name")
    if given is None or given.get("action") != "accept":
        return needs({"user_name": question("What is your name?", name="string")})
    return text(f"Hello, {given.get('content', {}).get('name')}!")


async def ask_capital(_ctx: Context, _arguments: Any, call: Call) -> Result:
    given = call.answer("capital_question")
    if given is None:
        return needs({"capital_question": sample("What is the capital of France?")})
    return text(given["content"]["text"])


async def ask_roots(_ctx: Context, _arguments: Any, call: Call) -> Result:
    given = call.answer("client_roots")
    if given is None:
        return needs({"client_roots": ROOTS})
    return text(" ".join(root["uri"] for root in given["roots"]))


async def ask_with_state(_ctx: Context, _arguments: Any, call: Call) -> Result:
    if call.answer("confirm") is None:
        return needs({"confirm": question("Please confirm", ok="boolean")}, sealed("confirming"))
    opened(call.state)
    return text("state-ok")


async def ask_much(_ctx: Context, _arguments: Any, call: Call) -> Result:
    asks = {
        "user_name": question("What is your name?", name="string"),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    if any(call.answer(key) is None for key in asks):
        return needs(asks, sealed("much"))
    opened(call.state)
    return text("all there")


async def ask_twice(_ctx: Context, _arguments: Any, call: Call) -> Result:
    if call.state is None:
        return needs({"step1": question("Step 1: What is your name?", name="string")}, sealed("one"))
    if opened(call.state) == "one":
        return needs(
            {"step2": question("Step 2: What is your favorite color?", color="string")}, sealed("two")
        )
    return text("both steps done")


async def ask_what_can_be_asked(ctx: Context, _arguments: Any, call: Call) -> Result:
    if call.responses:
        return text("asked")
    can = ctx.session.client_capabilities
    asks: dict[str, Any] = {}
    if can is not None and can.elicitation is not None:
        asks["name"] = question("What is your name?", name="string")
    if can is not None and can.sampling is not None:
        asks["words"] = sample("Say something")
    return needs(asks) if asks else text("nobody to ask")


async def wants_sampling(ctx: Context, *_: Any) -> Result:
    can = ctx.session.client_capabilities
    if can is None or can.sampling is None:
        data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data)
    return text("it can")


async def tool_change(*_: Any) -> Result:
    EXTRA.append(f"extra_{len(EXTRA)}")
    await BUS.publish(ToolsListChanged())
    return text("changed")


async def prompt_change(*_: Any) -> Result:
    EXTRA_PROMPTS.append(f"extra_{len(EXTRA_PROMPTS)}")
    await BUS.publish(PromptsListChanged())
    return text("changed")


async def routed(_ctx: Context, arguments: dict[str, Any], _call: Call) -> Result:
    return text(f"routed to {arguments.get('region')}")


TOOLS: dict[str, Tool] = {
    "test_simple_text": simple_text,
    "test_image_content": image,
    "test_audio_content": audio,
    "test_embedded_resource": embedded,
    "test_multiple_content_types": mixed,
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_tool_with_progress": progress,
    "test_error_handling": fails,
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_streaming_elicitation": streaming_elicitation,
    "test_elicitation_sep1034_defaults": defaults,
    "test_elicitation_sep1330_enums": enums,
    "test_input_required_result_elicitation": ask_name,
    "test_input_required_result_sampling": ask_capital,
    "test_input_required_result_list_roots": ask_roots,
    "test_input_required_result_request_state": ask_with_state,
    "test_input_required_result_tampered_state": ask_with_state,
    "test_input_required_result_multiple_inputs": ask_much,
    "test_input_required_result_multi_round": ask_twice,
    "test_input_required_result_capabilities": ask_what_can_be_asked,
    "test_missing_capability": wants_sampling,
    "test_trigger_tool_change": tool_change,
    "test_trigger_prompt_change": prompt_change,
    "test_x_mcp_header": routed,
    "json_schema_2020_12_tool": simple_text,
}
EXTRA: list[str] = []
EXTRA_PROMPTS: list[str] = []
ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
    },
    "test_x_mcp_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
