"""Reminders and escalation: who is told of a proposal later, again, or because it is for them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moot.config.space.space_reader import read_space
from moot.errors import UsageError
from moot.gateway.notifications.recipients import ASSIGNED, Subject, find_due, was_told
from moot.gateway.notifications.sender import decode_notified, encode_notified
from moot.protocol.operation import Json
from moot.space.config import Name, Reminder
from moot.space.config_json import load_config, save_config
from moot.space.proposals.proposal_ledger import ProposalRecord
from tests.gateway.notifications.receivers import notifications, receiver, webhook
from tests.gateway.notifications.test_notifications import propose, scanned, told_by
from tests.gateway.running_gateway import participants, running_gateway

STEPS = (
    Reminder(after_seconds=0, tell=("ana",)),
    Reminder(after_seconds=600, tell=("ana", "bob")),
    Reminder(after_seconds=1800, tell=("lead-*",)),
)


def proposal(*assigned: str) -> ProposalRecord:
    names = tuple(map(Name, assigned))
    return ProposalRecord("p1", Name("agent"), (), "", 86_400.0, assigned_to=names)


@pytest.mark.parametrize(
    ("who", "age", "expected"),
    [
        ("ana", 29, None),
        ("ana", 30, (30, 0)),
        ("ana", 599, (30, 0)),
        ("ana", 600, (600, 1)),
        ("bob", 599, None),
        ("bob", 600, (600, 0)),
        ("lead-1", 1799, None),
        ("lead-1", 1800, (1800, 0)),
        # Whom no step names is told as without any.
        ("cara", 30, (30, 0)),
        ("cara", 9999, (30, 0)),
    ],
)
def test_each_is_told_at_the_first_step_that_names_them_and_reminded_at_the_next(
    who: str, age: float, expected: tuple[float, int] | None
) -> None:
    assert find_due(STEPS, proposal(), who, 30, age) == expected


def test_nobody_is_reminded_before_their_own_time() -> None:
    assert find_due(STEPS, proposal(), "ana", 900, 600) is None
    assert find_due(STEPS, proposal(), "ana", 900, 900) == (900, 0)
    assert find_due(STEPS, proposal(), "ana", 900, 9999) == (900, 0)


def test_whoever_it_was_for_is_still_reminded_when_it_is_for_anybody_again() -> None:
    assert was_told([ASSIGNED], 0)
    assert not was_told([ASSIGNED], 1)
    assert was_told([0, 1], 1)
    assert not was_told([0, 1], ASSIGNED + 1)
    assert was_told([ASSIGNED + 1], ASSIGNED + 1)
    assert not was_told([], 0)


def test_whom_it_is_for_is_told_at_once_and_again_if_they_were_told_before() -> None:
    assert find_due(STEPS, proposal("lead-1"), "lead-1", 30, 0) == (0.0, ASSIGNED)
    assert find_due((), proposal("ana"), "ana", 30, 40) == (30, ASSIGNED)
    assert find_due((), proposal("ana"), "bob", 30, 0) is None


def test_what_was_told_is_read_as_an_earlier_version_wrote_it() -> None:
    old = msgspec.json.encode({"participant": "ana", "told": [["lab", "proposal.pending", 1, "p1"]]})
    told = Subject("lab", "proposal.pending", 1, "p1")
    assert decode_notified(old, "ana") == {told}
    reminded = told._replace(step=2)
    assert decode_notified(encode_notified("ana", [reminded]), "ana") == {reminded}


def test_reminders_are_read_strictly_and_kept_with_the_rules_of_the_space() -> None:
    steps: Json = [{"after_seconds": 1800, "tell": "lead-*"}, {"after_seconds": 60, "tell": ["ana"]}]
    config = read_space("lab", {"reminders": steps})
    assert [each.after_seconds for each in config.reminders] == [60, 1800]
    assert load_config(save_config(config)) == config
    assert "reminders" not in save_config(read_space("lab", {}))
    for wrong in (
        [{"after_seconds": -1, "tell": ["ana"]}],
        [{"after_seconds": True, "tell": ["ana"]}],
        [{"after_seconds": 5, "tell": []}],
        [{"tell": ["ana"]}],
        [{"after_seconds": 5, "tell": ["ana"], "who": 1}],
        [{"after_seconds": 5, "tell": "ana"}] * 17,
    ):
        with pytest.raises(UsageError, match="reminders"):
            read_space("lab", {"reminders": wrong})


async def test_a_proposal_that_nobody_decides_goes_to_the_next_group_once_also_over_a_restart(
    tmp_path: Path,
) -> None:
    people = participants(maria=["*"], lead=["*"], bob=["chat"], agent=["mcp/proposal"])
    steps: Json = [
        {"after_seconds": 60, "tell": ["maria"]},
        {"after_seconds": 120, "tell": ["maria", "lead"]},
    ]
    async with receiver() as hers, receiver() as leads, receiver() as bobs:
        settings = notifications(
            hers=webhook(tmp_path, hers.url, "hers"),
            leads=webhook(tmp_path, leads.url, "leads", participant="lead"),
            bobs=webhook(tmp_path, bobs.url, "bobs", participant="bob"),
        )
        rules = {"reminders": steps}
        async with running_gateway(tmp_path, people, rules=rules, notifications=settings) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await scanned(gateway)
            assert (hers.requests, leads.requests) == ([], [])
            host.journaled.clock = lambda: start + 60
            await hers.has(1)
            await scanned(gateway)
            assert leads.requests == []
            # It is for the lead, who is told at once.
            maria = await gateway.join("maria")
            assert await maria.refused("moot/assign", {"to": ["lead"]}, about=["p1"]) is None
            (assigned,) = await leads.has(1)
            assert assigned.json["title"] == "For you: agent proposes write_file on files (lab)"
            assert assigned.json["proposals"][0]["assigned"] is True
            host.journaled.clock = lambda: start + 120
            second = (await hers.has(2))[1]
            assert second.json["title"].startswith("Reminder: agent proposes write_file")
            assert second.json["proposals"][0]["reminder"] is True
            # While she is away, Bob is told of what waits for her.
            assert bobs.requests == []
            away: Json = {"to": "bob", "expires_in_seconds": 3_600}
            assert await maria.refused("moot/delegate", away) is None
            await bobs.has(1)
            await scanned(gateway)
        async with running_gateway(tmp_path, people, rules=rules, notifications=settings) as gateway:
            gateway.gateway.directory.hosts["lab"].journaled.clock = lambda: start + 180
            await scanned(gateway)
            assert told_by(hers) == ["p1", "p1"]
            assert len(leads.requests) == len(bobs.requests) == 1
