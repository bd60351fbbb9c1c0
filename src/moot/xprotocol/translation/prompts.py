"""MCP prompts as contracts, and back (XP 4.5, D-78)."""

from __future__ import annotations

from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import reading_capability
from moot.xprotocol.contracts.contracts import Contract, ContractRefused, ContractSource
from moot.xprotocol.contracts.source_overrides import NO_OVERRIDE, SourceSettings
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.content_check import check_description, check_kind, check_name, check_schema
from moot.xprotocol.translation.quality import quality_of
from moot.xprotocol.translation.tool_semantics import read_name
from moot.xprotocol.translation.translation import SOURCE_TYPE, Draft, GrammarCompiler, compiled_grammar

# XP 4.5: the prompt's text; beside it the messages as MCP has them.
PROMPT_RESPONSE: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "encoding": {"type": "string"},
        "mimeType": {"type": "string"},
        "description": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 0},
    },
    "required": ["content", "messages"],
}
_ADDED: Final = ("content", "encoding", "mimeType")


def prompt_kind(namespace: str, name: str) -> str:
    """XP 4.5."""
    return f"{namespace}.prompt.{name}"


def draft_prompt(
    value: Json, settings: SourceSettings, *, compile: GrammarCompiler = compile_grammar
) -> Draft:
    """One entry of `prompts/list` as a draft; raises ContractRefused."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ContractRefused("malformed", "a prompt has to be an object with a name")
    name = value["name"]
    check_name(name, "prompt")
    kind = prompt_kind(settings.namespace, name)
    check_kind(f"{kind}.result")
    description = value.get("description") or ""
    if not isinstance(description, str):
        raise ContractRefused("malformed", "the description of a prompt has to be text")
    check_description(description)
    payload = _payload(value.get("arguments") or [])
    check_schema(payload, "the prompt's arguments")
    parts = read_name(name)
    return Draft(
        kind=kind,
        description=description,
        parts=parts,
        quality=quality_of(description, parts.data_subjects),
        override=NO_OVERRIDE,
        source=ContractSource(type=SOURCE_TYPE, mcp_server=settings.name, mcp_prompt=name),
        payload=payload,
        response=PROMPT_RESPONSE,
        required_capability=reading_capability(settings, name),
        examples=None,
        grammar=compiled_grammar(payload, compile),
    )


def prompt_payload(result: Json) -> dict[str, Json]:
    """The payload of the `.result` event: a GetPromptResult as it came, and its text."""
    messages = result.get("messages") if isinstance(result, dict) else None
    if not isinstance(messages, list):
        raise ContractRefused("malformed", "the server answered something that is no prompt")
    texts = [
        message["content"]["text"]
        for message in messages
        if isinstance(message, dict)
        and isinstance(message.get("content"), dict)
        and isinstance(message["content"].get("text"), str)
    ]
    kept = {name: member for name, member in result.items() if name not in _ADDED}
    return {"content": "\n".join(texts), "encoding": "utf-8", "mimeType": "text/plain", **kept}


def payload_prompt(payload: Json) -> dict[str, Json]:
    """The GetPromptResult for the payload of a `.result` event."""
    if not isinstance(payload, dict):
        raise ContractRefused("malformed", "the endpoint answered something that is no prompt")
    if isinstance(payload.get("messages"), list):
        return {name: member for name, member in payload.items() if name not in _ADDED}
    text = payload.get("content")
    if not isinstance(text, str):
        raise ContractRefused("malformed", "the endpoint answered a prompt without text")
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def is_prompt(contract: Contract) -> bool:
    """Whether an endpoint offers this as a prompt, to be shown under `prompts/list`."""
    return contract.source is not None and contract.source.mcp_prompt is not None


def mirrored_arguments(contract: Contract) -> list[dict[str, Json]]:
    """The `arguments` of the MCP prompt that stands for a contract."""
    schema = contract.payload if isinstance(contract.payload, dict) else {}
    properties, required = schema.get("properties"), schema.get("required")
    shown: list[dict[str, Json]] = []
    for name, about in properties.items() if isinstance(properties, dict) else ():
        argument: dict[str, Json] = {"name": name}
        for word in ("title", "description"):
            if isinstance(about, dict) and isinstance(about.get(word), str):
                argument[word] = about[word]
        argument["required"] = isinstance(required, list) and name in required
        shown.append(argument)
    return shown


def _payload(arguments: Json) -> dict[str, Json]:
    if not isinstance(arguments, list):
        raise ContractRefused("malformed", "the arguments of a prompt have to be a list")
    properties: dict[str, Json] = {}
    required: list[str] = []
    for argument in arguments:
        name = argument.get("name") if isinstance(argument, dict) else None
        if not isinstance(name, str) or not name or name in properties:
            raise ContractRefused("malformed", "each argument of a prompt needs a name of its own")
        # MCP: the arguments of a prompt are texts.
        properties[name] = {"type": "string"} | {
            word: argument[word] for word in ("title", "description") if isinstance(argument.get(word), str)
        }
        if argument.get("required") is True:
            required.append(name)
    payload: dict[str, Json] = {"type": "object", "properties": properties}
    return payload | {"required": required} if required else payload
