"""What each part of learning adds: memory, a list of prefixes, the learner, and the learner without a part.

`python -m bench.automation --data FOLDER [--world W …] [--way W …] [--seeds N] [--write-docs]`.
Replays streams of calls with what a careful person decides, from public data (`bench.automation_worlds`,
read from the folder) and from the made-up worlds of `bench.trust`. For each world and way it tells which
share of the wanted calls of the second half ran without a question, how many approvals were wrong, and how
many suggestions were shown and how many of those were false.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import automation_report
from bench.automation_office import OFFICE
from bench.automation_parts import WITHOUT, Part
from bench.automation_worlds import PUBLIC
from bench.trust import PERSON, POLICIES, DeclaredReads, Simulation
from bench.trust_baselines import prefix_of
from bench.trust_people import World
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case
from moot.trust.rules.remembered_calls import RememberedCalls, rule_for, usual_limits
from moot.trust.rules.rule import RuleOrigin
from moot.trust.rules.rule_evaluation import call_key, evaluate
from moot.trust.rules.rule_set import RuleSet

PROPOSALS: Final = 600
# A person clicks "always" for a prefix after so many approvals.
CLICKS: Final = 3


@dataclass(slots=True)
class WorldResult:
    """One way in one world."""

    wanted: int = 0
    automatic: int = 0
    approvals: int = 0
    wrong: int = 0
    shown: int = 0
    false: int = 0

    @property
    def share(self) -> float:
        return self.automatic / max(1, self.wanted)

    def add(self, other: WorldResult) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Way:
    """How calls are decided: by memory, by prefixes, by learned rules, or by several of them."""

    memory: bool = False
    # The product's own memory, with its limits.
    built: bool = False
    prefixes: bool = False
    learner: bool = False
    without: tuple[Part, ...] = ()


class Replay(Simulation):
    """One way with one person."""

    def __init__(self, world: World, seed: int, way: Way) -> None:
        super().__init__(world, seed)
        self.way = way
        self.result = WorldResult()
        self._remembered: set[bytes] = set()
        self._calls = RememberedCalls()
        self._approved_at: dict[bytes, list[float]] = {}
        self._approved: dict[object, int] = {}
        self._rejected: set[object] = set()

    def replay(self, count: int) -> WorldResult:
        for number, (case, wanted, answer) in enumerate(self.world.proposals(count)):
            ran = self._runs(case, wanted=wanted, answer=answer)
            late = number >= count // 2
            self.result.wanted += wanted and late
            self.result.automatic += ran and wanted and late
            self.result.approvals += ran
            self.result.wrong += ran and not wanted
        self.result.shown, self.result.false = self.shown, self.false_suggestions()
        return self.result

    def _runs(self, case: Case, *, wanted: bool, answer: bool) -> bool:
        key, prefix = call_key(case), prefix_of(case)
        if self.way.memory and key in self._remembered:
            return True
        if self.way.built and self._is_remembered(case):
            return True
        if self.way.prefixes and self._approved.get(prefix, 0) >= CLICKS and prefix not in self._rejected:
            return True
        if self.way.learner:
            verdict = evaluate(
                self.rules, case, case.at, {PERSON}, self.tally.times(), suspended=self.suspended,
                draw=self.draws.random(), rejected=self.rejected,
                paused=self.reviews.pause_reasons(self.rules),
            )  # fmt: skip
            if verdict.decision != "ask" and verdict.rule is not None:
                self.note_automatic(case, verdict.rule)
                wrong = wanted != (verdict.decision == "approve")
                self.acts.setdefault(verdict.rule.name, []).append(wrong)
                self.reviews.note(verdict.rule, case.id, case.at)
                self._unseen[case.id] = (case, wrong and not answer)
                if self.reviews.is_due(verdict.rule):
                    self._review(verdict.rule, case.at + 30.0)
                return verdict.decision == "approve"
            self._asked(case, said=answer)
        if self.way.built:
            self._press_again(case, key, answer=answer)
        if answer:
            self._remembered.add(key)
            self._approved[prefix] = self._approved.get(prefix, 0) + 1
        else:
            self._remembered.discard(key)
            self._rejected.add(prefix)
        return False

    def _is_remembered(self, case: Case) -> bool:
        verdict = RuleSet((), None, self._calls).decide(case, case.at, {PERSON}, self.tally.times())
        if verdict.decision != "approve" or verdict.rule is None:
            return False
        self.tally.record(verdict.rule.name, case.at)
        return True

    def _press_again(self, case: Case, key: bytes, *, answer: bool) -> None:
        """The person approves with "again" each time, or rejects."""
        if not answer:
            self._calls.forget(self._calls.contradicted_by(case, origins_ask=True))
            return
        times = self._approved_at.setdefault(key, [])
        times.append(case.at)
        reads = ("", case.tool) in DeclaredReads()
        limits = usual_limits(case.at, reads=reads, repeatable=reads, approved_at=times)
        self._calls.add(rule_for(case, limits, RuleOrigin(None, PERSON, case.at)), case.at)


@contextmanager
def _left_out(parts: Sequence[Part]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in parts]
    try:
        for module, name, stand_in in parts:
            setattr(module, name, stand_in)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


WAYS: Final[dict[str, Way]] = {
    "memory": Way(memory=True),
    "memory as built": Way(built=True),
    "prefixes": Way(prefixes=True),
    "memory+prefixes": Way(memory=True, prefixes=True),
    "learner": Way(learner=True),
    **{f"without {name}": Way(memory=True, learner=True, without=parts) for name, parts in WITHOUT.items()},
    "memory+learner": Way(memory=True, learner=True),
}


def run_world(
    make: Callable[[random.Random], World], name: str, way: Way, seed: int, count: int
) -> WorldResult:
    with _left_out(way.without):
        return Replay(make(random.Random(f"{name} {seed}")), seed, way).replay(count)


def worlds(data: Path | None) -> dict[str, Callable[[random.Random], World]]:
    found: dict[str, Callable[[random.Random], World]] = {}
    if data is not None:
        for name, make in (PUBLIC | OFFICE).items():
            found[name] = lambda rng, make=make: make(data, rng)  # type: ignore[misc]
    return found | POLICIES


def _measured(task: tuple[Path | None, str, str, int, int]) -> WorldResult:
    data, world, way, seeds, proposals = task
    total = WorldResult()
    for seed in range(seeds):
        total.add(run_world(worlds(data)[world], world, WAYS[way], seed, proposals))
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.automation", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--data", type=Path, help="folder with the repositories that automation_worlds names")
    parser.add_argument("--world", action="append", help="only this world (repeat for several)")
    parser.add_argument("--way", action="append", help="only this way (repeat for several)")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each world (default 1)")
    parser.add_argument("--proposals", type=int, default=PROPOSALS)
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="the public worlds: results, docs/performance.md, docs/trust.svg",
    )
    chosen = parser.parse_args(arguments)
    ways = ["memory", "memory+prefixes", "memory+learner"] if chosen.write_docs else chosen.way or [*WAYS]
    names = chosen.world or [*(PUBLIC | OFFICE if chosen.write_docs else worlds(chosen.data))]
    results: dict[str, dict[str, dict[str, Json]]] = {name: {} for name in names}
    print(f"{'world':24}{'way':20}{'automatic':>10}{'approvals':>11}{'wrong':>7}{'shown':>7}{'false':>7}")
    tasks = [(chosen.data, name, way, chosen.seeds, chosen.proposals) for name in names for way in ways]
    with ProcessPoolExecutor(2) as pool:
        for (_, name, way, *_rest), total in zip(tasks, pool.map(_measured, tasks), strict=True):
            results[name][way] = {"share": round(total.share, 4)} | {
                each: getattr(total, each) for each in ("approvals", "wrong", "shown", "false")
            }
            print(
                f"{name:24}{way:20}{total.share:>10.0%}{total.approvals:>11}{total.wrong:>7}{total.shown:>7}"
                f"{total.false:>7}",
                flush=True,
            )
    if chosen.write_docs:
        automation_report.write(results, chosen.seeds, chosen.proposals)


if __name__ == "__main__":
    main()
