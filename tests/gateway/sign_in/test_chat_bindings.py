"""Binding a chat account: a code of one use, taken by a chat program alone, for a token that only decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from moot.protocol.operation import Json
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS

PEOPLE = participants(
    ana=["*"],
    ben=["chat", {"kind": "mcp/request", "to": ["files"]}],
    cleo=["chat"],
    bot=["moot/bind", "chat"],
    agent=["mcp/proposal", "chat"],
)


async def post(gateway: LocalGateway, path: str, token: str, body: Json) -> httpx.Response:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        headers = {"Authorization": f"Bearer {token}"}
        return await client.post(f"{gateway.url}/{path}", json=body, headers=headers)


async def code_of(gateway: LocalGateway, token: str, body: Json = None) -> str:
    answer = await post(gateway, "sign-in-links", token, body or {"for": "chat"})
    assert answer.status_code == 201
    return str(answer.json()["code"])


async def bind(gateway: LocalGateway, code: str, token: str = "t-bot") -> tuple[int, dict[str, Any]]:
    answer = await post(gateway, "chat-bindings", token, {"code": code})
    return answer.status_code, answer.json()


async def test_a_code_binds_once_and_the_token_holds_what_deciding_needs_of_the_persons_rights(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        code = await code_of(gateway, "t-ben")
        status, made = await bind(gateway, code)
        assert (status, made["participant_id"], made["space"]) == (201, "ben", "lab")
        assert (await bind(gateway, code))[0] == 403
        ben = await gateway.open("/ws?space=lab", token=made["token"])
        welcome = await ben.hear("system/welcome")
        rights = welcome["payload"]["you"]["capabilities"]
        assert rights == [{"kind": "chat"}, {"kind": "mcp/request", "to": ["files"]}]
        _, all_of_ana = await bind(gateway, await code_of(gateway, "t-ana"))
        ana = await gateway.open("/ws?space=lab", token=all_of_ana["token"])
        kinds = [
            each["kind"] for each in (await ana.hear("system/welcome"))["payload"]["you"]["capabilities"]
        ]
        assert kinds == ["mcp/request", "moot/approve", "mcp/reject", "chat", "moot/list-proposals"]


async def test_who_reads_the_code_can_do_nothing_with_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        code = await code_of(gateway, "t-ana")
        # It signs nobody in, and other members cannot bind.
        assert (await post(gateway, "sign-in-links/redeem", "t-agent", {"code": code})).status_code == 403
        assert (await bind(gateway, code, "t-agent"))[0] == 403
        assert (await bind(gateway, code, "t-nobody"))[0] == 401
        # All of that has not used it up.
        assert (await bind(gateway, code))[0] == 201
        # A code that signs in does not bind.
        assert (await bind(gateway, await code_of(gateway, "t-ana", {"page": f"{gateway.url}/"})))[0] == 403


async def test_who_may_decide_nothing_is_told_so(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        status, said = await bind(gateway, await code_of(gateway, "t-cleo"))
        assert status == 403
        assert "cleo may decide on no proposals" in said["message"]


async def test_a_binding_ends_itself_and_no_other_token_does(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        _, made = await bind(gateway, await code_of(gateway, "t-ana"))
        _, other = await bind(gateway, await code_of(gateway, "t-ana"))
        ana = await gateway.open("/ws?space=lab", token=made["token"])
        await ana.hear("system/welcome")

        async def end(token: str) -> int:
            async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
                headers = {"Authorization": f"Bearer {token}"}
                return (await client.delete(f"{gateway.url}/chat-bindings", headers=headers)).status_code

        assert [await end(token) for token in ("t-bot", "t-ana", "t-nobody")] == [403, 403, 401]
        assert await end(made["token"]) == 200
        assert await ana.closed() is not None
        assert await end(made["token"]) == 401
        staying = await gateway.open("/ws?space=lab", token=other["token"])
        await staying.hear("system/welcome")


async def test_replacing_the_persons_token_ends_the_binding(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        _, made = await bind(gateway, await code_of(gateway, "t-ana"))
        ana = await gateway.open("/ws?space=lab", token=made["token"])
        await ana.hear("system/welcome")
        rotated = await post(gateway, "admin/participants/ana/token", "t-root", {})
        assert rotated.status_code == 200
        assert await ana.closed() is not None
