"""What became of rules, day by day and over restarts: history.jsonl in the approver's folder.

One line for each thing that is counted. Nothing here decides: where the file cannot be written, counting goes
on in memory, and lines that cannot be read are skipped.

In observe mode, of all rules or of one, it predicts, people decide, and the two are compared. That goes on
after a disagreement, so that people learn how often a rule is wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from moot.protocol.envelope import rfc3339
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.trust.approver.line_file import LineFile
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.bounds import upper_bound
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_json import rule_as_json

HISTORY_NAME: Final = "history.jsonl"
# Days that are kept; the oldest are dropped at a start.
MAX_DAYS: Final = 400
# Predictions without a decision, and decisions that are known to be counted; the oldest are dropped first.
MAX_PREDICTIONS: Final = 10_000
MAX_COUNTED: Final = 10_000

# Decisions by people; of a rule its decisions, those that people contradicted, suspensions; in observe mode
# predictions that people confirmed or not.
What = Literal["people", "automatic", "wrong", "tripped", "agreements", "conflicts"]


class Prediction(NamedTuple):
    """What a rule would have decided; `version` tells rules of one name apart."""

    rule: str
    version: str
    decision: str


class ObserveRecord(NamedTuple):
    """The results of a rule in observe mode, with an upper bound of its error rate (95 % confidence)."""

    agreements: int
    conflicts: int

    @property
    def bound(self) -> float:
        return upper_bound(self.conflicts, self.agreements + self.conflicts)


class RuleHistory:
    """The counts of one space."""

    def __init__(self, file: LineFile | None = None) -> None:
        self._file = file or LineFile()
        # By day, rule and its version.
        self._counts: Counter[tuple[str, str, str, What]] = Counter()
        # By proposal, those that nobody has decided yet.
        self.predictions: LatestDict[str, Prediction] = LatestDict(MAX_PREDICTIONS)
        self._counted: LatestDict[str, None] = LatestDict(MAX_COUNTED)
        # Of the latest decision that was counted.
        self._last_at = 0.0
        self._file.read(self._take, self._summary)

    @classmethod
    def open(cls, folder: Path) -> RuleHistory:
        return cls(LineFile(folder / HISTORY_NAME))

    # Counting

    def count(self, what: What, at: float, *, rule: str = "", version: str = "", id: str = "") -> None:
        """Count something; a decision by its id."""
        line = {"day": rfc3339(at)[:10], "rule": rule, "version": version, "what": what, "n": 1}
        self._note(line | ({"id": id, "at": at} if id else {}))

    def count_decision(self, id: str, at: float, *, rule: str | None) -> None:
        """Count a decision by people or by a rule, once, however often it is told again."""
        if id not in self._counted and not (at < self._last_at and len(self._counted) >= MAX_COUNTED):
            self.count("people" if rule is None else "automatic", at, rule=rule or "", id=id)

    # Observing

    def predict(self, proposal: str, verdict: RuleVerdict) -> None:
        """Keep what the rules would have decided; `ask` is no prediction."""
        rule = verdict.rule
        if rule is not None and verdict.decision != "ask" and proposal not in self.predictions:
            self.keep_prediction(proposal, Prediction(rule.name, rule_version(rule), verdict.decision))

    def keep_prediction(self, proposal: str, prediction: Prediction) -> None:
        self._note({"predicted": proposal, **prediction._asdict()})

    def compare(self, decision: HistoryProposal) -> Prediction | None:
        """Count whether what was predicted was decided; None if nothing was, or nobody decided."""
        lesson, found = decision.lesson, self.predictions.get(decision.id)
        if decision.verdict == "pending" or lesson is None or found is None:
            return None
        self._note({"taken": decision.id})
        at = decision.case.at if decision.at is None else decision.at
        what: What = "agreements" if found.decision == lesson else "conflicts"
        self.count(what, at, rule=found.rule, version=found.version)
        return found

    # Reporting

    def observed(self, rule: str, *, version: str | None = None) -> ObserveRecord:
        """The results of a rule; of its present version alone, if that is given."""
        return ObserveRecord(
            self.total("agreements", rule, version=version), self.total("conflicts", rule, version=version)
        )

    def total(self, what: What, rule: str = "", *, version: str | None = None) -> int:
        """How often that was, of all days; of one version of a rule if it is named."""
        return sum(
            count
            for (_, name, of, kind), count in self._counts.items()
            if name == rule and kind == what and version in (None, of)
        )

    def rules(self) -> list[str]:
        """The rules of which something is known."""
        return sorted({rule for _, rule, _, _ in self._counts if rule})

    def shares(self, latest: int) -> list[dict[str, Json]]:
        """Decisions by people and by rules, by day, and how many of them were automatic."""
        days: dict[str, Counter[str]] = {}
        for (day, _), found in self._sums(latest).items():
            days.setdefault(day, Counter()).update(found)
        decided = ((day, found["people"], found["automatic"]) for day, found in sorted(days.items()))
        return [
            {"day": day, "people": people, "rules": rules, "share": round(rules / (people + rules), 4)}
            for day, people, rules in decided
            if people + rules
        ]

    def rule_days(self, latest: int) -> list[dict[str, Json]]:
        """What each rule decided, what of it was wrong, and its suspensions, on days when it did anything."""
        return [
            {"day": day, "rule": rule, **{what: found[what] for what in ("automatic", "wrong", "tripped")}}
            for (day, rule), found in sorted(self._sums(latest).items())
            if rule
        ]

    def _sums(self, latest: int) -> dict[tuple[str, str], Counter[str]]:
        kept, sums = self._latest_days(latest), dict[tuple[str, str], Counter[str]]()
        for (day, rule, _, what), count in self._counts.items():
            if day in kept:
                sums.setdefault((day, rule), Counter())[what] += count
        return sums

    def _latest_days(self, count: int) -> set[str]:
        return set(sorted({day for day, _, _, _ in self._counts})[-count:])

    # The file

    def _note(self, line: dict[str, Json]) -> None:
        self._file.write(line)
        self._take(line)

    def _take(self, line: Any) -> None:
        if "predicted" in line:
            prediction = Prediction(str(line["rule"]), str(line["version"]), str(line["decision"]))
            self.predictions[str(line["predicted"])] = prediction
        elif "taken" in line:
            self.predictions.pop(str(line["taken"]), None)
        else:
            if "day" in line:
                key = (str(line["day"]), str(line["rule"]), str(line["version"]), line["what"])
                self._counts[key] += int(line["n"])
            if (id := line.get("id", line.get("counted"))) is not None:
                self._counted[str(id)] = None
                self._last_at = max(self._last_at, float(line["at"]))

    def _summary(self) -> Iterator[dict[str, Json]]:
        kept = self._latest_days(MAX_DAYS)
        self._counts = Counter({key: count for key, count in self._counts.items() if key[0] in kept})
        for (day, rule, version, what), count in sorted(self._counts.items()):
            yield {"day": day, "rule": rule, "version": version, "what": what, "n": count}
        for id in self._counted:
            yield {"counted": id, "at": self._last_at}
        for proposal, prediction in self.predictions.items():
            yield {"predicted": proposal, **prediction._asdict()}


def rule_version(rule: Rule) -> str:
    """Tells a rule from another one that had its name, whose results say nothing about it."""
    fields = rule_as_json(rule)
    for key in ("words", "origin", "limits", "observe"):
        fields.pop(key, None)
    return hashlib.sha256(canonical(fields)).hexdigest()[:12]
