"""Messages that cost much to read: how many objects they have, and the sender's rate, are looked at first."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from moot.errors import MalformedEnvelope
from moot.protocol.dialects import DIALECTS, Dialect
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from tests.counted_work import function_calls
from tests.gateway.running_gateway import fields, participants, running_gateway

PEOPLE: Final = participants(alice=["*"], bob=["*"])
LARGE: Final = "x" * 20_000


class Decoded:
    """How many messages were decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dialect: DialectName = "mew") -> None:
        self.count = 0
        kind = type(DIALECTS[dialect])
        decode = kind.decode

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return decode(*arguments, **options)

        monkeypatch.setattr(kind, "decode", counted)


async def test_a_message_has_no_more_objects_and_arrays_than_allowed(tmp_path: Path) -> None:
    rules: dict[str, Json] = {"limits": {"max_containers": 9_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice = await gateway.join("alice")
        # Two are the envelope's own: itself and its payload.
        fillings: tuple[Json, ...] = ([], {})
        for filling in fillings:
            assert await alice.refused("chat", {"many": [filling] * 8_997}) is None
            await alice.say("chat", {"many": [filling] * 8_998})
            answer = await alice.hear("system/error")
            assert answer["payload"]["error"] == "invalid_json"
            assert "more than 9000 objects and arrays" in answer["payload"]["message"]
        # Brackets in a text are text, after escaped quotes and backslashes too.
        assert await alice.refused("chat", {"text": '[{\\"\\\\"' * 20_000}) is None
        reply = await gateway.post("alice", fields("chat", {"many": [[]] * 8_998}))
        assert (reply.status_code, reply.json()["error"]) == (400, "invalid_json")
        reply = await gateway.post("alice", fields("chat", {"many": [[]] * 8_997}))
        assert reply.status_code == 200


async def test_the_fast_path_lets_no_more_objects_through(tmp_path: Path) -> None:
    """A message before it has been accepted, so that the next one of its kind may take the fast path."""
    rules: dict[str, Json] = {"limits": {"max_containers": 9_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice = await gateway.join("alice")
        whole = {"protocol": "mew/v0.4", "ts": "2026-01-01T00:00:00Z", "from": "alice"}
        for number in range(3):
            assert await alice.refused("chat", {"text": "x"}, id=f"plain-{number}", **whole) is None
        await alice.say("chat", {"many": [[]] * 8_998}, id="many", **whole)
        assert (await alice.hear("system/error"))["payload"]["error"] == "invalid_json"


async def test_a_large_message_that_comes_too_fast_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: dict[str, Json] = {"limits": {"bytes_per_second": 1_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        assert await alice.refused("chat", {"text": LARGE}) is None
        decoded = Decoded(monkeypatch)
        for number in range(20):
            answer = await alice.ask("chat", {"text": LARGE}, id=f"late-{number}")
            payload = answer["payload"]
            assert payload["error"] == "rate_limited"
            assert 0 < payload["retry_after"] <= 40
            assert answer["correlation_id"] == [f"late-{number}"]
        assert decoded.count == 0
        reply = await gateway.post("alice", fields("chat", {"text": LARGE}))
        assert (reply.status_code, reply.json()["error"]) == (429, "rate_limited")
        assert int(reply.headers["Retry-After"]) >= 1
        assert decoded.count == 0
        # Others have a rate of their own.
        assert await bob.refused("chat", {"text": LARGE}) is None


async def test_the_id_of_an_undecoded_message_is_told_only_where_it_is_certain(tmp_path: Path) -> None:
    rules: dict[str, Json] = {"limits": {"bytes_per_second": 1_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("chat", {"text": LARGE}) is None
        tail = f'"payload": {{"text": "{LARGE}"}}}}'
        for head, about in {
            '{"kind": "chat", "id": "a", ': ["a"],
            '{"payload": {"id": "inner"}, "id": "b", ': [],
            '{"kind": "chat", "\\u0069d": "c", ': [],
            '{"id": 7, ': [],
        }.items():
            await alice.send(head + tail)
            answer = await alice.hear("system/error")
            assert answer["payload"]["error"] == "rate_limited"
            assert answer.get("correlation_id", []) == about


async def test_malformed_messages_count_toward_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: dict[str, Json] = {"limits": {"bytes_per_second": 100_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules, errors_per_second=1_000) as gateway:
        alice = await gateway.join("alice")
        decoded = Decoded(monkeypatch)
        for _ in range(30):
            await alice.send("[" * 20_000)
        codes = [(await alice.hear("system/error"))["payload"]["error"] for _ in range(30)]
        # A second's worth and one more are looked at, and what drains in the meantime.
        assert codes[:5] == ["invalid_json"] * 5
        assert "rate_limited" in codes
        assert decoded.count == codes.count("invalid_json")


async def test_what_was_accepted_before_the_limit_is_replayed_after_a_restart(tmp_path: Path) -> None:
    """Journals of earlier versions, and a limit that was lowered since."""
    rules: dict[str, Json] = {"limits": {"max_containers": 40_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules, snapshot_records=1_000_000) as gateway:
        alice = await gateway.join("alice")
        call = {"method": "tools/call", "params": {"name": "x", "arguments": {"many": [[]] * 20_000}}}
        await alice.ask("mcp/proposal", call, id="p-1")
        journal = sorted(gateway.journal().glob("*"))[0]
        copied = journal.read_bytes()
    assert b'"p-1"' in copied
    lowered: dict[str, Json] = {"limits": {"max_containers": 10_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=lowered) as gateway:
        host = gateway.gateway.directory.hosts["lab"]
        assert "p-1" in {proposal.id for proposal in host.space.state.ledger.all_open()}


def test_no_message_is_worth_a_call_for_each_of_its_values() -> None:
    """The bound is on work, not on time: Python functions called while a megabyte is decoded."""
    for name, raw in worst_envelopes().items():
        for dialect in DIALECTS.values():

            def read(dialect: Dialect = dialect, raw: bytes = raw) -> None:
                with suppress(MalformedEnvelope):
                    dialect.decode(raw)

            calls = function_calls(read, events=("call",))
            assert calls < 100, (name, dialect.name, calls)


def worst_envelopes() -> dict[str, bytes]:
    """Some 400 KB each, so that the slowest machine is done soon."""
    size = 400_000

    def filled(one: str) -> str:
        return "[" + ",".join([one] * (size // (len(one) + 1))) + "]"

    payloads = {
        "numbers": filled(" 1"),
        "exponents": filled("1e0"),
        "floats": filled("0.5 "),
        "strings": filled('"" '),
        "members": "{ " + ",".join(f'"{number:x}":0' for number in range(40_000)) + "}",
        "objects": "[ " + ",".join(['{"":0}'] * 40_000) + "]",
        "long integers": filled("1" * 400),
        "escapes": '"' + "\\u0041" * (size // 6) + '"',
        "a duplicate": "{ " + ",".join(f'"{number:x}":0' for number in range(40_000)) + ',"0":1}',
        "a long integer beside numbers": "[" + "1" * 400 + "," + filled("1e0") + "]",
        "objects in text": json.dumps("[{" * (size // 2)),
    }
    head = '{"protocol":"mew/v0.4","id":"x","ts":"2026-01-01T00:00:00Z","from":"a","kind":"chat","payload":'
    return {name: f'{head}{{"x":{payload}}}}}'.encode() for name, payload in payloads.items()}
