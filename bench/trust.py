"""Progressive automation, simulated: how much rules take over, and how often they are wrong.

`python -m bench.trust [--json]`. Made-up people (`bench.trust_people`) decide on proposals by
policies that nobody told the learner. Whatever it suggests, they accept, and what they are asked to review,
they review at once. The learner, the rules, their limits, spot checks, reviews and trip-wires are the
product's own, with the settings that it comes with.

A *wrong approval* is an automatic approval of something that the person does not want. Beside it run simple
ways (`bench.trust_baselines`): an exact list, a list of prefixes, a tool after ten approvals, and to ask
always. `bench.trust_worlds` has worlds whose policies are not the learner's shapes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import mean
from typing import Final

from bench import trust_report
from bench.trust_baselines import BASELINES, run_baseline, share_of
from bench.trust_people import EXPRESSIBLE, INEXPRESSIBLE, NOISY, World
from bench.trust_run import SimulationRun
from bench.trust_worlds import READABLE, UNKNOWABLE
from moot.protocol.operation import Json
from moot.protocol.proposal_life import RejectionRecord
from moot.trust.approver.rule_reviews import RuleReviews
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import OBJECTION, HistoryProposal
from moot.trust.learning.learner import add_rule, suggest
from moot.trust.learning.learning_settings import DEFAULTS
from moot.trust.learning.suggestion import Suggestion
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.rule import Rule, RuleOrigin
from moot.trust.rules.rule_evaluation import evaluate, row_name
from moot.trust.rules.tripwires import PersonDecided, check_tripwires

FIXED: Final = tuple(range(20))
FRESH: Final = 20
# Proposals to each person; fewer where nothing more happens, since there every single one is learned from.
PROPOSALS: Final = 800
FEWER: Final = 600
# How many decisions have been made when the share is first promised, and the stretch it is measured over.
AFTER: Final = 300
WINDOW: Final = 300
PROMISED: Final = 0.7
# The curve: the share within each such stretch.
STEP: Final = 50
# The learner looks again after this many decisions by people.
LOOK: Final = 10
POLICIES: Final = EXPRESSIBLE | NOISY | INEXPRESSIBLE | READABLE | UNKNOWABLE
# Where nobody could know, so much of what is automatic may be wrong.
MAX_UNKNOWABLE: Final = 0.01
MAX_FALSE_SUGGESTIONS: Final = 0.02
# A list of prefixes that is right at least this often is a measure for us.
RIGHT: Final = 0.99
PERSON: Final = "person"
_READS: Final = re.compile("get|list|find|search|read|show|view|calculate|think|fetch|lookup|ls|cat|grep")


class DeclaredReads:
    """The tools whose names say that they read: the stand-in for an accepted `readOnlyHint`."""

    def __contains__(self, tool: object) -> bool:
        return isinstance(tool, tuple) and _READS.match(str(tool[1])) is not None


class Simulation:
    """The product's own parts around one made-up person."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.draws = random.Random(seed + 1)
        self.rules: tuple[Rule, ...] = ()
        self.history: list[HistoryProposal] = []
        self.automated: list[HistoryProposal] = []
        self.tally = UseTally()
        self.suspended: dict[str, str] = {}
        self.suggested: dict[str, Suggestion] = {}
        self.acts: dict[str, list[bool]] = {}
        # Of each proposal that was wanted whether it ran without a question; None for the others.
        self.automatic: list[bool | None] = []
        self.rejected = RejectedCalls()
        self.shown = 0
        self.after_contradiction = 0
        self.wrong_approvals = self.wrong_rejections = self.approvals = 0
        self.reviews = RuleReviews()
        self.review_rounds = 0
        # What the person would find wrong, of each automatic approval that nobody has reviewed.
        self._unseen: dict[str, tuple[Case, bool]] = {}
        self._look_at = LOOK

    def run(self, count: int) -> None:
        for case, wanted, answer in self.world.proposals(count):
            verdict = evaluate(
                self.rules,
                case,
                case.at,
                {PERSON},
                self.tally.times(),
                suspended=self.suspended,
                draw=self.draws.random(),
                rejected=self.rejected,
                paused=self.reviews.pause_reasons(self.rules),
            )
            self.automatic.append(verdict.decision == "approve" if wanted else None)
            if verdict.decision == "ask" or verdict.rule is None:
                self._asked(case, said=answer)
                continue
            self.note_automatic(case, verdict.rule)
            wrong = wanted != (verdict.decision == "approve")
            self.acts.setdefault(verdict.rule.name, []).append(wrong)
            self.approvals += verdict.decision == "approve"
            self.wrong_approvals += wrong and verdict.decision == "approve"
            self.after_contradiction += wrong and self._was_contradicted(verdict.rule)
            self.wrong_rejections += wrong and verdict.decision == "reject"
            self.reviews.note(verdict.rule, case.id, case.at)
            # Nobody objects by mistake, which takes two steps; who slips overlooks a wrong one.
            self._unseen[case.id] = (case, wrong and not answer)
            if self.reviews.is_due(verdict.rule):
                self._review(verdict.rule, case.at + 30.0)

    def note_automatic(self, case: Case, rule: Rule) -> None:
        self.tally.record(rule.name, case.at, row=row_name(rule, case))
        decision = HistoryProposal.of(case, rules={f"{case.id}-d": rule.name})
        decision.fulfil(f"{case.id}-d", "approver", case.to, case.at)
        self.automated.append(decision)

    def _review(self, rule: Rule, at: float) -> None:
        """The person looks at what a rule decided, and objects to what they do not want."""
        self.review_rounds += 1
        ids = self.reviews.unreviewed(rule.name)
        objections = [self._unseen[id][0] for id in ids if self._unseen[id][1]]
        self.reviews.confirm(id for id in ids if not self._unseen.pop(id)[1])
        for case in objections:
            self.reviews.object_to(case.id)
            decision = HistoryProposal.of(case, rules={f"{case.id}-d": rule.name})
            decision.fulfil(f"{case.id}-d", "approver", case.to, case.at)
            decision.rejections = [RejectionRecord(f"{case.id}-o", PERSON, OBJECTION, at)]
            self._learn_from(decision, at)

    def _was_contradicted(self, rule: Rule) -> bool:
        """Whether a person decided otherwise about a call that the rule covers, before it decided this one.

        Judged by the decisions alone, not by what is suspended: a rule that goes on, comes back, or was
        accepted against what people had decided is found by it.
        """
        return any(
            decision.lesson not in (None, rule.decision) and rule.covers_call(decision.case, decision.case.at)
            for decision in self.history
        )

    def _asked(self, case: Case, *, said: bool) -> None:
        at = case.at + 30.0
        decision, id = HistoryProposal.of(case), f"{case.id}-d"
        if said:
            decision.fulfil(id, PERSON, case.to, at)
        else:
            decision.reject(RejectionRecord(id, PERSON, "disagree", at))
        self._learn_from(decision, at)

    def _learn_from(self, decision: HistoryProposal, at: float) -> None:
        self.history.append(decision)
        self.rejected.note(decision)
        self.reviews.note_decision(self.rules, decision)
        for rule in self.rules:
            suspension = check_tripwires(rule, PersonDecided(decision), at)
            if suspension is not None:
                self.suspended[rule.name] = suspension.why
        if len(self.history) >= self._look_at:
            seen = len(self.history)
            self._look_at = seen + LOOK
            for suggestion in suggest(
                [*self.history, *self.automated],
                self.rules,
                suspended=self.suspended,
                now=at,
                settings=DEFAULTS,
                repeatable=DeclaredReads(),
                reading=DeclaredReads(),
            ):
                taken = replace(suggestion.rule, origin=RuleOrigin(suggestion.id, PERSON, at))
                self.rules = add_rule(self.rules, taken, replaces=suggestion.replaces)
                self.suspended.pop(suggestion.rule.name, None)
                self.suggested[suggestion.rule.name] = suggestion
                self.shown += 1

    def false_suggestions(self) -> int:
        """Suggested rules of which more than one in a hundred decisions was wrong."""
        return sum(1 for acts in self.acts.values() if sum(acts) > len(acts) / 100)

    def beyond_bound(self) -> int:
        """Rules that were wrong more often than they said they could be."""
        return sum(
            1
            for name, acts in self.acts.items()
            if sum(acts) / len(acts) > self.suggested[name].error_bound and len(acts) >= LOOK
        )


def simulate(policy: str, seed: int, proposals: int = PROPOSALS) -> SimulationRun:
    """One made-up person from the first proposal to the last."""
    rng = random.Random(f"{policy} {seed}")
    simulation = Simulation(POLICIES[policy](rng), seed)
    simulation.run(proposals)
    automatic = simulation.automatic
    baselines = {
        name: run_baseline(
            POLICIES[policy](random.Random(f"{policy} {seed}")),
            name,
            seed=seed,
            proposals=proposals,
            after=AFTER,
            window=WINDOW,
        )
        for name in BASELINES
    }
    return SimulationRun(
        policy,
        seed,
        share_of(automatic[AFTER : AFTER + WINDOW]),
        tuple(share_of(automatic[at : at + STEP]) for at in range(0, proposals, STEP)),
        simulation.approvals,
        simulation.wrong_approvals,
        simulation.wrong_rejections,
        len(simulation.rules),
        len(simulation.suspended),
        max((s.error_bound for s in simulation.suggested.values()), default=0.0),
        simulation.beyond_bound(),
        baselines,
        simulation.shown,
        simulation.false_suggestions(),
        simulation.after_contradiction,
        simulation.review_rounds,
    )


def _task(task: tuple[str, int, int]) -> SimulationRun:
    return simulate(*task)


def measured(seeds: Sequence[int], *, workers: int = 2) -> dict[str, list[SimulationRun]]:
    """Every policy with every seed; the slowest first, so that the cores end together."""
    tasks = [
        (policy, seed, PROPOSALS if policy in EXPRESSIBLE else FEWER)
        for policy in reversed(POLICIES)
        for seed in seeds
    ]
    with ProcessPoolExecutor(workers) as pool:
        runs = list(pool.map(_task, tasks, chunksize=4))
    return {policy: [run for run in runs if run.policy == policy] for policy in POLICIES}


def fresh_seeds(count: int) -> tuple[int, ...]:
    return tuple(secrets.randbelow(1 << 30) + len(FIXED) for _ in range(count))


def promises(runs: dict[str, list[SimulationRun]]) -> Iterator[tuple[str, bool]]:
    """What was promised, and whether these runs kept it."""
    expressible = [run for policy in EXPRESSIBLE for run in runs[policy]]
    wrong = sum(run.wrong_approvals for run in expressible)
    yield f"wrong approvals where rules can say it: {wrong}, none allowed", wrong == 0
    least = min(run.after for run in expressible)
    average = min(mean(run.after for run in runs[policy]) for policy in EXPRESSIBLE)
    shares = f"{least:.0%} in the worst run, {average:.0%} in the worst policy, {PROMISED:.0%} wanted"
    yield f"automatic after {AFTER} decisions: {shares}", least >= PROMISED
    others = [run for policy in INEXPRESSIBLE for run in runs[policy]]
    share = mean(run.after for run in others)
    yield f"where rules cannot say it, still asked: {1 - share:.1%} after {AFTER} decisions", share <= 0.05
    readable = [run for policy in READABLE for run in runs[policy]]
    wrong, total = sum(run.wrong_approvals for run in readable), sum(run.approvals for run in readable)
    yield f"wrong approvals where a careful person could know: {wrong} of {total:,}, none allowed", wrong == 0
    unknowable = {policy: _wrong_share(runs[policy]) for policy in UNKNOWABLE}
    shares = ", ".join(f"{policy} {share:.1%}" for policy, share in unknowable.items())
    allowed = all(share <= MAX_UNKNOWABLE for share in unknowable.values())
    yield f"wrong approvals where nobody could know: {shares}, {MAX_UNKNOWABLE:.0%} allowed", allowed
    late = sum(run.after_contradiction for of_policy in runs.values() for run in of_policy)
    yield f"wrong approvals by a rule after the first contradiction: {late}, none allowed", late == 0
    behind = {
        policy: (ours, theirs)
        for policy in (*READABLE, *UNKNOWABLE)
        for ours, theirs in [_beside_prefixes(runs[policy])]
        if theirs is not None and ours < theirs
    }
    shown = ", ".join(f"{policy} {ours:.0%} and {theirs:.0%}" for policy, (ours, theirs) in behind.items())
    yield f"less automatic than prefixes where these are right: {shown or 'nowhere'}", not behind
    everybody = [run for of_policy in runs.values() for run in of_policy]
    beyond, rules = sum(run.beyond for run in everybody), sum(run.rules for run in everybody)
    yield f"rules that were wrong more often than their bound: {beyond} of {rules}", beyond <= 0.05 * rules
    false = sum(run.false_suggestions for run in everybody)
    shown_to_people = sum(run.shown for run in everybody)
    words = f"suggestions whose rule was wrong in over 1 % of its decisions: {false} of {shown_to_people}"
    yield words, false <= MAX_FALSE_SUGGESTIONS * shown_to_people


def _wrong_share(runs: Sequence[SimulationRun]) -> float:
    return sum(run.wrong_approvals for run in runs) / max(1, sum(run.approvals for run in runs))


def _beside_prefixes(runs: Sequence[SimulationRun]) -> tuple[float, float | None]:
    """Our automatic share and that of a list of prefixes; None if that is often wrong, or does nothing."""
    theirs = [run.baselines["prefix_list"] for run in runs]
    approvals, wrong = sum(each.approvals for each in theirs), sum(each.wrong for each in theirs)
    share = mean(each.share for each in theirs)
    right = approvals > 0 and wrong <= (1 - RIGHT) * approvals
    return mean(run.after for run in runs), share if right else None


def as_json(runs: dict[str, list[SimulationRun]], seeds: Sequence[int], seconds: float) -> dict[str, Json]:
    return {
        "people": sum(map(len, runs.values())),
        "proposals": sum(len(run.curve) * STEP for of_policy in runs.values() for run in of_policy),
        "seeds": {"fixed": [s for s in seeds if s in FIXED], "fresh": [s for s in seeds if s not in FIXED]},
        "seconds": round(seconds, 1),
        "policies": {
            policy: {
                "expressible": policy in EXPRESSIBLE,
                "readable": policy in READABLE,
                "unknowable": policy in UNKNOWABLE,
                "noisy": policy in NOISY,
                "share_after_300": {
                    "mean": round(mean(run.after for run in of_policy), 4),
                    "worst": round(min(run.after for run in of_policy), 4),
                },
                "curve": [
                    {"decisions": (at + 1) * STEP, "share": round(share, 4)}
                    for at, share in enumerate(trust_report.shares_of(of_policy))
                ],
                "automatic_approvals": sum(run.approvals for run in of_policy),
                "wrong_approvals": sum(run.wrong_approvals for run in of_policy),
                "wrong_rejections": sum(run.wrong_rejections for run in of_policy),
                "error_bound": round(max(run.bound for run in of_policy), 4),
                "suggestions_per_run": round(mean(run.shown for run in of_policy), 2),
                "reviews_per_run": round(mean(run.reviews for run in of_policy), 2),
                "false_suggestions": sum(run.false_suggestions for run in of_policy),
                "suspended_rules": sum(run.suspended for run in of_policy),
                "baselines": {
                    **{
                        name: {
                            "share_after_300": round(mean(run.baselines[name].share for run in of_policy), 4),
                            "automatic_approvals": sum(run.baselines[name].approvals for run in of_policy),
                            "wrong_approvals": sum(run.baselines[name].wrong for run in of_policy),
                        }
                        for name in BASELINES
                    },
                    "always_ask": {"share_after_300": 0.0, "wrong_approvals": 0},
                },
            }
            for policy, of_policy in runs.items()
        },
        "promises": [{"promise": words, "kept": kept} for words, kept in promises(runs)],
    }


def run(fresh: int = FRESH) -> dict[str, list[SimulationRun]]:
    """Measure and print; one section of `make bench`."""
    seeds = (*FIXED, *fresh_seeds(fresh))
    runs = measured(seeds)
    for line in trust_report.lines(runs, list(promises(runs)), seeds):
        print(line)
    return runs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--fresh", type=int, default=FRESH, metavar="N", help=f"new seeds (default {FRESH})")
    chosen = parser.parse_args(arguments)
    if not chosen.json:
        runs = run(chosen.fresh)
    else:
        start = time.monotonic()
        seeds = (*FIXED, *fresh_seeds(chosen.fresh))
        runs = measured(seeds)
        print(json.dumps(as_json(runs, seeds, time.monotonic() - start), indent=2))


if __name__ == "__main__":
    main()
