"""A name that several members offer belongs to one of them, for every client, whoever answers first."""

from __future__ import annotations

from typing import Any, Final

from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.space import Space
from moot.space.state_hash import hash_state
from tests.space.space_driver import SpaceDriver

LISTS: Final = {
    "tools": ("tools/list", "name"),
    "prompts": ("prompts/list", "name"),
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
}


def two_hosts(**settings: Json) -> SpaceDriver:
    everybody = {name: ["*"] for name in ("alice", "files", "notes", "plans")}
    driver = SpaceDriver(participants=everybody, **settings)
    driver.enter("alice", "notes", "files")
    return driver


def announce(driver: SpaceDriver, host: str, *names: Any, what: str = "tools") -> None:
    """Let a host answer a list with these names."""
    method, key = LISTS[what]
    id = f"list-{host}-{driver._made}"
    assert driver.says("alice", "mcp/request", {"method": method, "id": 1}, to=[host], id=id) is None
    result = {"result": {what: [{key: name} for name in names]}, "id": 1}
    assert driver.says(host, "mcp/response", result, to=["alice"], about=[id]) is None


def ask(driver: SpaceDriver, *hosts: str) -> Any:
    """What of theirs belongs to others."""
    assert driver.says("alice", "moot/list-owners", {"participants": list(hosts)}) is None
    (page,) = [each["payload"] for each in driver.received["alice"] if each["kind"] == "moot/owners"]
    return {each["participant"]: each["taken"] for each in page["owners"]}


def test_a_name_goes_to_the_first_of_the_configuration_however_fast_others_answer() -> None:
    driver = two_hosts()
    for what, names in {"tools": ["pay", "own"], "prompts": ["pay"], "resources": ["x://1"]}.items():
        announce(driver, "notes", *names, what=what)
    announce(driver, "notes", "x://{id}", what="resourceTemplates")
    for what, names in {"tools": ["pay"], "prompts": ["pay"], "resources": ["x://1", "x://{id}"]}.items():
        announce(driver, "files", *names, what=what)
    taken = {"tools": {"pay": "files"}, "prompts": {"pay": "files"}}
    assert ask(driver, "notes", "files", "nobody") == {
        "notes": taken | {"uris": {"x://1": "files", "x://{id}": "files"}}
    }


def test_a_name_that_was_shown_once_stays_when_its_owner_leaves_and_another_comes() -> None:
    driver = two_hosts()
    announce(driver, "notes", "pay")
    assert ask(driver, "notes") == {}
    driver.leave("notes")
    # Earlier in the configuration, and too late.
    announce(driver, "files", "pay")
    assert ask(driver, "files") == {"files": {"tools": {"pay": "notes"}}}
    driver.enter("notes")
    announce(driver, "notes", "pay")
    assert ask(driver, "notes", "files") == {"files": {"tools": {"pay": "notes"}}}


def test_owners_are_part_of_the_state_and_outlive_a_restart() -> None:
    driver = two_hosts()
    announce(driver, "notes", "pay", "later")
    ask(driver, "notes")
    announce(driver, "files", "pay")
    saved = driver.space.save()
    again = Space(driver.space.state.config, saved=saved)
    assert hash_state(again.save()) == hash_state(saved)
    assert again.state.offer_owners.bytes == driver.space.state.offer_owners.bytes
    order = {name: place for place, name in enumerate(again.state.roster.members)}
    assert again.state.offer_owners.bind(Name("files"), order) == {"tools": {"pay": "notes"}}
    # Saved before there were owners.
    del saved["offer_owners"]
    assert Space(driver.space.state.config, saved=saved).state.offer_owners.bytes == 0


def test_the_names_of_a_guest_are_free_once_it_is_gone() -> None:
    driver = two_hosts(anonymous=["*"])
    driver.enter("visitor", anonymous=True)
    announce(driver, "visitor", "pay")
    assert ask(driver, "visitor") == {}
    driver.leave("visitor")
    assert driver.space.state.offer_owners.bytes == 0
    announce(driver, "notes", "pay")
    assert ask(driver, "notes") == {}


def test_what_is_no_list_announces_nothing() -> None:
    driver = two_hosts()
    announce(driver, "notes", 5, None, "", ["x"])
    results: list[Json] = [{"tools": {}}, {"tools": ["x", {}]}, []]
    for result in results:
        assert driver.says("alice", "mcp/request", {"method": "tools/list", "id": 1}, to=["notes"]) is None
        id = f"e{driver._made}"
        answer = {"result": result, "id": 1}
        assert driver.says("notes", "mcp/response", answer, to=["alice"], about=[id]) is None
    assert driver.space.state.offer_owners.save() == []


def test_a_question_names_participants() -> None:
    driver = two_hosts()
    wrong: list[Json] = [{}, {"participants": "files"}, {"participants": [1]}, {"participants": ["x"] * 257}]
    for payload in wrong:
        assert driver.says("alice", "moot/list-owners", payload) == "invalid_request"
    assert driver.says("alice", "moot/owners", {"owners": []}) == "capability_violation"


def test_a_participant_that_is_named_again_is_looked_at_once() -> None:
    driver = two_hosts()
    announce(driver, "notes", "pay")
    announce(driver, "files", "pay")
    assert driver.says("alice", "moot/list-owners", {"participants": ["notes", "files"] * 128}) is None
    (page,) = [each["payload"] for each in driver.received["alice"] if each["kind"] == "moot/owners"]
    assert [each["participant"] for each in page["owners"]] == ["notes"]


def test_names_of_one_member_have_so_many_bytes_and_so_has_a_page() -> None:
    """`max_announced_bytes_per_member`"""
    driver = two_hosts(limits={"max_announced_bytes_per_member": 400})
    names = [f"tool-number-{number}" for number in range(10)]
    announce(driver, "files", *names)
    assert len(driver.space.state.offer_owners.save()) == 8
    announce(driver, "notes", *names)
    taken = ask(driver, "files", "notes")
    assert list(taken) == ["notes"]
    assert len(taken["notes"]["tools"]) == 8
    driver.enter("plans")
    announce(driver, "plans", *names)
    asked: Json = {"participants": ["notes", "files", "plans", "alice"]}
    assert driver.says("alice", "moot/list-owners", asked) is None
    (page,) = [each["payload"] for each in driver.received["alice"] if each["kind"] == "moot/owners"]
    assert page["next"] == ["plans", "alice"]


def test_names_of_all_members_together_have_so_many_bytes() -> None:
    """`max_announced_bytes`: nobody takes from another what that one has."""
    driver = two_hosts(limits={"max_announced_bytes": 100})
    announce(driver, "notes", "pay", "b" * 90)
    ask(driver, "notes")
    announce(driver, "files", "pay", "more", "still more")
    assert [row[1] for row in driver.space.state.offer_owners.save()] == ["pay"]
    assert ask(driver, "files") == {"files": {"tools": {"pay": "notes"}}}
