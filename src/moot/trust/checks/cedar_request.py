"""A proposal as a request to Cedar, with the facts that exported policies ask about.

    principal, action, resource     Member::"agent", Action::"tools/call", Tool::"write_file"
    context.to                      the hosts
    context.texts, numbers, flags   arguments that are texts, whole numbers (64 bits), true or false, by path
    context.json                    every argument of the first level as JSON text
    context.argument_names          all paths: an approving rule names every argument
    context.plain                   parts whose text is plain: proposer, method, tool, to, paths of arguments
    context.now                     a datetime
    context.present                 members who are present
    context.within_limits           rules whose count, spot check and the like let them decide now
    context.rejected_before         whether people rejected this very call

A path is a JSON pointer without its first slash: `size`, `options/depth`. Cedar cannot say any of this by
itself: it has no order of keys, no floats, no counts and no regular expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, Path
from moot.trust.rules.conditions import canonical, is_plain

_LONG = range(-(1 << 63), 1 << 63)


def cedar_request(
    case: Case,
    now: float,
    *,
    present: Collection[str] = (),
    within_limits: Collection[str] = (),
    rejected_before: bool = False,
) -> dict[str, Any]:
    """The request in the form that Cedar's tools read."""
    values = dict(_values(case.arguments, ()))
    parts = {"proposer": case.proposer, "method": case.method}
    if case.tool is not None:
        parts["tool"] = case.tool
    texts = {pointer(path): value for path, value in values.items() if isinstance(value, str)}
    plain = [name for name, text in parts.items() if is_plain(text)]
    plain += ["to"] if all(is_plain(host) for host in case.to) else []
    plain += [f"arguments/{name}" for name, text in texts.items() if is_plain(text)]
    context: dict[str, Any] = {
        **parts,
        "to": sorted(set(case.to)),
        "texts": texts,
        "numbers": {pointer(path): value for path, value in values.items() if _is_long(value)},
        "flags": {pointer(path): value for path, value in values.items() if isinstance(value, bool)},
        "json": {
            pointer((name,)): canonical(value).decode(errors="backslashreplace")
            for name, value in case.arguments.items()
        },
        "argument_names": sorted(map(pointer, values)),
        "unexpected_fields": sorted(case.unexpected_fields),
        "plain": plain,
        "now": {"__extn": {"fn": "datetime", "arg": rfc3339(now)}},
        "present": sorted(present),
        "within_limits": sorted(within_limits),
        "rejected_before": rejected_before,
    }
    return {
        "principal": {"type": "Member", "id": case.proposer},
        "action": {"type": "Action", "id": case.method},
        "resource": {"type": "Tool", "id": case.tool or ""},
        "context": context,
    }


def pointer(path: Path) -> str:
    """The path as a JSON pointer without its first slash."""
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)


def _values(value: Mapping[str, Json], path: Path) -> Iterator[tuple[Path, Json]]:
    for key, inner in value.items():
        yield (*path, key), inner
        if isinstance(inner, dict):
            yield from _values(inner, (*path, key))


def _is_long(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONG
