"""Everything that MCP clients are shown, over all sources: names, texts, and where each leads (D-68)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moot.adapter.outbound.mirrored_offers import ResourceContract
from moot.adapter.outbound.outbound_source import OutboundSource
from moot.mcp.eras import JsonObject
from moot.xprotocol.contracts import Contract
from moot.xprotocol.mcp_mirror import MirroredTool, noted, tool_names
from moot.xprotocol.prompts import is_prompt

# Before a resource whose URI another source has, too.
OWN_SCHEME: Final = "xprotocol://"


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool or prompt under the name that clients see."""

    source: OutboundSource
    contract: Contract
    item: JsonObject


@dataclass(frozen=True, slots=True)
class ListedResource:
    """Where a resource is."""

    source: OutboundSource
    resources: ResourceContract
    uri: str


@dataclass(frozen=True, slots=True)
class ToolListing:
    """Everything that is shown, at one moment; never changed, only replaced."""

    tools: Mapping[str, ListedTool] = field(default_factory=dict)
    prompts: Mapping[str, ListedTool] = field(default_factory=dict)
    # By the URI that is shown.
    resources: Mapping[str, tuple[ListedResource, JsonObject]] = field(default_factory=dict)
    templates: tuple[JsonObject, ...] = ()

    def place(self, uri: str, sources: Sequence[OutboundSource]) -> ListedResource | None:
        """Where a URI leads: listed, filled into somebody's template, or with its source before it."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed[0]
        name, theirs = "", uri
        if uri.startswith(OWN_SCHEME):
            name, _, theirs = uri.removeprefix(OWN_SCHEME).partition("/")
        for source in sources:
            if name in ("", source.name):
                for each in source.offered.resources:
                    if each.subscribable.allows(theirs):
                        return ListedResource(source, each, theirs)
        return None


def lists_of(sources: Sequence[OutboundSource]) -> ToolListing:
    """What all sources show together. A name that two want goes to neither (D-68)."""
    tools: dict[str, ListedTool] = {}
    prompts: dict[str, ListedTool] = {}
    resources: dict[str, tuple[ListedResource, JsonObject]] = {}
    templates: dict[str, JsonObject] = {}
    wanted = [source.offered.wanted_names(source.settings.mcp_tool_prefix) for source in sources]
    for index, source in enumerate(sources):
        others = set().union(*(names for place, names in enumerate(wanted) if place != index))
        contracts = {each.kind: each for each in (*source.offered.tools, *source.offered.prompts)}
        names = tool_names(
            contracts, prefix=source.settings.mcp_tool_prefix, taken=others | tools.keys() | prompts.keys()
        )
        for kind, contract in contracts.items():
            mirrored = MirroredTool(names[kind], contract, source.settings.address)
            if is_prompt(contract):
                prompts[names[kind]] = ListedTool(source, contract, mirrored.as_prompt_json())
            else:
                tools[names[kind]] = ListedTool(source, contract, mirrored.as_json())
        for each in source.offered.resources:
            _add_resources(source, each, resources, templates)
    return ToolListing(tools, prompts, resources, tuple(templates.values()))


def _add_resources(
    source: OutboundSource,
    each: ResourceContract,
    resources: dict[str, tuple[ListedResource, JsonObject]],
    templates: dict[str, JsonObject],
) -> None:
    for item in each.resources:
        uri = item["uri"]
        shown = uri if uri not in resources else f"{OWN_SCHEME}{source.name}/{uri}"
        resources[shown] = (
            ListedResource(source, each, uri),
            _noted(item, "uri", shown, source, each.contract),
        )
    for item in each.templates:
        template = item["uriTemplate"]
        shown = template if template not in templates else f"{OWN_SCHEME}{source.name}/{template}"
        templates[shown] = _noted(item, "uriTemplate", shown, source, each.contract)


def _noted(item: JsonObject, key: str, shown: str, source: OutboundSource, contract: Contract) -> JsonObject:
    """A listed resource with its address as shown, and the note of where it comes from (XP 4.2)."""
    described = Contract(
        kind=contract.kind, description=str(item.get("description") or ""), payload=contract.payload
    )
    return {**item, key: shown, "description": noted(described, source.settings.address)}
