"""What became of rules, day by day and over restarts: history.jsonl in the approver's folder.

One line for each thing that is counted. Nothing here decides: where the file cannot be written, counting goes
on in memory, and lines that cannot be read are skipped.

In observe mode, of all rules or of one, it predicts, people decide, and the two are compared. That goes on
after a disagreement, so that people learn how often a rule is wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from moot.protocol.envelope import rfc3339
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
_DECISIONS: Final = ("people", "automatic")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a rule would have decided; `version` tells rules of one name apart."""

    rule: str
    version: str
    decision: str


@dataclass(frozen=True, slots=True)
class ObserveRecord:
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
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        # By proposal, those that nobody has decided yet.
        self.predictions: OrderedDict[str, Prediction] = OrderedDict()
        self._counted: OrderedDict[str, None] = OrderedDict()
        # Of the latest decision that was counted.
        self._last_at = 0.0
        is_long = self._file.read(self._take)
        kept = {day for day, _ in self._sums(MAX_DAYS)}
        self._counts = Counter({key: count for key, count in self._counts.items() if key[0] in kept})
        if is_long:
            self._file.replace(self._summary())

    @classmethod
    def open(cls, folder: Path) -> RuleHistory:
        return cls(LineFile(folder / HISTORY_NAME))

    # Counting

    def count(self, what: What, at: float, *, rule: str = "", version: str = "") -> None:
        day = rfc3339(at)[:10]
        self._counts[day, rule, version, what] += 1
        self._file.write({"day": day, "rule": rule, "version": version, "what": what, "n": 1})

    def count_decision(self, id: str, at: float, *, rule: str | None) -> None:
        """Count a decision by people or by a rule, once, however often it is told again."""
        if id in self._counted or (at < self._last_at and len(self._counted) >= MAX_COUNTED):
            return
        self._note_counted(id, at)
        day, what = rfc3339(at)[:10], "people" if rule is None else "automatic"
        self._counts[day, rule or "", "", what] += 1
        self._file.write(
            {"day": day, "rule": rule or "", "version": "", "what": what, "n": 1, "id": id, "at": at}
        )

    def _note_counted(self, id: str, at: float) -> None:
        self._last_at = max(self._last_at, at)
        self._counted[id] = None
        while len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)

    # Observing

    def predict(self, proposal: str, verdict: RuleVerdict) -> None:
        """Keep what the rules would have decided; `ask` is no prediction."""
        rule = verdict.rule
        if rule is not None and verdict.decision != "ask" and proposal not in self.predictions:
            self.keep_prediction(proposal, Prediction(rule.name, rule_version(rule), verdict.decision))

    def keep_prediction(self, proposal: str, prediction: Prediction) -> None:
        self._note_prediction(proposal, prediction)
        self._file.write({"predicted": proposal, **asdict(prediction)})

    def compare(self, decision: HistoryProposal) -> Prediction | None:
        """Count whether what was predicted was decided; None if nothing was, or nobody decided."""
        lesson = decision.lesson
        if decision.verdict == "pending" or lesson is None:
            return None
        found = self.predictions.pop(decision.id, None)
        if found is not None:
            self._file.write({"taken": decision.id})
            at = decision.case.at if decision.at is None else decision.at
            what: What = "agreements" if found.decision == lesson else "conflicts"
            self.count(what, at, rule=found.rule, version=found.version)
        return found

    def observed(self, rule: str, *, version: str | None = None) -> ObserveRecord:
        """The results of a rule; of its present version alone, if that is given."""
        agreements, conflicts = (
            self.total(what, rule, version=version) for what in ("agreements", "conflicts")
        )
        return ObserveRecord(agreements, conflicts)

    def _note_prediction(self, proposal: str, prediction: Prediction) -> None:
        self.predictions[proposal] = prediction
        while len(self.predictions) > MAX_PREDICTIONS:
            self.predictions.popitem(last=False)

    # Reporting

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

    def days(self, latest: int) -> list[dict[str, Json]]:
        """Decisions by people and by rules, wrong ones and suspensions, by day."""
        return [
            {"day": day, **{what: sums[what] for what in ("people", "automatic", "wrong", "tripped")}}
            for day, sums in self._sums(latest)
        ]

    def rule_days(self, latest: int) -> list[dict[str, Json]]:
        """The same for each rule, without the days on which it did nothing."""
        sums: dict[tuple[str, str], Counter[str]] = {}
        for (day, rule, _, what), count in self._counts.items():
            if rule:
                sums.setdefault((day, rule), Counter())[what] += count
        kept = {day for day, _ in self._sums(latest)}
        return [
            {"day": day, "rule": rule, **{what: found[what] for what in ("automatic", "wrong", "tripped")}}
            for (day, rule), found in sorted(sums.items())
            if day in kept
        ]

    def _sums(self, latest: int) -> list[tuple[str, Counter[str]]]:
        sums: dict[str, Counter[str]] = {}
        for (day, _, _, what), count in self._counts.items():
            sums.setdefault(day, Counter())[what] += count
        return sorted(sums.items())[-latest:]

    # The file

    def _take(self, line: Any) -> None:
        if "predicted" in line:
            prediction = Prediction(str(line["rule"]), str(line["version"]), str(line["decision"]))
            self._note_prediction(str(line["predicted"]), prediction)
        elif "taken" in line:
            self.predictions.pop(str(line["taken"]), None)
        elif "counted" in line:
            self._note_counted(str(line["counted"]), float(line["at"]))
        else:
            key = (str(line["day"]), str(line["rule"]), str(line["version"]), str(line["what"]))
            self._counts[key] += int(line["n"])
            if "id" in line:
                self._note_counted(str(line["id"]), float(line["at"]))

    def _summary(self) -> Iterator[dict[str, Json]]:
        for (day, rule, version, what), count in sorted(self._counts.items()):
            yield {"day": day, "rule": rule, "version": version, "what": what, "n": count}
        for id in self._counted:
            yield {"counted": id, "at": self._last_at}
        for proposal, prediction in self.predictions.items():
            yield {"predicted": proposal, **asdict(prediction)}


def rule_version(rule: Rule) -> str:
    """Tells a rule from another one that had its name, whose results say nothing about it."""
    fields = rule_as_json(rule)
    for key in ("words", "origin", "limits", "observe"):
        fields.pop(key, None)
    return hashlib.sha256(canonical(fields)).hexdigest()[:12]
