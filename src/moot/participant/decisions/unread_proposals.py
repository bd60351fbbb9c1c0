"""What was said about proposals to a member that has not looked at any (decision 0259).

Hosts and callers get every message of a space, and most never ask what was proposed. So it is kept as it
came, and read when somebody looks. Bounded: the oldest goes first, as if the member had joined later.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from moot.protocol.envelope import Envelope
from moot.protocol.fingerprint import fingerprint
from moot.protocol.latest_dict import LatestDict

MAX_UNREAD: Final = 1_024
# A quarter of what a list of proposals may hold.
MAX_UNREAD_BYTES: Final = 8 << 20


class UnreadProposals:
    """Messages about proposals in the order in which they came, each with its time and its sender's name."""

    def __init__(self) -> None:
        self.messages: deque[tuple[float, str, Envelope]] = deque()
        # The connection was lost meanwhile: what is open may have changed without us.
        self.is_uncertain = False
        # Members that left meanwhile, the latest last.
        self.left: LatestDict[str, None] = LatestDict(MAX_UNREAD)
        self.proposals: dict[str, Envelope] = {}
        self._bytes = 0

    def add(self, envelope: Envelope, at: float, name: str) -> None:
        if envelope.kind == "mcp/proposal":
            self.proposals[envelope.id] = envelope
        self.messages.append((at, name, envelope))
        self._bytes += len(envelope.raw)
        while len(self.messages) > MAX_UNREAD or self._bytes > MAX_UNREAD_BYTES:
            gone = self.messages.popleft()[2]
            self._bytes -= len(gone.raw)
            if self.proposals.get(gone.id) is gone:
                del self.proposals[gone.id]

    def note_left(self, member: str) -> None:
        if self.proposals:
            self.left[member] = None

    def are_repeated_by(self, request: Envelope) -> bool:
        """Whether a request is the very call of each proposal that it names, as far as they are here."""
        for id in request.correlation_id:
            proposal = self.proposals.get(id)
            # Both are remembered: every member of this process asks for the same.
            if proposal is not None and fingerprint(proposal.raw) != fingerprint(request.raw):
                return False
        return True
