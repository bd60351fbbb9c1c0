"""Turns an endpoint's contracts into tools, prompts and resources for MCP clients: checked and pinned.

All of it was written by a stranger. A contract that could harm its readers is refused (XP 8.5), and one that
changed under the same version is withheld until the operator accepts it: people and models decided by what it
was (D-87). A new version is accepted: that is what versions are for (D-71).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from moot.mcp.eras import JsonObject
from moot.mcp.tool_pins import MAX_TOOLS, PinChange, Pins
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused, contract_json, digest
from moot.xprotocol.translation.content_check import check_description, check_json, check_kind
from moot.xprotocol.translation.mcp_mirror import check_mirrored, tool_name
from moot.xprotocol.translation.prompts import is_prompt
from moot.xprotocol.translation.resources import MAX_URI_CHARS, Subscribable

# Listed resources of one source; the list is one page to MCP clients.
MAX_RESOURCES: Final = 2_000
# Pins are read when an adapter starts and kept by it until it stops.
WITHHELD: Final = (
    "changed without a new version: withheld. If its operator confirms the change, stop the adapter, remove "
    "its entry from endpoint-pins.json in the store, and start again"
)
PINS_FULL: Final = f"{MAX_TOOLS} versions of this endpoint's contracts are pinned already: the limit is met"
# Larger parts are pinned by their hash. An endpoint that bumps versions all day fills the file with 10,000
# pins (`MAX_TOOLS`), and no further.
PINNED_BYTES: Final = 1_024
_VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,64}", re.ASCII)
# What people and models decide by. Not the list of resources, which changes often, and not the grammar.
_PINNED: Final = ("description", "payload", "response", "auth")


@dataclass(frozen=True, slots=True)
class ResourceContract:
    """One contract by which resources are read and followed (D-78)."""

    contract: Contract
    subscribe_kind: str
    updated_kind: str
    resources: tuple[JsonObject, ...]
    templates: tuple[JsonObject, ...]
    subscribable: Subscribable


@dataclass(frozen=True, slots=True)
class MirroredOffers:
    """A source's lists, in the order of their kinds."""

    tools: tuple[Contract, ...] = ()
    prompts: tuple[Contract, ...] = ()
    resources: tuple[ResourceContract, ...] = ()
    # Kind and reason of refused contracts.
    refused: tuple[tuple[str, str], ...] = ()
    # Contracts that changed under their version and wait for acceptance.
    withheld: tuple[PinChange, ...] = ()
    # Withheld since the last call.
    newly_withheld: tuple[PinChange, ...] = field(default=(), compare=False)

    def preferred_names(self, prefix: str) -> set[str]:
        """The names of its tools and prompts if no other source had them."""
        return {tool_name(contract.kind, prefix=prefix) for contract in (*self.tools, *self.prompts)}


def mirror_contracts(contracts: Sequence[Contract], pins: Pins) -> MirroredOffers:
    """Check and sort a catalog. Takes a millisecond or more for each contract: call it in a thread."""
    sound: dict[str, Contract] = {}
    resources: dict[str, ResourceContract] = {}
    refused: list[tuple[str, str]] = []
    for contract in contracts:
        try:
            if not _VERSION.fullmatch(contract.version):
                raise ContractRefused("malformed", "not a version such as 1.0.0")
            if contract.subscription is not None:
                resources[contract.kind] = _resource_contract(contract)
            else:
                check_mirrored(contract)
        except ContractRefused as refusal:
            refused.append((contract.kind, refusal.message))
        else:
            sound[_pin_name(contract)] = contract
    # Only sound contracts: a pin is kept for good.
    verdict = pins.check([_definition(name, contract) for name, contract in sound.items()])
    accepted = [sound[definition["name"]] for definition in verdict.shown]
    withheld = tuple(change for name, change in sorted(pins.changes.items()) if name in sound)
    refused += [(sound[change.tool].kind, WITHHELD) for change in withheld]
    known = {definition["name"] for definition in verdict.shown} | {change.tool for change in withheld}
    refused += [(sound[name].kind, PINS_FULL) for name in sound if name not in known]
    return MirroredOffers(
        tools=tuple(each for each in accepted if each.subscription is None and not is_prompt(each)),
        prompts=tuple(each for each in accepted if each.subscription is None and is_prompt(each)),
        resources=tuple(resources[each.kind] for each in accepted if each.subscription is not None),
        refused=tuple(refused),
        withheld=withheld,
        newly_withheld=verdict.changes,
    )


def _pin_name(contract: Contract) -> str:
    return f"{contract.kind} {contract.version}"


def _definition(name: str, contract: Contract) -> JsonObject:
    """What is pinned: short parts as they are, so that a change can be shown, and long ones by their hash."""
    whole = contract_json(contract)
    parts = {word: whole[word] for word in _PINNED if word in whole}
    return {"name": name} | {
        word: part if len(strict_json.encode(part)) <= PINNED_BYTES else f"sha256:{digest(part)}"
        for word, part in parts.items()
    }


def _resource_contract(contract: Contract) -> ResourceContract:
    subscription = contract.subscription
    if subscription is None:
        raise ContractRefused("malformed", "no subscription")
    check_kind(contract.kind)
    check_kind(subscription.updated_kind)
    check_description(contract.description)
    resources = _check_resources(subscription.resources, "uri")
    templates = _check_resources(subscription.templates, "uriTemplate")
    return ResourceContract(
        contract,
        contract.kind,
        subscription.updated_kind,
        tuple(resources),
        tuple(templates),
        Subscribable(resources, templates),
    )


def _check_resources(entries: Sequence[Json], key: str) -> list[JsonObject]:
    if len(entries) > MAX_RESOURCES:
        raise ContractRefused("too_large", f"{len(entries)} resources of at most {MAX_RESOURCES}")
    check_json(list(entries), "the list of resources")
    listed: dict[str, JsonObject] = {}
    for entry in entries:
        address = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(address, str) or not 0 < len(address) <= MAX_URI_CHARS or not address.isprintable():
            raise ContractRefused(
                "malformed", f"a resource needs a {key}, at most {MAX_URI_CHARS} characters"
            )
        # MCP wants a name.
        name = entry.get("name")
        listed.setdefault(address, entry if isinstance(name, str) and name else {**entry, "name": address})
    return list(listed.values())


def accepts_updates_flag(contract: Contract) -> bool:
    """Whether its schema allows `updates: false`; some allow nothing but a URI."""
    schema = contract.payload if isinstance(contract.payload, dict) else {}
    declared = schema.get("properties")
    return schema.get("additionalProperties") is not False or (
        isinstance(declared, dict) and "updates" in declared
    )
