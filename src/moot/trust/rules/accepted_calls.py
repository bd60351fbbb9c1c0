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


class RejectedCalls:
    """The calls that people rejected word for word, unless they approved the very same call later.

    Who rejects a call rejects it without its null arguments and with others, too, whatever else was approved.
    """

    def __init__(self, decisions: Iterable[HistoryProposal] = ()) -> None:
        # By the call without null arguments, as it was rejected.
        self._rejected: dict[bytes, set[bytes]] = {}
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
        key, bare = call_key(decision.case), call_key(without_nulls(decision.case))
        if decided == "reject":
            self._rejected.setdefault(bare, set()).add(key)
        elif (known := self._rejected.get(bare)) is not None:
            known.discard(key)
            if not known:
                del self._rejected[bare]

    def __contains__(self, case: object) -> bool:
        if not self._rejected or not isinstance(case, Case):
            return False
        return call_key(without_nulls(case)) in self._rejected
