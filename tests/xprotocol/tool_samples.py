"""MCP tools to translate: the document's example, a sample of our own, and real ones where there are some."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import FIRST_VERSION, Contract
from moot.xprotocol.contracts.source_overrides import SourceSettings
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.tool_semantics import Siblings
from moot.xprotocol.translation.translation import GrammarCompiler, draft_tool, finish

ROOT: Final = Path(__file__).resolve().parents[2]
REAL_TOOLS: Final = (
    Path(os.environ.get("MOOT_SHARED_DATA", ROOT.parent / "shared" / "data")) / "mcp_tools.jsonl"
)

NAMESPACE: Final = "com.acme.filesystem"
ADAPTER_VERSION: Final = "0.1.0"

# XP 4.1.
READ_FILE: Final[Json] = {
    "name": "read_file",
    "description": "Read the contents of a file at the specified path",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Relative path to the file"},
            "encoding": {
                "type": "string",
                "enum": ["utf-8", "base64"],
                "description": "Output encoding",
                "default": "utf-8",
            },
        },
        "required": ["path"],
    },
}


def tool(name: str, description: str | None = None, schema: Json = None, **more: Json) -> Json:
    """A tool that is fit to be published unless told otherwise."""
    words = " ".join(name.replace("-", "_").split("_"))
    if description is None:
        description = f"{words.capitalize()} in the store. Use this when the user asks for exactly that."
    return {"name": name, "description": description, "inputSchema": schema or {"type": "object"}, **more}


# Shapes that differ in what translation does with them, names from every script and style.
SAMPLE: Final[list[Json]] = [
    READ_FILE,
    tool("write_file", schema={"type": "object", "properties": {"path": {}, "bytes": {"type": "array"}}}),
    tool("delete_file"),
    tool("list_directory"),
    tool("get_opportunities_by_stage"),
    tool("updateUser", schema={"type": "object", "properties": {"größe": {"type": ["integer", "null"]}}}),
    tool("wetter-abfragen", "Fragt das Wetter ab, sehr genau und an jedem Ort der Welt, den es gibt."),
    tool("查询 天气", "查询一个城市的天气。" * 8),
    tool("math.sum", schema={"type": "object", "additionalProperties": {"type": "number"}}),
    tool(
        "plan_trip",
        schema={
            "type": "object",
            "$defs": {
                "stop": {"type": "object", "properties": {"nights": {"type": "integer", "minimum": 0}}}
            },
            "properties": {
                "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}, "maxItems": 9},
                "when": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "budget": {"oneOf": [{"type": "number", "maximum": 9223372036854775807}, {"const": "any"}]},
                "party": {"allOf": [{"type": "object"}, {"required": ["size"]}]},
            },
            "required": ["stops"],
        },
        outputSchema={"type": "object", "properties": {"days": {"type": "array"}}, "required": ["days"]},
    ),
]


def settings(name: str = "filesystem", namespace: str = NAMESPACE, **more: Json) -> SourceSettings:
    return SourceSettings(name=name, xprotocol_namespace=namespace, **more)


def translate_tool(
    value: Json,
    source: SourceSettings | None = None,
    *,
    siblings: Siblings | None = None,
    version: str = FIRST_VERSION,
    compile: GrammarCompiler = compile_grammar,
) -> Contract:
    """One tool alone as a contract."""
    source = source or settings()
    draft = draft_tool(value, source, compile=compile)
    return finish(draft, source, siblings=siblings, version=version, adapter_version=ADAPTER_VERSION)


def sources() -> tuple[str, list[tuple[SourceSettings, list[Json]]]]:
    """Which tools these are, in words, and the tools by source."""
    if not REAL_TOOLS.exists():
        return f"our own sample of {len(SAMPLE)} tools", [(settings(), SAMPLE)]
    by_server: dict[str, list[Json]] = defaultdict(list)
    with REAL_TOOLS.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            by_server[entry.pop("server")].append(entry)
    found = [
        (settings(server, f"com.example.s{place}"), tools)
        for place, (server, tools) in enumerate(sorted(by_server.items()))
    ]
    return f"{sum(len(tools) for _, tools in found)} real tools", [(settings(), SAMPLE), *found]
