"""The journal is the truth: playing it again gives the very state that the gateway is in (D-41, D-89)."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
import websockets

from moot.gateway.hosting.space_records import replay
from moot.protocol.operation import Json
from moot.space.config_json import load_config
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal_reader import read_records
from tests.gateway.running_gateway import (
    CALL,
    Client,
    Closed,
    LocalGateway,
    fields,
    participants,
    running_gateway,
)
from tests.waiting import bounded

PEOPLE = participants(
    alice=["*"], bob=["*"], carol=["chat", "mcp/*", "stream/*"], agent=["mcp/proposal", "mcp/withdraw"]
) | {
    "bot": {
        "capabilities": [{"kind": "*"}],
        "tokens": ["t-bot", {"token": "t-less", "capabilities": ["chat"]}],
    }
}
RULES: Json = {
    "access": "public",
    "anonymous": ["chat", "stream/*"],
    "quorum": [{"payload": {"params": {"name": "delete_*"}}, "approvals_needed": 1}],
    "limits": {
        "proposal_seconds": 0.4,
        "request_seconds": 0.4,
        "stream_owner_grace_seconds": 0.1,
        "shutdown_grace_seconds": 0.1,
        "max_open_proposals": 6,
        "max_recent_ids": 40,
        "messages_per_second": 400,
    },
}
NAMES = ["alice", "bob", "carol", "agent", "bot", "zoe", "yan", "nobody", "client-1"]


class Traffic:
    """People who do all that can be done, at random, over sockets, posts and the administrator's door."""

    def __init__(self, gateway: LocalGateway, seed: int) -> None:
        self.gateway = gateway
        self.random = random.Random(seed)
        self.clients: list[Client] = []
        self.ids = ["e-0"]
        self.tokens = {"bot": "t-bot"}

    async def come(self) -> None:
        choice = self.random.choice
        name = choice(["alice", "bob", "carol", "agent", "bot", "less", "guest", "alias"])
        where = f"/ws?space=lab&dialect={choice(['mew', 'mew', 'mcpx', 'm3p'])}" + choice(
            ["", "&echo=0", "&streams=1", "&routing=directed"]
        )
        try:
            if name in ("guest", "alias"):
                client = await self.gateway.open(where)
                join = {"type": "join", "space": "lab"}
                who = (
                    {}
                    if name == "guest"
                    else {"token": "t-carol", "participantId": choice(["client-1", "c:2"])}
                )
                await client.send(join | who)
            else:
                client = await self.gateway.open(where, token=f"t-{name}")
        except websockets.InvalidStatus:
            # Somebody has thrown them out before.
            return
        self.clients.append(client)

    def envelope(self) -> dict[str, Json]:
        chance, choice = self.random.random, self.random.choice
        name, about = choice(NAMES), choice(self.ids)
        tool: Json = {"method": "tools/call", "params": {"name": choice(["read_file", "delete_all"])}}
        stream = {
            "stream_id": next(
                iter(self.gateway.gateway.directory.hosts["lab"].space.state.streams.open), "none"
            )
        }
        kind, payload = choice(
            [
                ("chat", {"text": "x"}),
                ("mcp/request", tool),
                ("mcp/request", CALL),
                ("mcp/proposal", tool),
                ("mcp/proposal", CALL),
                ("mcp/response", {"result": {}}),
                ("mcp/withdraw", {}),
                ("mcp/reject", {}),
                ("moot/approve", {}),
                (
                    "capability/grant",
                    {"recipient": name, "capabilities": [{"kind": choice(["chat", "mcp/*"])}]},
                ),
                ("capability/revoke", {"recipient": name, "capabilities": [{"kind": "mcp/*"}]}),
                ("capability/revoke", {"recipient": name, "grant_id": about}),
                ("capability/grant-ack", {"status": "accepted"}),
                ("space/invite", {"participant_id": name, "initial_capabilities": [{"kind": "mcp/request"}]}),
                ("space/kick", {"participant_id": choice(["zoe", "yan", "client-1", "agent"])}),
                ("participant/pause", {"timeout_seconds": 0.2} if chance() < 0.5 else {}),
                ("participant/resume", {}),
                ("participant/request-status", {}),
                ("participant/status", {"messages_in_context": 0}),
                ("participant/shutdown", {}),
                ("stream/request", {"direction": "upload", "target": [name], "big": 10**25}),
                ("stream/request", {"direction": "download"}),
                ("stream/grant-write", stream | {"participant_id": name}),
                ("stream/transfer-ownership", stream | {"new_owner": name}),
                ("stream/close", stream),
            ]
        )
        id = f"{len(self.ids)}-{self.random.getrandbits(30):x}" if chance() < 0.95 else about
        self.ids.append(id)
        controls = kind.startswith("participant/")
        to = [choice(["carol", "agent", "bot", "client-1"])] if controls or chance() < 0.5 else []
        answer = fields(kind, payload, id=id, to=to, about=[about] if chance() < 0.6 else ())
        return {key: value for key, value in answer.items() if key != "id" or chance() < 0.9}

    async def act(self) -> None:
        draw = self.random.random()
        if not self.clients or draw < 0.08:
            await self.come()
        elif draw < 0.12:
            await self.clients.pop(self.random.randrange(len(self.clients))).leave()
        elif draw < 0.25:
            await self.gateway.post(self.random.choice(["alice", "bob", "bot"]), self.envelope())
        elif draw < 0.28:
            change: Json = {
                self.random.choice(["add", "remove"]): [{"kind": self.random.choice(["chat", "mcp/*"])}]
            }
            await self.gateway.admin("POST", f"participants/{self.random.choice(NAMES)}/capabilities", change)
        elif draw < 0.30:
            await self.gateway.admin("POST", f"participants/{self.random.choice(NAMES)}/restore")
        elif draw < 0.32:
            self.gateway.gateway.reload(self.gateway.gateway.configuration)
        else:
            client = self.random.choice(self.clients)
            try:
                await client.send(self.envelope() if draw < 0.98 else "{")
                await client.fence()
            except (websockets.ConnectionClosed, Closed):
                self.clients.remove(client)


def comparable(space: Space) -> Any:
    """The whole state as JSON; which records are one object and which are only equal does not matter."""
    state: dict[str, Any] = space.save()
    window = state["window"]
    window["rows"] = [window["records"][row] for row in window["rows"]]
    window["pinned"] = {id: window["records"][row] for id, row in window["pinned"].items()}
    del window["records"]
    return json.loads(json.dumps(state))


async def states(gateway: LocalGateway) -> list[Any]:
    """The state that the gateway is in, that of its whole journal, and that from its newest snapshot on."""
    host = gateway.gateway.directory.hosts["lab"]
    config = host.space.state.config
    async with bounded():
        database = Database.open(gateway.gateway.config.data / "moot.sqlite")
        snapshot = await database.load_snapshot("lab")
        await database.close()
        while True:
            records = list(read_records(gateway.journal()))
            if records[-1].number == host.journal.next_number - 1:
                break
            # Somebody acted since: the record is written in the next turn of the loop.
            await asyncio.sleep(0)
    found = [comparable(host.space)]
    assert snapshot is not None
    kept = json.loads(snapshot.state)
    whole, rest = Space(config), Space(load_config(kept.pop("config")), saved=kept)
    for record in records:
        replay(whole, record.line, config)
        if record.number > snapshot.position:
            replay(rest, record.line, config)
    return [*found, comparable(whole), comparable(rest)]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_replaying_the_journal_gives_the_state_that_the_gateway_is_in(
    tmp_path: Path, seed: int
) -> None:
    async with running_gateway(
        tmp_path, PEOPLE, rules=RULES, max_connections_per_address=0, snapshot_records=40
    ) as gateway:
        traffic = Traffic(gateway, seed)
        for number in range(400):
            await traffic.act()
            if number % 50 == 49:
                live, whole, rest = await states(gateway)
                assert whole == live
                assert rest == live
        outcomes = {record.text("out") for record in read_records(gateway.journal())}
        assert len(outcomes) > 8
