"""Calls that people want approved when they come again, each a rule that names one exact call.

They are found by their key and not by going through them, so there can be thousands: `remembered.json` in the
approver's folder, with the least recently used forgotten first. A rule of the file that rejects or asks comes
before them (`rule_set`); one that would approve but is suspended or used up does not stop them, since a
person named this very call.

A remembered call is never suspended. Whatever contradicts it (a rejection, an objection, a change of its
tool, a member that was removed) forgets it: to remember it again takes one press.

Where people accepted that a tool only reads, a call can also be remembered by its tool: then any call of it
by the same member is approved, unless a value came from nobody trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from moot.errors import UsageError
from moot.resilience.atomic_file import write_atomically
from moot.trust.history.proposal_case import Case, without_nulls
from moot.trust.rules.ignored_arguments import loosen, mask
from moot.trust.rules.rule import AskCondition, Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_evaluation import call_key
from moot.trust.rules.rule_json import rule_as_json, rule_of_json

REMEMBERED_NAME: Final = "remembered.json"
# For one space; beyond that the least recently used are forgotten.
MAX_REMEMBERED: Final = 5_000
_DAY: Final = 86_400.0
# Calls of tools that can be repeated without harm; of those that only read as many as come.
REPEATABLE_COUNT: Final = 10
REPEATABLE_SECONDS: Final = 3_600.0
# All others: so many times in so many days; four times as many for each further approval in that time.
EFFECT_COUNT: Final = 5
MAX_EFFECT_COUNT: Final = 160
EFFECT_DAYS: Final = 30
# Where people approved them so far apart.
RARE_COUNT: Final = 2
RARE_DAYS: Final = 14
# So long after one another, unless people approved them sooner; half of the shortest time where they came
# every few days, as regularly as that.
REGULAR: Final = 1.5
USUAL_GAP_SECONDS: Final = 600.0
LEAST_GAP_SECONDS: Final = 60.0
# Of tools that destroy something: so often in all, four times as many after a further approval.
DESTROY_COUNT: Final = 5
MAX_DESTROY_COUNT: Final = 20
DESTROY_DAYS: Final = 7
# All of them end; a person can ask for less, or for other counts.
MAX_DAYS: Final = 90
MAX_COUNT: Final = 1_000

# In reports and metrics all remembered calls are counted as one rule.
REMEMBERED: Final = "remembered"
_NAME: Final = re.compile(r"(?:again|reads)-.{0,30}-[0-9a-f]{10}")

IgnoredOf = Callable[[str, str], Collection[str]]
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_.]+")


# Who calls which tool of which host.
_Scope = tuple[str, tuple[str, ...], str, str | None]


@dataclass(slots=True)
class _Entry:
    rule: Rule
    # The call as it was, and its key; None if all calls of a tool are meant.
    call: Case | None
    key: bytes | None
    used_at: float


@dataclass(slots=True)
class RememberedCalls:
    """The remembered calls of one space. `save` after every change.

    `ignored_of` tells which arguments of a tool (by host and name) do not matter.
    """

    file: Path | None = None
    ignored_of: IgnoredOf = lambda _host, _tool: ()
    _entries: dict[str, _Entry] = field(default_factory=dict)
    # The same, so that a call is compared with those of its tool alone.
    _by_scope: dict[_Scope, dict[str, _Entry]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> RememberedCalls:
        """Read those of a folder; raises UsageError."""
        remembered = cls(folder / REMEMBERED_NAME)
        try:
            listed: Any = json.loads((folder / REMEMBERED_NAME).read_text("utf-8"))
            for each in listed["calls"]:
                remembered._put(_entry_of(rule_of_json(each["rule"]), float(each["used_at"])))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, UsageError) as fault:
            raise UsageError(
                f"{folder / REMEMBERED_NAME} cannot be read: {fault}. Move it away to forget these calls"
            ) from None
        return remembered

    def save(self) -> None:
        if self.file is None:
            return
        listed = [
            {"rule": rule_as_json(each.rule), "used_at": each.used_at} for each in self._entries.values()
        ]
        text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in listed)
        write_atomically(self.file, f'{{"calls": [\n{text}\n]}}\n'.encode(errors="surrogatepass"))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Rule]:
        """The rules, the least recently used first."""
        return (each.rule for each in sorted(self._entries.values(), key=lambda each: each.used_at))

    def get(self, name: str) -> Rule | None:
        found = self._entries.get(name)
        return None if found is None else found.rule

    def covers_tool(self, host: str, tool: str | None = None) -> bool:
        """Whether a call of this tool, or of any tool of the host, is remembered."""
        return any(host in to and tool in (None, name) for _, to, _, name in self._by_scope)

    def hosts(self) -> set[str]:
        return {host for _, to, _, _ in self._by_scope for host in to}

    # Finding

    def find(self, case: Case) -> list[Rule]:
        """The rules about this call: of itself, and of its tool."""
        there = self._by_scope.get(_scope(case), {}).values()
        key, ignored = call_key(case) if there else b"", self.ignored_in(case)
        found = [each.rule for each in there if each.key == key]
        if not found and ignored:
            masked = _masked_key(case, ignored)
            like = [each for each in there if each.call and _masked_key(each.call, ignored) == masked]
            found = [loosen(each.rule, ignored) for each in like[-1:]]
        return [*found, *(each.rule for each in there if each.call is None)]

    def ignored_in(self, case: Case) -> tuple[str, ...]:
        """The arguments of a call that do not matter."""
        if case.tool is None or len(case.to) != 1:
            return ()
        return tuple(self.ignored_of(case.to[0], case.tool))

    # Changing

    def add(self, rule: Rule, now: float) -> list[str]:
        """Remember a call, instead of what was remembered of it before; returns what was forgotten for it."""
        new = _entry_of(rule, now)
        there = self._by_scope.get(_scope(_call_of(rule)), {})
        forgotten = [name for name, each in there.items() if each.key == new.key]
        self.forget(forgotten)
        if len(self._entries) >= MAX_REMEMBERED:
            ended = [each.name for each in self if each.has_ended(now)]
            unused = [each.name for each in self][: len(self._entries) - MAX_REMEMBERED + 1]
            self.forget(ended or unused)
            forgotten += ended or unused
        self._put(new)
        return forgotten

    def _put(self, entry: _Entry) -> None:
        name = entry.rule.name
        self._entries[name] = self._by_scope.setdefault(_scope(_call_of(entry.rule)), {})[name] = entry

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            if (entry := self._entries.pop(name, None)) is not None:
                scope = _scope(_call_of(entry.rule))
                del self._by_scope[scope][name]
                if not self._by_scope[scope]:
                    del self._by_scope[scope]

    def note_used(self, name: str, at: float) -> None:
        """It decided: the others are forgotten before it. Written with the next `save`."""
        if name in self._entries:
            self._entries[name].used_at = at

    def contradicted_by(self, case: Case, *, origins_ask: bool) -> list[str]:
        """What a rejection of this call contradicts, whoever made it.

        `origins_ask`: whether its origins asked, so that what goes by them left it to people.
        """
        keys, ignored = {call_key(case), call_key(without_nulls(case))}, self.ignored_in(case)
        masked = _masked_key(case, ignored)

        def is_same(call: Case, key: bytes | None) -> bool:
            # All that differ in nothing else than what is ignored: each of them would approve the next one.
            return key in keys or (
                bool(ignored) and call.tool == case.tool and _masked_key(call, ignored) == masked
            )

        entries = self._entries.items()
        found = [name for name, each in entries if each.call and is_same(each.call, each.key)]
        found += [
            rule.name
            for rule in self.find(case)
            if rule.covers_call(case, case.at) and not (rule.ask is not None and origins_ask)
        ]
        return list(dict.fromkeys(found))


def counted_name(rule: str | None) -> str | None:
    """The name by which a rule's decisions are counted in the report."""
    return REMEMBERED if rule is not None and _NAME.fullmatch(rule) else rule


# What to remember


def rule_for(
    case: Case,
    limits: RuleLimits,
    origin: RuleOrigin,
    *,
    by_tool: bool = False,
    ask: AskCondition | None = None,
) -> Rule:
    """The rule that names exactly this call, or its tool; raises UsageError if no rule can."""
    if case.unexpected_fields:
        raise UsageError(f"it has {case.unexpected_fields[0]}, which no rule can name")
    if len(case.to) != 1:
        raise UsageError("it is not for one member")
    what = "reads" if by_tool else "again"
    word = _NO_WORD.sub("-", case.tool or case.method).strip("-.")[:30] or "call"
    unique = hashlib.sha256(call_key(case) + f"{case.proposer} {case.id} {what}".encode()).hexdigest()[:10]
    arguments: dict[str, Any] = (
        {"extra_arguments": True, "ask": "when_untrusted"}
        if by_tool
        else {"equals": dict(case.arguments), "ask": ask}
    )
    gap = limits.gap_seconds
    return Rule(
        name=f"{what}-{word}-{unique}",
        decision="approve",
        proposer=case.proposer,
        to=case.to,
        method=case.method,
        tool=case.tool,
        # The person approves the first one; the next has to wait for as long as any other.
        after=None if not gap or origin.accepted is None else origin.accepted + gap,
        limits=limits,
        origin=origin,
        **arguments,
    )


def usual_limits(
    now: float, *, reads: bool, repeatable: bool, approved_at: Sequence[float] = ()
) -> RuleLimits:
    """How often a call may come again if nobody says otherwise; `approved_at` is when people approved it."""
    if reads:
        return RuleLimits(expires_at=now + MAX_DAYS * _DAY)
    if repeatable:
        return RuleLimits(REPEATABLE_COUNT, REPEATABLE_SECONDS, now + MAX_DAYS * _DAY)
    times = sorted(approved_at)
    period = EFFECT_DAYS * _DAY
    recent = sum(1 for at in times if at > times[-1] - period)
    gaps = [after - before for before, after in pairwise(times)]
    is_rare = bool(gaps) and min(gaps) >= RARE_DAYS * _DAY
    count = RARE_COUNT if is_rare else min(MAX_EFFECT_COUNT, EFFECT_COUNT << 2 * max(0, min(recent, 10) - 1))
    gap = max(LEAST_GAP_SECONDS, min([USUAL_GAP_SECONDS, *gaps]))
    if len(gaps) > 2 and min(gaps) >= _DAY and max(gaps) <= REGULAR * min(gaps):
        gap = min(min(gaps) / 2, period)
    return RuleLimits(count, period, now + MAX_DAYS * _DAY, gap_seconds=float(int(gap)))


def destroying_limits(now: float, approved_at: Sequence[float]) -> RuleLimits:
    """The same for tools that destroy something."""
    period = DESTROY_DAYS * _DAY
    recent = sum(1 for at in approved_at if at > max(approved_at) - period)
    return RuleLimits(DESTROY_COUNT if recent < 2 else MAX_DESTROY_COUNT, period, now + period)


def chosen_limits(
    usual: RuleLimits, now: float, count: int | None, until: float | None, *, destroys: bool = False
) -> RuleLimits:
    """The usual limits with what a person chose instead: so often in all, until then; raises UsageError."""
    most, days = (MAX_DESTROY_COUNT, DESTROY_DAYS) if destroys else (MAX_COUNT, MAX_DAYS)
    because = " for what can destroy something" if destroys else ""
    if count is not None and not 1 <= count <= most:
        raise UsageError(f"count is a whole number from 1 to {most}{because}")
    if until is not None and not now < until <= now + days * _DAY:
        raise UsageError(f"until is a time within the next {days} days{because}")
    end = until if until is not None else usual.expires_at or now + days * _DAY
    if count is None:
        return replace(usual, expires_at=end)
    return replace(usual, max_decisions=count, per_seconds=float(int(end - now) + 1), expires_at=end)


def _scope(case: Case) -> _Scope:
    return case.proposer, case.to, case.method, case.tool


def _masked_key(case: Case, ignored: Collection[str]) -> bytes:
    return call_key(replace(case, arguments=mask(case.arguments, ignored)))


def _call_of(rule: Rule) -> Case:
    """The call that a remembered rule names."""
    tool = rule.tool if isinstance(rule.tool, str) else None
    return Case("", str(rule.proposer), rule.to or (), str(rule.method), tool, rule.equals, {})


def _entry_of(rule: Rule, used_at: float) -> _Entry:
    call = None if rule.extra_arguments else _call_of(rule)
    return _Entry(rule, call, None if call is None else call_key(call), used_at)
