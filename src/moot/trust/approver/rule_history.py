"""What became of rules, day by day and over restarts: history.jsonl in the approver's folder.

One line for each thing that is counted. A line is written at once and without waiting for the disk, so that a
process that is killed loses nothing; when there are many lines, they are summed up at the next start. Nothing
here decides: where the file cannot be written, counting goes on in memory.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from moot.private_files import open_private
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

HISTORY_NAME: Final = "history.jsonl"
# Days that are kept; the oldest are dropped at a start.
MAX_DAYS: Final = 400
# More lines are summed up at a start.
MAX_LINES: Final = 20_000
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


class RuleHistory:
    """The counts of one space."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        self._predictions: OrderedDict[str, Prediction] = OrderedDict()
        self._counted: OrderedDict[str, None] = OrderedDict()
        # Of the latest decision that was counted.
        self._last_at = 0.0
        self._can_write = True
        self._descriptor: int | None = None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @classmethod
    def open(cls, folder: Path) -> RuleHistory:
        """Read the history in a folder; lines that cannot be read are skipped, since it decides nothing."""
        history = cls(folder / HISTORY_NAME)
        history._read(folder / HISTORY_NAME)
        return history

    # Counting

    def count(self, what: What, at: float, *, rule: str = "", version: str = "") -> None:
        day = rfc3339(at)[:10]
        self._counts[day, rule, version, what] += 1
        self._write({"day": day, "rule": rule, "version": version, "what": what, "n": 1})

    def count_decision(self, id: str, at: float, *, rule: str | None) -> None:
        """Count a decision by people or by a rule, once, however often it is told again."""
        if id in self._counted or (at < self._last_at and len(self._counted) >= MAX_COUNTED):
            return
        self._note_counted(id, at)
        day, what = rfc3339(at)[:10], "people" if rule is None else "automatic"
        self._counts[day, rule or "", "", what] += 1
        self._write({"day": day, "rule": rule or "", "version": "", "what": what, "n": 1, "id": id, "at": at})

    def _note_counted(self, id: str, at: float) -> None:
        self._last_at = max(self._last_at, at)
        self._counted[id] = None
        while len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)

    def keep_prediction(self, proposal: str, prediction: Prediction) -> None:
        self._note_prediction(proposal, prediction)
        self._write({"predicted": proposal, **_fields(prediction)})

    def take_prediction(self, proposal: str) -> Prediction | None:
        """The prediction about a proposal, which is now decided."""
        found = self._predictions.pop(proposal, None)
        if found is not None:
            self._write({"taken": proposal})
        return found

    def find_prediction(self, proposal: str) -> Prediction | None:
        return self._predictions.get(proposal)

    def _note_prediction(self, proposal: str, prediction: Prediction) -> None:
        self._predictions[proposal] = prediction
        while len(self._predictions) > MAX_PREDICTIONS:
            self._predictions.popitem(last=False)

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

    def _write(self, line: dict[str, Json]) -> None:
        if self._file is None:
            return
        try:
            if self._descriptor is None:
                self._descriptor = open_private(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(self._descriptor, _encode(line))
            self._can_write = True
        except OSError as fault:
            if self._can_write:
                log.warning("the history of rules cannot be written", extra={"why": str(fault)})
            self._can_write = False

    def _read(self, file: Path) -> None:
        try:
            lines = file.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        except OSError as fault:
            log.warning("the history of rules cannot be read", extra={"why": str(fault)})
            return
        skipped = sum(not self._read_line(line) for line in lines)
        if skipped:
            log.warning("lines of the history of rules were skipped", extra={"lines": skipped})
        kept = {day for day, _ in self._sums(MAX_DAYS)}
        self._counts = Counter({key: count for key, count in self._counts.items() if key[0] in kept})
        if len(lines) > MAX_LINES or skipped:
            self._sum_up(file)

    def _read_line(self, text: str) -> bool:
        try:
            line: Any = json.loads(text)
            if "predicted" in line:
                prediction = Prediction(str(line["rule"]), str(line["version"]), str(line["decision"]))
                self._note_prediction(str(line["predicted"]), prediction)
            elif "taken" in line:
                self._predictions.pop(str(line["taken"]), None)
            elif "counted" in line:
                self._note_counted(str(line["counted"]), float(line["at"]))
            else:
                key = (str(line["day"]), str(line["rule"]), str(line["version"]), str(line["what"]))
                self._counts[key] += int(line["n"])
                if "id" in line:
                    self._note_counted(str(line["id"]), float(line["at"]))
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def _sum_up(self, file: Path) -> None:
        try:
            write_atomically(file, b"".join(map(_encode, self._summary())))
        except OSError as fault:
            log.warning("the history of rules cannot be summed up", extra={"why": str(fault)})

    def _summary(self) -> Iterator[dict[str, Json]]:
        for (day, rule, version, what), count in sorted(self._counts.items()):
            yield {"day": day, "rule": rule, "version": version, "what": what, "n": count}
        for id in self._counted:
            yield {"counted": id, "at": self._last_at}
        for proposal, prediction in self._predictions.items():
            yield {"predicted": proposal, **_fields(prediction)}


def _encode(line: dict[str, Json]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"


def _fields(prediction: Prediction) -> dict[str, Json]:
    return {"rule": prediction.rule, "version": prediction.version, "decision": prediction.decision}
