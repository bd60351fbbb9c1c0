"""`budgets:` of a space: how much its calls may come to. Every mistake in it is told, not only the first."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

from moot.config.section_reader import at, mapping, unknown_key
from moot.errors import InvalidPattern, UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.space.config import BudgetPeriod, SpaceBudget

_KEYS: Final = ("who", "each", "tool", "to", "arguments", "sum", "per", "ask_at", "at_most")
_PERIODS: Final[tuple[str, ...]] = get_args(BudgetPeriod)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_ARGUMENTS: Final = "arguments."


def read_budgets(value: Json, path: str) -> tuple[SpaceBudget, ...]:
    """Raises UsageError with all that is wrong, a line each."""
    found: list[SpaceBudget] = []
    faults: list[str] = []
    for name, settings in mapping(value, path).items():
        place = at(path, name)
        if _NAME.fullmatch(name) is None:
            faults.append(f"{place}: a budget's name has letters, digits, spaces, . _ and -, 64 at most")
        try:
            entry = mapping(settings, place)
        except UsageError as fault:
            faults.append(str(fault))
            continue
        reader = _BudgetReader(place, entry, faults)
        budget = reader.read(name)
        if budget is not None:
            found.append(budget)
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(found)


class _BudgetReader:
    """Reads one budget, and notes what is wrong with it."""

    def __init__(self, place: str, entry: Any, faults: list[str]) -> None:
        self._place = place
        self._entry = entry
        self._faults = faults
        self._before = len(faults)

    def read(self, name: str) -> SpaceBudget | None:
        for key in self._entry:
            if key not in _KEYS:
                self._faults.append(str(unknown_key(self._place, key, _KEYS)))
        pattern: dict[str, Json] = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
        params: dict[str, Json] = {}
        if tools := self._names("tool"):
            params["name"] = tools
        if "arguments" in self._entry:
            params["arguments"] = self._entry["arguments"]
            if not isinstance(params["arguments"], dict):
                self._fault("arguments", "must be a mapping, as in {currency: EUR}")
        if params:
            pattern["payload"]["params"] = params
        if hosts := self._names("to"):
            pattern["to"] = hosts
        who, limits = self._names("who"), {key: self._amount(key) for key in ("ask_at", "at_most")}
        self._check_limits(**limits)
        each, path, per = self._entry.get("each", False), self._path(), self._entry.get("per", "day")
        if not isinstance(each, bool):
            self._fault("each", "must be true (each member has its own) or false (all share one)")
        if per not in _PERIODS:
            self._fault("per", f"must be one of {', '.join(_PERIODS)}")
        if len(self._faults) > self._before:
            return None
        try:
            calls = read_capability(pattern)
        except InvalidPattern as fault:
            self._faults.append(f"{self._place}: {fault.message}")
            return None
        return SpaceBudget(name=name, calls=calls, who=tuple(who), each=each, sum=path, per=per, **limits)

    def _fault(self, key: str, text: str) -> None:
        self._faults.append(f"{at(self._place, key)}: {text}")

    def _names(self, key: str) -> list[str]:
        value = self._entry.get(key, [])
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
            self._fault(key, "must be a name or a list of names; * stands for any characters")
            return []
        if not names and key in self._entry:
            self._fault(key, "names nobody: leave it out for any")
        return names

    def _path(self) -> tuple[str, ...]:
        value = self._entry.get("sum")
        if value is None and "sum" not in self._entry:
            return ()
        steps = value.split(".") if isinstance(value, str) else []
        if not (isinstance(value, str) and value.startswith(_ARGUMENTS) and all(steps)):
            self._fault(
                "sum",
                "must say where the number stands, as in arguments.amount or, for each of a list,"
                " arguments.payments.*.amount; leave it out to count calls",
            )
            return ()
        return tuple(steps)

    def _amount(self, key: str) -> Decimal | None:
        if key not in self._entry:
            return None
        # Here, not above: few spaces have budgets, and every command reads the configuration.
        from moot.space.proposals.budgets import is_amount

        value = self._entry[key]
        number: Decimal | None = None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = Decimal(str(value))
            except InvalidOperation:
                number = None
        if number is None or not is_amount(number):
            self._fault(key, "must be a number from 0 on")
            return None
        if "sum" not in self._entry and number != number.to_integral_value():
            self._fault(key, "must be a whole number: without sum, calls are counted")
        return number

    def _check_limits(self, ask_at: Decimal | None, at_most: Decimal | None) -> None:
        if "ask_at" not in self._entry and "at_most" not in self._entry:
            self._faults.append(
                f"{self._place}: has no limit: at_most (nothing more is made), ask_at (a person approves"
                " what is beyond it), or both"
            )
        elif ask_at is not None and at_most is not None and ask_at >= at_most:
            self._fault("ask_at", "must be less than at_most, or nobody is ever asked")
