"""When an id may come again: clients of the reference number their messages anew in every process."""

from __future__ import annotations

from typing import Any

from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.space import Space
from tests.rows import for_each_row
from tests.space.space_driver import CALL, SpaceDriver

OTHER_CALL = {"method": "tools/call", "params": {"name": "rm"}}
PEOPLE: dict[str, Json] = {"mew": ["*"], "human": ["*"], "tool": ["mcp/response"]}


def compat(*names: str, **limits: Json) -> SpaceDriver:
    driver = SpaceDriver(participants=PEOPLE, reference_compat=True, limits=limits)
    driver.enter(*names or ("mew", "human", "tool"))
    return driver


def come_again(driver: SpaceDriver, name: str = "mew") -> None:
    driver.leave(name)
    driver.enter(name)


def test_a_restarted_client_may_number_its_messages_from_one_again() -> None:
    driver = compat()
    for _ in range(3):
        for number in range(1, 4):
            assert driver.says("mew", "chat", {"text": "hi"}, id=f"mew-{number}") is None
        come_again(driver)


def test_without_reference_compat_it_may_not() -> None:
    driver = SpaceDriver(participants=PEOPLE)
    driver.enter("mew", "human")
    assert driver.says("mew", "chat", {"text": "hi"}, id="mew-1") is None
    come_again(driver)
    assert driver.says("mew", "chat", {"text": "hi"}, id="mew-1") == "duplicate_id"


def test_no_id_comes_twice_in_one_session() -> None:
    driver = compat()
    driver.says("mew", "chat", {}, id="mew-1")
    assert driver.says("mew", "chat", {}, id="mew-1") == "duplicate_id"
    come_again(driver)
    assert driver.says("mew", "chat", {}, id="mew-1") is None
    assert driver.says("mew", "chat", {}, id="mew-1") == "duplicate_id"


def test_an_earlier_session_does_not_repeat_the_id_of_a_later_one() -> None:
    driver = compat("human")
    driver.enter("first", **{"as": "mew"})
    driver.enter("second", **{"as": "mew"})
    assert driver.says("second", "chat", {}, id="mew-1") is None
    assert driver.says("first", "chat", {}, id="mew-1") == "duplicate_id"
    assert driver.says("first", "chat", {}, id="mew-2") is None
    assert driver.says("second", "chat", {}, id="mew-2") is None


def test_nobody_takes_the_id_of_somebody_else() -> None:
    driver = compat()
    driver.says("mew", "chat", {}, id="mew-1")
    come_again(driver, "human")
    assert driver.says("human", "chat", {}, id="mew-1") == "duplicate_id"
    come_again(driver)
    driver.says("mew", "chat", {}, id="mew-1")
    come_again(driver, "human")
    assert driver.says("human", "chat", {}, id="mew-1") == "duplicate_id"


def test_a_post_is_no_later_session() -> None:
    """Whoever sends a post twice, because no answer came, must not act twice."""
    driver = compat("human")
    for session in ("post-1", "post-2"):
        driver.enter(session, **{"as": "mew", "injected": True})
    assert driver.says("post-1", "chat", {}, id="mew-1") is None
    driver.enter("mew")
    assert driver.says("post-2", "chat", {}, id="mew-1") == "duplicate_id"
    driver.enter("post-3", **{"as": "mew", "injected": True})
    assert driver.says("post-3", "chat", {}, id="mew-1") == "duplicate_id"
    assert driver.says("mew", "chat", {}, id="mew-1") is None


OPEN: list[tuple[str, Json, dict[str, Any]]] = [
    ("mcp/proposal", CALL, {}),
    ("mcp/request", CALL, {"to": ["tool"]}),
    ("capability/grant", {"recipient": "tool", "capabilities": [{"kind": "chat"}]}, {}),
    ("stream/request", {"direction": "upload"}, {}),
    ("participant/pause", {}, {"to": ["tool"]}),
    ("participant/request-status", {}, {"to": ["tool"]}),
    ("space/invite", {"participant_id": "new", "initial_capabilities": [{"kind": "space/kick"}]}, {}),
]


@for_each_row(("kind", "payload", "more"), OPEN)
@for_each_row("size", [0, 1, 2, 10_000])
@for_each_row("reference_compat", [False, True])
def test_an_open_object_keeps_its_id_whatever_the_window_holds(
    kind: str, payload: Json, more: dict[str, Any], size: int, reference_compat: bool
) -> None:
    limits = {"max_recent_ids": size}
    driver = SpaceDriver(participants=PEOPLE, limits=limits, reference_compat=reference_compat)
    driver.enter("mew", "human", "tool")
    assert driver.says("mew", kind, payload, id="mew-1", **more) is None
    for _ in range(2):
        driver.flood("human", 5)
        for who in ("mew", "human"):
            assert driver.says(who, "chat", {}, id="mew-1") == "duplicate_id"
            assert driver.says(who, "mcp/proposal", OTHER_CALL, id="mew-1") == "duplicate_id"
        come_again(driver)
    restored = Space(driver.space.state.config, saved=driver.space.save())
    assert "mew-1" in restored.state.window


def test_a_window_of_no_size_still_knows_who_was_asked() -> None:
    driver = SpaceDriver(participants=PEOPLE, limits={"max_recent_ids": 0})
    driver.enter("mew", "human", "tool")
    assert driver.says("mew", "mcp/request", CALL, id="r", to=["tool"]) is None
    assert driver.says("human", "mcp/response", {"result": {}}, about=["r"]) == "unauthorized"
    assert driver.says("tool", "mcp/response", {"result": {}}, about=["r"], to=["mew"]) is None
    assert driver.space.state.roster.members[Name("mew")].open_requests == 0
    assert driver.says("mew", "mcp/request", CALL, id="r", to=["tool"]) is None


def test_a_settled_proposal_gives_its_id_free_and_a_correlation_means_the_newer_one() -> None:
    driver = compat()
    assert driver.says("mew", "mcp/proposal", CALL, id="mew-1") is None
    assert driver.says("mew", "mcp/withdraw", {}, about=["mew-1"]) is None
    assert driver.says("mew", "mcp/proposal", OTHER_CALL, id="mew-1") == "duplicate_id"
    come_again(driver)
    assert driver.says("mew", "mcp/proposal", OTHER_CALL, id="mew-1") is None
    # What was reviewed before is not what is proposed now.
    assert driver.says("human", "mcp/request", CALL, to=["tool"], about=["mew-1"]) == "proposal_mismatch"
    assert driver.says("human", "mcp/request", OTHER_CALL, to=["tool"], about=["mew-1"], id="r1") is None
    come_again(driver)
    # It is being carried out, and what comes of it must not be lost.
    assert driver.says("mew", "chat", {}, id="mew-1") == "duplicate_id"
    assert driver.says("tool", "mcp/response", {"result": {}}, to=["human"], about=["r1"]) is None
    assert driver.says("mew", "chat", {}, id="mew-1") is None
    # A correlation to a chat fulfils no proposal, and refers to none that is settled.
    assert driver.says("human", "mcp/request", CALL, to=["tool"], about=["mew-1"]) is None


def test_the_answer_to_a_repeated_request_is_owed_to_the_newer_one() -> None:
    driver = compat()
    driver.says("mew", "mcp/request", CALL, id="mew-1", to=["human"])
    assert driver.says("human", "mcp/response", {"result": {}}, about=["mew-1"]) is None
    come_again(driver)
    assert driver.says("mew", "mcp/request", CALL, id="mew-1", to=["tool"]) is None
    assert driver.says("human", "mcp/response", {"result": {}}, about=["mew-1"]) == "unauthorized"
    assert driver.says("tool", "mcp/response", {"result": {}}, about=["mew-1"]) is None


def test_the_window_forgets_each_envelope_in_its_turn_and_the_newest_of_an_id_last() -> None:
    driver = compat(max_recent_ids=4)
    driver.says("mew", "chat", {}, id="mew-1")
    come_again(driver)
    driver.says("mew", "chat", {}, id="mew-1")
    come_again(driver)
    driver.says("mew", "chat", {}, id="mew-1")
    window = driver.space.state.window
    driver.flood("human", 3)
    assert "mew-1" in window
    assert driver.says("human", "chat", {}, id="mew-1") == "duplicate_id"
    restored = Space(driver.space.state.config, saved=driver.space.save()).state.window
    assert restored.superseded == window.superseded
    assert restored.save() == window.save()
    driver.flood("human", 1)
    assert "mew-1" not in window
    assert window.superseded == {}
    assert len(window.recent) == len(window.order) == 4
    window.resize(0)
    assert not window.recent


def test_a_snapshot_that_has_no_record_of_a_pinned_id_keeps_that_id_taken() -> None:
    """0.1 wrote such snapshots where the window had no size."""
    driver = SpaceDriver(participants=PEOPLE, limits={"max_recent_ids": 0})
    driver.enter("mew", "human", "tool")
    driver.says("mew", "mcp/proposal", CALL, id="p1")
    saved: Any = driver.space.save()
    saved["window"]["pinned"] = {}
    del saved["sessions_joined"]
    for session in saved["sessions"]:
        del session["number"]
    driver.space.state = Space(driver.space.state.config, saved=saved).state
    assert driver.says("mew", "mcp/proposal", OTHER_CALL, id="p1") == "duplicate_id"
    assert driver.says("human", "mcp/request", CALL, to=["tool"], about=["p1"]) is None
