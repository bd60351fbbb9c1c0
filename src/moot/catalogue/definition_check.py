"""Whether a tool, resource, template or prompt is described as MCP says.

Clients take a whole list or none of it: one badly described tool would hide all others. What is wrong is
therefore left out when it is learned, and counted. Fields that MCP does not know are nobody's business and
stay.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

What = Literal["tools", "resources", "resourceTemplates", "prompts"]
WHATS: Final[tuple[What, ...]] = ("tools", "resources", "resourceTemplates", "prompts")

Text = str | None
Object = dict[str, Any] | None


class _Icon(msgspec.Struct):
    src: str
    mimeType: Text = None
    sizes: list[str] | None = None
    theme: Text = None


class _Described(msgspec.Struct, kw_only=True):
    title: Text = None
    description: Text = None
    icons: list[_Icon] | None = None
    meta: Object = msgspec.field(name="_meta", default=None)


class _Hints(msgspec.Struct):
    title: Text = None
    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class _Audience(msgspec.Struct):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    lastModified: Text = None


class _Tool(_Described, kw_only=True):
    name: str
    inputSchema: dict[str, Any]
    outputSchema: Object = None
    annotations: _Hints | None = None
    execution: Object = None


class _Resource(_Described, kw_only=True):
    uri: str
    name: str
    mimeType: Text = None
    size: int | float | None = None
    annotations: _Audience | None = None


class _Template(_Described, kw_only=True):
    uriTemplate: str
    name: str
    mimeType: Text = None
    annotations: _Audience | None = None


class _Argument(msgspec.Struct):
    name: str
    title: Text = None
    description: Text = None
    required: bool | None = None


class _Prompt(_Described, kw_only=True):
    name: str
    arguments: list[_Argument] | None = None


_SHAPES: Final[dict[What, type[msgspec.Struct]]] = {
    "tools": _Tool,
    "resources": _Resource,
    "resourceTemplates": _Template,
    "prompts": _Prompt,
}
KEY: Final[dict[What, str]] = {
    "tools": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "prompts": "name",
}


def fault_of(what: What, item: object) -> str | None:
    """What is wrong with a description, None if nothing is."""
    if not isinstance(item, dict):
        return "not an object"
    try:
        msgspec.convert(item, _SHAPES[what])
    except msgspec.ValidationError as fault:
        return str(fault)
    if not item[KEY[what]]:
        return f"{KEY[what]} is empty"
    return None
