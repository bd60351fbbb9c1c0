"""Named sets of capabilities (MEW 4.1, MCPx 4.1, MEW 9.3): built in, and a configuration's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.config.section_reader import at, check_keys, checked, one_of, optional, unknown_key
from moot.config.space.space_reader import read_rights
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Notation, read_capabilities

Profiles = Mapping[str, tuple[Capability, ...]]

_NOTATIONS: Final = ("mew", "mcpx", "m3p")

_CHAT: Final = {"kind": "chat"}
_PROPOSE: Final = {"kind": "mcp/proposal"}
_RESPOND: Final = {"kind": "mcp/response"}
_READ: Final = {"kind": "mcp/request", "payload": {"method": "resources/read"}}
_LIST: Final = {"kind": "mcp/request", "payload": {"method": "*/list"}}
_USE_TOOLS: Final = {"kind": "mcp/request", "payload": {"method": "tools/*"}}
# D-52: MEW has no field for what a response answers; this is how `mcp/response:tools/*` is said.
_RESPOND_TO_TOOLS: Final = {"kind": "mcp/response", "x-moot-request": {"method": "tools/*"}}

# The sets of MEW 4.1 and MCPx 4.1 as they stand there, and nothing else: `rights_of` adds what more a member
# needs.
BUILT_IN: Final[Profiles] = {
    name: read_capabilities(list(entries))
    for name, entries in {
        # Also the last stage of trust, and the administrators of MEW 9.3.
        "full": ({"kind": "mcp/*"}, _CHAT),
        "proposal-only": (_PROPOSE, _RESPOND, _CHAT),
        # The service agents of MEW 9.3.
        "response-only": (_RESPOND, _CHAT),
        # The monitors of MEW 9.3, who also read.
        "read-only": (_READ, _LIST, _RESPOND, _CHAT),
        "tool-only": (_USE_TOOLS, _RESPOND_TO_TOOLS, _CHAT),
        # MEW 7.3: where a new agent starts.
        "initial": (_PROPOSE, _CHAT),
        "basic": (_PROPOSE, _CHAT, _READ),
        "trusted": (_PROPOSE, _CHAT, _READ, _USE_TOOLS),
    }.items()
}


# MEW 4.1 gives those who only propose no right to see what there is to propose, and a client that cannot list
# tools shows none. So a participant with this profile may list, too.
_PROPOSAL_ONLY: Final = "proposal-only"
_LISTS: Final = ["prompts/list", "resources/list", "resources/templates/list", "tools/list"]
LIST_OFFERS: Final = read_capabilities([{"kind": "mcp/request", "payload": {"method": _LISTS}}])
# MEW 3.3.1: who proposed can withdraw it, and nobody else can; the profile of MEW 4.1 forgets to say so.
WITHDRAW_OWN: Final = read_capabilities([{"kind": "mcp/withdraw"}])


def read_profiles(value: Json, path: str = "profiles") -> Profiles:
    """All profiles: the built-in ones and those of a `profiles:` section."""
    profiles = dict(BUILT_IN)
    for name, entry in optional(value, path).items():
        place = at(path, name)
        if name in BUILT_IN:
            raise UsageError(f"{place}: is built in; give yours another name")
        if isinstance(entry, dict):
            check_keys(entry, ("capabilities", "notation"), place)
            rights = read_rights(
                entry.get("capabilities"), f"{place}.capabilities", read_notation(entry, place)
            )
        else:
            rights = read_rights(entry, place)
        profiles[name] = rights
    return profiles


def read_notation(section: Mapping[str, Json], path: str) -> Notation | None:
    """D-90: the notation of a section's capability strings, if it says so outright."""
    if "notation" not in section:
        return None
    notation: Notation = one_of(section["notation"], _NOTATIONS, f"{path}.notation")  # type: ignore[assignment]
    return notation


def rights_of(
    section: Mapping[str, Json], path: str, profiles: Profiles, *, strings: Notation = "mew"
) -> tuple[Capability, ...] | None:
    """What `profile:` and `capabilities:` of a section give together; None if it has neither.

    `strings` is the notation of the place: a profile belongs to no space, and says its own.
    """
    if "profile" not in section and "capabilities" not in section:
        return None
    rights: tuple[Capability, ...] = ()
    if "profile" in section:
        name = checked(section["profile"], str, "the name of a profile", f"{path}.profile")
        if name not in profiles:
            fault = unknown_key("", name, profiles)
            raise UsageError(f"{path}.profile: no such profile;{str(fault).partition(';')[2]}")
        rights = profiles[name]
        if name == _PROPOSAL_ONLY:
            rights += LIST_OFFERS + WITHDRAW_OWN
    if "capabilities" in section:
        rights += read_rights(
            section["capabilities"], f"{path}.capabilities", read_notation(section, path), strings=strings
        )
    return tuple(dict.fromkeys(rights))
