"""Plans from the shell and as slash commands: look at them, approve, cut, end, and lay one out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.errors import MootError, TimedOut, UsageError, VoteCounted
from moot.operations.operation import (
    MIN_PREFIX_CHARS,
    ClientContext,
    OperationResult,
    UserOperation,
    add_reason,
    list_result,
    no_arguments,
    short_id,
)
from moot.operations.text.text_table import TextTable
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.operations.approver_client import ApproverClient

_ABOUT: Final = """\
A plan is the calls of a task, laid out by an agent (`moot_plan`, `space.plan`) or by a person. Approved once,
its calls run without a question, as often and with as much as its lines say, until its time is over, the
agent leaves, or somebody ends it. Everything outside of it asks. People may approve less of a plan (cut), not
more.
"""
_EXAMPLES: Final = """\
  moot plans                                     what waits, what is approved and how much of it is used
  moot plan show 3f1c22ab                        every line of it
  moot plan approve 3f1c22ab                     all of it, as `show` shows it
  moot plan cut 3f1c22ab --drop 2 --count 1=3 --sum 1.amount=200 --hours 1
                                                 approve less: not line 2; line 1 three times, for 200 in all
  moot plan end 3f1c22ab                         nothing runs by it any more; or it is not approved
  moot plan same 77aa01bc                        what "the same for the rest of this task" allows
  moot plan same 77aa01bc --approve              approve the proposal, and calls like it
  moot plan new invoices.yaml --member agent     lay one out yourself; then approve it
"""


# Values that are longer may be cut where a line is told in words.
_CUT_CHARS: Final = 200


def plan_lines(plan: Any) -> list[str]:
    """A plan as people read it: its lines with what is used, and how it stands."""
    used = plan.get("used") or []
    is_open = plan["state"] == "open"
    lines = []
    for number, words in enumerate(plan["words"], start=1):
        lines.append(
            f"{number}. {words}{'' if is_open or number > len(used) else f' ({used[number - 1]} used)'}"
        )
        # Nobody approves the end of a command that they have not seen.
        for name, value in plan["lines"][number - 1].get("arguments", {}).items():
            whole = json.dumps(value, ensure_ascii=not str(value).isprintable())
            if is_open and len(whole) > _CUT_CHARS:
                lines.append(f"   {name}: {whole}")
    end = (
        f"until {plan['ends_at']}"
        if plan.get("ends_at")
        else f"for {hours_text(plan['hours'])} from its approval"
    )
    if plan.get("ends_with_message"):
        end += f", or until a person writes to {plan['member']} again"
    by = f"approved by {', '.join(plan['accepted_by'])}" if plan.get("accepted_by") else ""
    if is_open and by:
        by += f"; {plan['accepting_people']} people have to"
    state = {"open": by or "waits for people", "active": by, "ended": f"over: {plan['why']}"}[plan["state"]]
    return [*lines, f"{end}; {state}" if plan["state"] != "ended" else state]


def hours_text(hours: float) -> str:
    return f"{hours:g} hour{'' if hours == 1 else 's'}"


async def _plans(context: ClientContext, _: argparse.Namespace) -> OperationResult:
    found = await _known_plans(context)
    rows = [(short_id(each["plan"]), each["member"], each["state"], each["task"]) for each in found]
    table = TextTable(("PLAN", "MEMBER", "STATE", "TASK"), rows, [plan_lines(each) for each in found])
    return list_result(found, table, "no plans")


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument("id", metavar="ID", help="of a plan, of a proposal (same), or a file (new)")
    parser.add_argument(
        "--drop", action="append", type=int, default=[], metavar="LINE", help="leave a line out"
    )
    parser.add_argument("--count", action="append", default=[], metavar="LINE=COUNT", help="less often")
    parser.add_argument(
        "--sum", action="append", default=[], metavar="LINE.ARGUMENT=NUMBER", help="less in all"
    )
    parser.add_argument("--hours", type=float, metavar="HOURS", help="not as long")
    add_reason(parser, "")
    parser.add_argument("--member", metavar="NAME", help="for whom the new plan is")
    parser.add_argument("--approve", action="store_true", help="approve the proposal, and calls like it")


async def _plan(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    return await _ACTIONS[args.action](context, args)


async def _show(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    plan = await _find(context, args.id)
    head = f"{plan['plan']}: {plan['task']} (for {plan['member']}, laid out by {plan['by']})"
    return OperationResult(plan, [head, *plan_lines(plan)])


def _check_may_decide(context: ClientContext, kind: str) -> None:
    """Before anything is asked: who may not decide learns that, and not what else they may not."""
    if not context.space.may(kind, {"plan": ""}):
        raise UsageError(
            f"only people decide about plans: your permissions, as {context.space.me}, do not allow {kind}"
        )


async def _approve(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    _check_may_decide(context, "trust/accept")
    plan = await _find(context, args.id)
    changes = _changes(plan, args)
    if changes and args.action == "approve":
        raise UsageError("`moot plan cut` approves less of a plan")
    if not changes and args.action == "cut":
        raise UsageError(
            "say what to cut: --drop LINE, --count LINE=COUNT, --sum LINE.ARGUMENT=NUMBER, --hours"
        )
    payload = {"plan": plan["plan"], "fingerprint": plan["fingerprint"], **changes}
    return await _tell(context, "trust/accept", payload)


async def _end(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    _check_may_decide(context, "trust/dismiss")
    plan = await _find(context, args.id)
    payload = {"plan": plan["plan"], **({"reason": args.reason} if args.reason else {})}
    return await _tell(context, "trust/dismiss", payload)


async def _same(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    _check_may_decide(context, "trust/accept")
    seen = context.proposal(args.id)
    found = await _approver(context).ask("trust_plans", {"proposal": seen.id})
    same = found["same"]
    until = f"for {hours_text(same['hours'])}, or until somebody writes to {same['member']} again"
    words = f"{same['words'][0]}; {until}"
    if not args.approve:
        return OperationResult(
            same, [f"would be approved: {words}", "--approve approves the call, and these"]
        )
    try:
        outcome = await context.space.approve(seen, timeout_seconds=context.timeout_seconds)
    except VoteCounted as voted:
        raise UsageError(f"voted; {voted}. Several people decide such calls") from None
    payload = {"same": seen.id, "fingerprint": same["fingerprint"]}
    told = await _tell(context, "trust/accept", payload)
    done = [f"approved {short_id(seen.id)}; {outcome.host} answered:", *outcome.text.split("\n")]
    return OperationResult(told.value, [*done, *told.lines], 1 if outcome.is_error else 0)


async def _new(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    from moot.config.strict_yaml import read_yaml
    from moot.operations.approver_client import ANSWER_SECONDS

    try:
        value = read_yaml(Path(args.id).read_text("utf-8"))
    except OSError as fault:
        raise UsageError(f"{args.id} cannot be read: {fault.strerror}") from None
    if not isinstance(value, dict) or not isinstance(value.get("lines"), list):
        raise UsageError(f"{args.id}: needs a `task` and `lines` (docs/topics/plans.md)")
    hours = value.get("hours") if args.hours is None else args.hours
    member = args.member or value.get("member")
    plan = await context.space.plan(str(value.get("task", "")), value["lines"], hours=hours, member=member)
    try:
        await plan.read(ANSWER_SECONDS)
    except TimedOut:
        raise MootError(
            "no approver has read the plan, so nobody can approve it: `moot up` starts one"
        ) from None
    lines = [f"{number}. {words}" for number, words in enumerate(plan.words, start=1)]
    return OperationResult(
        {"id": plan.id}, [f"laid out {plan.id}", *lines, f"moot plan approve {short_id(plan.id)}"]
    )


_ACTIONS: Final = {
    "show": _show,
    "approve": _approve,
    "cut": _approve,
    "end": _end,
    "same": _same,
    "new": _new,
}


def _changes(plan: Any, args: argparse.Namespace) -> dict[str, Json]:
    """What of a plan is cut: the lines that stay, and for how long."""
    changes: dict[int, dict[str, Json]] = {n: {"line": n} for n in range(1, len(plan["lines"]) + 1)}
    for text in args.count:
        number, _, count = text.partition("=")
        _line(changes, number, text)["count"] = _number(count, text)
    for text in args.sum:
        place, _, most = text.partition("=")
        number, _, name = place.partition(".")
        line = _line(changes, number, text)
        before: Json = line.get("sums", plan["lines"][int(number) - 1].get("sums", {}))
        line["sums"] = {**before, **_nested(name.split("."), _number(most, text))}
    for number in args.drop:
        if changes.pop(number, None) is None:
            raise UsageError(f"--drop {number}: there is no such line")
    if not changes:
        raise UsageError("nothing would be left: `moot plan end` does not approve it")
    found: dict[str, Json] = {"lines": list(changes.values())} if args.count or args.sum or args.drop else {}
    return found if args.hours is None else {**found, "hours": args.hours}


def _line(changes: dict[int, dict[str, Json]], number: str, text: str) -> dict[str, Json]:
    found = changes.get(int(number)) if number.isdecimal() else None
    if found is None:
        raise UsageError(f"{text}: begins with the number of a line, such as 1")
    return found


def _number(text: str, where: str) -> float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise UsageError(f"{where}: {text!r} is no number") from None


def _nested(path: list[str], value: Json) -> dict[str, Json]:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


async def _known_plans(context: ClientContext) -> list[Any]:
    found = await _approver(context).ask("trust_plans")
    return list(found["plans"])


async def _find(context: ClientContext, named: str) -> Any:
    plans = await _known_plans(context)
    like = [each for each in plans if each["plan"] == named]
    if not like and len(named) >= MIN_PREFIX_CHARS:
        like = [each for each in plans if each["plan"].startswith(named)]
    if len(like) != 1:
        known = ", ".join(short_id(each["plan"]) for each in like or plans) or "none"
        raise UsageError(
            f"{'several plans begin with' if like else 'unknown plan'} {named}; there is: {known}"
        )
    return like[0]


def _approver(context: ClientContext) -> ApproverClient:
    from moot.operations.approver_client import ApproverClient
    from moot.operations.trust_log import TrustLog

    found = TrustLog().find_approver(context.space)
    if found is None:
        raise UsageError(
            "no approver is in this space, so no plan can be approved: `moot rules run` starts one"
        )
    return ApproverClient(context.space, found)


async def _tell(context: ClientContext, kind: str, payload: dict[str, Json]) -> OperationResult:
    sent, answer = await _approver(context).tell(kind, payload)
    plan: Json = None if answer is None else answer.payload.get("plan")
    if not isinstance(plan, dict):
        raise MootError("this approver does not know plans: its version is older")
    head = {"open": "noted", "active": "approved", "ended": "over"}[plan["state"]]
    return OperationResult({"id": sent.id, "plan": plan}, [f"{head}: {plan['task']}", *plan_lines(plan)])


OPERATIONS: Final = (
    UserOperation(
        name="plans",
        help="list plans: tasks whose calls people approve once",
        description=_ABOUT,
        examples=_EXAMPLES,
        arguments=no_arguments,
        run=_plans,
    ),
    UserOperation(
        name="plan",
        help="show, approve, cut or end a plan; `new` lays one out",
        description=_ABOUT,
        examples=_EXAMPLES,
        arguments=_plan_arguments,
        run=_plan,
        waits=True,
        needs_history=True,
    ),
)
