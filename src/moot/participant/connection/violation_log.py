"""Who breaks the rules, and how often (MEW 4.3, MCPx 4.3). Counted and reported, never punished by itself."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

# Whoever wrote bytes that name no sender.
NOBODY = ""


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """One message that was dropped: who sent it, which rule it broke (`fault`), what was wrong in words."""

    sender: str
    fault: str
    message: str
    kind: str
    envelope_id: str


class ViolationLog:
    """Counts by sender. `on_report` is called with each misdeed; it must not raise.

    The checks themselves have no switch (MCPx 7): what fails them is dropped whatever anybody configures.
    """

    def __init__(self, *, senders: int, kept: int) -> None:
        self.on_report: Callable[[ProtocolViolation], None] | None = None
        self.recent: deque[ProtocolViolation] = deque(maxlen=kept)
        self.total = 0
        self._by_sender: OrderedDict[str, Counter[str]] = OrderedDict()
        self._senders = senders

    def count(self, sender: str) -> int:
        """How many messages of a sender were dropped: its score, 0 for a good one."""
        return sum(self._by_sender.get(sender, Counter()).values())

    def of(self, sender: str) -> Mapping[str, int]:
        """The same by fault."""
        return dict(self._by_sender.get(sender, Counter()))

    def senders(self) -> list[str]:
        """Everybody who has misbehaved, worst first."""
        return sorted(self._by_sender, key=self.count, reverse=True)

    def report(self, misdeed: ProtocolViolation) -> None:
        """A message was dropped."""
        self.total += 1
        self.recent.append(misdeed)
        faults = self._by_sender.get(misdeed.sender)
        if faults is None:
            if len(self._by_sender) >= self._senders:
                # The one that has been good for longest.
                self._by_sender.popitem(last=False)
            faults = self._by_sender[misdeed.sender] = Counter()
        else:
            self._by_sender.move_to_end(misdeed.sender)
        faults[misdeed.fault] += 1
        log.debug(
            "dropped",
            extra={"participant": misdeed.sender, "fault": misdeed.fault, "kind": misdeed.kind},
        )
        if self.on_report is not None:
            try:
                self.on_report(misdeed)
            except Exception:
                # A hook of somebody else, in the connection's own task.
                log.exception("a report of misbehaviour was not taken")
