"""What members offer is asked of everybody who is here, and of whoever comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from moot.offers.offer_table import OfferTable
from moot.participant import connect
from moot.participant.programs import offer_discovery
from moot.participant.programs.offer_discovery import OfferDiscovery
from tests.agents.model.test_unanswered import WRITE, answer_tools, tools_request
from tests.participant.gateway_with_members import QUICK, TOOL_HOST, gateway_with
from tests.participant.rogue_gateway import rogue_gateway
from tests.waiting import HANG_SECONDS, bounded, until


async def test_a_server_that_is_back_before_it_answered_is_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its last connection was asked it does not know: a new process never will."""
    monkeypatch.setattr(offer_discovery, "_LIST_SECONDS", 10 * HANG_SECONDS)
    limits = replace(QUICK, host_return_seconds=10 * HANG_SECONDS)
    async with gateway_with(tmp_path, alice=["*"], late=TOOL_HOST) as gateway:
        alice = await gateway.join("alice", limits=limits)
        offers = OfferTable()
        async with OfferDiscovery(alice, offers, lambda _: None) as discovery:
            before = await gateway.raw("late")
            await tools_request(before)
            await before.leave()
            server = await gateway.raw("late")
            await answer_tools(server, await tools_request(server))
            await until(lambda: offers.offers_of("late", "tools"))
            async with bounded():
                # Its other lists are still to come.
                assert await discovery.wait_settled(10 * HANG_SECONDS, kinds=["tools"]) == []


async def test_whoever_the_welcome_had_no_room_for_is_asked_when_the_gateway_names_them() -> None:
    async with rogue_gateway() as gateway:
        gateway.participants = []
        gateway.welcome_facts = {"more": {"participants": 1}}
        offers = OfferTable()
        async with (
            connect(gateway.url, "lab", "t-me") as me,
            OfferDiscovery(me, offers, lambda _: None),
        ):
            page = await gateway.wait_for("moot/roster")
            await gateway.emit(
                "moot/roster-page",
                {"participants": [{"id": "files", "capabilities": []}]},
                to=["me"],
                about=[page["id"]],
            )
            asked = await gateway.wait_for("mcp/request")
            while asked["payload"]["method"] != "tools/list":
                asked = await gateway.wait_for("mcp/request")
            body = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "result": {"tools": [WRITE]}}
            await gateway.emit("mcp/response", body, sender="files", to=["me"], about=[asked["id"]])
            await until(lambda: offers.offers_of("files", "tools"))
            # Once: nothing else was asked for meanwhile.
            assert gateway.received.qsize() <= 3
