"""Welcomes have a bound, whatever members put into them; everything is in the pages (decision 0068)."""

from __future__ import annotations

import json
from typing import Any

from moot.protocol.operation import Json
from moot.space.members import listing
from tests.space.space_driver import SpaceDriver

# Half of it is one capability; the names are as long as they may be.
LONG = "x" * 1_000
MANY = 100


def size(message: Any) -> int:
    return len(json.dumps(message, separators=(",", ":")).encode())


def right(number: int) -> Json:
    return {"kind": f"v/{number}-{LONG}"}


def crowded(members: int, rights: int, **limits: Json) -> SpaceDriver:
    """Everybody with as many capabilities as that, and the longest names."""
    people = {f"m{n:03d}-{'n' * 58}": [right(number) for number in range(rights)] for n in range(members)}
    driver = SpaceDriver(
        participants=people | {name: ["*"] for name in ("new", "newer", "newest", "host")}, limits=limits
    )
    driver.enter(*people, "host")
    return driver


def welcome(driver: SpaceDriver, name: str = "new", **options: Json) -> Any:
    driver.enter(name, **options)
    return next(
        m
        for m in driver.received[name]
        if m["kind"] in ("system/welcome", "system.welcome", "system.welcome.participant")
    )


def pages(driver: SpaceDriver, name: str = "new") -> list[Any]:
    found: list[Any] = []
    after: dict[str, Json] = {}
    while True:
        assert driver.says(name, "moot/roster", after) is None
        driver.wait(1)
        (page,) = [m for m in driver.received[name] if m["kind"] == "moot/roster-page"]
        assert page["correlation_id"] == [f"e{driver._made}"]
        found.append(page)
        if "next" not in page["payload"]:
            return found
        after = {"after": page["payload"]["next"]}


def test_a_welcome_that_fits_is_as_it_always_was() -> None:
    driver = crowded(3, 2)
    payload = welcome(driver)["payload"]
    assert payload.keys() == {"you", "participants", "active_streams", "extensions"}
    assert [each["capabilities"] for each in payload["participants"][:3]] == [[right(0), right(1)]] * 3


def test_a_welcome_never_exceeds_its_bound_with_maximal_everything() -> None:
    """100 members with 20 KB of capabilities each, 60 streams with long descriptions."""
    driver = crowded(MANY, 20)
    for _ in range(60):
        driver.says("host", "stream/request", {"direction": "upload", "description": "d" * 900})
    most = listing.MAX_WELCOME_BYTES
    for there, (name, dialect) in enumerate([("new", "mew"), ("newer", "mcpx"), ("newest", "m3p")], MANY + 1):
        message = welcome(driver, name, dialect=dialect)
        assert size(message) <= most
        assert size(message) > most / 2, "the room is used"
        listed = message["payload"]["participants"]
        # All of them are named, though not with all that they may do.
        assert len(listed) == there
        assert message["payload"]["more"]["participants"] == MANY


def test_a_member_with_much_does_not_crowd_others_out() -> None:
    people: dict[str, Json] = {f"m{n}": ["chat"] for n in range(100)}
    people["greedy"] = [right(number) for number in range(600)]
    driver = SpaceDriver(participants=people | {"new": ["*"]})
    driver.enter("greedy", *[name for name in people if name != "greedy"])
    payload = welcome(driver)["payload"]
    shown = {each["id"]: each for each in payload["participants"]}
    assert all(shown[f"m{n}"]["capabilities"] == [{"kind": "chat"}] for n in range(100))
    greedy = shown["greedy"]
    assert size(greedy) <= listing.MAX_MEMBER_BYTES
    assert greedy["capabilities"] == [right(number) for number in range(len(greedy["capabilities"]))]
    assert greedy["capabilities_omitted"] == 600 - len(greedy["capabilities"])
    assert payload["more"] == {"participants": 1, "active_streams": 0}


def test_presence_has_the_same_bound() -> None:
    people: dict[str, Json] = {"greedy": [right(number) for number in range(600)], "bob": ["*"]}
    driver = SpaceDriver(participants=people)
    driver.enter("bob", "greedy")
    (presence,) = [m for m in driver.received["bob"] if m["kind"] == "system/presence"]
    assert size(presence) <= listing.MAX_MEMBER_BYTES + 1_000


def test_pages_hold_everybody_and_everything_once() -> None:
    driver = crowded(40, 30)
    ids = [driver.opens_stream("host", description="d" * 500) for _ in range(40)]
    message = welcome(driver)
    assert "more" in message["payload"]
    found = pages(driver)
    assert len(found) > 2
    assert all(size(page) <= listing.MAX_WELCOME_BYTES for page in found)
    members = [each for page in found for each in page["payload"]["participants"]]
    assert [each["id"] for each in members] == sorted({*(m["id"] for m in members)})
    assert len(members) == 41
    assert all(len(each["capabilities"]) == 30 for each in members if each["id"] != "host")
    streams = [each for page in found for each in page["payload"]["active_streams"]]
    assert [each["stream_id"] for each in streams] == sorted(ids)
    assert all(each["description"] == "d" * 500 for each in streams)


def test_whoever_comes_or_goes_between_two_pages_moves_nobody_else() -> None:
    driver = crowded(40, 30)
    welcome(driver)
    assert driver.says("new", "moot/roster", {}) is None
    (first,) = driver.received["new"]
    names = sorted(each["id"] for each in first["payload"]["participants"])
    driver.leave(names[0])
    driver.leave(names[-1])
    assert driver.says("new", "moot/roster", {"after": first["payload"]["next"]}) is None
    (second,) = driver.received["new"]
    assert min(each["id"] for each in second["payload"]["participants"]) > names[-1]


def test_a_question_for_pages_needs_no_right_and_is_heard_by_nobody() -> None:
    driver = SpaceDriver(participants={"mute": [], "bob": ["*"]})
    driver.enter("mute", "bob")
    assert driver.says("mute", "moot/roster", {}) is None
    assert driver.kinds("mute") == ["moot/roster-page"]
    assert driver.kinds("bob") == []
    # Nobody but the gateway answers it.
    assert driver.says("bob", "moot/roster-page", {"participants": []}) == "capability_violation"
    bad: list[Json] = [1, "", "x:y", "p", [], {}, "p:" + "x" * 300]
    for after in bad:
        assert driver.says("mute", "moot/roster", {"after": after}) == "invalid_request"
    assert driver.says("mute", "moot/roster", {"after": "s:nothing"}) is None


def test_pages_count_against_the_rate_of_whoever_asks() -> None:
    driver = crowded(40, 30, bytes_per_second=1_000_000)
    welcome(driver)
    asked = 0
    while (refusal := driver.says("new", "moot/roster", {})) is None:
        asked += 1
        assert asked < 20
    assert refusal == "rate_limited"
    assert driver.says("host", "chat", {}) is None
    driver.wait(10)
    assert driver.says("new", "moot/roster", {}) is None


def test_a_legacy_member_gets_pages_in_its_own_words() -> None:
    driver = crowded(40, 30)
    driver.says("host", "stream/request", {"direction": "upload"})
    message = welcome(driver, dialect="mcpx")
    assert "more" in message["payload"]
    assert driver.says("new", "moot/roster", {}) is None
    (page,) = driver.received["new"]
    assert page["kind"] == "moot/roster-page"
    assert page["payload"].keys() == {"participants", "next"}
    assert all(isinstance(c, str) for each in page["payload"]["participants"] for c in each["capabilities"])


def test_a_small_bound_still_lets_people_in() -> None:
    driver = crowded(50, 5, max_welcome_bytes=1)
    message = welcome(driver)
    assert size(message) <= 8_192
    assert message["payload"]["more"]["participants"] == 51
    assert len([m for page in pages(driver) for m in page["payload"]["participants"]]) == 51
