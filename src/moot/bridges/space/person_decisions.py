"""Decisions of the person who sits at the client, made in that person's own name.

The member that `moot mcp` joins as may only propose. If its operator also gives the token of the person at
the client, a dialog can offer to approve or reject right there. The decision is made over a connection of its
own as that person, so rights, separation of duties, quorums and the journal hold as for every other decision.
"""

from __future__ import annotations

from moot.errors import UsageError
from moot.mcp.downstream.backend import PersonDecision
from moot.participant import connect


class PersonDecisions:
    """Decides on proposals as one person; joins for each decision."""

    def __init__(self, url: str, space: str, token: str) -> None:
        self._url = url
        self._space = space
        self._token = token

    async def decide(self, proposal_id: str, decision: PersonDecision, *, proposer: str) -> None:
        """Approve or reject a proposal; raises MootError. An approval waits for the result of the call."""
        # Passive: the person may be connected elsewhere, and answers there.
        async with connect(self._url, self._space, self._token, passive=True) as person:
            if person.me == proposer:
                raise UsageError("the token of the person is that of the proposing member itself")
            await person.refresh_proposals()
            if decision == "approve":
                await person.approve(proposal_id)
            else:
                await person.reject(proposal_id, "disagree")
