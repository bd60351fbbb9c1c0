"""MCP resources as something to subscribe to (XP 4.5, D-78).

One contract a source: `ns.resource.subscribe` takes a URI and answers with what is there now; every change
comes as `ns.resource.updated`. Which URIs there are stands beside the schema, not in it: lists of resources
change all day, and a changed enum would be a new major version each time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import re2

from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import reading_capability
from moot.xprotocol.contracts.contracts import ContractRefused, ContractSource, ContractSubscription
from moot.xprotocol.contracts.source_overrides import NO_OVERRIDE, SourceSettings
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.content_check import MAX_SCHEMA_BYTES, check_json
from moot.xprotocol.translation.quality import quality_of
from moot.xprotocol.translation.tool_semantics import read_name
from moot.xprotocol.translation.translation import SOURCE_TYPE, Draft, GrammarCompiler, compiled_grammar

MAX_URI_CHARS: Final = 2_048

PAYLOAD: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "uri": {
            "type": "string",
            "description": "A listed resource, or a template of the list filled in",
            "minLength": 1,
            "maxLength": MAX_URI_CHARS,
        }
    },
    "required": ["uri"],
}
# What there is now, and in every update: the contents as MCP has them.
CONTENTS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "uri": {"type": "string"},
        "contents": {"type": "array", "items": {"type": "object"}, "minItems": 0},
    },
    "required": ["uri", "contents"],
}
# Said about each, if the server says it.
_SHOWN: Final = ("uri", "uriTemplate", "name", "title", "description", "mimeType")

# RFC 6570: what each kind of expression can be filled in with.
_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)[A-Za-z0-9_.,:*%]+\}")
_FILLED: Final = {
    "": r"[^/?#]+",
    "+": r".+",
    "#": r"(?:#.+)?",
    ".": r"(?:\.[^/?#]+)?",
    "/": r"(?:/[^/?#]+)*",
    ";": r"(?:;[^/?#]*)?",
    "?": r"(?:\?[^#]*)?",
    "&": r"(?:&[^#]*)?",
}


class Subscribable:
    """Which URIs of a source can be subscribed to. Made once for a list, asked for every subscription."""

    __slots__ = ("_templates", "_uris")

    def __init__(self, resources: Sequence[Json], templates: Sequence[Json]) -> None:
        self._uris = frozenset(uri for entry in resources if (uri := _text(entry, "uri")))
        self._templates = [
            (template, re2.compile(template_pattern(template)))
            for entry in templates
            if (template := _text(entry, "uriTemplate")) and len(template) <= MAX_URI_CHARS
        ]

    def allows(self, uri: str) -> bool:
        """Whether the URI is listed or fills in a template."""
        if len(uri) > MAX_URI_CHARS:
            return False
        if uri in self._uris:
            return True
        climbs = ".." in re.split(r"[/\\]", uri.replace("%2e", ".").replace("%2E", "."))
        return any(
            # As with capabilities (D-11): what fills a gap never climbs.
            not (climbs and ".." not in template) and compiled.fullmatch(uri) is not None
            for template, compiled in self._templates
        )


def template_pattern(template: str) -> str:
    """The regular expression of the URIs that a template stands for."""
    pattern, at = "", 0
    for expression in _EXPRESSION.finditer(template):
        pattern += re2.escape(template[at : expression.start()]) + _FILLED[expression[1]]
        at = expression.end()
    return pattern + str(re2.escape(template[at:]))


def subscribe_kind(namespace: str) -> str:
    """D-78."""
    return f"{namespace}.resource.subscribe"


def updated_kind(namespace: str) -> str:
    """D-78."""
    return f"{namespace}.resource.updated"


def draft_subscription(settings: SourceSettings, *, compile: GrammarCompiler = compile_grammar) -> Draft:
    """The contract by which this source's resources are subscribed to, as a draft."""
    name = "subscribe_resource"
    description = (
        f"Subscribe to a resource of {settings.name}: get its contents now and again whenever they change. "
        "Use this when you need to follow a listed resource."
    )
    parts = read_name(name)
    return Draft(
        kind=subscribe_kind(settings.namespace),
        description=description,
        parts=parts,
        quality=quality_of(description, parts.data_subjects),
        override=NO_OVERRIDE,
        source=ContractSource(type=SOURCE_TYPE, mcp_server=settings.name),
        payload=PAYLOAD,
        response=CONTENTS,
        required_capability=reading_capability(settings, name),
        examples=None,
        grammar=compiled_grammar(PAYLOAD, compile),
    )


def subscription(
    settings: SourceSettings, resources: Sequence[Json], templates: Sequence[Json]
) -> tuple[ContractSubscription, list[str]]:
    """What is listed beside the schema, and warnings about what is left out of the list.

    At most 64 KiB are shown; `Subscribable` knows the rest as well.
    """
    warnings: list[str] = []
    room = MAX_SCHEMA_BYTES
    shown: dict[str, list[Json]] = {"uriTemplate": [], "uri": []}
    # Templates first: one of them stands for many resources.
    for key, entries in (("uriTemplate", templates), ("uri", resources)):
        for entry in entries:
            try:
                about = _shown(entry, key)
            except ContractRefused as refusal:
                warnings.append(f"a resource is not listed: {refusal}")
                continue
            size = len(strict_json.encode(about)) + 1
            if size > room:
                warnings.append(f"more than {MAX_SCHEMA_BYTES} bytes of resources: some are not listed")
                room = 0
                break
            room -= size
            shown[key].append(about)
    listed = ContractSubscription(
        updated_kind=updated_kind(settings.namespace),
        resources=tuple(shown["uri"]),
        templates=tuple(shown["uriTemplate"]),
    )
    return listed, warnings


def contents_payload(uri: str, result: Json) -> dict[str, Json]:
    """The payload of the answer and of each update: a ReadResourceResult as it came, and its URI."""
    if not isinstance(result, dict) or not isinstance(result.get("contents"), list):
        raise ContractRefused("malformed", "the server answered something that is no resource")
    return {**result, "uri": uri}


def payload_contents(payload: Json) -> dict[str, Json]:
    """The ReadResourceResult for such a payload."""
    if not isinstance(payload, dict) or not isinstance(payload.get("contents"), list):
        raise ContractRefused("malformed", "the endpoint answered something that is no resource")
    return {name: member for name, member in payload.items() if name != "uri"}


def _shown(entry: Json, key: str) -> dict[str, Json]:
    address = _text(entry, key)
    if not address or len(address) > MAX_URI_CHARS:
        raise ContractRefused("malformed", f"it needs a {key} of at most {MAX_URI_CHARS} characters")
    about = {word: entry[word] for word in _SHOWN if isinstance(entry.get(word), str)}
    check_json(about, "its listing")
    return about


def _text(entry: Json, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, str) else ""
