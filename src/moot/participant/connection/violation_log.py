"""Who breaks the protocol, and how often (MEW 4.3, MCPx 4.3). Counted and reported; nothing else happens."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

# The sender of bytes that name none.
UNKNOWN_SENDER = ""


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """One message that was dropped: who sent it, which rule it broke (`fault`), and what was wrong."""

    sender: str
    fault: str
    message: str
    kind: str
    envelope_id: str


class ViolationLog:
    """Counts violations by sender. `on_report` is called with each one; it must not raise.

    The checks themselves have no switch (MCPx 7): what fails them is dropped whatever anybody configures.
    """

    def __init__(self, *, max_senders: int, max_violations: int) -> None:
        self.on_report: Callable[[ProtocolViolation], None] | None = None
        self.recent: deque[ProtocolViolation] = deque(maxlen=max_violations)
        self.total = 0
        self._by_sender: OrderedDict[str, Counter[str]] = OrderedDict()
        self._max_senders = max_senders

    def count(self, sender: str) -> int:
        """How many messages of a sender were dropped."""
        return sum(self._by_sender.get(sender, Counter()).values())

    def of(self, sender: str) -> Mapping[str, int]:
        """The same by fault."""
        return dict(self._by_sender.get(sender, Counter()))

    def senders(self) -> list[str]:
        """Everybody who broke a rule, worst first."""
        return sorted(self._by_sender, key=self.count, reverse=True)

    def report(self, violation: ProtocolViolation) -> None:
        """Count a message that was dropped."""
        self.total += 1
        self.recent.append(violation)
        faults = self._by_sender.get(violation.sender)
        if faults is None:
            if len(self._by_sender) >= self._max_senders:
                # The one whose last violation is the oldest.
                self._by_sender.popitem(last=False)
            faults = self._by_sender[violation.sender] = Counter()
        else:
            self._by_sender.move_to_end(violation.sender)
        faults[violation.fault] += 1
        log.debug(
            "dropped",
            extra={"participant": violation.sender, "fault": violation.fault, "kind": violation.kind},
        )
        if self.on_report is not None:
            try:
                self.on_report(violation)
            except Exception:
                # A hook of somebody else, in the connection's own task.
                log.exception("on_report failed")
