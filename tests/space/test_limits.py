"""Every limit has a number, a name in the configuration, and a test."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from moot.conformance.pure_driver import PureDriver
from moot.conformance.runner import ReceivedMessages
from moot.protocol.dialects import mcpx
from moot.protocol.envelope import EnvelopeLimits
from moot.protocol.operation import Json
from moot.space.acts import membership
from moot.space.config import SpaceLimits
from moot.space.space import Space
from tests.config.former_constants import OF_THIS_TEST, without_constants
from tests.rows import for_each_row


def space(**limits: float) -> PureDriver:
    participants: Json = {"alice": [{"kind": "*"}], "bob": [{"kind": "*"}], "carol": [{"kind": "chat"}]}
    driver = PureDriver(without_constants({"participants": participants, "limits": limits}))
    for name in ("alice", "bob"):
        driver.join(name, {})
    return driver


def errors(received: ReceivedMessages, name: str = "alice") -> list[Json]:
    return [message["payload"] for message in received[name] if message.get("kind") == "system/error"]


def say(driver: PureDriver, kind: str, payload: Json, **more: Json) -> list[Json]:
    return errors(driver.send("alice", {"kind": kind, "payload": payload} | more))


def chat(driver: PureDriver, text: str = "x", **more: Json) -> list[Json]:
    return say(driver, "chat", {"text": text}, **more)


def grant(driver: PureDriver, *kinds: str, **more: Json) -> list[Json]:
    capabilities = [{"kind": kind} for kind in kinds]
    return say(driver, "capability/grant", {"recipient": "carol", "capabilities": capabilities} | more)


def stream(driver: PureDriver, **fields: Json) -> list[Json]:
    return say(driver, "stream/request", {"direction": "upload"} | fields)


def invite(driver: PureDriver, name: str, *kinds: str) -> list[Json]:
    capabilities = [{"kind": kind} for kind in kinds]
    return say(driver, "space/invite", {"participant_id": name, "initial_capabilities": capabilities})


def share(driver: PureDriver, name: str) -> list[Json]:
    """Let somebody write to alice's stream, which is opened before."""
    if not driver.space.state.streams.open:
        driver.join("carol", {})
        assert stream(driver) == []
    (id,) = driver.space.state.streams.open
    return say(driver, "stream/grant-write", {"stream_id": id, "participant_id": name})


PROPOSED: Json = {"method": "tools/call", "params": {"name": "x"}}


def proposed(*values: str) -> Json:
    """A call with these values, as JSON writes them."""
    arguments = [json.loads(value) for value in values]
    return {"method": "tools/call", "params": {"name": "x", "arguments": arguments}}


# How to come to a limit of one or two, and how to go past it.
RESOURCES: dict[str, tuple[float, Callable[[PureDriver], list[Json]], Callable[[PureDriver], list[Json]]]] = {
    "max_open_requests": (
        1,
        lambda d: say(d, "mcp/request", PROPOSED, to=["bob"]),
        lambda d: say(d, "mcp/request", PROPOSED, to=["bob"]),
    ),
    "max_open_proposals": (
        1,
        lambda d: say(d, "mcp/proposal", PROPOSED),
        lambda d: say(d, "mcp/proposal", PROPOSED),
    ),
    "max_proposal_decimals": (
        3,
        lambda d: say(d, "mcp/proposal", proposed("1.5e3", "2E0", "-0.25", "7", '"1.5 2.5 3e3"', "true")),
        lambda d: say(d, "mcp/proposal", proposed("1.5", "2e0", "-0.25", "0.0", "7")),
    ),
    "max_streams_per_member": (1, stream, stream),
    "max_stream_targets": (
        1,
        lambda d: stream(d, target=["bob"]),
        lambda d: stream(d, target=["bob", "alice"]),
    ),
    "max_stream_request_bytes": (
        100,
        lambda d: stream(d, description="short"),
        lambda d: stream(d, description="long " * 50),
    ),
    "max_grants_per_member": (1, lambda d: grant(d, "mcp/proposal"), lambda d: grant(d, "mcp/withdraw")),
    "max_capabilities_per_grant": (
        1,
        lambda d: grant(d, "mcp/proposal"),
        lambda d: grant(d, "mcp/proposal", "mcp/withdraw"),
    ),
    "max_granted_capabilities": (
        1,
        lambda d: grant(d, "mcp/proposal"),
        lambda d: grant(d, "mcp/withdraw"),
    ),
    "max_granted_capability_bytes": (
        40,
        lambda d: grant(d, "mcp/proposal"),
        lambda d: grant(d, "mcp/withdraw"),
    ),
    "max_grant_expiry_seconds": (
        60,
        lambda d: grant(d, "mcp/proposal", expires_in_seconds=60),
        lambda d: grant(d, "mcp/proposal", expires_in_seconds=60.5),
    ),
    "max_grant_uses": (
        2,
        lambda d: grant(d, "mcp/proposal", max_uses=2),
        lambda d: grant(d, "mcp/proposal", max_uses=3),
    ),
    "max_stream_writers": (
        2,
        lambda d: share(d, "bob"),
        lambda d: share(d, "carol"),
    ),
    "max_stream_bytes_per_member": (
        300,
        lambda d: say(d, "stream/request", {"direction": "upload", "description": "d" * 100}),
        lambda d: say(d, "stream/request", {"direction": "upload", "description": "d" * 100}),
    ),
    "max_invited_participants": (1, lambda d: invite(d, "dora"), lambda d: invite(d, "emil")),
}


@for_each_row("limit", RESOURCES)
def test_a_resource_limit_names_itself_and_refuses_only_what_exceeds_it(limit: str) -> None:
    most, within, beyond = RESOURCES[limit]
    OF_THIS_TEST.undo()
    driver = space(**{limit: most})
    assert within(driver) == []
    (refusal,) = beyond(driver)
    assert (refusal["error"], refusal["limit"]) == ("resource_limit", limit)


def test_controls_count_as_open_requests() -> None:
    driver = space(max_open_requests=1)
    assert say(driver, "participant/request-status", {}, to=["bob"]) == []
    (refusal,) = say(driver, "participant/clear", {}, to=["bob"])
    assert refusal["limit"] == "max_open_requests"
    for kind in ("participant/pause", "participant/shutdown"):
        assert say(driver, kind, {}, to=["bob"]) == [], "stopping somebody is never refused for a limit"


def test_sessions_per_member_refuses_one_more_connection() -> None:
    driver = space(max_sessions_per_member=1)
    (refused,) = driver.join("alice/2", {"as": "alice"})["alice/2"]
    assert refused["refused"] == "resource_limit"


def test_sessions_per_member_count_at_each_gateway_of_a_cluster() -> None:
    """Who was at one that was killed comes back before the others let those connections go."""
    driver = space(max_sessions_per_member=1)
    assert next(each["kind"] for each in driver.join("a.1-1", {"as": "bob"})["a.1-1"]) == "system/welcome"
    assert next(each["kind"] for each in driver.join("b.1-1", {"as": "bob"})["b.1-1"]) == "system/welcome"
    (refused,) = driver.join("b.1-2", {"as": "bob"})["b.1-2"]
    assert refused["refused"] == "resource_limit"


@pytest.mark.parametrize(("limit", "size"), [("messages_per_second", 1), ("bytes_per_second", 200)])
def test_a_flood_is_slowed_and_told_when_to_come_back(limit: str, size: int) -> None:
    driver = space(**{limit: size})
    answers = [chat(driver) for _ in range(10)]
    assert answers[0] == []
    (refusal,) = answers[-1]
    assert (refusal["error"], refusal["limit"]) == ("rate_limited", limit)
    driver.now += refusal["retry_after"]
    assert chat(driver) == []
    assert errors(driver.send("bob", {"kind": "chat", "payload": {"text": "never slowed"}}), "bob") == []


def test_a_rate_of_zero_is_no_limit_and_a_clock_that_goes_back_locks_nobody_out() -> None:
    free = space(messages_per_second=0, bytes_per_second=0)
    assert [chat(free) for _ in range(5000)] == [[]] * 5000
    slow = space(messages_per_second=1)
    assert chat(slow) == []
    slow.now -= 3600
    assert chat(slow) == []


def test_frames_count_against_the_rate_too() -> None:
    driver = space(bytes_per_second=200)
    opened = driver.send("alice", {"kind": "stream/request", "payload": {"direction": "upload"}})
    name = opened["alice"][1]["payload"]["stream_id"]
    driver.now += 10
    received = [driver.frame("alice", f"#{name}#{'x' * 150}") for _ in range(3)]
    assert received[0]["bob"] == [{"frame": f"#{name}#{'x' * 150}"}]
    assert errors(received[-1])[0]["error"] == "rate_limited"


def test_frame_bytes_refuses_a_larger_frame() -> None:
    driver = space(max_frame_bytes=20)
    (refusal,) = errors(driver.frame("alice", "#stream-x#" + "y" * 20))
    assert "max_frame_bytes" in refusal["message"] or "20" in refusal["message"]


def test_recent_ids_are_refused_until_they_leave_the_window() -> None:
    driver = space(max_recent_ids=3)
    chat(driver, id="one")
    assert chat(driver, id="one")[0]["error"] == "duplicate_id"
    for number in range(3):
        assert chat(driver, id=f"other-{number}") == []
    assert chat(driver, id="one") == []


def test_request_seconds_ends_what_is_owed() -> None:
    driver = space(request_seconds=10)
    say(driver, "mcp/request", PROPOSED, to=["bob"], id="q1")
    assert driver.space.next_deadline() == driver.now + 10
    driver.wait(10)
    assert driver.space.state.roster.members["alice"].open_requests == 0  # type: ignore[index]


def test_proposal_seconds_expires_a_proposal() -> None:
    driver = space(proposal_seconds=10)
    say(driver, "mcp/proposal", PROPOSED, id="p1")
    driver.wait(10)
    (refusal,) = say(driver, "mcp/request", PROPOSED, correlation_id=["p1"])
    assert (refusal["error"], refusal["state"]) == ("proposal_settled", "expired")


def test_settled_proposals_are_forgotten_oldest_first() -> None:
    driver = space(max_settled_proposals=1)
    for id in ("p1", "p2"):
        say(driver, "mcp/proposal", PROPOSED, id=id)
        assert say(driver, "mcp/withdraw", {}, correlation_id=[id]) == []
    assert list(driver.space.state.ledger.proposals) == ["p2"]


def test_stream_owner_grace_closes_an_orphan() -> None:
    driver = space(stream_owner_grace_seconds=7)
    stream(driver)
    driver.leave("alice")
    assert driver.wait(6.9)["bob"] == []
    (closed,) = driver.wait(0.2)["bob"]
    assert closed["payload"]["reason"] == "owner_disconnected"


def test_open_proposals_keep_so_many_bytes_of_one_member() -> None:
    """They stay in memory for whoever joins later; a withdrawal makes room."""
    driver = space(max_open_proposal_bytes=1_500)
    call: Json = {"method": "tools/call", "params": {"name": "x", "arguments": {"text": "x" * 800}}}
    assert say(driver, "mcp/proposal", call, id="p1") == []
    (refusal,) = say(driver, "mcp/proposal", call, id="p2")
    assert (refusal["error"], refusal["limit"]) == ("resource_limit", "max_open_proposal_bytes")
    assert say(driver, "mcp/withdraw", {}, id="w1", correlation_id=["p1"]) == []
    assert say(driver, "mcp/proposal", call, id="p3") == []


def test_a_page_of_proposals_has_so_many_bytes() -> None:
    driver = space(max_proposal_page_bytes=4_000)
    call: Json = {"method": "tools/call", "params": {"name": "x", "arguments": {"text": "x" * 800}}}
    for number in range(5):
        assert say(driver, "mcp/proposal", call, id=f"p{number}") == []
    seen: list[str] = []
    after = 0
    while True:
        answer = driver.send("bob", {"kind": "moot/list-proposals", "payload": {"after": after}})
        (page,) = [each["payload"] for each in answer["bob"]]
        seen += [each["proposal_id"] for each in page["proposals"]]
        if "next" not in page:
            break
        after = page["next"]
    assert seen == [f"p{number}" for number in range(5)]
    assert after > 0, "they did not fit one page"


@pytest.mark.parametrize("seconds", [0, 7])
def test_who_polls_can_be_given_approved_calls_for_so_long(seconds: int) -> None:
    driver = space(poll_presence_seconds=seconds)
    call: Json = {"method": "tools/call", "params": {"name": "x"}}
    approval: Json = {"kind": "mcp/request", "to": ["carol"], "correlation_id": ["p1"], "payload": call}
    assert say(driver, "mcp/proposal", call, id="p1", to=["carol"]) == []
    driver.space.note_poll("carol", driver.now)
    if not seconds:
        assert errors(driver.send("bob", approval), "bob")[0]["error"] == "target_absent"
        return
    driver.wait(6.9)
    driver.space.note_poll("carol", driver.now)
    driver.wait(6.9)
    assert errors(driver.send("bob", approval), "bob") == []
    (answer,) = driver.wait(0.2)["bob"]
    assert (answer["kind"], answer["payload"]["reason"]) == ("moot/outcome", "host_left")
    assert say(driver, "mcp/proposal", call, id="p2", to=["carol"]) == []
    assert (
        errors(driver.send("bob", approval | {"correlation_id": ["p2"]}), "bob")[0]["error"]
        == "target_absent"
    )


def test_the_note_of_a_settlement_has_so_many_characters() -> None:
    driver = space(max_settle_note_chars=10)
    call: Json = {"method": "tools/call", "params": {"name": "x"}}
    assert say(driver, "mcp/proposal", call, id="p1") == []
    driver.send(
        "bob", {"id": "r1", "kind": "mcp/request", "to": ["alice"], "correlation_id": ["p1"], "payload": call}
    )
    stop: Json = {"method": "notifications/cancelled"}
    driver.send("bob", {"kind": "mcp/request", "to": ["alice"], "correlation_id": ["r1"], "payload": stop})
    answer: Json = {"kind": "moot/settle", "correlation_id": ["p1"]}
    long = driver.send("bob", answer | {"payload": {"outcome": "done", "note": "x" * 11}})
    assert errors(long, "bob")[0]["error"] == "invalid_request"
    assert (
        errors(driver.send("bob", answer | {"payload": {"outcome": "done", "note": "x" * 10}}), "bob") == []
    )


def test_shutdown_grace_leaves_time_for_last_words() -> None:
    driver = space(shutdown_grace_seconds=2)
    driver.send("bob", {"kind": "participant/shutdown", "to": ["alice"], "payload": {}})
    assert say(driver, "participant/status", {"messages_in_context": 0}) == []
    assert {"closed": 4002, "reason": "shut down on request"} in driver.wait(2)["alice"]


ENVELOPES: dict[str, tuple[float, Json, Json]] = {
    "max_bytes": (300, {"payload": {"text": "x"}}, {"payload": {"text": "x" * 300}}),
    "id": (0, {"id": "x" * 256}, {"id": "x" * 257}),
    "kind": (0, {"kind": "v" * 256}, {"kind": "v" * 257}),
    "context": (0, {"context": "a" * 1024}, {"context": "a" * 1025}),
    "to": (0, {"to": ["bob"] * 1024}, {"to": ["bob"] * 1025}),
    "correlation_id": (0, {"correlation_id": ["a"] * 256}, {"correlation_id": ["a"] * 257}),
}


@pytest.mark.parametrize("limit", ENVELOPES)
def test_an_envelope_beyond_a_limit_is_refused(limit: str) -> None:
    most, within, beyond = ENVELOPES[limit]
    base: Json = {"kind": "chat", "payload": {"text": "x"}}
    driver = space(**{limit: most} if most else {})
    assert errors(driver.send("alice", base | within)) == []
    (refusal,) = errors(driver.send("alice", base | beyond))
    assert refusal["error"] == "invalid_envelope"


def test_more_objects_and_arrays_than_max_containers_are_refused() -> None:
    """By the envelope and its payload there are two; brackets in a text are none."""
    driver = space(max_containers=12)
    within: Json = {"kind": "chat", "payload": {"many": [[]] * 9, "text": "[{" * 20}}
    assert errors(driver.send("alice", within)) == []
    (refusal,) = errors(driver.send("alice", {"kind": "chat", "payload": {"many": [[]] * 10}}))
    assert refusal["error"] == "invalid_json"


def test_a_call_that_names_a_proposal_has_no_more_decimals_either() -> None:
    """Its fingerprint costs as much, and a proposal with so many cannot be."""
    driver = space(max_proposal_decimals=2)
    driver.send("alice", {"id": "p-1", "kind": "mcp/proposal", "payload": proposed("1.5", "2.5")})
    for values in (("1.5", "2.5", "3.5"), ("1.5", "2.5")):
        call: Json = {
            "kind": "mcp/request",
            "to": ["alice"],
            "correlation_id": ["p-1"],
            "payload": proposed(*values),
        }
        refusals = errors(driver.send("bob", call), "bob")
        assert [each.get("limit") for each in refusals] == ["max_proposal_decimals"] * (len(values) - 2)


def test_a_long_extended_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of MCPx carry a context, so they may be longer than MEW's."""
    settings: Json = {
        "participants": {"old": ["*"]},
        "dialects": ["mcpx"],
    }
    monkeypatch.setattr(mcpx, "MAX_EXTENDED_KIND_CHARS", 40)
    driver = PureDriver(settings)
    driver.join("old", {"dialect": "mcpx"})
    assert errors(driver.send("old", {"kind": "v/" + "x" * 38, "payload": {}}), "old") == []
    assert errors(driver.send("old", {"kind": "v/" + "x" * 39, "payload": {}}), "old") != []


def test_initial_capabilities_count_in_bytes_too() -> None:
    driver = space(max_granted_capability_bytes=30)
    (refusal,) = say(
        driver,
        "space/invite",
        {"participant_id": "dora", "initial_capabilities": [{"kind": "chat"}, {"kind": "mcp/proposal"}]},
    )
    assert refusal["limit"] == "max_granted_capability_bytes"


def test_who_is_given_a_stream_has_room_for_it() -> None:
    driver = space(max_stream_bytes_per_member=450)
    request: Json = {"direction": "upload", "description": "d" * 150}
    for name in ("alice", "bob"):
        assert errors(driver.send(name, {"kind": "stream/request", "payload": request}), name) == []
    id = next(id for id, each in driver.space.state.streams.open.items() if each.owner == "alice")
    (refusal,) = say(driver, "stream/transfer-ownership", {"stream_id": id, "new_owner": "bob"})
    assert refusal["limit"] == "max_stream_bytes_per_member"


# `max_containers` is checked before there is an envelope: tests/gateway/hosting/test_costly_messages.py.
# `max_welcome_bytes` and `max_listed_member_bytes` refuse nothing: tests/space/members/test_listing.py.


def test_no_limit_is_without_a_test() -> None:
    """The names of this file's cases, against the names in the configuration."""
    here = __import__("pathlib").Path(__file__)
    others = ("tokens/test_temporary_tokens.py", "proposals/test_offer_owners.py")
    text = here.read_text("utf-8") + "".join((here.parent / name).read_text("utf-8") for name in others)
    names = {*SpaceLimits.__struct_fields__, *EnvelopeLimits.__struct_fields__} - {"envelope"}
    assert sorted(name for name in names if text.count(name) == 0) == []


def test_a_space_that_begins_at_a_saved_state_finds_the_same_deadlines_due() -> None:
    """What refers to nothing any more is not saved, and counts for nothing before either."""
    driver = space()
    start = driver.now
    driver.space.note_poll("carol", start)
    driver.space.note_poll("carol", start + 10)
    again = Space(driver.space.state.config, saved=driver.space.save())
    for each in (driver.space, again):
        assert not each.is_due(start + membership.POLL_PRESENCE_SECONDS + 5)
        assert each.is_due(start + membership.POLL_PRESENCE_SECONDS + 10)
