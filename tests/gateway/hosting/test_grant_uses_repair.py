"""Uses of a grant that only lost records told of: repair does not give them back."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson

from moot.config import load
from moot.gateway.app import Gateway
from moot.gateway.hosting.space_repair import carry_out_repair, plan_repair
from moot.protocol.operation import Json
from moot.store.journal_reader import read_records
from tests.gateway.running_gateway import (
    CALL,
    fields,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.socketless_gateway import SocketlessGateway
from tests.waiting import until

READ = {"kind": "mcp/request", "payload": {"method": "tools/call"}}


async def test_a_repair_ends_grants_whose_uses_are_lost(tmp_path: Path) -> None:
    people = participants(alice=["*"], agent=["chat"], tool=["mcp/response"])
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    file = write_config(whole, gateway_settings({"lab": space_settings(people)}))
    running = SocketlessGateway(file)
    await running.open()
    alice, agent = running.join("alice"), running.join("agent")
    for id, limits in (("counted", {"max_uses": 2}), ("timed", {"expires_in_seconds": 3_600})):
        grant: Json = {"recipient": "agent", "capabilities": [READ], **limits}
        alice.say(orjson.dumps(fields("capability/grant", grant, id=id)))
    await running.rest()
    await running.durable()
    # The last state that is left: whatever is used comes later.
    await running.host.journaled.save_snapshot()
    alice.say(orjson.dumps(fields("capability/revoke", {"recipient": "agent", "grant_id": "timed"})))
    for _ in range(2):
        agent.say(orjson.dumps(fields("mcp/request", CALL)))
    await running.rest()
    await running.durable()
    assert not running.host.space.state.grants.by_id
    # As a kill leaves it.
    await until(lambda: not running.host.journaled.snapshots.is_marking)
    shutil.copytree(whole, killed)
    await running.close()
    data = killed / "data"
    journal = data / "spaces" / "lab" / "journal"
    used = next(record for record in read_records(journal) if record.text("kind") == "mcp/request")
    (segment,) = journal.glob("*.jsonl")
    with segment.open("rb+") as lines:
        lines.truncate(used.place.offset)
    plan = plan_repair(data, "lab")
    assert "grant counted to agent: its uses are not known" in plan.reductions
    carry_out_repair(plan)
    gateway = Gateway(load(killed / file.name, environ={}))
    await gateway.start()
    try:
        assert not gateway.directory.hosts["lab"].space.state.grants.by_id
    finally:
        await gateway.stop()
