"""The lists for MCP clients over all sources: names, descriptions, and the source of each (D-68)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from moot.mcp.eras import JsonObject
from moot.xprotocol.adapter.outbound.mirrored_offers import ResourceContract
from moot.xprotocol.adapter.outbound.outbound_source import OutboundSource
from moot.xprotocol.contracts.contracts import Contract
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.translation.mcp_mirror import MirroredTool, noted, tool_names
from moot.xprotocol.translation.prompts import is_prompt

# Prefix of a resource whose URI another source has, too.
OWN_SCHEME: Final = "xprotocol://"


@dataclass(frozen=True)
class ListedTool:
    """A tool or prompt under the name that clients see."""

    source: OutboundSource
    contract: Contract
    item: JsonObject

    @cached_property
    def arguments(self) -> Validator:
        """Checks arguments against the contract, before they leave; raises ContractRefused."""
        return Validator(self.contract.payload)


@dataclass(frozen=True, slots=True)
class ListedResource:
    """The source and contract of a resource."""

    source: OutboundSource
    resources: ResourceContract
    uri: str


@dataclass(frozen=True, slots=True)
class OfferListing:
    """The lists at one moment; never changed, only replaced."""

    tools: Mapping[str, ListedTool] = field(default_factory=dict)
    prompts: Mapping[str, ListedTool] = field(default_factory=dict)
    # By the URI in the list.
    resources: Mapping[str, tuple[ListedResource, JsonObject]] = field(default_factory=dict)
    templates: tuple[JsonObject, ...] = ()

    def locate(self, uri: str, sources: Sequence[OutboundSource]) -> ListedResource | None:
        """Find a URI: listed, matching a template, or prefixed with its source."""
        listed = self.resources.get(uri)
        if listed is not None:
            return listed[0]
        name, theirs = "", uri
        if uri.startswith(OWN_SCHEME):
            name, _, theirs = uri.removeprefix(OWN_SCHEME).partition("/")
        for source in sources:
            if name in ("", source.name):
                for each in source.offers.resources:
                    if each.subscribable.allows(theirs):
                        return ListedResource(source, each, theirs)
        return None


def list_offers(sources: Sequence[OutboundSource]) -> OfferListing:
    """The lists of all sources together. A name that two sources prefer goes to neither (D-68)."""
    tools: dict[str, ListedTool] = {}
    prompts: dict[str, ListedTool] = {}
    resources: dict[str, tuple[ListedResource, JsonObject]] = {}
    templates: dict[str, JsonObject] = {}
    preferred = [source.offers.preferred_names(source.settings.mcp_tool_prefix) for source in sources]
    for index, source in enumerate(sources):
        others = set().union(*(names for position, names in enumerate(preferred) if position != index))
        contracts = {each.kind: each for each in (*source.offers.tools, *source.offers.prompts)}
        names = tool_names(
            contracts, prefix=source.settings.mcp_tool_prefix, taken=others | tools.keys() | prompts.keys()
        )
        for kind, contract in contracts.items():
            mirrored = MirroredTool(names[kind], contract, source.settings.address)
            if is_prompt(contract):
                prompts[names[kind]] = ListedTool(source, contract, mirrored.as_prompt_json())
            else:
                tools[names[kind]] = ListedTool(source, contract, mirrored.as_json())
        for each in source.offers.resources:
            _add_resources(source, each, resources, templates)
    return OfferListing(tools, prompts, resources, tuple(templates.values()))


def _add_resources(
    source: OutboundSource,
    each: ResourceContract,
    resources: dict[str, tuple[ListedResource, JsonObject]],
    templates: dict[str, JsonObject],
) -> None:
    for item in each.resources:
        uri = item["uri"]
        listed_uri = uri if uri not in resources else f"{OWN_SCHEME}{source.name}/{uri}"
        resources[listed_uri] = (
            ListedResource(source, each, uri),
            _with_origin_note(item, "uri", listed_uri, source, each.contract),
        )
    for item in each.templates:
        template = item["uriTemplate"]
        listed_uri = template if template not in templates else f"{OWN_SCHEME}{source.name}/{template}"
        templates[listed_uri] = _with_origin_note(item, "uriTemplate", listed_uri, source, each.contract)


def _with_origin_note(
    item: JsonObject, key: str, listed_uri: str, source: OutboundSource, contract: Contract
) -> JsonObject:
    """A listed resource with its URI in the list, and the note about its origin (XP 4.2)."""
    described = Contract(
        kind=contract.kind, description=str(item.get("description") or ""), payload=contract.payload
    )
    return {**item, key: listed_uri, "description": noted(described, source.settings.address)}
