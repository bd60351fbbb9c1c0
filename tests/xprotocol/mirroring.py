"""The tools and prompts that an MCP client is shown of an endpoint's contracts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.translation.mcp_mirror import MirroredTool, check_mirrored, tool_names
from moot.xprotocol.translation.prompts import is_prompt


@dataclass(frozen=True, slots=True)
class Mirror:
    tools: tuple[MirroredTool, ...]
    prompts: tuple[MirroredTool, ...]
    refused: tuple[tuple[str, ContractRefused], ...]


def mirror(
    contracts: Iterable[Contract], *, endpoint: str, prefix: str = "", taken: Collection[str] = ()
) -> Mirror:
    shown: dict[str, Contract] = {}
    refused: list[tuple[str, ContractRefused]] = []
    for contract in sorted(contracts, key=lambda contract: contract.kind):
        try:
            check_mirrored(contract)
        except ContractRefused as refusal:
            refused.append((contract.kind, refusal))
        else:
            shown[contract.kind] = contract
    names = tool_names(shown, prefix=prefix, taken=taken)
    mirrored = [MirroredTool(names[kind], contract, endpoint) for kind, contract in shown.items()]
    return Mirror(
        tools=tuple(tool for tool in mirrored if not is_prompt(tool.contract)),
        prompts=tuple(tool for tool in mirrored if is_prompt(tool.contract)),
        refused=tuple(refused),
    )
