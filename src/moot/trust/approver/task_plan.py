"""The plan behind "the same for the rest of this task": calls like one that a person has just approved.

The same tool of the same member with the same values. Only texts that people or models write (a message, a
body, what is stored in a file) may differ, where they steer nothing: as words of a language, or as any text
where the tool only stores it. Of tools that destroy something, only commands and texts that are stored, and
less often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.approver.call_memory import is_usual_work
from moot.trust.history.proposal_case import Case
from moot.trust.rules.plan import Plan, read_plan
from moot.values.kinds import ValuePattern, recognise, stores_texts

TASK_HOURS: Final = 4
TASK_CALLS: Final = 20
DESTROYING_HOURS: Final = 2
DESTROYING_CALLS: Final = 10


def plan_for_task(case: Case, steering: Mapping[str, bool], *, destroys: bool = False) -> Plan:
    """The plan of one line; `steering` says of each argument whether it steers. Raises UsageError."""
    if case.method != "tools/call" or case.tool is None or len(case.to) != 1 or case.unexpected_fields:
        raise UsageError("it is not a plain call of one tool of one member")
    if destroys and not is_usual_work(case):
        raise UsageError(f"{case.tool} can destroy something, so people decide each call of it")
    varying = {name: slot for name in case.arguments if (slot := _slot(case, name, steering))}
    line: dict[str, Json] = {
        "to": case.to[0],
        "tool": case.tool,
        "arguments": {name: value for name, value in case.arguments.items() if name not in varying},
        "count": DESTROYING_CALLS if destroys else TASK_CALLS,
    }
    if varying:
        line["text"] = varying
    payload: dict[str, Json] = {
        "task": f"{case.tool[:200]}, for the rest of the task",
        "hours": DESTROYING_HOURS if destroys else TASK_HOURS,
        "lines": [line],
    }
    return read_plan(payload, id=f"same-{case.id}", by=case.proposer)


def steering_in(finding: Mapping[str, Json] | None) -> dict[str, bool]:
    """Of each argument of a call whether it steers, as people see it; empty if that is not known."""
    found: dict[str, bool] = {}
    for each in (finding or {}).get("arguments", ()):
        name = each["path"].partition(".")[0].partition("[")[0]
        if not name.endswith(" (name)"):
            found[name] = found.get(name, False) or each["steers"]
    return found


def _slot(case: Case, name: str, steering: Mapping[str, bool]) -> str | None:
    """What a text may be instead; None if it stays as it is."""
    value = case.arguments[name]
    if (
        not isinstance(value, str)
        or steering.get(name, True)
        or recognise(name, [value], tool=case.tool) != "text"
    ):
        return None
    is_stored = stores_texts(name, case.tool) or (
        name.lower().endswith("text") and stores_texts("content", case.tool)
    )
    slots = ["<prose>", "<lines>", *(["<text>"] if is_stored else [])]
    return next((slot for slot in slots if ValuePattern("text", [slot]).admits(value)), None)
