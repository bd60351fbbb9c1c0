"""Old messages over HTTP: all of the journal, a page at a time, for members, within bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.gateway.hosting.membership_start import membership_starts
from moot.gateway.http import history_routes
from moot.gateway.http.history_routes import HistoryRoutes
from tests.gateway.running_gateway import (
    LocalGateway,
    fields,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.waiting import HANG_SECONDS, until

PEOPLE = participants(alice=["*"], bob=["chat"], carol=["chat"])


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said a moment ago is on its page, however long the disk takes."""
    monkeypatch.setattr(history_routes, "_SETTLE_SECONDS", HANG_SECONDS)


async def fetch(gateway: LocalGateway, token: str = "t-alice", **params: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await gateway.http.get("/spaces/lab/history", headers=headers, params=params)


async def page(gateway: LocalGateway, token: str = "t-alice", **params: Any) -> dict[str, Any]:
    answer = await fetch(gateway, token, **params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def texts(found: dict[str, Any]) -> list[str]:
    return [each["payload"]["text"] for each in found["messages"] if each["kind"] == "chat"]


async def everything(gateway: LocalGateway, token: str = "t-alice", **params: Any) -> tuple[list[str], str]:
    """All texts that this token can read, oldest first, and why there are no more."""
    found: list[str] = []
    before: dict[str, int] = {}
    for _ in range(1_000):
        one = await page(gateway, token, **params, **before)
        found = texts(one) + found
        if one["before"] is None:
            return found, one["end"]
        before = {"before": one["before"]}
    raise AssertionError("the pages do not end")


async def test_pages_lead_back_to_the_beginning_without_gap_or_repeat(tmp_path: Path) -> None:
    """Beyond the window for polling, over segments, for any size of a page, and after a restart."""
    answer = [f"message {number}" for number in range(120)]
    settings = gateway_settings(
        {"lab": space_settings(PEOPLE)},
        poll_messages=10,
        history_pages_per_second=0,
        journal={"segment_bytes": 5_000},
    )
    file = write_config(tmp_path, settings)
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        for number, text in enumerate(answer):
            if number % 5:
                await alice.ask("chat", {"text": text})
            else:
                # Waits for the disk: a segment takes what is written at once, be it more than it should.
                await gateway.post("alice", fields("chat", {"text": text}))
        assert len(list(gateway.journal().glob("*.jsonl"))) > 2
        for limit in (1, 7, 500):
            assert await everything(gateway, limit=limit) == (answer, "beginning")
        # Any place can be asked for: that costs one page.
        newest = await page(gateway, limit=5)
        assert texts(newest) == answer[-5:]
        assert texts(await page(gateway, limit=5, before=newest["before"])) == answer[-10:-5]
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await everything(gateway, "t-bob", limit=50) == (answer, "beginning")
        whole = (await page(gateway, limit=1))["messages"][0]
        assert whole["from"] == "alice"
        assert whole["protocol"] == "mew/v0.4"
        assert whole["ts"]
        dotted = (await page(gateway, limit=1, dialect="m3p"))["messages"][0]
        assert dotted["kind"] == "chat.message"


async def test_nobody_reads_what_was_said_before_they_were_a_member(tmp_path: Path) -> None:
    """An invitee, somebody who was removed and is back, a new token, a new line in the configuration."""
    settings = gateway_settings({"lab": space_settings(PEOPLE)}, history_pages_per_second=0)
    file = write_config(tmp_path, settings)
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "one"})
        zoe = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        await alice.ask("chat", {"text": "two"})
        await alice.ask("space/kick", {"participant_id": "carol"})
        await alice.ask("chat", {"text": "three"})
        assert (await fetch(gateway, "t-carol")).status_code == 401
        carol = (await gateway.admin("POST", "participants/carol/restore")).json()["token"]
        await alice.ask("chat", {"text": "four"})
        bob = (await gateway.admin("POST", "participants/bob/token", {})).json()["token"]
        await alice.ask("chat", {"text": "five"})
        expected = [(zoe, ["two", "three", "four", "five"]), (carol, ["four", "five"]), (bob, ["five"])]
        for token, seen in expected:
            assert await everything(gateway, token) == (seen, "not_a_member")
    # Only the journal knows it now, and whoever is new since is new.
    people = PEOPLE | participants(dan=["chat"])
    file = write_config(
        tmp_path, gateway_settings({"lab": space_settings(people)}, history_pages_per_second=0)
    )
    async with running_gateway(tmp_path, file=file) as gateway:
        for token, seen in expected:
            assert await everything(gateway, token) == (seen, "not_a_member")
        for name, token, seen in [("zoe", *expected[0]), ("carol", *expected[1]), ("bob", *expected[2])]:
            headers = {"Authorization": f"Bearer {token}"}
            polled = await gateway.http.get(f"/participants/{name}/messages?space=lab", headers=headers)
            assert texts(polled.json()) == seen
        # A number of one's own makes no difference.
        assert texts(await page(gateway, zoe, before=4)) == []
        assert (await page(gateway, zoe, before=4))["end"] == "not_a_member"
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "six"})
        assert await everything(gateway, "t-dan") == (["six"], "not_a_member")
        assert await everything(gateway) == (["one", "two", "three", "four", "five", "six"], "beginning")
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await everything(gateway, "t-dan") == (["six"], "not_a_member")
        headers = {"Authorization": "Bearer t-dan"}
        polled = await gateway.http.get("/participants/dan/messages?space=lab", headers=headers)
        assert texts(polled.json()) == ["six"]


async def test_what_was_private_or_refused_is_in_no_page(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, rules={"status_delivery": "requester"}) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.ask("space/invite", {"participant_id": "zoe", "email": "zoe@example.org"})
        assert await bob.refused("mcp/request", {"method": "tools/list"}, to=["alice"])
        await alice.say("participant/status", {"secret": "for the requester"}, to=["carol"])
        await alice.ask("chat", {"text": "hello"})
        found = await page(gateway, "t-bob")
        assert [each["kind"] for each in found["messages"]] == ["chat"]


async def test_a_search_finds_old_messages_by_text_kind_sender_and_id(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, history_pages_per_second=0) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        first = await alice.ask("chat", {"text": 'The Needle is "here"\nand ünusual'})
        for number in range(30):
            await bob.ask("chat", {"text": f"hay {number}"})
        await alice.ask("mcp/proposal", {"method": "tools/call", "params": {"name": "needle"}}, to=["bob"])
        assert texts(await page(gateway, text="needle")) == [first["payload"]["text"]]
        for text in ('is "HERE"', 'here"\nand', "ünusual"):
            assert texts(await page(gateway, text=text)) == [first["payload"]["text"]]
        kinds = [each["kind"] for each in (await page(gateway, text="needle"))["messages"]]
        assert kinds == ["chat", "mcp/proposal"]
        assert [each["kind"] for each in (await page(gateway, kind="mcp"))["messages"]] == ["mcp/proposal"]
        assert [each["kind"] for each in (await page(gateway, kind="m*"))["messages"]] == ["mcp/proposal"]
        assert len((await page(gateway, **{"from": "bob"}))["messages"]) == 30
        assert [each["id"] for each in (await page(gateway, id=first["id"]))["messages"]] == [first["id"]]
        assert (await page(gateway, id="nobody-said-this"))["messages"] == []
        # Both must hold, and names of the journal's own are no text of a message.
        assert texts(await page(gateway, text=["needle", "ünusual"])) == [first["payload"]["text"]]
        assert (await page(gateway, text='"in":"receive"'))["messages"] == []


async def test_a_kind_of_many_asterisks_costs_what_any_other_does(tmp_path: Path) -> None:
    """In a way of matching that goes back and forth, the second search ends after some years."""
    async with running_gateway(tmp_path, PEOPLE, history_pages_per_second=0) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "hay"})
        await alice.ask("mcp/proposal", {"method": "tools/call", "params": {"name": "needle"}}, to=["bob"])
        for kind, found in [
            ("*" * 199 + "l", ["mcp/proposal"]),
            ("*" * 199 + "q", []),
            ("*p*p*p*", ["mcp/proposal"]),
            ("*p*p*p*p*", []),
            ("C*T", ["chat"]),
            ("*C*", ["chat", "mcp/proposal"]),
            ("cha", []),
            ("MCP/", []),
        ]:
            page_of_kind = await asyncio.wait_for(page(gateway, kind=kind), HANG_SECONDS)
            assert [each["kind"] for each in page_of_kind["messages"]] == found, kind


async def test_a_page_is_bounded_in_messages_bytes_and_reading(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path,
        PEOPLE,
        history_pages_per_second=0,
        max_history_page_messages=5,
        max_history_page_bytes=3_000,
        max_history_scan_bytes=4_000,
    ) as gateway:
        alice = await gateway.join("alice")
        answer = [f"{number}" for number in range(30)]
        for text in answer:
            await alice.ask("chat", {"text": text})
        assert texts(await page(gateway, limit=500)) == answer[-5:]
        # Nothing is found, and still a page ends and says where to read on.
        nothing = await page(gateway, text="no such thing")
        assert nothing["messages"] == []
        assert nothing["before"] > 1
        assert await everything(gateway, text="no such thing") == ([], "beginning")
        for _ in range(3):
            await alice.ask("chat", {"text": "long " * 500})
        assert len((await page(gateway))["messages"]) == 2


async def test_readers_have_a_rate_and_are_told_when_to_come_again(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, history_pages_per_second=0.01) as gateway:
        assert (await fetch(gateway)).status_code == 200
        refused = await fetch(gateway)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert "pages of the history" in refused.json()["message"]
        # Everybody has their own.
        assert (await fetch(gateway, "t-bob")).status_code == 200


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"before": "0"}, 400),
        ({"before": "-1"}, 400),
        ({"before": "x"}, 400),
        ({"before": "9" * 30}, 400),
        ({"limit": "0"}, 400),
        ({"limit": "many"}, 400),
        ({"text": "x" * 201}, 400),
        ({"text": ["x"] * 9}, 400),
        ({"dialect": "latin"}, 400),
        ({"after": "1"}, 400),
        ({"before": "999999999999"}, 200),
    ],
)
async def test_a_wrong_parameter_is_told(tmp_path: Path, params: dict[str, Any], status: int) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        answer = await fetch(gateway, **params)
        assert answer.status_code == status
        assert status == 200 or answer.json()["message"]


async def test_strangers_and_members_of_other_spaces_get_nothing(tmp_path: Path) -> None:
    spaces = {"lab": space_settings(PEOPLE), "attic": space_settings(participants(hermit=["chat"]))}
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        assert (await gateway.http.get("/spaces/lab/history")).status_code == 401
        assert (await fetch(gateway, "t-nobody")).status_code == 401
        assert (await fetch(gateway, "t-hermit")).status_code == 403
        headers = {"Authorization": "Bearer t-alice"}
        assert (await gateway.http.get("/spaces/none/history", headers=headers)).status_code == 404


async def test_what_retention_removed_is_said_to_be_removed(tmp_path: Path) -> None:
    journal = {"segment_bytes": 4_000, "retain_segments": 2}
    settings = gateway_settings(
        {"lab": space_settings(PEOPLE)}, journal=journal, snapshot_records=20, history_pages_per_second=0
    )
    file = write_config(tmp_path, settings)
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        # Until the oldest chats are gone, too: a slow disk puts many into one segment.
        number = 0
        while number < 100 or min(int(each.stem) for each in gateway.journal().glob("*.jsonl")) <= 20:
            await alice.ask("chat", {"text": f"{number} {'x' * 100}"})
            number += 1
        left, end = await everything(gateway)
        assert end == "removed"
        assert left[-1].startswith(f"{number - 1} ")
        assert 10 < len(left) < number


async def test_without_a_journal_there_is_no_history_and_it_is_said(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, journal="off") as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "gone with the wind"})
        assert await page(gateway) == {"messages": [], "before": None, "end": "not_kept"}
    async with running_gateway(tmp_path, PEOPLE, http={"poll": False}) as gateway:
        assert (await fetch(gateway)).status_code == 404


async def test_members_talk_while_the_history_is_read(tmp_path: Path) -> None:
    """Reading happens beside the loop: nobody waits for it."""
    async with running_gateway(tmp_path, PEOPLE, history_pages_per_second=0) as gateway:
        alice = await gateway.join("alice")
        for number in range(50):
            await alice.ask("chat", {"text": str(number)})
        pages = [asyncio.create_task(fetch(gateway, text="nothing like it")) for _ in range(20)]
        await alice.ask("chat", {"text": "meanwhile"})
        assert {(await each).status_code for each in pages} == {200}
        assert texts(await page(gateway, limit=1)) == ["meanwhile"]


async def test_whoever_asks_for_many_pages_at_once_keeps_nobody_else_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[HistoryRoutes] = []

    class KeptRoutes(HistoryRoutes):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr("moot.gateway.http.http_routes.HistoryRoutes", KeptRoutes)
    async with running_gateway(tmp_path, PEOPLE, history_pages_per_second=0) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "hello"})
        (routes,) = made
        async with routes._turn:
            many = [asyncio.create_task(fetch(gateway)) for _ in range(40)]
            await until(lambda: sum(each.done() for each in many) == 8)
            bob = asyncio.create_task(fetch(gateway, "t-bob"))
            await until(lambda: ("lab", "bob") in routes._readers)
        assert (await bob).status_code == 200
        # The first page of alice was before bob's; the others were not.
        assert sum(each.done() for each in many) < 8 + 16
        assert sorted([(await each).status_code for each in many]) == [200] * 32 + [429] * 8
        assert routes._readers == {}


async def test_who_joined_before_the_journal_was_cut_is_known_since_the_cut(tmp_path: Path) -> None:
    """What nobody can know any more is not shown."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        folder = gateway.journal()
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "one"})
        assert membership_starts(folder, 1)["alice"] == 0
        record = (folder / "000000000001.jsonl").read_bytes().split(b"\n", 1)[1]
        other = tmp_path / "cut" / "journal"
        other.mkdir(parents=True)
        (other / "000000000002.jsonl").write_bytes(record)
        assert membership_starts(other, 3) == {}
