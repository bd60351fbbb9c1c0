"""A contract becomes an MCP tool (XP 4.2, D-68), for clients that know nothing of XProtocol.

Names are given for a whole list at once and depend on nothing but the kinds in it: when two kinds would share
a name, both get a suffix. A newcomer can make a name disappear, which fails loudly, but never take it over.
Contracts that wrap prompts are shown as prompts, not as tools (XP 4.5).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.translation.call_translation import answers_structured
from moot.xprotocol.translation.content_check import check_description, check_kind, check_schema
from moot.xprotocol.translation.prompts import mirrored_arguments

# Several MCP clients stop there, whatever the specification allows.
MAX_TOOL_NAME_CHARS: Final = 64
# D-68. More digits only when six of them clash too.
SUFFIX_DIGITS: Final = 6

_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class MirroredTool:
    """A contract as an MCP client sees it, and the way back from its name."""

    name: str
    contract: Contract
    endpoint: str

    def as_json(self) -> dict[str, Json]:
        """The entry of `tools/list`."""
        tool: dict[str, Json] = {
            "name": self.name,
            "description": noted(self.contract, self.endpoint),
            "inputSchema": _object_schema(self.contract.payload),
        }
        promised: Json = self.contract.response.payload if self.contract.response is not None else None
        if answers_structured(self.contract) and promised.get("type") == "object":
            tool["outputSchema"] = promised
        return tool

    def as_prompt_json(self) -> dict[str, Json]:
        """The entry of `prompts/list`, for a contract that wraps a prompt."""
        return {
            "name": self.name,
            "description": noted(self.contract, self.endpoint),
            "arguments": mirrored_arguments(self.contract),
        }


def tool_name(kind: str, *, prefix: str = "") -> str:
    """XP 4.2, D-68: the name that a kind wants, before others are looked at."""
    name = _UNUSABLE.sub("_", kind.replace(".", "_"))
    return name if name.startswith(prefix) else prefix + name


def tool_names(kinds: Iterable[str], *, prefix: str = "", taken: Collection[str] = ()) -> dict[str, str]:
    """The name of each kind, no two alike, none of them taken, at most 64 characters."""
    wanted = {kind: tool_name(kind, prefix=prefix) for kind in sorted(set(kinds))}
    wanting = Counter(wanted.values())
    used = {*taken, *wanted.values()}
    names: dict[str, str] = {}
    for kind, name in wanted.items():
        lossy = _UNUSABLE.search(kind.replace(".", "_")) is not None
        if wanting[name] > 1 or name in taken or lossy or len(name) > MAX_TOOL_NAME_CHARS:
            name = _suffixed(name, kind, used)
            used.add(name)
        names[kind] = name
    return names


def noted(contract: Contract, endpoint: str) -> str:
    """XP 4.2: the description, and where it comes from."""
    note = f"[XProtocol: {contract.kind} via {endpoint}]"
    return f"{contract.description}\n\n{note}" if contract.description else note


def check_mirrored(contract: Contract) -> None:
    """Raises ContractRefused for a stranger's contract that must not, or cannot, be shown as a tool (8.5)."""
    check_kind(contract.kind)
    check_description(contract.description)
    if contract.subscription is not None:
        raise ContractRefused("not_a_tool", "a subscription sends more than one answer")
    if isinstance(contract.payload, dict):
        types = contract.payload.get("type", "object")
        if "object" not in (types if isinstance(types, list) else [types]):
            raise ContractRefused("not_a_tool", "MCP sends arguments as an object, and this payload is none")
    check_schema(contract.payload, "payload")
    if contract.response is not None and contract.response.payload is not None:
        check_schema(contract.response.payload, "response.payload")


def _object_schema(payload: Json) -> Json:
    # MCP clients refuse a whole list of tools over one inputSchema that is not plainly an object.
    if not isinstance(payload, dict):
        return {"type": "object"} if payload else {"type": "object", "not": {}}
    return payload if payload.get("type") == "object" else {**payload, "type": "object"}


def _suffixed(name: str, kind: str, used: Collection[str]) -> str:
    digits = hashlib.sha256(kind.encode()).hexdigest()
    for length in range(SUFFIX_DIGITS, MAX_TOOL_NAME_CHARS // 2):
        candidate = f"{name[: MAX_TOOL_NAME_CHARS - length - 1]}_{digits[:length]}"
        if candidate not in used:
            return candidate
    raise UsageError(f"no free tool name for {kind!r}: choose another mcp_tool_prefix")
