"""The disk of a gateway is full: operators are told, and so is whoever reads its history."""

from __future__ import annotations

from typing import Any

import pytest

from moot.gateway.cluster import cluster_status
from moot.store import file_journal
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.disk import no_room_on_disk
from tests.gateway.running_gateway import Client, LocalGateway
from tests.waiting import HANG_SECONDS, until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)


async def test_a_full_disk_is_told_and_so_is_history_that_is_not_on_it(start: StartGateway) -> None:
    async with start("a") as a:
        alice = await a.join("alice")
        await alice.ask("chat", {"text": "before"})
        assert "gap" not in await _page(a)
        journal = a.gateway.directory.hosts["lab"].journal
        with no_room_on_disk(a.journal()):
            await alice.ask("chat", {"text": "meanwhile"})
            await until(lambda: not journal.writable)
            (problem,) = await _problems(a)
            assert problem.startswith("gateway a cannot write its journal of lab: its disk is full or fails")
            ready = await a.http.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "degraded")
            page = await _page(a)
            assert (_texts(page), page["gap"]) == (["before"], True)
        await until(lambda: journal.writable)
        # It was kept in memory, and nothing is missing.
        assert await _problems(a) == []
        page = await _page(a)
        assert (_texts(page), page.get("gap")) == (["before", "meanwhile"], None)


async def test_history_with_a_hole_says_so_and_is_read_across_it(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_journal, "KEEP_RECORDS", 2)
    async with start("a", history_pages_per_second=1_000) as a:
        alice = await a.join("alice")
        for text in ("1", "2", "3"):
            await alice.ask("chat", {"text": text, "pad": "x" * 2_000})
        journal = a.gateway.directory.hosts["lab"].journal
        with no_room_on_disk(a.journal()):
            await alice.ask("chat", {"text": "4"})
            await until(lambda: not journal.writable)
            while not journal.is_full:
                await alice.ask("chat", {"text": "more"})
            await alice.ask("chat", {"text": "lost"})
        await until(lambda: journal.writable)
        await alice.ask("chat", {"text": "8"})
        await _fill_up(a, alice)
        await alice.ask("chat", {"text": "9"})
        pages, before = list[dict[str, Any]](), ""
        while not pages or pages[-1]["before"] is not None:
            pages.append(await _page(a, limit="1", **({"before": before} if before else {})))
            before = str(pages[-1]["before"])
            assert len(pages) < 50
        texts = [text for page in reversed(pages) for text in _texts(page)]
        assert [text for text in texts if text not in ("more", "7")] == ["1", "2", "3", "4", "8", "9"]
        assert [page.get("gap") for page in pages].count(True) == 1
        assert pages[-1]["end"] == "beginning"


async def test_a_copy_that_goes_on_later_has_a_hole_that_others_fill_while_they_live(
    start: StartGateway,
) -> None:
    """As when a gateway was away for longer than the log goes back: it begins at a snapshot."""
    often = {"snapshot_inputs": 20}
    async with start("a", cluster=often) as a:
        async with start("b", cluster=often) as b:
            bob = await b.join("bob")
            await bob.ask("chat", {"text": "before"})
        alice = await a.join("alice")
        node = a.gateway.node
        assert node is not None
        stored, said = node.shards[0].purgeable, ["before"]
        while node.shards[0].purgeable == stored:
            await alice.ask("chat", {"text": f"between {len(said)}"})
            said.append(f"between {len(said)}")
        async with start("b", cluster=often) as b:
            assert await _read_all(b) == (said, False)
    async with start("b", cluster=often) as b:
        texts, has_gap = await _read_all(b)
        # The hole may be where nobody chatted.
        assert texts[0] == "before"
        assert ([each for each in said if each in texts], has_gap) == (texts, True)


async def _read_all(gateway: LocalGateway) -> tuple[list[str], bool]:
    """All texts, the oldest first, and whether a page says that something is missing."""
    pages = [await _page(gateway)]
    while (before := pages[-1]["before"]) is not None:
        pages.append(await _page(gateway, before=str(before)))
        assert len(pages) < 50
    assert pages[-1]["end"] in ("beginning", "not_a_member")
    return [text for page in reversed(pages) for text in _texts(page)], any(
        page.get("gap") is True for page in pages
    )


async def _fill_up(gateway: LocalGateway, alice: Client) -> None:
    """Until the record of the hole is in the middle of the file, where a search in it looks first."""
    sizes = list[int]()
    for pad in (0, 0, None):
        await _page(gateway)
        (file,) = gateway.journal().glob("*.jsonl")
        data = file.read_bytes()
        sizes.append(len(data))
        if pad is None:
            hole = data.index(b'"in":"lost"')
            # That of this message and of the next one.
            pad = 2 * hole - sizes[-1] - 2 * (sizes[-1] - sizes[-2])
            assert pad > 0
        await alice.ask("chat", {"text": "7", "pad": "x" * pad})


async def _page(gateway: LocalGateway, **params: str) -> dict[str, Any]:
    answer = await gateway.http.get(
        "/spaces/lab/history", params=params, headers={"Authorization": "Bearer t-bob"}
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _problems(gateway: LocalGateway) -> list[str]:
    found: list[str] = (await gateway.admin("GET", "cluster")).json()["problems"]
    return found


def _texts(page: dict[str, Any]) -> list[str]:
    return [each["payload"]["text"] for each in page["messages"] if each["kind"] == "chat"]
