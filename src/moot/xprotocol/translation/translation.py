"""An MCP tool becomes a contract (XP 4.1, Appendix B), the same one on every machine.

In two steps, since a contract names its siblings and its version, which no tool knows of itself: `draft_tool`
says everything that follows from the tool and the settings alone, or refuses; `finish` adds the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import required_capability
from moot.xprotocol.contracts.contracts import (
    ERROR_KIND,
    ERROR_SCHEMA_NAME,
    Contract,
    ContractAuth,
    ContractRefused,
    ContractResponse,
    ContractSource,
    Exactness,
)
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.contracts.source_overrides import SchemaOverride, SourceSettings
from moot.xprotocol.contracts.subschemas import rebuilt
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from moot.xprotocol.translation.content_check import (
    check_description,
    check_json,
    check_kind,
    check_name,
    check_schema,
)
from moot.xprotocol.translation.quality import Quality, quality_of
from moot.xprotocol.translation.tool_semantics import NameParts, Sibling, Siblings, annotate, read_name

SOURCE_TYPE: Final = "mcp_adapter"
# XP 4.1 names three members, D-67 the fourth.
CONTENT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "encoding": {"type": "string"},
        "mimeType": {"type": "string"},
        "isError": {"type": "boolean"},
    },
}
ERROR_RESPONSE: Final = ContractResponse(ERROR_KIND, {"$ref": ERROR_SCHEMA_NAME})


class CompiledGrammar(Protocol):
    """What a compiler of grammars answers (XP 4.4, D-66)."""

    @property
    def text(self) -> str: ...
    @property
    def exactness(self) -> Exactness: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


GrammarCompiler = Callable[[Json], CompiledGrammar]


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What we read of one entry of `tools/list`."""

    name: str
    description: str
    input_schema: dict[str, Json]
    output_schema: Json
    annotations: Json


@dataclass(frozen=True, slots=True)
class Draft:
    """A contract but for its siblings and its version."""

    kind: str
    description: str
    parts: NameParts
    quality: Quality
    override: SchemaOverride
    source: ContractSource
    payload: dict[str, Json]
    response: Json
    required_capability: str
    examples: tuple[Json, ...] | None
    grammar: CompiledGrammar

    @property
    def sibling(self) -> Sibling:
        return Sibling(self.kind, self.parts)


def read_tool(value: Json) -> ToolDefinition:
    """One entry of `tools/list`; raises ContractRefused for what is no tool that MCP knows."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ContractRefused("malformed", "a tool has to be an object with a name")
    check_name(value["name"], "tool")
    description = value.get("description")
    if description is not None and not isinstance(description, str):
        raise ContractRefused("malformed", "the description of a tool has to be text")
    schema = value.get("inputSchema")
    if not isinstance(schema, dict):
        raise ContractRefused("invalid_schema", "a tool has to have an inputSchema that is an object")
    # Arguments are always an object in MCP; a tool that asks for less could never be called.
    types = schema.get("type", "object")
    if "object" not in (types if isinstance(types, list) else [types]):
        raise ContractRefused("invalid_schema", "inputSchema has to describe an object, type: object")
    output = value.get("outputSchema")
    if output is not None and not isinstance(output, dict | bool):
        raise ContractRefused("invalid_schema", "outputSchema has to be a JSON Schema")
    return ToolDefinition(value["name"], description or "", schema, output, value.get("annotations"))


def kind_of(namespace: str, name: str) -> str:
    """XP 4.1: namespace and name joined by a dot, both as they are."""
    return f"{namespace}.{name}"


def with_min_items(schema: Json) -> Json:
    """Appendix B, D-67: a copy in which every array that did not say `minItems` says 0."""
    if not isinstance(schema, dict):
        return schema
    copy = rebuilt(schema, with_min_items)
    types = schema.get("type")
    if "array" in (types if isinstance(types, list) else [types]):
        copy.setdefault("minItems", 0)
    return copy


def draft_tool(value: Json, settings: SourceSettings, *, compile: GrammarCompiler = compile_grammar) -> Draft:
    """All of a contract that follows from one tool and its source.

    Raises ContractRefused when it may not be published as it stands (XP 8.5), and UsageError when the
    settings say something that cannot work.
    """
    tool = read_tool(value)
    override = settings.override(tool.name)
    kind = kind_of(settings.namespace, tool.name)
    check_kind(f"{kind}.result")
    description = tool.description if override.description is None else override.description
    check_description(description)
    check_schema(tool.input_schema, "inputSchema")
    if tool.output_schema is not None:
        check_schema(tool.output_schema, "outputSchema")
    check_json(override.semantic.as_json(), "schema_overrides.semantic")
    payload: dict[str, Json] = with_min_items(tool.input_schema)
    parts = read_name(tool.name)
    subjects = override.semantic.data_subjects
    return Draft(
        kind=kind,
        description=description,
        parts=parts,
        quality=quality_of(description, parts.data_subjects if subjects is None else subjects),
        override=override,
        source=ContractSource(type=SOURCE_TYPE, mcp_server=settings.name, mcp_tool=tool.name),
        payload=payload,
        response=CONTENT_SCHEMA if tool.output_schema is None else tool.output_schema,
        required_capability=required_capability(tool.name, tool.annotations, settings),
        examples=_fitting(override.semantic.example_inputs, payload),
        grammar=compiled_grammar(payload, compile),
    )


def finish(
    draft: Draft,
    settings: SourceSettings,
    *,
    siblings: Siblings | None,
    version: str,
    adapter_version: str,
) -> Contract:
    """The contract that a draft becomes among these siblings. The draft itself may be among them."""
    return Contract(
        kind=draft.kind,
        version=version,
        description=draft.description,
        semantic=annotate(
            kind=draft.kind,
            namespace=settings.namespace,
            description=draft.description,
            parts=draft.parts,
            siblings=siblings,
            override=draft.override.semantic,
            examples=draft.examples,
        ),
        source=ContractSource(
            type=draft.source.type,
            mcp_server=draft.source.mcp_server,
            mcp_tool=draft.source.mcp_tool,
            mcp_prompt=draft.source.mcp_prompt,
            adapter_version=adapter_version,
        ),
        payload=draft.payload,
        response=ContractResponse(f"{draft.kind}.result", draft.response),
        error_response=ERROR_RESPONSE,
        auth=ContractAuth(draft.required_capability),
        gbnf_grammar=draft.grammar.text,
        gbnf_exactness=draft.grammar.exactness,
        gbnf_notes=draft.grammar.notes,
    )


def _fitting(examples: tuple[Json, ...] | None, payload: Json) -> tuple[Json, ...] | None:
    """The examples that the tool would take: tools change, and a wrong example is worse than none."""
    if examples is None:
        return None
    validator = Validator(payload)
    return tuple(example for example in examples if validator.accepts(example))


def compiled_grammar(payload: Json, compile: GrammarCompiler) -> CompiledGrammar:
    """The grammar of a payload; raises ContractRefused when none can be made."""
    try:
        return compile(payload)
    except GrammarRefused as refusal:
        raise ContractRefused("grammar", f"no grammar can be made: {refusal}") from None
