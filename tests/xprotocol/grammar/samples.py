"""Tool schemas of our own, after what real tools look like; and the real ones where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from moot.protocol.operation import Json

REAL_TOOLS: Final = (
    Path(os.environ.get("MOOT_SHARED_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
    / "mcp_tools.jsonl"
)


def _tool(required: list[str] | None = None, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


TEXT: Final = {"type": "string"}
SAMPLES: Final[dict[str, Json]] = {
    "nothing": {"type": "object", "properties": {}},
    "no properties": {"type": "object"},
    "closed and empty": {"type": "object", "properties": {}, "additionalProperties": False},
    "search": _tool(
        ["query"], query=TEXT, limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 10}
    ),
    "optional first": _tool(
        ["path"], encoding={"enum": ["utf-8", "base64"]}, path=TEXT, lines={"type": "number"}
    ),
    "pydantic optional": _tool(
        ["a"], a=TEXT, b={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    ),
    "zod": {
        **_tool(
            ["url"],
            url={"type": "string", "format": "uri"},
            tags={"type": "array", "items": TEXT, "minItems": 1},
        ),
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    "free map": _tool(
        ["env"],
        env={"type": "object", "additionalProperties": TEXT},
        extra={"type": "object", "additionalProperties": True},
    ),
    "any value": _tool(["value"], value={}, values={"type": "array", "items": {}}),
    "dates": _tool(
        ["from"],
        **{"from": {"type": "string", "format": "date"}, "at": {"type": "string", "format": "date-time"}},
    ),
    "phone": _tool(
        ["to"],
        to={"type": "string", "pattern": r"^\d{1,4}\d{6,15}$"},
        month={"type": "string", "pattern": r"^\d{4}-\d{2}$"},
    ),
    "address": _tool(
        ["ip"],
        ip={"type": "string", "pattern": r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"},
        hash={"type": "string", "pattern": "^0x[a-f0-9]{64}$"},
    ),
    "coordinates": _tool(
        ["lat", "lon"],
        lat={"type": "number", "minimum": -90, "maximum": 90},
        lon={"type": "number", "minimum": -180, "exclusiveMaximum": 180},
    ),
    "tuple": {
        **_tool(
            box={
                "type": "array",
                "items": [{"type": "number"}, {"type": "number"}],
                "minItems": 2,
                "maxItems": 2,
            }
        ),
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    "nested": _tool(
        ["filter"],
        filter=_tool(
            ["op"],
            op={"const": "and"},
            terms={
                "type": "array",
                "items": _tool(
                    ["field", "value"], field=TEXT, value={"type": ["string", "number", "boolean"]}
                ),
                "maxItems": 20,
            },
        ),
    ),
    "tagged union": _tool(
        ["shape"],
        shape={
            "oneOf": [
                _tool(["type", "r"], type={"const": "circle"}, r={"type": "number", "exclusiveMinimum": 0}),
                _tool(["type", "w", "h"], type={"const": "rect"}, w={"type": "number"}, h={"type": "number"}),
            ]
        },
    ),
    "either or": {
        **_tool(None, url=TEXT, host=TEXT, user=TEXT, password=TEXT),
        "oneOf": [{"required": ["url"]}, {"required": ["host", "user", "password"]}],
    },
    "references": {
        **_tool(
            ["item"], item={"$ref": "#/$defs/Item"}, more={"type": "array", "items": {"$ref": "#/$defs/Item"}}
        ),
        "$defs": {
            "Item": _tool(
                ["id"], id={"type": "integer", "minimum": 0}, label={"type": "string", "maxLength": 80}
            )
        },
    },
    "tree": {
        **_tool(["root"], root={"$ref": "#/$defs/Node"}),
        "$defs": {
            "Node": _tool(["name"], name=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
        },
    },
    "merged": {
        "allOf": [
            _tool(["id"], id={"type": "integer"}),
            _tool(None, name=TEXT),
            {"properties": {"id": {"minimum": 1}}},
        ]
    },
    "unique": _tool(None, ids={"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    "escapes": _tool(
        ['say "hi"'],
        **{
            'say "hi"': {"enum": ['a"b', "c\\d", "é", "line\nbreak"]},
            "größe": {"type": "integer"},
            "日本": TEXT,
        },
    ),
    "length": _tool(
        ["code"],
        code={"type": "string", "minLength": 3, "maxLength": 3},
        note={"type": "string", "maxLength": 4_000},
    ),
    "malformed": {
        "type": "object",
        "properties": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
    },
    "bounded counts": {**_tool(None, a=TEXT, b=TEXT, c=TEXT), "minProperties": 1, "maxProperties": 2},
}


def real_tools() -> list[tuple[str, Json]]:
    """Name and input schema of every real tool; none if the data is not there."""
    if not REAL_TOOLS.exists():
        return []
    tools = [json.loads(line) for line in REAL_TOOLS.read_text("utf-8").splitlines()]
    return [(f"{tool['server']}/{tool['name']}", tool["inputSchema"]) for tool in tools]
