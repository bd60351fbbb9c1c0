"""`moot xp relay` and `moot xp store`, as somebody at a shell meets them."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import orjson
import pytest

from moot.cli import main
from moot.xprotocol.event_store.event_store import EventStore
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, Signed, decode
from tests.waiting import HANG_SECONDS, bounded
from tests.warm_start import warm_programs
from tests.xprotocol.people import ALICE, BOB, CAROL, call, signed_by
from tests.xprotocol.relay.crash import started
from tests.xprotocol.relay.raw_client import announce, event, raw_client


async def fill(folder: Path, *events: Signed) -> None:
    store = EventStore.open(folder)
    for one in events:
        assert await store.put(one) == "stored"
    await store.annotate(events[0].event.id, "outcome", "accepted \x1b[31m")
    await store.close()


def output_of(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["xp", "store", *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


async def test_a_relay_says_where_it_listens_and_stops_cleanly(tmp_path: Path) -> None:
    child, url = await started(tmp_path)
    async with raw_client(url) as alice:
        sent = event()
        assert (await alice.publish(sent.raw))[2] is True
        child.send_signal(signal.SIGTERM)
        assert (await alice.closed())[0] == 1001
    async with bounded():
        assert await child.wait() == 0
    store = EventStore.open(tmp_path)
    assert await store.get(sent.event.id) == sent.raw
    await store.close()


def test_a_relay_that_cannot_start_says_why_and_what_to_do(tmp_path: Path) -> None:
    moot = str(warm_programs() / "moot")
    for words, why in (
        (["--host", "0.0.0.0"], "--url wss://"),  # noqa: S104
        (["--port", "70000"], "0 to 65535"),
        (["--url", "https://x"], "wss://relay.example"),
        (["--data", "/dev/null/x"], "cannot use"),
        (["--max-events", "0"], "at least 1"),
    ):
        command = [moot, "xp", "relay", "--port", "0", "--data", str(tmp_path), *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)  # noqa: S603
        assert ended.returncode == 2, words
        assert why in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr


async def test_the_store_can_be_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time())
    secret = "the plaintext of nobody else"
    first = event(payload={"text": secret}, now=now - 50, correlation_id="talk-7")
    second = event(CAROL, ALICE, now=now - 40, kind="com.acme.mail.send")
    news = announce(CAROL, now=now - 30, name="Carol")
    await fill(tmp_path, first, second, news)
    data = str(tmp_path)

    headings, *listed = output_of(capsys, "list", data).splitlines()
    assert headings.split() == ["TIME", "ID", "KIND", "FROM", "TO", "CONVERSATION", "BYTES"]
    assert [line.split()[1] for line in listed] == [one.event.id[:12] for one in (first, second, news)]
    assert "everyone" in listed[2]
    assert len(output_of(capsys, "list", data, "-n", "1").splitlines()) == 2
    raw = [orjson.loads(line) for line in output_of(capsys, "list", data, "--json").splitlines()]
    assert raw == [orjson.loads(one.raw) for one in (first, second, news)]

    questions: list[tuple[list[str], list[Signed]]] = [
        (["--kind", "com.acme.mail.*"], [second]),
        (["--kind", ANNOUNCE], [news]),
        (["--from", CAROL.key.text], [second, news]),
        (["--to", BOB.key.text], [first]),
        (["--correlation", "talk-7"], [first]),
        (["--since", "35s"], [news]),
        (["--until", str(now - 45)], [first]),
        (["--public"], [news]),
        (["--id", second.event.id], [second]),
        (["-n", "1"], [news]),
    ]
    for question, wanted in questions:
        found = [line.split()[1] for line in output_of(capsys, "search", data, *question).splitlines()[1:]]
        assert found == [one.event.id[:12] for one in wanted], question

    shown = output_of(capsys, "show", data, first.event.id[:10])
    assert "(sealed, " in shown
    assert 'outcome = "accepted \\u001b[31m"' in shown
    assert secret not in shown
    assert first.event.payload not in shown
    assert "Carol" in output_of(capsys, "show", data, news.event.id)
    assert orjson.loads(output_of(capsys, "show", data, news.event.id, "--json")) == orjson.loads(news.raw)

    figures = orjson.loads(output_of(capsys, "stats", data, "--json"))
    assert (figures["events"], figures["senders"], figures["recipients"]) == (3, 2, 2)
    assert "3 events" in output_of(capsys, "stats", data)

    target = tmp_path / "out.jsonl"
    assert "1 events in" in output_of(capsys, "export", data, "--public", str(target))
    assert target.read_bytes() == news.raw + b"\n"
    assert "exists" in output_of(capsys, "export", data, str(target), code=2)


async def test_what_is_over_is_pruned_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time())
    living = event()
    await fill(
        tmp_path, living, publish(ALICE, ANNOUNCE, {}, now=now - 5_000, ttl=60), call(now=now - 5_000, ttl=9)
    )
    data = str(tmp_path)
    assert output_of(capsys, "prune", data, "--dry-run") == "2 events would be removed\n"
    assert output_of(capsys, "prune", data) == "2 events removed\n"
    assert output_of(capsys, "list", data).splitlines()[1].split()[1] == living.event.id[:12]


async def test_mistakes_get_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path)
    assert "no events in" in output_of(capsys, "list", data, code=2)
    await fill(tmp_path, decode(signed_by(ALICE, event().covered | {"correlation_id": "\x1b[2J"})))
    assert "\x1b" not in output_of(capsys, "list", data)
    assert "\x1b" not in output_of(capsys, "list", data, "--json")
    assert "no event" in output_of(capsys, "show", data, "zz", code=2)
    assert "64 hexadecimal" in output_of(capsys, "search", data, "--id", "abc", code=2)
    store = EventStore.open(tmp_path)
    try:
        assert "another process" in output_of(capsys, "prune", data, code=1)
    finally:
        await store.close()
