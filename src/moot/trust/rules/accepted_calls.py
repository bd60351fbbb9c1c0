"""What the calls that people decided were like: only what no approved one had is unusual, and a call that was
rejected word for word is not approved by a rule.

Of each tool the arguments, their types, the largest numbers, the longest texts, and which had escapes. An
argument that is often left out, or an amount that is far larger than another payee's, then suspends no rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, Path, leaves, type_of, without_nulls
from moot.trust.history.proposal_history import MAX_PROPOSALS, HistoryProposal, Lesson
from moot.trust.rules.conditions import is_plain
from moot.trust.rules.rule_evaluation import call_key

_Scope = tuple[tuple[str, ...], str, str | None]


@dataclass(slots=True)
class _SeenArgument:
    types: set[str] = field(default_factory=set)
    largest: float = 0.0
    longest: int = 0
    is_plain: bool = True


class AcceptedCalls:
    """The calls that people approved, by host, method and tool."""

    def __init__(self, decisions: Iterable[HistoryProposal] = ()) -> None:
        self._arguments: dict[_Scope, dict[Path, _SeenArgument]] = {}
        for decision in decisions:
            self.add(decision)

    def add(self, decision: HistoryProposal) -> None:
        """Count a decision, if people approved it."""
        if decision.people_decided != "approve":
            return
        known = self._arguments.setdefault(_scope(decision.case), {})
        for path, value in leaves(decision.case.arguments):
            for above in range(1, len(path)):
                known.setdefault(path[:above], _SeenArgument()).types.add("object")
            argument = known.setdefault(path, _SeenArgument())
            argument.types.add(type_of(value))
            if isinstance(value, int | float):
                argument.largest = max(argument.largest, abs(value))
            elif isinstance(value, str):
                argument.longest = max(argument.longest, len(value))
                argument.is_plain = argument.is_plain and is_plain(value)

    def knows(self, case: Case, path: Path) -> bool:
        """Whether an approved call of this tool had this argument."""
        return path in self._arguments.get(_scope(case), {})

    def knows_value(self, case: Case, path: Path, value: Json, *, factor: float) -> bool:
        """Whether an approved call had an argument of this type that was nearly as large, or as odd."""
        argument = self._arguments.get(_scope(case), {}).get(path)
        if argument is None or type_of(value) not in argument.types:
            return False
        if isinstance(value, int | float) and not isinstance(value, bool):
            return abs(value) <= factor * max(argument.largest, 1.0)
        if isinstance(value, str):
            return len(value) <= factor * max(argument.longest, 1) and (
                is_plain(value) or not argument.is_plain
            )
        return True


def _scope(case: Case) -> _Scope:
    return case.to, case.method, case.tool


@dataclass(slots=True)
class _Family:
    """Calls (`call_key`) that differ by null arguments alone."""

    rejected: set[bytes] = field(default_factory=set)
    # Since the last rejection.
    approved: set[bytes] = field(default_factory=set)


class RejectedCalls:
    """The calls that people rejected word for word, unless they approved the same call later.

    Who rejects a call rejects it without its null arguments and with others, too. An approval takes back what
    it is about: of the very call that was rejected all of that, of the call without nulls what was not
    rejected itself, and otherwise that one call.
    """

    def __init__(self, decisions: Iterable[HistoryProposal] = ()) -> None:
        self._families: dict[bytes, _Family] = {}
        # What is known of each proposal: its result, or its end, is not another decision.
        self._noted: dict[str, tuple[float, Lesson]] = {}
        for decision in sorted(decisions, key=lambda each: each.at or 0.0):
            self.note(decision)

    def note(self, decision: HistoryProposal) -> None:
        """Add the call of a rejection, or take that of an approval back."""
        decided = decision.people_decided
        if decided is None or self._noted.get(decision.id) == (decision.case.at, decided):
            return
        self._noted[decision.id] = decision.case.at, decided
        if len(self._noted) > MAX_PROPOSALS:
            del self._noted[next(iter(self._noted))]
        key, bare = _keys(decision.case)
        if decided == "reject":
            family = self._families.setdefault(bare, _Family())
            family.rejected.add(key)
            family.approved.clear()
        elif known := self._families.get(bare):
            known.rejected.discard(key)
            known.approved.add(key)
            if not known.rejected:
                del self._families[bare]

    def __contains__(self, case: object) -> bool:
        if not self._families or not isinstance(case, Case):
            return False
        key, bare = _keys(case)
        family = self._families.get(bare)
        return family is not None and (key in family.rejected or not family.approved & {key, bare})


def _keys(case: Case) -> tuple[bytes, bytes]:
    """Of the call as it is, and without its null arguments."""
    key, bare = call_key(case), without_nulls(case)
    return key, key if bare is case else call_key(bare)
