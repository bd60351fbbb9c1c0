"""Which connection of a member says that something is not offered: the last that was asked (D-22, D-99)."""

from __future__ import annotations

from typing import Any

from moot.protocol.answer_marks import mark_error
from moot.protocol.operation import Json
from moot.space.space import Space
from tests.space.space_driver import CALL, SpaceDriver

REQUEST: Json = {"jsonrpc": "2.0", "id": 1, **CALL}
DONE: Json = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
NOT_HERE: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "error": {"code": -32602, "message": "unknown tool", "data": mark_error(None)},
}


def space_of(*connections: str, **options: bool) -> SpaceDriver:
    driver = SpaceDriver(participants={"alice": ["*"], "tool": []}, violation_notice=True)
    driver.enter("alice", answers=True)
    for name in connections:
        driver.enter(name, **{"as": "tool", "answers": True} | options)
    return driver


def ask(driver: SpaceDriver, id: str = "r1") -> None:
    assert driver.says("alice", "mcp/request", REQUEST, to=["tool"], id=id) is None


def answer(driver: SpaceDriver, by: str, payload: Json = NOT_HERE, about: str = "r1") -> str | None:
    return driver.says(by, "mcp/response", payload, to=["alice"], about=[about])


def reaches_alice(driver: SpaceDriver) -> bool:
    return "mcp/response" in driver.kinds("alice")


def owed(driver: SpaceDriver, id: str = "r1") -> Any:
    record = driver.space.state.window.get(id)
    assert record is not None
    return record.owed


def test_the_last_one_is_heard() -> None:
    driver = space_of("tool", "tool/2", "tool/3")
    ask(driver)
    for by in ("tool/2", "tool", "tool/2"):
        assert answer(driver, by) is None
        # Nobody hears of it, and the answer is still owed.
        assert not any(driver.received.values())
        assert owed(driver) == ("tool",)
    assert answer(driver, "tool/3") is None
    assert reaches_alice(driver)
    assert owed(driver) == ()


def test_an_answer_wins_before_and_after() -> None:
    driver = space_of("tool", "tool/2")
    ask(driver)
    assert answer(driver, "tool/2") is None
    assert answer(driver, "tool", DONE) is None
    assert reaches_alice(driver)
    ask(driver, "r2")
    assert answer(driver, "tool", DONE, "r2") is None
    # Too late: neither a refusal nor a notice of one.
    assert answer(driver, "tool/2", about="r2") is None
    assert not any(driver.received.values())


def test_an_error_without_the_mark_is_an_answer() -> None:
    driver = space_of("tool", "tool/2")
    ask(driver)
    failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}
    assert answer(driver, "tool/2", failed) is None
    assert reaches_alice(driver)


def test_who_joined_later_did_not_hear_the_request() -> None:
    driver = space_of("tool")
    ask(driver)
    driver.enter("tool/2", **{"as": "tool", "answers": True})
    assert answer(driver, "tool") is None
    assert reaches_alice(driver)


def test_who_answers_nothing_is_not_waited_for() -> None:
    driver = space_of("tool")
    driver.enter("tool/2", **{"as": "tool"})
    ask(driver)
    assert answer(driver, "tool/2") is None
    assert reaches_alice(driver)
    ask(driver, "r2")
    assert answer(driver, "tool", about="r2") is None
    assert reaches_alice(driver)


def test_who_left_without_a_word_may_have_run_it() -> None:
    driver = space_of("tool", "tool/2")
    ask(driver)
    assert answer(driver, "tool") is None
    received = driver.leave("tool/2")
    assert "mcp/response" not in [message["kind"] for message in received["alice"]]
    assert owed(driver) == ("tool",)


def test_a_saved_space_knows_who_has_said_so() -> None:
    driver = space_of("tool", "tool/2")
    ask(driver)
    assert answer(driver, "tool") is None
    driver.space = Space(driver.space.state.config, saved=driver.space.save())
    assert answer(driver, "tool") is None
    assert not reaches_alice(driver)
    assert answer(driver, "tool/2") is None
    assert reaches_alice(driver)


def test_a_rejection_by_a_person_is_never_left_to_others() -> None:
    driver = SpaceDriver(participants={"alice": ["*"], "tool": ["mcp/reject"]})
    driver.enter("alice")
    for name in ("tool", "tool/2"):
        driver.enter(name, **{"as": "tool", "answers": True})
    assert driver.says("alice", "mcp/proposal", CALL, to=["tool"], id="p1") is None
    mark = {"reason": "incapable", **mark_error(None)}
    assert driver.says("tool", "mcp/reject", mark, to=["alice"], about=["p1"]) is None
    assert not any(driver.received.values())
    assert driver.says("tool", "mcp/reject", {"reason": "incapable"}, to=["alice"], about=["p1"]) is None
    assert "mcp/reject" in driver.kinds("alice")


def test_an_answer_that_is_not_this_members_to_give_is_refused() -> None:
    """One of the requests was asked of somebody else: it was swallowed, and journaled as accepted."""
    driver = SpaceDriver(participants={"alice": ["*"], "tool": [], "mallory": []})
    for name in ("alice", "tool"):
        driver.enter(name, answers=True)
    for name in ("mallory", "mallory/2"):
        driver.enter(name, **{"as": "mallory", "answers": True})
    ask(driver)
    assert driver.says("alice", "mcp/request", REQUEST, to=["mallory"], id="r2") is None
    for about in (["r1"], ["r2", "r1"], ["r2", "nothing"], []):
        refused = driver.says("mallory", "mcp/response", NOT_HERE, to=["alice"], about=about)
        assert refused is not None, about
    assert owed(driver) == ("tool",)


def test_no_connection_rejects_without_the_right_to() -> None:
    driver = SpaceDriver(participants={"alice": ["*"], "mallory": []})
    driver.enter("alice", answers=True)
    for name in ("mallory", "mallory/2"):
        driver.enter(name, **{"as": "mallory", "answers": True})
    assert driver.says("alice", "mcp/proposal", CALL, id="p1") is None
    mark = {"reason": "incapable", **mark_error(None)}
    assert driver.says("mallory", "mcp/reject", mark, about=["p1"]) == "capability_violation"


def test_who_asks_its_own_member_and_does_not_hear_itself_is_not_waited_for() -> None:
    driver = SpaceDriver(participants={"tool": ["*"]})
    driver.enter("tool", answers=True, echo=False)
    driver.enter("tool/2", **{"as": "tool", "answers": True})
    assert driver.says("tool", "mcp/request", REQUEST, to=["tool"], id="r1") is None
    driver.received.clear()
    assert driver.says("tool/2", "mcp/response", NOT_HERE, to=["tool"], about=["r1"]) is None
    assert "mcp/response" in driver.kinds("tool")
