"""Checks that a tool, resource, template or prompt is described as MCP requires.

Clients accept a whole list or none of it: one invalid tool would hide all others. So invalid offers are
dropped when a list is learned, and counted. Fields that MCP does not know are kept.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from moot.mcp.eras import OFFER_KEYS, OfferKind

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


_SHAPES: Final[dict[OfferKind, type[msgspec.Struct]]] = {
    "tools": _Tool,
    "resources": _Resource,
    "resourceTemplates": _Template,
    "prompts": _Prompt,
}


def fault_of(kind: OfferKind, item: object) -> str | None:
    """What is wrong with the definition of an offer; None if nothing is."""
    if not isinstance(item, dict):
        return "not an object"
    try:
        msgspec.convert(item, _SHAPES[kind])
    except msgspec.ValidationError as fault:
        return str(fault)
    if not item[OFFER_KEYS[kind]]:
        return f"{OFFER_KEYS[kind]} is empty"
    return None
