"""What is in the files of gateways that have left a shard is not lost to those who serve it next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.gateway.cluster.nats import served_exchange
from moot.gateway.hosting.journal_history import HistoryPage, HistoryQuery, HistoryReader, read_page
from moot.gateway.http import history_routes
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_cluster_log import records_of, shared_entries, signed_by, wait_signed
from tests.gateway.cluster.test_cursors import page_of
from tests.gateway.cluster.test_kept_log import say
from tests.gateway.cluster.test_questions import divided
from tests.gateway.cluster.test_shards import LAB, SHARDS, get, node
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import LocalGateway, participants, space_settings
from tests.gateway.sign_in.test_chat_bindings import PEOPLE, code_of, post
from tests.waiting import HANG_SECONDS, bounded, until

# Of a space that is served where people ask: nobody binds there.
OTHERS = participants(ana=["*"], agent=["chat"])


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


async def history_of(gateway: LocalGateway, limit: int = 7) -> tuple[list[str], list[Any]]:
    """All chats that a member can read back to, oldest first, and what the pages said besides."""
    texts: list[str] = []
    said: list[Any] = []
    before: dict[str, str] = {}
    while True:
        page = await page_of(gateway, limit=str(limit), **before)
        texts = [each["payload"]["text"] for each in page["messages"]] + texts
        said += [page["gap"]] if "gap" in page else []
        if page["before"] is None:
            return texts, [*said, page["end"], page.get("elsewhere", False)]
        before = {"before": str(page["before"])}


async def test_who_takes_a_shard_over_has_the_past_and_the_log_of_those_who_left_it(
    start: StartGateway,
) -> None:
    cluster: dict[str, Json] = SHARDS | {"snapshot_inputs": 20, "gone_seconds": 10 * HANG_SECONDS}
    async with bounded(), start("a", cluster=cluster) as a, start("c", cluster=cluster) as c:
        async with start("b", cluster=cluster) as b:
            alice = await b.join("alice")
            await say(alice, 0, 10)
            await wait_signed(a, b, c)
            await node(a).leave(LAB)
            await say(alice, 10, 70)
            await until(lambda: node(b).shards[LAB].snapshots + node(c).shards[LAB].snapshots >= 2)
            await wait_signed(b, c)
            await node(c).leave(LAB)
            die(b)
        await node(a).serve(LAB)
        assert len(shared_entries(a)) < records_of(a).count - 20, "it began at a snapshot"
        assert await history_of(a) == ([str(number) for number in range(70)], ["beginning", False])
        await until(lambda: signed_by(a).size == records_of(a).count)
        assert a.gateway.logs.is_signed("lab")
        # Whoever came later asks nobody for what was before.
        config = a.gateway.directory.hosts["lab"].space.state.config
        later = HistoryReader(records_of(a).count, 0.0, "mew", by_time=True)
        page = read_page(a.journal(), 1, HistoryQuery(), reader=later, config=config, limit=5)
        assert (page.messages, page.end) == ([], "not_a_member")


async def test_what_nobody_has_any_more_is_told_as_a_gap(start: StartGateway) -> None:
    cluster: dict[str, Json] = SHARDS | {"snapshot_inputs": 20, "gone_seconds": 10 * HANG_SECONDS}
    async with bounded(), start("a", cluster=cluster) as a:
        async with start("b", cluster=cluster) as b:
            alice = await b.join("alice")
            await say(alice, 0, 10)
            await wait_signed(a, b)
            await node(a).leave(LAB)
            await say(alice, 10, 70)
            await until(lambda: node(b).shards[LAB].snapshots >= 2)
            die(b)
        await node(a).serve(LAB)
        texts, said = await history_of(a)
        assert said == [True, "beginning", False]
        assert texts[:10] == [str(number) for number in range(10)]
        assert texts[10:] == [str(number) for number in range(80 - len(texts), 70)]


async def test_what_was_decided_elsewhere_is_told_as_the_space_knows_it(start: StartGateway) -> None:
    """Never that it is pending or over, where the own copy of the journal lacks the decision."""
    cluster: dict[str, Json] = SHARDS | {"snapshot_inputs": 20, "gone_seconds": 10 * HANG_SECONDS}
    async with bounded(), start("a", cluster=cluster) as a, start("b", cluster=cluster) as b:
        alice, bob = await b.join("alice"), await b.join("bob")
        call = {"method": "tools/call", "params": {"name": "pay", "arguments": {}}}
        for id in ("p1", "p2", "p3"):
            assert await alice.refused("mcp/proposal", call, to=["alice"], id=id) is None
        await wait_signed(a, b)
        await node(a).leave(LAB)
        body = call | {"jsonrpc": "2.0", "id": 1}
        assert await bob.refused("mcp/request", body, to=["alice"], about=["p1"], id="f1") is None
        assert await bob.refused("mcp/reject", {"reason": "unsafe"}, about=["p2"]) is None
        assert await alice.refused("mcp/proposal", call, to=["alice"], id="p4") is None
        await say(alice, 0, 60)
        await until(lambda: node(b).shards[LAB].snapshots >= 2)
        await node(a).serve(LAB)
        assert len(shared_entries(a)) < records_of(a).count - 20, "it began at a snapshot"
        told = {each: (await get(each, "/spaces/lab/decisions")).json() for each in (a, b)}
        decided = {
            gateway: [(one["id"], one["status"], one["decided_by"]) for one in answer["decisions"]]
            for gateway, answer in told.items()
        }
        assert decided[b] == [*decided[a], ("p4", "open", None)]
        assert decided[a] == [
            ("p1", "fulfilled", "bob"),
            ("p2", "rejected", "bob"),
            ("p3", "open", None),
        ]
        assert (told[a].get("gap"), told[b].get("gap")) == (True, None)
        await until(lambda: all(signed_by(each).size == records_of(each).count for each in (a, b)))
        receipt = await get(a, "/spaces/lab/receipts/p1")
        assert receipt.status_code == 409
        assert "another gateway's may have it" in receipt.json()["message"]
        assert (await get(b, "/spaces/lab/receipts/p1")).status_code == 200
        assert (await get(b, "/spaces/lab/receipts/p3")).status_code == 409


async def test_pages_of_others_that_one_member_waits_for_keep_nobody_from_asking(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_routes, "PAGES_PER_SECOND", 1_000)
    monkeypatch.setattr(history_routes, "_MAX_ELSEWHERE", 2)
    async with divided(start) as (a, b):
        asked = 0
        go_on = asyncio.Event()

        async def answer(_facts: Json) -> Json:
            nonlocal asked
            asked += 1
            await go_on.wait()
            return None

        b.gateway.directory.others.of_files["past"] = answer
        monkeypatch.setattr(history_routes, "read_page", elsewhere)
        pages = [asyncio.create_task(page_at(a, "/spaces/other/history")) for _ in range(30)]
        await until(lambda: asked > 0)
        # Of another member, too.
        pages.append(asyncio.create_task(page_at(a, "/spaces/other/history", "t-bob")))
        await until(lambda: asked > 1)
        # So many are asked for at a time, whoever wants more.
        pages.append(asyncio.create_task(page_at(a, "/spaces/other/history", "t-carol")))
        assert (await get(a, "/spaces")).status_code == 200
        assert asked == 2
        go_on.set()
        assert {each.status_code for each in await asyncio.gather(*pages)} == {200}


def elsewhere(_folder: Path, before: int | None, *_: Any, **__: Any) -> HistoryPage:
    return HistoryPage([], before, "elsewhere")


async def page_at(gateway: LocalGateway, path: str, token: str = "t-alice") -> httpx.Response:
    return await get(gateway, path, token, before="5")


@pytest.mark.parametrize("where", ["chat-bindings", "chat-bindings?space=lab"])
async def test_a_chat_account_is_bound_in_a_space_that_is_served_elsewhere(
    start: StartGateway, where: str
) -> None:
    """Whether the program names the space or not."""
    spaces: dict[str, Json] = {"lab": space_settings(PEOPLE), "other": space_settings(OTHERS)}
    async with divided(start, spaces=spaces) as (a, b):
        await until(lambda: bool(node(a).relay_addresses(LAB)))
        # No gateway serves all spaces.
        await node(b).leave(1)
        code = await code_of(a, "t-ana")
        assert (await post(a, where, "t-agent", {"code": code})).status_code == 403
        assert (await post(a, where, "t-nobody", {"code": code})).status_code in (401, 403)
        made = await post(a, where, "t-bot", {"code": code})
        assert (made.status_code, made.json()["participant_id"], made.json()["space"]) == (201, "ana", "lab")
        assert (await post(a, where, "t-bot", {"code": code})).status_code == 403
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        for statuses in ((200,), (401, 403)):
            ended = await a.http.delete(f"/{where}", headers=headers)
            assert ended.status_code in statuses
        for refused in ("t-ana", "t-bot"):
            headers = {"Authorization": f"Bearer {refused}"}
            assert (await a.http.delete(f"/{where}", headers=headers)).status_code == 403
