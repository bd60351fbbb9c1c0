"""What rules decided and nobody has looked at yet: reviews.jsonl in the approver's folder.

A rule with `limits.review_share` has people look at what it decided, some decisions at a time: a review is
due when the decisions that nobody reviewed are more than this share of the reviewed ones, and at least
`MIN_DECISIONS`. If nobody looks, the rule decides until there are `MAX_REVIEWS` times as many, and then
leaves a proposal to people, whose approval stands for as many decisions as a review. So a policy that
changes is noticed after few decisions, and the more a rule has proved right, the rarer it is looked at.

A line is written before a decision is sent: a process that is killed forgets none. What cannot be written is
not decided.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from moot.private_files import open_private
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule

log = logging.getLogger(__name__)

REVIEWS_NAME: Final = "reviews.jsonl"
# A review is about at least so many decisions: people should not be called for each.
MIN_DECISIONS: Final = 6
# After so many reviews that nobody did, a rule leaves decisions to people.
MAX_REVIEWS: Final = 5
# More lines are summed up at a start.
MAX_LINES: Final = 20_000


class RuleReviews:
    """The decisions of each rule that nobody has reviewed, oldest first, and how many were."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._unreviewed: dict[str, dict[str, None]] = {}
        self._reviewed: dict[str, int] = {}
        # When the latest decision was made that is noted here.
        self.last_at = 0.0
        self._fault: str | None = None
        # The file may end within a line: the next one begins on its own.
        self._is_torn = False

    @classmethod
    def open(cls, folder: Path) -> RuleReviews:
        """Read what is noted in a folder; a file that cannot be read pauses the rules that need it."""
        reviews = cls(folder / REVIEWS_NAME)
        try:
            text = (folder / REVIEWS_NAME).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return reviews
        except OSError as fault:
            reviews._fault = str(fault)
            return reviews
        reviews._is_torn = not text.endswith("\n") and text != ""
        lines = text.splitlines()
        skipped = sum(not reviews._read_line(line) for line in lines)
        if skipped:
            log.warning("lines about reviews were skipped", extra={"lines": skipped})
        if len(lines) > MAX_LINES:
            reviews._sum_up(folder / REVIEWS_NAME)
        return reviews

    # Deciding

    def note(self, rule: Rule, id: str, at: float) -> bool:
        """Note a decision before it is sent; returns whether it may be."""
        if not rule.limits.review_share:
            return True
        if not self._write({"rule": rule.name, "decided": id, "at": at}):
            return False
        self._add(rule.name, id, at)
        return True

    def pause_reasons(self, rules: Iterable[Rule]) -> Mapping[str, str]:
        """Why rules decide nothing until somebody has reviewed what they decided, as `evaluate` takes it."""
        found = {}
        for rule in rules:
            if rule.limits.review_share and self.left(rule) == 0:
                count = len(self._unreviewed.get(rule.name, ()))
                found[rule.name] = f"nobody has reviewed its last {count} decisions"
            elif rule.limits.review_share and self._fault is not None and not self._write({}):
                found[rule.name] = f"what it decides cannot be noted for a review: {self._fault}"
        return found

    def left(self, rule: Rule) -> int | None:
        """How many decisions it has left until somebody must have reviewed some; None without reviews."""
        if not rule.limits.review_share:
            return None
        return max(0, MAX_REVIEWS * self._batch(rule) - len(self._unreviewed.get(rule.name, ())))

    def is_due(self, rule: Rule) -> bool:
        """Whether people should look at what it decided."""
        return bool(rule.limits.review_share) and len(self._unreviewed.get(rule.name, ())) >= self._batch(
            rule
        )

    def _batch(self, rule: Rule) -> int:
        return max(MIN_DECISIONS, int(rule.limits.review_share * self._reviewed.get(rule.name, 0)))

    # Reviewing

    def unreviewed(self, rule: str) -> tuple[str, ...]:
        """The proposals that it decided and nobody has reviewed, oldest first."""
        return tuple(self._unreviewed.get(rule, ()))

    def reviewed(self, rule: str) -> int:
        return self._reviewed.get(rule, 0)

    def rule_of(self, id: str) -> str | None:
        """The rule whose unreviewed decision this is."""
        return next((rule for rule, ids in self._unreviewed.items() if id in ids), None)

    def confirm(self, ids: Iterable[str]) -> dict[str, int]:
        """A person found these decisions right; returns how many of each rule were not reviewed before."""
        found: dict[str, int] = {}
        for id in ids:
            rule = self.rule_of(id)
            # What cannot be noted as reviewed is shown again.
            if rule is not None and self._write({"rule": rule, "reviewed": id}):
                self._confirm(rule, id)
                found[rule] = found.get(rule, 0) + 1
        return found

    def note_decision(self, rules: Iterable[Rule], decision: HistoryProposal) -> None:
        """A person approved what a rule left to them because nobody reviews it: a sample of its decisions."""
        for rule in rules if decision.lesson == "approve" else ():
            if self.left(rule) == 0 and rule.matches(decision.case, decision.case.at):
                self.confirm(self.unreviewed(rule.name)[: self._batch(rule)])

    def object_to(self, id: str) -> None:
        """A person found this decision wrong: it proves nothing, and the rule starts anew."""
        rule = self.rule_of(id)
        if rule is not None:
            self._write({"rule": rule, "wrong": id})
            self._start_anew(rule, id)

    def forget(self, id: str) -> None:
        """It was noted, and then the rule did not decide it."""
        rule = self.rule_of(id)
        if rule is not None:
            self._write({"rule": rule, "forgotten": id})
            self._unreviewed[rule].pop(id)

    def _add(self, rule: str, id: str, at: float) -> None:
        self._unreviewed.setdefault(rule, {})[id] = None
        self.last_at = max(self.last_at, at)

    def _confirm(self, rule: str, id: str) -> None:
        self._unreviewed.get(rule, {}).pop(id, None)
        self._reviewed[rule] = self._reviewed.get(rule, 0) + 1

    def _start_anew(self, rule: str, id: str) -> None:
        self._unreviewed.get(rule, {}).pop(id, None)
        self._reviewed.pop(rule, None)

    # The file

    def _write(self, line: dict[str, Json]) -> bool:
        if self._file is None:
            return True
        try:
            descriptor = open_private(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                data = b"\n" * self._is_torn + _encode(line)
                self._is_torn = True
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._is_torn = False
            finally:
                os.close(descriptor)
        except OSError as fault:
            if self._fault is None:
                log.warning("what rules decide cannot be noted for reviews", extra={"why": str(fault)})
            self._fault = str(fault)
            return False
        self._fault = None
        return True

    def _read_line(self, text: str) -> bool:
        try:
            line: Any = json.loads(text or "{}")
            if not line:
                return True
            rule = str(line["rule"])
            if "decided" in line:
                self._add(rule, str(line["decided"]), float(line["at"]))
            elif "reviewed" in line:
                self._confirm(rule, str(line["reviewed"]))
            elif "forgotten" in line:
                self._unreviewed.get(rule, {}).pop(str(line["forgotten"]), None)
            elif "wrong" in line:
                self._start_anew(rule, str(line["wrong"]))
            else:
                self._reviewed[rule] = int(line["count"])
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def _sum_up(self, file: Path) -> None:
        counts = [{"rule": rule, "count": count} for rule, count in self._reviewed.items()]
        waiting = [
            {"rule": rule, "decided": id, "at": self.last_at}
            for rule, ids in self._unreviewed.items()
            for id in ids
        ]
        try:
            write_atomically(file, b"".join(_encode(line) for line in [*counts, *waiting]))
        except OSError as fault:
            log.warning("the notes about reviews cannot be summed up", extra={"why": str(fault)})


def _encode(line: Mapping[str, Json]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
