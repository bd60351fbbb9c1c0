"""A person at a Matrix client that is not ours, matrix-nio in an environment of its own, driven by JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nio


async def main(homeserver: str, user: str, password: str) -> None:
    client = nio.AsyncClient(homeserver, user)
    await client.login(password)
    await client.sync(timeout=0, full_state=True)

    async def do(asked: dict[str, Any]) -> Any:
        match asked["do"]:
            case "room":
                made = await client.room_create(is_direct=True, invite=asked["invite"])
                return made.room_id
            case "invite":
                return str(await client.room_invite(asked["room"], asked["user"]))
            case "join":
                return str(await client.join(asked["room"]))
            case "leave":
                return str(await client.room_leave(asked["room"]))
            case "send":
                sent = await client.room_send(
                    asked["room"], asked["type"], asked["content"], ignore_unverified_devices=True
                )
                return sent.event_id
            case "events":
                found = await client.sync(timeout=2_000)
                return [
                    {"room": room, **event.source}
                    for room, joined in found.rooms.join.items()
                    for event in joined.timeline.events
                ]

    print(json.dumps(client.user_id), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await do(json.loads(line))), flush=True)
    await client.close()


asyncio.run(main(*sys.argv[1:]))
