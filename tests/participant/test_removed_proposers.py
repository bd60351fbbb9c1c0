"""The proposals of somebody who was removed are withdrawn, and everybody knows it at once (decision 0015)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moot.config import load
from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.gateway.running_gateway import Client, gateway_settings, participants, space_settings, write_config
from tests.participant.gateway_with_members import PROPOSER, GatewayWithMembers, gateway_with
from tests.waiting import until

RIGHTS: dict[str, Any] = {"human": ["*"], "agent": PROPOSER, "files": []}
PUBLIC: dict[str, Json] = {"access": "public", "anonymous": list(PROPOSER)}
CALL: Json = {"method": "tools/call", "params": {"name": "write", "arguments": {}}}

Removal = Callable[[GatewayWithMembers, JoinedSpace, Client], Awaitable[None]]


async def come(gateway: GatewayWithMembers, token: str | None, runtime_id: str | None = None) -> Client:
    client = await gateway.gateway.open("/")
    named = {} if runtime_id is None else {"participantId": runtime_id}
    await client.send(
        {"type": "join", "space": "lab", **({} if token is None else {"token": token}), **named}
    )
    await client.hear("system/welcome")
    return client


async def kicked(gateway: GatewayWithMembers, human: JoinedSpace, agent: Client) -> None:
    await human.admin.kick("agent", "runaway")


async def kicked_while_away(gateway: GatewayWithMembers, human: JoinedSpace, agent: Client) -> None:
    await disconnected(gateway, human, agent)
    await human.admin.kick("agent", "runaway")


async def no_longer_in_the_file(gateway: GatewayWithMembers, human: JoinedSpace, agent: Client) -> None:
    rest = participants(human=["*"], files=[])
    settings = gateway_settings({"lab": space_settings(rest, **PUBLIC)})
    gateway.gateway.gateway.reload(load(write_config(gateway.gateway.folder, settings), environ={}))


async def no_longer_in_the_file_while_away(
    gateway: GatewayWithMembers, human: JoinedSpace, agent: Client
) -> None:
    await disconnected(gateway, human, agent)
    await no_longer_in_the_file(gateway, human, agent)


async def disconnected(gateway: GatewayWithMembers, human: JoinedSpace, agent: Client) -> None:
    await agent.leave()
    await until(lambda: "agent" not in human.roster)


REMOVALS = [kicked, kicked_while_away, no_longer_in_the_file, no_longer_in_the_file_while_away]


@pytest.mark.parametrize("runtime_id", ["agent", "agent-laptop"])
@pytest.mark.parametrize("remove", REMOVALS)
async def test_what_a_removed_member_proposed_is_no_longer_pending(
    tmp_path: Path, remove: Removal, runtime_id: str
) -> None:
    async with gateway_with(tmp_path, rules=PUBLIC, **RIGHTS) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("files")
        agent = await come(gateway, "t-agent", runtime_id)
        await agent.ask("mcp/proposal", CALL, to=["files"])
        await agent.ask("mcp/proposal", CALL, to=["files"])
        await until(lambda: len(human.proposals.open()) == 2)
        seen = human.proposals.open()
        await remove(gateway, human, agent)
        await until(lambda: not human.proposals.open())
        assert [(each.status, each.reason) for each in seen] == [("withdrawn", "removed")] * 2
        assert await human.refresh_proposals()
        assert human.proposals.open() == []


async def test_what_a_guest_proposed_ends_with_its_connection(tmp_path: Path) -> None:
    """D-17."""
    async with gateway_with(tmp_path, rules=PUBLIC, **RIGHTS) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("files")
        guest = await come(gateway, None)
        await guest.ask("mcp/proposal", CALL, to=["files"])
        await until(lambda: len(human.proposals.open()) == 1)
        await guest.leave()
        await until(lambda: not human.proposals.open())
        assert await human.refresh_proposals()
        assert human.proposals.open() == []


async def test_what_somebody_who_is_away_proposed_stays_pending(tmp_path: Path) -> None:
    """A lost connection, a token that was replaced: it may be back."""
    async with gateway_with(tmp_path, rules=PUBLIC, **RIGHTS) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("files")
        agent = await gateway.raw("agent")
        await agent.ask("mcp/proposal", CALL, to=["files"])
        await until(lambda: len(human.proposals.open()) == 1)
        await disconnected(gateway, human, agent)
        back = await gateway.raw("agent")
        await until(lambda: "agent" in human.roster)
        rotated = await gateway.gateway.admin("POST", "participants/agent/token", {}, space="lab")
        assert rotated.status_code == 200, rotated.text
        await back.closed()
        await until(lambda: "agent" not in human.roster)
        assert len(human.proposals.open()) == 1
        assert await human.refresh_proposals()
        assert len(human.proposals.open()) == 1


async def test_somebody_who_was_let_in_again_proposes_anew(tmp_path: Path) -> None:
    """The removal is in the history then, and does not reach what came after it."""
    async with gateway_with(tmp_path, rules=PUBLIC, **RIGHTS) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("files")
        agent = await gateway.raw("agent")
        await agent.ask("mcp/proposal", CALL, to=["files"])
        await human.admin.kick("agent", "runaway")
        invited = await human.admin.invite("agent", PROPOSER)
        again = await come(gateway, invited.token)
        second = (await again.ask("mcp/proposal", CALL, to=["files"]))["id"]
        await until(lambda: [each.id for each in human.proposals.open()] == [second])
        late = await gateway.join("human")
        await late.recall()
        assert [each.id for each in late.proposals.open()] == [second]
