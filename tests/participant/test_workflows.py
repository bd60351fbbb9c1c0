"""The documents' own stories, told by members of the SDK (MEW 9, MCPx 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.participant import SeenProposal
from moot.protocol.envelope import Envelope
from tests.participant.gateway_with_members import gateway_with
from tests.waiting import HANG_SECONDS, until

PEOPLE: dict[str, Any] = {
    "proposer": ["mcp/proposal", "mcp/withdraw", "chat"],
    "human": ["chat", "mcp/reject"],
    "orchestrator": ["mcp/request", "chat"],
    "worker": [],
}


@pytest.mark.requirement("MEW-9.4-1", "MCPX-9.4-1", "MCPX-9.4-2")
@pytest.mark.parametrize("dialect", ["mew", "mcpx"])
async def test_delegated_fulfilment(tmp_path: Path, dialect: str) -> None:
    """The human tells the orchestrator what to do with a proposal, until it knows the case by itself."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        proposer, human, orchestrator, worker = [await gateway.join(name, dialect=dialect) for name in PEOPLE]
        taught: set[str] = set()
        done: list[str] = []

        @worker.tool
        def build(target: str) -> str:
            done.append(target)
            return f"built {target}"

        @worker.tool
        def deploy(target: str) -> str:
            done.append(f"deployed {target}")
            return "deployed"

        @orchestrator.on_proposal
        async def known_case(seen: SeenProposal) -> None:
            if seen.params["name"] in taught:
                await orchestrator.approve(seen)

        @orchestrator.on("chat")
        async def note_chat(chat: Envelope) -> None:
            if chat.sender != "human" or not chat.correlation_id:
                return
            seen = orchestrator.proposals.get(chat.correlation_id[0])
            if seen is not None and chat.payload["text"].startswith("go ahead"):
                if "always" in chat.payload["text"]:
                    taught.add(seen.params["name"])
                await orchestrator.approve(seen)

        call = asyncio.create_task(proposer.call("worker", "build", {"target": "docs"}))
        await until(lambda: bool(human.proposals.open()))
        (seen,) = human.proposals.open()
        assert done == []
        await human.chat("go ahead, and always with builds", to="orchestrator", about=seen.id)
        outcome = await call
        assert (outcome.text, outcome.by, outcome.host) == ("built docs", "orchestrator", "worker")
        # The known case needs nobody; the unknown one waits.
        again = await proposer.call("worker", "build", {"target": "site"}, timeout_seconds=HANG_SECONDS)
        assert again.by == "orchestrator"
        proposal = await proposer.propose(
            "worker", "tools/call", {"name": "deploy", "arguments": {"target": "site"}}
        )
        await until(lambda: len(human.proposals.open()) == 1)
        assert proposal.state == "pending"
        await human.reject(proposal.id, "policy")
        await until(lambda: proposal.state == "rejected")
        assert done == ["docs", "site"]
