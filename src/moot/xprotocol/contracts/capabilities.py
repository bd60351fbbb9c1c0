"""Which capability a wrapped tool asks for (XP 4.3), and short names written out in full (D-60).

The table is literal, lower case with an underscore, so that every adapter infers the same right for the same
tool: `readFile` and `fetch_x` ask for `access`, not for `read`. A separate right cannot grant too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.contracts.source_overrides import SourceSettings

CapabilityClass = Literal["read", "access", "write", "delete", "execute", "admin"]

# XP 4.3, in its order: the first row that fits decides.
PREFIXES: Final[tuple[tuple[tuple[str, ...], CapabilityClass], ...]] = (
    (("read_", "get_", "list_", "search_", "find_"), "read"),
    (("write_", "create_", "insert_", "add_"), "write"),
    (("update_", "edit_", "modify_", "patch_"), "write"),
    (("delete_", "remove_", "destroy_"), "delete"),
    (("execute_", "run_", "invoke_", "call_"), "execute"),
    (("admin_", "manage_", "configure_"), "admin"),
)
# D-64, strict mode: which of two classes is the stricter. Running a command can do all that deleting can.
STRICTNESS: Final[tuple[CapabilityClass, ...]] = ("read", "access", "write", "delete", "execute", "admin")

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]+")


# Capabilities as names: which one covers which, and what two sets of them have in common.
#
# A capability is labels joined by dots, in full (D-60): `com.acme.filesystem.read`. A holder has exactly
# that, or everything under a prefix, written with a last label `*`. The star stands on a segment's boundary
# and for at least one label: `com.acme.*` covers `com.acme.crm.read`, but neither `com.acme` nor
# `com.acmecorp.read`. There is no bare `*`: who may do everything is said in other ways.

Scopes = frozenset[str]

MAX_CAPABILITY_CHARS: Final = 256
# Of one delegation or grant; a whole organisation's namespaces fit.
MAX_CAPABILITIES: Final = 256

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*(?:\.\*)?", re.ASCII)


def is_capability(name: Json) -> bool:
    """Whether this is the name of a capability, or of all under a prefix."""
    return isinstance(name, str) and len(name) <= MAX_CAPABILITY_CHARS and _NAME.fullmatch(name) is not None


def covers(held: str, wanted: str) -> bool:
    """Whether whoever holds the one has the other; either may end in `.*`."""
    # With its dot: `com.acme.*` is not a bare prefix.
    return held == wanted or (held.endswith(".*") and wanted.startswith(held[:-1]))


def any_covers(held: Iterable[str], wanted: str) -> bool:
    return any(covers(each, wanted) for each in held)


def uncovered(held: Scopes, wanted: Scopes) -> Scopes:
    """Those of `wanted` that nothing in `held` covers."""
    return frozenset(each for each in wanted if not any_covers(held, each))


def infer_class(tool_name: str) -> CapabilityClass:
    """XP 4.3: the last label of the capability, from the name alone."""
    for prefixes, inferred in PREFIXES:
        if tool_name.startswith(prefixes):
            return inferred
    return "access"


def hinted_class(annotations: Json) -> CapabilityClass | None:
    """What MCP's annotations say outright; their defaults say nothing, or every plain tool would destroy."""
    if not isinstance(annotations, dict):
        return None
    # Before readOnlyHint: a tool that claims both is the more dangerous of the two.
    if annotations.get("destructiveHint") is True:
        return "delete"
    read_only = annotations.get("readOnlyHint")
    if isinstance(read_only, bool):
        return "read" if read_only else "write"
    return None


def contradiction(tool_name: str, annotations: Json) -> str | None:
    """D-64: how name and annotations disagree, in words for `validate` and the announce; None: they agree."""
    inferred, hinted = infer_class(tool_name), hinted_class(annotations)
    if hinted is None or inferred == "access":
        return None
    if inferred == "read" and hinted != "read":
        hint = "destructiveHint" if hinted == "delete" else "readOnlyHint false"
        return f"the name says it reads, {hint} says it changes things"
    if inferred != "read" and hinted == "read":
        return f"readOnlyHint says it only reads, the name says {inferred}"
    return None


def required_capability(tool_name: str, annotations: Json, settings: SourceSettings) -> str:
    """The full name of the capability that a call needs.

    Raises ContractRefused in explicit mode when the list has none for this tool (D-61), and UsageError for an
    override or a list that cannot be expanded.
    """
    inferred = infer_class(tool_name)
    if settings.capability_inference == "strict":
        inferred = _stricter(inferred, hinted_class(annotations))
    return _granted(settings.override(tool_name).required_capability, inferred, settings, tool_name)


def check_capabilities(settings: SourceSettings) -> None:
    """Raises UsageError when a capability in the settings cannot be expanded, whatever tools will come."""
    expand_capabilities(settings.capabilities, (settings.namespace,))
    for tool, override in settings.schema_overrides.items():
        if override.required_capability is not None:
            expanded = expand_capability(override.required_capability, (settings.namespace,))
            if expanded.endswith("*"):
                raise UsageError(
                    f"schema_overrides.{tool}.required_capability: name one capability, not {expanded}"
                )


def reading_capability(settings: SourceSettings, name: str) -> str:
    """What prompts and resources ask for (XP 4.5): both only read."""
    return _granted(None, "read", settings, name)


def _granted(
    override: str | None, inferred: CapabilityClass, settings: SourceSettings, tool_name: str
) -> str:
    namespaces = (settings.namespace,)
    wanted = expand_capability(override, namespaces) if override is not None else None
    if settings.capability_inference != "explicit":
        return wanted or f"{settings.namespace}.{inferred}"
    listed = [expand_capability(name, namespaces) for name in settings.capabilities]
    if wanted is None:
        # D-61. Sorted: the same list in another order asks for the same right.
        wanted = min((name for name in listed if name.rpartition(".")[2] == inferred), default=None)
    if wanted is None or wanted not in listed:
        missing = wanted or f"one that ends in .{inferred}"
        raise ContractRefused(
            "capability_not_listed",
            f"explicit mode: {tool_name[:128]!r} needs {missing}, which is not among the capabilities of "
            f"{settings.name!r}: list it, or set required_capability in schema_overrides",
        )
    return wanted


def expand_capability(name: str, namespaces: Sequence[str]) -> str:
    """D-60: a capability in full, from a full or a short name; raises UsageError when that is not one thing.

    `filesystem.read` under `com.acme.filesystem`, or `read` where there is one namespace. A last label `*` is
    kept, for those who grant. Only ever done when something is loaded: enforcement compares full names.
    """
    labels = name.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels[:-1]) or not (
        labels[-1] == "*" or _LABEL.fullmatch(labels[-1])
    ):
        raise UsageError(
            f"capability {name[:120]!r}: write labels of letters, digits, - and _ joined by dots"
        )
    if any(name.startswith(namespace + ".") for namespace in namespaces):
        return name
    if len(labels) == 1:
        found = {f"{namespace}.{name}" for namespace in namespaces}
    else:
        rest = ".".join(labels[1:])
        found = {f"{n}.{rest}" for n in namespaces if n.rpartition(".")[2] == labels[0]}
    if len(found) != 1:
        meant = ", ".join(sorted(found)) if found else f"nothing under {', '.join(sorted(set(namespaces)))}"
        raise UsageError(f"capability {name!r} means {meant}: write it in full")
    return found.pop()


def expand_capabilities(names: Iterable[str], namespaces: Sequence[str]) -> tuple[str, ...]:
    """`expand_capability` for each, in the order given, each once."""
    return tuple(dict.fromkeys(expand_capability(name, namespaces) for name in names))


def _stricter(inferred: CapabilityClass, hinted: CapabilityClass | None) -> CapabilityClass:
    # A write that may destroy is still what the name says (D-64 asks for contradictions only); `access` says
    # nothing, so whatever the hints say beyond reading counts.
    if hinted is None or inferred not in ("read", "access"):
        return inferred
    return max(inferred, hinted, key=STRICTNESS.index)
