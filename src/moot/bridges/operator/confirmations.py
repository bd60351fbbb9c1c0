"""Questions to the person whether one proposal is to be approved, until they are answered, once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from moot.mcp.eras import JsonObject
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.latest_dict import LatestDict
from moot.protocol.origin_report import AgainOffer

# How the person was asked: by a form with the exact call, or by the address of a page.
Question = Literal["form", "page"]


class _Asked(NamedTuple):
    proposal_id: str
    fingerprint: str
    question: Question
    asked_at: float


class Confirmations:
    """The open questions. A state cannot be guessed, counts for one proposal, once, and for a time."""

    def __init__(
        self, max_open: int, kept_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._open: LatestDict[str, _Asked] = LatestDict(max_open)

    def ask(self, seen: SeenProposal, *, is_form: bool) -> str:
        """The state of a new question; the oldest is forgotten where there are too many."""
        state = f"operator-{secrets.token_hex(16)}"
        question: Question = "form" if is_form else "page"
        self._open[state] = _Asked(seen.id, seen.fingerprint(), question, self._clock())
        return state

    def use_up(self, state: str, seen: SeenProposal) -> Question | None:
        """How the person was asked about exactly this proposal; None if they were not. Uses the state up."""
        asked = self._open.pop(state, None)
        if asked is None or self._clock() - asked.asked_at > self._kept_seconds:
            return None
        is_same = (asked.proposal_id, asked.fingerprint) == (seen.id, seen.fingerprint())
        return asked.question if is_same else None


def decision_form(offer: AgainOffer | None) -> JsonObject:
    """What a person at the client is asked."""
    # Approving is never the default: nobody approves by pressing Enter.
    choices = {"leave": "Leave it pending", "approve": "Approve it"}
    if offer is not None:
        choices["again"] = f"Approve it, and the same call again ({offer.text})"
    choices["reject"] = "Reject it"
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "What shall be done?",
                "enum": list(choices),
                "enumNames": list(choices.values()),
                "default": "leave",
            }
        },
        "required": ["decision"],
    }
