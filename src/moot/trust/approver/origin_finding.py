"""What was found of one call, the payload of `moot/origins`, and when two of them are the same."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from datetime import datetime
from typing import Final

from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case

FAILED: Final = "where its values came from could not be found out"
# Of a call that needs no look at its values.
ONLY_READS: Final[dict[str, Json]] = {"asks": False, "why": "it only reads", "arguments": []}


def other_reason(case: Case, host: str, tool: str, changed: Container[str]) -> str | None:
    """Why a call asks whatever its values are; `changed`: `host/tool` of those that nobody has looked at."""
    if not host or not tool:
        return "it is not for one tool of one member"
    if case.unexpected_fields:
        return f"it has {case.unexpected_fields[0]}, which was not looked at"
    if f"{host}/{tool}" in changed:
        return f"{tool} of {host} has changed, and nobody has looked at it since"
    return None


def keep_asking(found: dict[str, Json], before: Mapping[str, Json], at: float) -> None:
    """A value that became a person's since it was proposed, and that nobody endorsed, still asks.

    So does one that a look-up returned since.
    """
    said = {
        (each.get("path"), each.get("value"))
        for each in before.get("arguments", ())
        if each.get("origin") in ("person", "trusted")
    }
    for each in found["arguments"]:
        is_late = each["origin"] == "person" or (each["origin"] == "trusted" and each.get("at", 0.0) >= at)
        if is_late and "endorsed_by" not in each and (each["path"], each["value"]) not in said:
            found |= {"asks": True, "why": before["why"]}
            return


def unnamed_value(
    found: Mapping[str, Json], arguments: Collection[str], named: Collection[str]
) -> str | None:
    """Why a call asks of which a line of a plan names some arguments, by what was found of all of them.

    Within its bounds a plan lets an agent choose, so what nobody said is fine, also of an agent that reads
    elsewhere. What others wrote here is not, neither is what could not be looked up, and private text goes
    only to whom the line names. Names of arguments ask nothing: the rule has all that a call may have.
    """
    if not found["arguments"] or "more" in found:
        return str(found["why"])
    asking = ("untrusted",) if found.get("outside") is True else ("untrusted", "unknown")
    free = [name for name in arguments if name not in named]
    for each in found["arguments"]:
        path = each["path"]
        is_free = any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in free)
        if is_free and each["steers"] and each["origin"] in asking:
            return f"{path}: {each['text']}"
        if is_free and each["steers"] and found.get("private"):
            return str(found["private"][0]["text"])
    return None


def timeless(found: Mapping[str, Json]) -> dict[str, Json]:
    """A finding without the times of its sources, which differ a little after a restart."""
    return {
        **found,
        "arguments": [{**each, "at": None} if "at" in each else each for each in found.get("arguments", ())],
    }


def sent_at(envelope: Envelope, now: float) -> float:
    """When an envelope was sent, by its own timestamp but not in the future."""
    try:
        return min(now, datetime.fromisoformat(envelope.ts).timestamp())
    except ValueError:
        return now
