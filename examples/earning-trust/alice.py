"""A stand-in for a person: approves reports, accepts the rule that comes of it, and objects to it later."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from moot.errors import ProposalSettled
from moot.participant import JoinedSpace, SeenProposal, connect
from moot.protocol.envelope import Envelope

# The report that Alice would rather have seen before.
DELICATE = "reports/day-24.md"
# While a rule decides she only looks after what it leaves to people, and leaves it this head start.
PATIENCE_SECONDS = 2.0


class Alice:
    """Decides, and looks after the rule."""

    def __init__(self, space: JoinedSpace) -> None:
        self.space = space
        # The rule that decides for her; empty while none does.
        self.rule = ""

    async def proposed(self, seen: SeenProposal) -> None:
        path = str(seen.params.get("arguments", {}).get("path"))
        if not path.startswith("reports/"):
            await self.space.reject(seen, "inappropriate")
            return
        if self.rule:
            await asyncio.sleep(PATIENCE_SECONDS)
        # Somebody else was quicker, if it is values_recur.
        with suppress(ProposalSettled):
            await self.space.approve(seen)
            if path == DELICATE:
                # It was left to her as a check; she will have no more of it.
                await self.space.send("trust/stop", {"rule": self.rule, "reason": "these are mine"})

    async def suggested(self, envelope: Envelope) -> None:
        if not self.rule:
            await self.space.chat(f"I read: {envelope.payload['words']}. {envelope.payload['evidence']}")
            await self.space.send("trust/accept", {"suggestion": envelope.payload["suggestion"]})

    async def ruled(self, envelope: Envelope) -> None:
        state = envelope.payload["state"]
        self.rule = envelope.payload["rule"]["name"] if state == "active" else ""
        await self.space.chat(f"the rule is {state}: {envelope.payload['why']}")

    async def done(self, envelope: Envelope) -> None:
        """What a rule did names it."""
        arguments = envelope.payload.get("params", {}).get("arguments", {})
        if (envelope.context or "").startswith("trust/rule/") and arguments.get("path") == DELICATE:
            # About what was done, so the rule behind it is suspended.
            reason = f"{DELICATE} should have been mine"
            await self.space.send("trust/stop", {"reason": reason}, about=envelope.correlation_id[0])


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:
        alice = Alice(space)
        space.on_proposal(alice.proposed)
        space.on("trust/suggestion")(alice.suggested)
        space.on("trust/rule")(alice.ruled)
        space.on("mcp/request")(alice.done)
        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
