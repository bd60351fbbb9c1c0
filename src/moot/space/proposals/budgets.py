"""Budgets: how much the calls of a space may come to in an hour, a day, a week or a month.

A budget counts calls, or adds up a number in their arguments, for everybody together or for each member. It
binds every way to a call, as a quorum does: a right, a grant, a rule and a vote all end here.

    used + this call  ≤ ask_at          it is made
                      ≤ at_most         a person has to approve it: `approval_required`
                      > at_most         nobody can make it: `budget_exceeded`

What is let through to a host is used, whatever comes of it: that a host failed, or did not answer, is no
proof that nothing happened. A call to several hosts is that many calls. A call that was proposed is its
proposer's, whoever approved it. Amounts are decimals as they are written; one that is missing or no plain
number cannot be counted, so the call is refused. Periods are those of the calendar in UTC, by the space's own
clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from moot.errors import ApprovalRequired, BudgetExceeded
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns.globs import glob
from moot.space.config import BudgetPeriod, SpaceBudget
from moot.space.proposals.call_rules import CallRules
from moot.space.proposals.quorum import binds_call

# Of one amount, before and after the point: more than any currency has.
MAX_DIGITS: Final = 18
# Longer numbers are not looked at.
_NUMBER_CHARS: Final = 64
_LIMIT: Final = Decimal(10) ** MAX_DIGITS
# Enough for the sum of as many amounts as there will ever be.
_EXACT: Final = Context(prec=100)
_ZERO: Final = Decimal(0)
_THIS: Final[dict[BudgetPeriod, str]] = {
    "hour": "this hour",
    "day": "today",
    "week": "this week",
    "month": "this month",
}
_A: Final[dict[BudgetPeriod, str]] = {"hour": "an hour", "day": "a day", "week": "a week", "month": "a month"}


class Charge(NamedTuple):
    """What one call takes of one budget; `fault` in place of an amount that cannot be told."""

    budget: SpaceBudget
    # Whose; empty: everybody's.
    holder: str
    amount: Decimal
    fault: str = ""


class _Use(NamedTuple):
    """What was used in the period that began then, and of what: a budget that counts another thing is new."""

    meter: str
    since: float
    used: Decimal


class BudgetTable:
    """What was used of the budgets of one space."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], _Use] = {}

    def used(self, budget: SpaceBudget, holder: str, now: float) -> Decimal:
        use = self._uses.get((budget.name, holder))
        # A clock that was set back frees nothing.
        if use is None or use.meter != _meter(budget) or use.since < period_of(budget.per, now)[0]:
            return _ZERO
        return use.used

    def count(self, charges: Sequence[Charge], now: float) -> None:
        """These were let through."""
        for budget, holder, amount, _ in charges:
            key = budget.name, holder
            since = period_of(budget.per, now)[0]
            before = self._uses.get(key)
            if before is not None and before.meter == _meter(budget):
                since = max(since, before.since)
            used = _EXACT.add(self.used(budget, holder, now), amount)
            self._uses[key] = _Use(_meter(budget), since, used)

    def holders(self, budget: SpaceBudget, now: float) -> list[str]:
        """Whose budgets of this name are in use."""
        return [
            holder
            for name, holder in self._uses
            if name == budget.name and self.used(budget, holder, now) > 0
        ]

    def keep(self, budgets: Sequence[SpaceBudget]) -> None:
        """Forget the others: the configuration has them no more."""
        names = {each.name for each in budgets}
        self._uses = {key: use for key, use in self._uses.items() if key[0] in names}

    def save(self) -> list[Json]:
        return [[*key, use.meter, use.since, str(use.used)] for key, use in self._uses.items()]

    @classmethod
    def load(cls, saved: Sequence[Any]) -> BudgetTable:
        table = cls()
        for name, holder, meter, since, used in saved:
            table._uses[name, holder] = _Use(meter, since, Decimal(used))
        return table


def _meter(budget: SpaceBudget) -> str:
    return f"{budget.per} {'.'.join(budget.sum)}"


def period_of(per: BudgetPeriod, now: float) -> tuple[float, float]:
    """When the period of this time began, and when it ends."""
    if per == "hour":
        begin = now // 3_600 * 3_600
        return begin, begin + 3_600
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        end = day + timedelta(days=1)
    elif per == "week":
        day -= timedelta(days=day.weekday())
        end = day + timedelta(days=7)
    else:
        day = day.replace(day=1)
        end = (day + timedelta(days=31)).replace(day=1)
    return day.timestamp(), end.timestamp()


# What a call takes


def find_charges(
    budgets: CallRules[SpaceBudget],
    payload: Payload,
    raw: bytes,
    to: Sequence[str],
    callers: Collection[str],
) -> tuple[Charge, ...]:
    """What a call of these members takes of each budget that is about it."""
    found: list[Charge] = []
    params: Json = None
    for budget in budgets.about(payload):
        names = [
            name for name in callers if not budget.who or any(glob(each).matches(name) for each in budget.who)
        ]
        if not names or not binds_call(budget.calls, payload, to):
            continue
        if budget.sum and params is None:
            params = exact_json.decode(raw.decode())["payload"].get("params")
        amount, fault = _read_amount(params, budget.sum) if budget.sum else (Decimal(1), "")
        hosts = [host for host in dict.fromkeys(to) if binds_call(budget.calls, payload, (host,))]
        amount = _EXACT.multiply(amount, Decimal(len(hosts) or 1))
        found += [Charge(budget, holder, amount, fault) for holder in (names if budget.each else [""])]
    return tuple(found)


def _exact_number(digits: str) -> Decimal | None:
    try:
        return Decimal(digits) if len(digits) <= _NUMBER_CHARS else None
    except InvalidOperation:
        return None


exact_json: Final = json.JSONDecoder(parse_float=_exact_number, parse_int=_exact_number)


def is_amount(value: Json) -> bool:
    """Whether a number can be added up: not negative, and not longer than any amount is."""
    if not isinstance(value, Decimal) or not value.is_finite() or value.is_signed() or value >= _LIMIT:
        return False
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -MAX_DIGITS


def _read_amount(params: Json, path: Sequence[str]) -> tuple[Decimal, str]:
    """The number at a path, or the sum of those at all its places; else why there is none."""
    total, where = _ZERO, ".".join(path)
    for value in _values_at(params, path):
        if value is _MISSING:
            return _ZERO, f"{where} is missing"
        if not is_amount(value):
            most = f"at most {MAX_DIGITS} digits before and behind the point"
            return _ZERO, f"{where} is not a number, from 0 on and with {most}"
        total = _EXACT.add(total, value)
    return total, ""


_MISSING: Final = object()


def _values_at(value: Json, path: Sequence[str]) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] == "*":
        if not isinstance(value, list):
            yield _MISSING
            return
        for each in value:
            yield from _values_at(each, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _values_at(value[path[0]], path[1:])
    else:
        yield _MISSING


# What follows from it


def check_charges(table: BudgetTable, charges: Sequence[Charge], *, is_approved: bool, now: float) -> None:
    """Raises BudgetExceeded or ApprovalRequired; `is_approved`: by a person."""
    for each in charges:
        if _verdict(table, each, now) == "refused":
            text = describe_charge(table, each, now)["text"]
            when = rfc3339(period_of(each.budget.per, now)[1])
            hint = "" if each.fault else f"; it is free again at {when}"
            raise BudgetExceeded(f"budget {text}{hint}", **_facts(table, each, now))
    for each in charges:
        if not is_approved and _verdict(table, each, now) == "asks":
            text = describe_charge(table, each, now)["text"]
            raise ApprovalRequired(f"propose it: budget {text}", **_facts(table, each, now))


def _verdict(table: BudgetTable, charge: Charge, now: float) -> str:
    budget, holder, amount, fault = charge
    after = _EXACT.add(table.used(budget, holder, now), amount)
    if fault or (budget.at_most is not None and after > budget.at_most):
        return "refused"
    return "asks" if budget.ask_at is not None and after > budget.ask_at else "free"


def _facts(table: BudgetTable, charge: Charge, now: float) -> dict[str, Json]:
    budget, holder, amount, fault = charge
    facts = {
        "budget": budget.name,
        "holder": holder or None,
        "used": _plain(table.used(budget, holder, now)),
        "amount": None if fault else _plain(amount),
        "ask_at": None if budget.ask_at is None else _plain(budget.ask_at),
        "at_most": None if budget.at_most is None else _plain(budget.at_most),
        "per": budget.per,
        "resets_at": rfc3339(period_of(budget.per, now)[1]),
    }
    return {name: value for name, value in facts.items() if value is not None}


def describe_charge(table: BudgetTable, charge: Charge, now: float) -> dict[str, Json]:
    """What a call would take, with the sentence for people; `verdict` is free, asks or refused."""
    budget, holder, amount, fault = charge
    verdict = _verdict(table, charge, now)
    this = f"this one {_plain(amount)}" if budget.sum else "this one"
    if fault:
        text = f"{budget.name}: {fault}, so this call cannot be counted and nobody can make it"
    else:
        text = describe_use(table, budget, holder, now)
        if verdict == "refused":
            text += f"; {this} would pass the limit"
        elif verdict == "asks" and budget.ask_at is not None:
            text += f"; beyond {_plain(budget.ask_at)} a person has to approve, {this} too"
        elif budget.sum:
            text += f"; {this}"
    return {**_facts(table, charge, now), "verdict": verdict, "text": text}


def describe_use(table: BudgetTable, budget: SpaceBudget, holder: str, now: float) -> str:
    """How much is used, for people."""
    of = "" if budget.at_most is None else f" of {_plain(budget.at_most)}"
    whose = f" ({holder})" if holder else ""
    calls = "" if budget.sum else " calls"
    used = _plain(table.used(budget, holder, now))
    return f"{budget.name}{whose}: {used}{of}{calls} used {_THIS[budget.per]}"


def list_budgets(table: BudgetTable, budgets: Sequence[SpaceBudget], now: float) -> list[Json]:
    """All budgets and what is used of them; of one that each member has, of those who used something."""
    found: list[Json] = []
    for budget in budgets:
        for holder in (table.holders(budget, now) if budget.each else []) or [""]:
            facts = _facts(table, Charge(budget, holder, _ZERO, fault="none is asked for"), now)
            text = describe_use(table, budget, holder, now)
            found.append({**facts, "about": describe_budget(budget), "text": text})
    return found


def describe_budget(budget: SpaceBudget) -> str:
    """What a budget says, in words."""
    pattern = budget.calls.original
    params = pattern["payload"].get("params", {})
    parts = [f"the sum of {'.'.join(budget.sum)} in calls" if budget.sum else "calls"]
    if "name" in params:
        parts.append(f"of {_listed(params['name'])}")
    if "to" in pattern:
        parts.append(f"at {_listed(pattern['to'])}")
    if "arguments" in params:
        parts.append(f"with {json.dumps(params['arguments'], ensure_ascii=False)}")
    who = ", ".join(budget.who) or ("member" if budget.each else "")
    if who:
        parts.append(f"by each {who}" if budget.each else f"by {who}")
    limits = []
    if budget.ask_at is not None:
        limits.append(f"a person approves beyond {_plain(budget.ask_at)}")
    if budget.at_most is not None:
        limits.append(f"at most {_plain(budget.at_most)}")
    return f"{' '.join(parts)}, in {_A[budget.per]}: {', '.join(limits)}"


def _listed(names: Json) -> str:
    return ", ".join(names) if isinstance(names, list) else str(names)


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
