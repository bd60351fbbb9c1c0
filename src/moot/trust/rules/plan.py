"""Plans: the calls of a task, laid out together, which people approve once (decision 0193).

    {"task": "Pay the invoices of March", "hours": 2,
     "lines": [{"to": "bank", "tool": "pay", "arguments": {"payee": "ACME"}, "range": {"amount": [1, 300]},
                "count": 3, "sums": {"amount": 500}},
               {"to": "mail", "tool": "send", "arguments": {"to": "ana@example.org"},
                "text": {"body": "<prose>"}}]}

Each line is about one tool of one member. `arguments` are exact values; what may vary is named by `range` and
by the templates of rules. An approved plan is a rule for each line, which names its plan: with a count, the
sums, an end, and `ask: when_untrusted`, which a value does not trip that the line names itself. People may
approve less of a plan, and nothing else (`cut_plan`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from moot.errors import InvalidPattern, UsageError
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.strict_json import texts_in
from moot.trust.history.proposal_case import path_text
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import mapping, rule_of_json
from moot.trust.rules.rule_words import count_text, join_names, range_text, sum_texts, template_text
from moot.values.kinds import KINDS

PLAN_KIND: Final = "moot/plan"
MAX_LINES: Final = 20
MAX_COUNT: Final = 1_000
MAX_HOURS: Final = 168.0
DEFAULT_HOURS: Final = 8.0
MAX_TASK_CHARS: Final = 300
# Of all lines, as JSON: people have to read them.
MAX_PLAN_BYTES: Final = 64 << 10
# Of a value that a line names, in words; the line itself is shown beside them.
MAX_VALUE_CHARS: Final = 200
_LINE_KEYS: Final = ("to", "tool", "arguments", "range", *KINDS, "count", "sums")
_PLAN_KEYS: Final = ("task", "member", "hours", "lines")
_STATE_KEYS: Final = ("at", "state", "accepted_by", "ends_at", "why", "ends_with_message")


@dataclass(frozen=True, slots=True)
class Plan:
    """What somebody laid out for `member`; `lines` as they were written, each valid."""

    id: str
    by: str
    member: str
    task: str
    hours: float
    lines: tuple[Mapping[str, Json], ...]

    @property
    def fingerprint(self) -> str:
        """Of all that people see of it; an approval names it."""
        seen = [self.id, self.member, self.task, self.hours, [dict(line) for line in self.lines]]
        return hashlib.sha256(canonical(seen)).hexdigest()

    def rule_name(self, number: int) -> str:
        """The name of the rule for a line; lines are numbered from 1."""
        return f"plan-{hashlib.sha256(self.id.encode(errors='replace')).hexdigest()[:10]}-{number}"

    def rules(self, *, by: Sequence[str], now: float) -> tuple[Rule, ...]:
        """The rules of a plan that people approved now."""
        return tuple(
            self._rule(number, line, by=by, now=now) for number, line in enumerate(self.lines, start=1)
        )

    def _rule(self, number: int, line: Mapping[str, Json], *, by: Sequence[str], now: float) -> Rule:
        # Whole seconds, as the rules file has them. `per` is more than it lasts, so that all uses count.
        ends_at = float(int(now + self.hours * 3600))
        rule = rule_of_json(
            {
                "name": self.rule_name(number),
                "decision": "approve",
                "proposer": self.member,
                "to": [line["to"]],
                "method": "tools/call",
                "tool": line["tool"],
                "equals": dict(line.get("arguments", {})),
                **{key: line[key] for key in ("range", *KINDS) if key in line},
                "ask": "when_untrusted",
                "limits": {
                    "count": line.get("count", 1),
                    "per": f"{int(self.hours * 3600) + 60}s",
                    "expires_at": rfc3339(ends_at),
                    "sums": line.get("sums", {}),
                },
                "origin": {
                    "plan": self.id,
                    "accepted_by": by[0],
                    "accepted": rfc3339(now),
                    "seconded_by": list(by[1:]),
                },
            },
            f"line {number}",
        )
        return replace(rule, words=f"Plan “{self.task}” of {self.member}: {line_text(rule)}")

    def line_texts(self) -> list[str]:
        """Each line in words."""
        return [line_text(rule) for rule in self.rules(by=[self.by], now=0.0)]

    def as_json(self) -> dict[str, Json]:
        return {
            "plan": self.id,
            "by": self.by,
            "member": self.member,
            "task": self.task,
            "hours": self.hours,
            "lines": [dict(line) for line in self.lines],
        }


PlanState = Literal["open", "active", "ended"]


@dataclass(slots=True)
class PlanRecord:
    """A plan and what became of it. While it is active, `plan` is what people approved of it."""

    plan: Plan
    # When it was laid out, in seconds since 1970.
    at: float
    state: PlanState = "open"
    # Those who approved `accepted`, which may be less than what was laid out.
    accepted: Plan | None = None
    accepted_by: tuple[str, ...] = ()
    ends_at: float | None = None
    # Why it ended, or was not approved.
    why: str = ""
    # Whether the next message of a person to its member ends it.
    ends_with_message: bool = False

    def as_json(self) -> dict[str, Json]:
        accepted = None if self.accepted is None else self.accepted.as_json()
        return {**self.plan.as_json(), "accepted": accepted} | {
            key: getattr(self, key) for key in _STATE_KEYS
        }


def record_of_json(value: Any) -> PlanRecord:
    """A record as `as_json` wrote it; raises UsageError, KeyError or TypeError if it is damaged."""
    accepted = None if value["accepted"] is None else plan_of_json(value["accepted"])
    state = {key: value[key] for key in _STATE_KEYS} | {"accepted_by": tuple(value["accepted_by"])}
    return PlanRecord(plan_of_json(value), accepted=accepted, **state)


def read_plan(payload: Json, *, id: str, by: str) -> Plan:
    """Read what somebody laid out; raises UsageError with the place of the mistake."""
    fields = mapping(payload, "the plan", _PLAN_KEYS)
    task = fields.get("task")
    if isinstance(task, str):
        # One line, in which nothing is hidden: it stands above what people approve.
        task = " ".join("".join(char if char.isprintable() else " " for char in task).split())
    if not isinstance(task, str) or not task or len(task) > MAX_TASK_CHARS:
        raise UsageError(f"task must say in at most {MAX_TASK_CHARS} characters what the plan is for")
    hours = fields.get("hours", DEFAULT_HOURS)
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= MAX_HOURS:
        raise UsageError(f"hours must be a number up to {MAX_HOURS:g}: how long the plan holds")
    lines = fields.get("lines")
    if not isinstance(lines, list) or not 1 <= len(lines) <= MAX_LINES:
        raise UsageError(f"lines must be a list of 1 to {MAX_LINES} calls or patterns of calls")
    if len(canonical(lines)) > MAX_PLAN_BYTES:
        raise UsageError(
            f"lines have more than {MAX_PLAN_BYTES >> 10} KiB: nobody can read them; lay out less"
        )
    member = _name(fields.get("member", by), "member")
    for number, line in enumerate(lines, start=1):
        _check_line(line, f"line {number}")
    plan = Plan(id, by, member, task, float(hours), tuple(lines))
    try:
        plan.rules(by=[by], now=0.0)
    except InvalidPattern as fault:
        raise UsageError(f"a line cannot be read: {fault}") from None
    return plan


def plan_of_json(value: Any) -> Plan:
    """A plan as `as_json` wrote it."""
    payload = {key: value[key] for key in _PLAN_KEYS}
    return read_plan(payload, id=value["plan"], by=value["by"])


def cut_plan(plan: Plan, *, lines: Json = None, hours: Json = None) -> Plan:
    """The plan with fewer lines or other ones; raises UsageError if that cannot be read.

    `lines` are those that stay: `{"line": 2, "count": 1}` is the second with another count. Whether it allows
    less is for `narrowing_proof`.
    """
    known = plan.as_json()
    payload = {key: known[key] for key in _PLAN_KEYS} | ({} if hours is None else {"hours": hours})
    kept: list[Json] = payload["lines"]
    if lines is not None:
        if not isinstance(lines, list):
            raise UsageError('lines must be a list such as [{"line": 1, "count": 2}]')
        kept = []
        for change in lines:
            fields = mapping(change, "lines", ("line", *_LINE_KEYS))
            number = fields.get("line")
            if type(number) is not int or not 1 <= number <= len(plan.lines):
                raise UsageError(f"there is no line {number}: the plan has {len(plan.lines)}")
            kept.append({**plan.lines[number - 1], **{k: v for k, v in fields.items() if k != "line"}})
    return read_plan({**payload, "lines": kept}, id=plan.id, by=plan.by)


def line_text(rule: Rule) -> str:
    """What a line allows, in words."""
    text = f"{rule.tool} of {join_names(rule.to or ())}"
    named = [f"{name} {_value_text(value)}" for name, value in rule.equals.items()]
    named += [f"{path_text(path)} {template_text(values)}" for path, values in rule.values.items()]
    named += [f"{path_text(path)} {range_text(span)}" for path, span in rule.range.items()]
    text += f" with {join_names(named)}" if named else " without arguments"
    limits = "; ".join(
        [f"at most {count_text(rule.limits.max_decisions or 0, 'time')}", *sum_texts(rule.limits)]
    )
    return f"{text}; {limits}"


def _value_text(value: Json) -> str:
    is_plain_line = isinstance(value, str) and value.isprintable()
    text = f"“{value}”" if is_plain_line else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… ({len(text)} characters)"


def _check_line(line: Json, where: str) -> None:
    fields = mapping(line, where, _LINE_KEYS)
    for key in ("to", "tool"):
        _name(fields.get(key), f"{where}.{key}")
    mapping(fields.get("arguments", {}), f"{where}.arguments")
    named = [leaf for key in ("range", "sums", *KINDS) for leaf in texts_in(fields.get(key))]
    for text in (*fields.get("arguments", {}), *named):
        if not text.isprintable():
            # It stands as it is in what people read.
            raise UsageError(
                f"{where} has a name or a template with characters that cannot be seen: {text!r}"
            )
    count = fields.get("count", 1)
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise UsageError(f"{where}.count must be a whole number from 1 to {MAX_COUNT}")


def _name(value: Json, where: str) -> str:
    """One name: what would be a pattern in a rule stands for more than people see."""
    is_plain = isinstance(value, str) and value.isprintable() and not any(char in value for char in "*?")
    if not is_plain or not value or value[0] in "/!":
        raise UsageError(f"{where} must be one name, without * ? and not beginning with / or !")
    return str(value)
