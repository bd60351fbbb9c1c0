"""What a clever member tries in order to fill our memory or to take our time."""

from __future__ import annotations

import gc
import json
from collections import deque
from time import process_time
from typing import Any

import pytest

from moot.protocol.dialects import MEW
from moot.protocol.operation import Json
from moot.space.config import SessionId

from .space_driver import CALL, SpaceDriver


def space_driver(**settings: Json) -> SpaceDriver:
    driver = SpaceDriver(participants={"human": ["*"], "agent": ["chat"], "pal": ["*"]}, **settings)
    driver.enter("human", "agent", "pal")
    return driver


def largest_table(driver: SpaceDriver) -> int:
    """The size of the largest container that the space holds on to."""
    seen: set[int] = set()
    waiting: list[Any] = [driver.space.state]
    largest = 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | deque | set):
            largest = max(largest, len(value))
        if isinstance(value, dict | list | deque | set | tuple) or type(value).__module__.startswith("moot"):
            waiting += gc.get_referents(value)
    return largest


def test_six_thousand_made_up_kinds_and_ids_leave_every_table_bounded() -> None:
    """D-09: a bounded window; who makes words up only empties their own memos."""
    driver = space_driver(limits={"messages_per_second": 0, "bytes_per_second": 0, "max_recent_ids": 2_000})
    for number in range(6_000):
        text = f'{{"kind":"made/up-{number}","id":"id-{number}","payload":{{"k{number}":{number}}}}}'
        driver.space.receive(SessionId("pal"), MEW.decode(text.encode()), driver.now, driver.mint)
    assert largest_table(driver) <= 4_200


@pytest.mark.parametrize(
    "steps",
    [
        [("pal", "mcp/proposal", {"id": "{}"}), ("pal", "mcp/withdraw", {"about": ["{}"]})],
        [("pal", "mcp/request", {"id": "{}", "to": ["human"]}), ("human", "mcp/response", {"about": ["{}"]})],
        [("pal", "participant/pause", {"to": ["agent"]}), ("pal", "participant/resume", {"to": ["agent"]})],
        [("pal", "participant/request-status", {"id": "{}", "to": ["human"]})],
        [("pal", "mcp/reject", {"about": ["{}"]}), ("pal", "moot/approve", {"about": ["{}"]})],
    ],
)
def test_opening_and_closing_for_ever_leaves_nothing_behind(steps: list[tuple[str, str, Json]]) -> None:
    """D-09: what is over takes no memory, deadlines included."""
    limits = {
        "messages_per_second": 0,
        "bytes_per_second": 0,
        "max_recent_ids": 500,
        "max_settled_proposals": 500,
    }
    driver = space_driver(limits=limits)
    for number in range(1_500):
        driver.now += 0.001
        for session, kind, fields in steps:
            filled = json.loads(json.dumps(fields).replace("{}", f"id-{number}"))
            driver.says(session, kind, {"timeout_seconds": 1e6, "method": "x"}, **filled)
    assert largest_table(driver) <= 1_200


def test_guests_who_come_and_go_under_ever_new_names_are_forgotten() -> None:
    """D-17: nothing of a guest outlives its connection but what the window keeps of its words."""
    limits = {
        "messages_per_second": 0,
        "bytes_per_second": 0,
        "max_recent_ids": 100,
        "max_settled_proposals": 100,
    }
    driver = space_driver(anonymous=["*"], limits=limits)
    driver.says("human", "mcp/proposal", CALL, id="open")
    driver.says("human", "mcp/proposal", CALL, id="over")
    driver.says("human", "mcp/withdraw", {}, about=["over"])
    for number in range(1_800):
        name = f"guest-{number}"
        driver.enter(name, anonymous=True)
        for kind in ("mcp/proposal", "mcp/request", "stream/request", "vendor/x"):
            driver.says(name, kind, {"method": "x", "direction": "upload"}, to=["human"])
        driver.says(name, "mcp/reject", {}, about=["open", "over"])
        driver.leave(name)
    # Deadlines of what is over are cleared away a thousand at a time.
    assert largest_table(driver) <= 1_600
    state = driver.space.state
    assert state.window.pinned.keys() == state.ledger.proposals.keys()


def test_all_guests_together_send_as_fast_as_one_member() -> None:
    """Whoever has no token could come as many; members have each their own rate."""
    driver = space_driver(anonymous=["chat"], limits={"messages_per_second": 4})
    names = [f"guest-{number}" for number in range(8)]
    driver.enter(*names, anonymous=True)
    heard = [driver.says(name, "chat", {"text": "hi"}) for name in names]
    assert heard == [None] * 4 + ["rate_limited"] * 4
    assert driver.says("human", "chat", {"text": "hi"}) is None
    # Coming anew does not help, waiting does.
    driver.leave("guest-0")
    driver.enter("guest-9", anonymous=True)
    assert driver.says("guest-9", "chat", {"text": "hi"}) == "rate_limited"
    driver.now += 0.25
    assert [driver.says(name, "chat", {"text": "hi"}) for name in names[1:3]] == [None, "rate_limited"]


# Time


def test_nobody_can_be_granted_rights_without_number() -> None:
    """Ladder step 13: every right is compared with every other when one falls."""
    driver = SpaceDriver(participants={"a": ["capability/grant", "vendor/*"], "b": []})
    driver.enter("a", "b")
    for number in range(32):
        rights = [{"kind": f"vendor/x{number}-{each}"} for each in range(64)]
        refusal = driver.says("a", "capability/grant", {"recipient": "b", "capabilities": rights})
        if refusal is not None:
            break
    assert refusal == "resource_limit"


@pytest.mark.parametrize("kind", ["capability/grant", "capability/revoke"])
def test_a_list_of_rights_is_counted_before_it_is_read(kind: str) -> None:
    """Ladder step 13: reading ten thousand patterns takes seconds."""
    driver = space_driver()
    many = [{"kind": f"/x{number}/"} for number in range(9_999)]
    payload = {"recipient": "agent", "capabilities": [*many, {"unreadable": True}]}
    assert driver.says("human", kind, payload) == "resource_limit"


def test_naming_many_proposals_costs_no_more_than_naming_one() -> None:
    """D-28: the body is read once, however many proposals it is compared with."""
    body = {"method": "tools/call", "params": {"numbers": list(range(5_000))}}
    limits = {"max_open_proposals": 200, "max_open_proposal_bytes": 1 << 30}
    driver = space_driver(limits=limits | {"messages_per_second": 0, "bytes_per_second": 0})
    for number in range(200):
        assert driver.says("pal", "mcp/proposal", body, id=f"p{number}") is None
    before = process_time()
    assert driver.says("human", "mcp/request", body, about=["p0"]) is None
    for_one = process_time() - before
    assert driver.says("human", "mcp/request", body, about=[f"p{number}" for number in range(1, 200)]) is None
    assert process_time() - before < 20 * for_one + 0.2
