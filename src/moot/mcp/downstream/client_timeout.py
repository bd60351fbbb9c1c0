"""How long the clients of one server wait for an answer, as far as they have shown it.

Some clients give up after a few seconds and say nothing: the request stays open here, and nobody reads its
answer. They show it by repeating the call. From then on they are answered in time, and an answer that comes
later than they wait does not count as told.
"""

from __future__ import annotations

import math
from typing import Final

# Calls that are repeated within this are made at once, not after a time limit: no client has a shorter one.
_AT_ONCE_SECONDS: Final = 1.0
# Answered a little before the client gives up, so that the answer arrives.
_MARGIN: Final = 0.75


class ClientTimeout:
    """The shortest time that a client was seen to wait; without end until one was seen to give up."""

    def __init__(self) -> None:
        self._seconds = math.inf

    def learn(self, waited_seconds: float) -> None:
        """A client has given up after this, or after less."""
        if waited_seconds >= _AT_ONCE_SECONDS:
            self._seconds = min(self._seconds, waited_seconds)

    @property
    def answer_seconds(self) -> float:
        """How long a request may take."""
        return self._seconds * _MARGIN

    def is_over(self, waited_seconds: float) -> bool:
        """Whether a client that has waited this long has probably given up."""
        return waited_seconds > self._seconds
