"""`moot_plan`: an agent lays out the calls of its task, and people approve them once (decision 0193)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from moot.errors import MootError, TimedOut
from moot.mcp.downstream.backend import text_result
from moot.mcp.eras import JsonObject
from moot.participant import JoinedSpace, LaidOutPlan

PLAN_TOOL: Final = "moot_plan"
# The approver answers at once unless it is busy learning.
READ_SECONDS: Final = 5.0
MAX_WAIT_SECONDS: Final = 50.0
_TEMPLATES: Final = {
    "type": "object",
    "description": "By argument, a template or a list of them: text with slots such as <name>, <file>, "
    "<4 digits>, <1..50>, <date>, <uuid>, <prose> (words of a language), <text> (any text).",
}

PLAN_DEFINITION: Final[JsonObject] = {
    "name": PLAN_TOOL,
    "title": "Lay out a plan",
    "description": "Lay out the calls of a task once, before you make them, so that people approve them "
    "together instead of one by one. Then call the tools as usual: calls within the approved plan run at "
    "once, everything else asks. Name exact arguments wherever you know them; people see every line as a "
    "sentence and may cut it. With `plan` instead of `lines` it shows what became of a plan, or withdraws "
    "it when the task is done.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What the plan is for, in one sentence."},
            "hours": {"type": "number", "description": "How long you need it (default 8)."},
            "lines": {
                "type": "array",
                "maxItems": 20,
                "items": {
                    "type": "object",
                    "properties": {
                        "tool": {"type": "string", "description": "The tool as it is listed here."},
                        "arguments": {
                            "type": "object",
                            "description": "Arguments with exactly these values.",
                        },
                        "range": {"type": "object", "description": "Numbers: {argument: [lowest, highest]}."},
                        **dict.fromkeys(("path", "url", "email", "id", "text", "shell"), _TEMPLATES),
                        "count": {
                            "type": "integer",
                            "minimum": 1,
                            "description": "At most so often (default 1).",
                        },
                        "sums": {
                            "type": "object",
                            "description": "The most that an argument may come to in all calls of this line: "
                            "{argument: number}.",
                        },
                    },
                    "required": ["tool"],
                },
            },
            "plan": {"type": "string", "description": "The id of a plan that you laid out."},
            "wait_seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_WAIT_SECONDS,
                "default": 0,
                "description": "Wait this long for a decision.",
            },
            "withdraw": {"type": "boolean", "default": False, "description": "Withdraw the plan."},
        },
    },
    "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
}
_STATES: Final = {
    "sent": "was sent, but no approver has read it: calls ask one by one",
    "open": "waits for people. Calls that you make meanwhile wait with it, and run when it is approved",
    "active": "is approved",
    "ended": "is over",
    "refused": "cannot be used",
}


class PlanTool:
    """The plans of one client; `locate` finds the member and the tool behind a listed name."""

    def __init__(self, space: JoinedSpace, locate: Callable[[str], tuple[str, str] | None]) -> None:
        self._space = space
        self._locate = locate
        self._plans: dict[str, LaidOutPlan] = {}

    @property
    def is_useful(self) -> bool:
        """Whether we may lay out plans, and somebody is here who makes rules of them."""
        return self._space.may("moot/plan") and any(
            member.may("trust/rule") and not member.may("space/kick")
            for member in self._space.roster.values()
        )

    async def call(self, arguments: JsonObject) -> JsonObject:
        wait = arguments.get("wait_seconds") or 0
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_WAIT_SECONDS:
            return _fault(f"`wait_seconds` is a number from 0 to {MAX_WAIT_SECONDS:g}")
        named, lines = arguments.get("plan"), arguments.get("lines")
        if named is None:
            task, hours = arguments.get("task"), arguments.get("hours")
            if not isinstance(task, str) or not isinstance(lines, list) or not lines:
                return _fault("`task` says what the plan is for, `lines` has its calls; or name a `plan`")
            placed = []
            for line in lines:
                found = self._locate(line["tool"]) if isinstance(line, dict) and _is_tool(line) else None
                if found is None:
                    return _fault(
                        f"no tool that you may use is called {_named(line)}; moot_find_tools finds it"
                    )
                placed.append({**line, "to": found[0], "tool": found[1]})
            plan = await self._space.plan(task, placed, hours=hours)
            self._plans[plan.id] = plan
            try:
                await plan.read(READ_SECONDS)
            except TimedOut:
                pass
            except MootError as fault:
                return _fault(str(fault))
        else:
            known = self._plans.get(named) if isinstance(named, str) else None
            if known is None:
                return _fault("there is no plan with this id that was laid out in this session")
            plan = known
            if arguments.get("withdraw") is True and plan.state in ("sent", "open", "active"):
                await plan.withdraw()
                wait = wait or READ_SECONDS
        with suppress(MootError):
            # What became of it is told below.
            await (plan.approved(wait) if arguments.get("withdraw") is not True else plan.ended(wait))
        return _told(plan)


def _told(plan: LaidOutPlan) -> JsonObject:
    facts: JsonObject = {"plan": plan.id, "state": plan.state, "lines": [*plan.words], "why": plan.why}
    until = f" until {plan.ends_at}" if plan.ends_at and plan.state == "active" else ""
    why = f": {plan.why}" if plan.why else ""
    text = f"Plan {plan.id} {_STATES[plan.state]}{until}{why}."
    text += "".join(f"\n{number}. {words}" for number, words in enumerate(plan.words, start=1))
    return text_result(text, structuredContent=facts)


def _fault(text: str) -> JsonObject:
    return text_result(f"{PLAN_TOOL}: {text}", is_error=True)


def _is_tool(line: JsonObject) -> bool:
    return isinstance(line.get("tool"), str)


def _named(line: object) -> str:
    return str(line.get("tool"))[:128] if isinstance(line, dict) else str(line)[:128]
