"""Who decides in whose place, as far as it is known here (decision 0210). The gateway is the judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from moot.participant.connection.roster import Roster
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.gateway_proposal import Delegation


class Delegations:
    """Delegations of everybody; those that are over are left out."""

    def __init__(self, clock: Callable[[], float], roster: Roster) -> None:
        """`clock` is the gateway's, in seconds since 1970."""
        self._clock = clock
        self._roster = roster
        self._known: list[Delegation] = []

    def living(self) -> list[Delegation]:
        return [each for each in self._known if self._clock() < _seconds(each.until)]

    def to_us(self) -> list[Delegation]:
        """Those by which we decide in somebody's place."""
        us = (self._roster.own_id, self._roster.own_name)
        return [each for each in self.living() if each.delegate in us]

    def restore(self, told: Sequence[Delegation]) -> None:
        """As the gateway tells all of them."""
        self._known = list(told)

    def observe(self, envelope: Envelope) -> None:
        """Somebody delegates, or ends it."""
        payload, sender = envelope.payload, envelope.sender
        giver, delegate = (payload["from"], sender) if "from" in payload else (sender, payload["to"])
        self._known = [each for each in self._known if (each.giver, each.delegate) != (giver, delegate)]
        if envelope.kind == "moot/delegate":
            until = rfc3339(self._clock() + payload["expires_in_seconds"])
            reason = payload.get("reason")
            self._known.append(
                Delegation(
                    delegation_id=envelope.id, giver=giver, delegate=delegate, until=until, reason=reason
                )
            )


def _seconds(until: str) -> float:
    with suppress(ValueError):
        return datetime.fromisoformat(until).timestamp()
    return 0.0
