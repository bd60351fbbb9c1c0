"""`moot approve --set` and `--edit`: what a person changes takes the type of what it replaces."""

from __future__ import annotations

from typing import Any

import pytest

from moot.errors import UsageError
from moot.operations.decision_operations import changed_params
from moot.participant import SeenProposal
from moot.protocol import strict_json
from moot.protocol.changes import change_lines, changes_between
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from moot.protocol.operation import Json

ARGUMENTS: dict[str, Json] = {"amount": 950, "to": "Ana", "lines": [{"note": "a", "paid": False}]}


def proposal(params: dict[str, Json]) -> SeenProposal:
    fields = {
        "protocol": "mew/v0.4",
        "id": "p1",
        "ts": "2026-11-18T00:00:00Z",
        "from": "agent",
        "to": ["bank"],
        "kind": "mcp/proposal",
        "payload": {"method": "tools/call", "params": params},
    }
    envelope = DIALECTS["mew"].decode(strict_json.encode(fields), ANY_SIZE)
    return SeenProposal(id="p1", proposer="agent", envelope=envelope)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("amount=95", {"amount": 95}),
        ("to=7", {"to": "7"}),
        ("to=a=b", {"to": "a=b"}),
        ("to:=null", {"to": None}),
        ("lines.0.note=b", {"lines": [{"note": "b", "paid": False}]}),
        ("lines.0.paid=true", {"lines": [{"note": "a", "paid": True}]}),
        ('day:="Monday"', {"day": "Monday"}),
        ("days:=3", {"days": 3}),
        ("amount=9.5", {"amount": 9.5}),
        ("amount:=[]", {"amount": []}),
    ],
)
def test_a_change_takes_the_type_of_what_it_replaces(change: str, expected: dict[str, Any]) -> None:
    made = changed_params(proposal({"name": "pay", "arguments": ARGUMENTS}), [change])
    assert made == {"name": "pay", "arguments": {**ARGUMENTS, **expected}}
    assert ARGUMENTS["amount"] == 950


@pytest.mark.parametrize(
    "change",
    [
        "amount",
        "=3",
        "amount=many",
        'amount="95"',
        "amount=null",
        "lines=5",
        "lines.7.note=b",
        "no.such=1",
        "lines.0.paid=1",
        "amont=95",
        "day:=Monday",
    ],
)
def test_what_cannot_be_changed_is_said_before_anything_is_approved(change: str) -> None:
    with pytest.raises(UsageError):
        changed_params(proposal({"name": "pay", "arguments": ARGUMENTS}), [change])


def test_differences_are_told_one_value_a_line() -> None:
    before = {"method": "tools/call", "params": {"name": "pay", "arguments": ARGUMENTS, "_meta": {"a": 1}}}
    after = {
        "method": "tools/call",
        "params": {
            "name": "pay",
            "arguments": {"amount": 950.0, "lines": [{"note": "a", "paid": 0}], "x": None},
        },
    }
    assert change_lines(changes_between(before, after)) == [
        "arguments.amount: 950 → 950.0",
        'arguments.to: "Ana" (removed)',
        "arguments.lines.0.paid: false → 0",
        "arguments.x: null (added)",
    ]
    assert changes_between(before, before) == ()
    many = {"method": "m", "params": {str(index): index for index in range(30)}}
    assert change_lines(changes_between(many, {"method": "m", "params": {}}))[-1] == "and 10 more"
