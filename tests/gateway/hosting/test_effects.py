"""One effect, once, in a gateway that is killed while calls run, and in its journal."""

from __future__ import annotations

import json
from pathlib import Path

from moot.config.space.space_reader import read_space
from moot.gateway.hosting.rights_reduction import reduce_rights
from moot.gateway.hosting.space_records import replay
from moot.gateway.hosting.stored_input import read_input
from moot.protocol.operation import Json
from moot.space.space import Space
from tests.gateway.effect_recount import find_doubled
from tests.gateway.effect_rounds import FAULTS, plan, play
from tests.gateway.hosting.test_outcomes_replay import record


async def test_nothing_is_paid_twice_whatever_is_lost_or_killed(tmp_path: Path) -> None:
    rounds = plan(12, seed=2, killed_share=0.4)
    paid = await play(tmp_path, rounds)
    assert {each["fault"] for each in rounds} == set(FAULTS)
    assert [number for number, times in paid.items() if times > 1] == []
    assert len(paid) == sum(each["fault"] != "gone" for each in rounds)
    ran, doubled = find_doubled(tmp_path / "data" / "spaces" / "lab" / "journal", "pay", "invoice", "payee")
    # Those that the bank died of before it paid ran as well.
    assert (ran, doubled) == (len(rounds), [])


def test_a_recount_finds_what_was_paid_twice(tmp_path: Path) -> None:
    """The judge is no rubber stamp."""

    def line(who: str, id: str, kind: str, about: list[str], **payload: Json) -> str:
        raw = {"kind": kind, "correlation_id": about, "payload": payload}
        return json.dumps({"in": "receive", "out": "accepted", "who": who, "id": id, "raw": raw})

    call: Json = {"name": "pay", "arguments": {"i": "INV-7"}}
    again: Json = {"name": "pay", "arguments": {"i": " inv\u20137"}}
    lines = [
        line("a", "r1", "mcp/request", [], params=call),
        line("h", "x1", "mcp/response", ["r1"], error={"code": -32602}),
        line("a", "r2", "mcp/request", [], params=again),
        line("a", "p1", "mcp/proposal", [], params=call),
        line("ana", "r3", "mcp/request", ["p1", "r2"], params=call),
        line("ana", "r4", "mcp/request", ["p1", "r2"], params=call),
        line("a", "r5", "mcp/request", ["p1", "r4"], params=call),
    ]
    (tmp_path / "1.jsonl").write_text("\n".join(lines), "utf-8")
    assert find_doubled(tmp_path, "pay", "i") == (5, ["r4", "r5"])


def test_behind_a_hole_of_the_journal_a_call_counts_as_made() -> None:
    effects: Json = {"pay": {"tool": "pay", "key": "{amount}"}}
    config = read_space("lab", {"participants": {"alice": ["*"], "tool": []}, "effects": effects})
    space = Space(config)
    call: Json = {"kind": "mcp/request", "to": ["tool"]}
    body: Json = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 7}}}
    replay(space, record("join", "alice", 1.0, mint=["m1", "m2"]), config)
    replay(space, record("receive", "alice", 2.0, call | {"id": "r1", "payload": body}), config)
    # What was accepted once is not refused when it is replayed.
    replay(space, record("receive", "alice", 3.0, call | {"id": "r2", "payload": body}), config)
    assert [each.request for each in space.state.effects.about("r2")] == ["r2"]
    body = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 8}}}
    reduce_rights(space, read_input(record("receive", "alice", 4.0, call | {"id": "r3", "payload": body})))
    assert [each.request for each in space.state.effects.about("r3")] == ["r3"]
