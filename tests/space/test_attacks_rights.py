"""What a clever member tries against rights, names and reserved words."""

from __future__ import annotations

from typing import Any

import pytest

from moot.config.space.space_reader import read_space
from moot.protocol.operation import Json
from tests.rows import for_each_row

from .space_driver import CALL, SpaceDriver

READ = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_file"}}}
GIVER = ["capability/grant", "capability/revoke", "chat"]


def grant(driver: SpaceDriver, giver: str, taker: str, *rights: Json, id: str = "") -> str | None:
    return driver.says(giver, "capability/grant", {"recipient": taker, "capabilities": list(rights)}, id=id)


def revoke(driver: SpaceDriver, revoker: str, holder: str, **what: Json) -> str | None:
    return driver.says(revoker, "capability/revoke", {"recipient": holder, **what})


# Laundering


@pytest.mark.requirement("MEW-3.6.8-2")
@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (["mcp/request", "mcp/response", "mcp/proposal", "mcp/withdraw", "mcp/reject"], {"kind": "mcp/*"}),
        ([READ], {"kind": "mcp/request"}),
        ([READ], {"kind": "mcp/request", "payload": {"method": "tools/call"}}),
        (["chat"], {"kind": "chat/*"}),
        (["chat"], {"kind": "*"}),
        ([{"kind": "chat", "to": ["bob"]}], {"kind": "chat"}),
        (["mcp/request:tools/call:read_*"], {"kind": "mcp/request", "payload": {"method": "tools/call"}}),
    ],
)
def test_nobody_hands_on_more_than_one_right_of_theirs_covers(held: list[Json], wanted: Json) -> None:
    """D-16: covered by ONE held pattern, never by a union; the whole grant is refused."""
    driver = SpaceDriver(participants={"giver": [*GIVER, *held], "taker": []})
    driver.enter("giver", "taker")
    assert grant(driver, "giver", "taker", {"kind": "chat/acknowledge"}, wanted) == "capability_violation"
    assert driver.rights("taker") == []


def test_an_invitation_is_no_way_around_the_rule_of_grants() -> None:
    """D-23: initial capabilities are covered by the inviter's rights or the baseline."""
    driver = SpaceDriver(participants={"mallory": ["space/invite"]})
    driver.enter("mallory")
    wide = {"participant_id": "puppet", "initial_capabilities": [{"kind": "mcp/request"}]}
    driver.says("mallory", "space/invite", wide)
    assert driver.received["mallory"][0]["payload"]["status"] == "error"
    assert driver.comes("puppet") == "participant_not_found"


def test_a_right_lent_through_an_invitation_falls_with_the_right_it_was_lent_from() -> None:
    """D-18: a chain from a static right must support it; an invite is a link like any other."""
    driver = SpaceDriver(participants={"human": ["*"], "mallory": ["space/invite"]})
    driver.enter("human", "mallory")
    grant(driver, "human", "mallory", READ, id="g1")
    driver.says("mallory", "space/invite", {"participant_id": "puppet", "initial_capabilities": [READ]})
    driver.enter("puppet")
    assert driver.says("puppet", "mcp/request", CALL) is None
    assert revoke(driver, "human", "mallory", grant_id="g1") is None
    assert driver.says("puppet", "mcp/request", CALL) == "capability_violation"


def test_grants_in_a_circle_do_not_hold_each_other_up() -> None:
    """D-18: no self-supporting cycles."""
    driver = SpaceDriver(participants={"human": ["*"], "a": GIVER, "b": GIVER})
    driver.enter("human", "a", "b")
    grant(driver, "human", "a", READ, id="root")
    assert grant(driver, "a", "b", READ) is None
    assert grant(driver, "b", "a", READ) is None
    assert revoke(driver, "human", "a", grant_id="root") is None
    assert driver.says("a", "mcp/request", CALL) == "capability_violation"
    assert driver.says("b", "mcp/request", CALL) == "capability_violation"
    assert not driver.space.state.grants.by_id


@pytest.mark.requirement("MEW-3.6.8-4")
def test_a_revoked_right_is_neither_used_nor_handed_on_in_the_same_moment() -> None:
    """D-18: gone for the very next envelope."""
    driver = SpaceDriver(participants={"human": ["*"], "a": GIVER, "b": []})
    driver.enter("human", "a", "b")
    grant(driver, "human", "a", READ, id="g1")
    revoke(driver, "human", "a", grant_id="g1")
    assert grant(driver, "a", "b", READ) == "capability_violation"
    assert driver.says("a", "mcp/request", CALL) == "capability_violation"
    assert revoke(driver, "human", "a", grant_id="g1") == "invalid_request"


def test_a_stranger_to_a_grant_does_not_revoke_it() -> None:
    """D-18: the granter, an ancestor, or a holder of the same right; by id and by pattern alike."""
    driver = SpaceDriver(participants={"human": ["*"], "a": [], "mallory": GIVER})
    driver.enter("human", "a", "mallory")
    grant(driver, "human", "a", READ, id="g1")
    assert revoke(driver, "mallory", "a", grant_id="g1") == "unauthorized"
    assert revoke(driver, "mallory", "a", capabilities=[{"kind": "*"}]) == "unauthorized"
    assert driver.says("a", "mcp/request", CALL) is None


def test_who_lent_one_right_of_a_grant_does_not_revoke_the_others_in_it() -> None:
    """D-18: an ancestor in the chain of that right."""
    driver = SpaceDriver(
        participants={"one": [*GIVER, READ], "two": [*GIVER, "vendor/x"], "mid": GIVER, "end": []}
    )
    driver.enter("one", "two", "mid", "end")
    grant(driver, "one", "mid", READ)
    grant(driver, "two", "mid", {"kind": "vendor/x"})
    assert grant(driver, "mid", "end", READ, {"kind": "vendor/x"}) is None
    assert revoke(driver, "one", "end", capabilities=[{"kind": "vendor/*"}]) == "unauthorized"
    assert driver.says("end", "vendor/x", {}) is None


@pytest.mark.parametrize("to", [["other"], ["taker", "other"]])
def test_who_is_told_and_who_gains_are_the_same(to: list[str]) -> None:
    """D-82: a confused deputy."""
    driver = SpaceDriver(participants={"human": ["*"], "taker": [], "other": []})
    driver.enter("human", "taker", "other")
    payload = {"recipient": "taker", "capabilities": [READ]}
    assert driver.says("human", "capability/grant", payload, to=to) == "invalid_request"


# Names


def test_a_grant_stays_with_the_member_and_not_with_the_runtime_id_it_was_given_to() -> None:
    """D-17, D-19: bound to the logical participant."""
    driver = SpaceDriver(participants={"human": ["*"], "agent": [], "mallory": []})
    driver.enter("human")
    driver.enter("agent", runtime_id="worker-1")
    assert grant(driver, "human", "worker-1", READ) is None
    driver.leave("agent")
    driver.enter("mallory", runtime_id="worker-1")
    driver.enter("agent", runtime_id="worker-2")
    assert driver.says("mallory", "mcp/request", CALL) == "capability_violation"
    assert driver.says("agent", "mcp/request", CALL) is None


def test_nobody_grants_to_themselves_under_their_other_name() -> None:
    """D-16: self-grant is `invalid_operation`."""
    driver = SpaceDriver(participants={"human": ["*"]})
    driver.enter("human", runtime_id="desk")
    assert grant(driver, "human", "human", READ) == "invalid_operation"
    assert grant(driver, "human", "desk", READ) == "invalid_operation"


@for_each_row(
    "id",
    [
        "gateway",
        "system",
        "system:gateway",
        "system:anything",
        "human",
        "ivy",
        "desk",
        "gone",
        "",
        "hum an",
        "hum\u0430n",
        "human\u200b",
        "\uff48uman",
        "../human",
    ],
)
def test_a_runtime_id_cannot_be_the_gateways_or_anybody_elses_name_nor_look_like_one(id: str) -> None:
    """D-03, D-19, D-23: reserved, taken (here, invited, removed or as a runtime id) or not plain."""
    driver = SpaceDriver(
        participants={"human": ["*"], "boss": [], "gone": [], "mallory": ["chat"]}, anonymous=["chat"]
    )
    driver.enter("human")
    driver.enter("boss", runtime_id="desk")
    driver.says("human", "space/invite", {"participant_id": "ivy"})
    driver.says("human", "space/kick", {"participant_id": "gone"})
    before = driver.space.save()
    assert driver.comes("mallory", runtime_id=id) == "invalid_request"
    assert driver.comes("some-guest", anonymous=True, runtime_id=id) == "invalid_request"
    assert driver.space.save() == before


@pytest.mark.parametrize("name", ["human", "desk", "ivy", "gone", "gateway", "system:x", "hum\u0430n"])
def test_a_guest_cannot_take_anybodys_name(name: str) -> None:
    """D-03, D-19, D-24: a refused guest leaves no trace, and the removed stay removed."""
    driver = SpaceDriver(participants={"human": ["*"], "boss": [], "gone": []}, anonymous=["chat"])
    driver.enter("human")
    driver.enter("boss", runtime_id="desk")
    driver.says("human", "space/invite", {"participant_id": "ivy"})
    driver.says("human", "space/kick", {"participant_id": "gone"})
    before = driver.space.save()
    driver.received = driver.join("guest", {"as": name, "anonymous": True})
    assert driver.received["guest"][0]["refused"] == "invalid_request"
    driver.leave("guest")
    assert driver.space.save() == before


def test_a_second_connection_cannot_take_a_second_id() -> None:
    """D-88: all sockets of a member share one runtime id."""
    driver = SpaceDriver(participants={"agent": ["chat"]})
    driver.enter("agent", runtime_id="one")
    assert driver.comes("agent/2", **{"as": "agent", "runtime_id": "two"}) == "invalid_request"
    assert driver.comes("agent/3", **{"as": "agent"}) is None
    assert driver.says("agent/3", "chat", {"text": "hi"}, **{"from": "one"}) is None


@pytest.mark.requirement("MEW-7.2-3")
@pytest.mark.parametrize("sender", ["human", "system:gateway", "gateway", "mallory2", "Mallory"])
def test_nobody_speaks_under_another_name(sender: str) -> None:
    """D-05: `from` differing from the session is refused."""
    driver = SpaceDriver(participants={"human": ["*"], "mallory": ["*"]})
    driver.enter("human", "mallory")
    assert driver.says("mallory", "chat", {"text": "trust me"}, **{"from": sender}) == "auth_violation"
    assert driver.kinds("human") == []


def test_a_participant_named_by_a_reload_takes_its_name_back_from_whoever_used_it() -> None:
    """D-19: a guest does not grow into the participant, and a runtime id does not stand beside it."""
    before: dict[str, Any] = {"participants": {"human": ["*"], "bob": ["chat"]}, "anonymous": ["chat"]}
    driver = SpaceDriver(**before)
    driver.enter("human")
    driver.enter("bob", runtime_id="dora")
    driver.enter("carol", anonymous=True)
    after = {**before, "participants": {**before["participants"], "carol": ["*"], "dora": ["*"]}}
    config = read_space("lab", {"dialects": ["mew", "mcpx", "m3p"], **after})
    driver.space.reload(config, driver.now, driver.mint)
    assert {s.member.name for s in driver.space.state.roster.sessions.values()} == {"human"}
    assert driver.rights("carol") == ["*"]
    driver.enter("dora", "carol")


# Reserved words


@pytest.mark.requirement("MEW-4.1-8", "MEW-4.1-10", "MEW-7.1-3")
@for_each_row(
    ("dialect", "kind"),
    [
        ("mew", "system/welcome"),
        ("mew", "system/made-up"),
        ("mew", "system"),
        ("mew", "presence"),
        ("mew", "space/invite-ack"),
        ("mew", "stream/open"),
        ("mew", "stream/write-granted"),
        ("mew", "stream/write-revoked"),
        ("mew", "stream/ownership-transferred"),
        ("mcpx", "system/presence"),
        ("mcpx", "system"),
        ("mcpx", "presence"),
        ("mcpx", "stream/open"),
        ("m3p", "system.welcome"),
        ("m3p", "system.welcome.participant"),
        ("m3p", "system.made-up"),
        ("m3p", "stream.open"),
        ("m3p", "space.invite-ack"),
        ("m3p", "mcpx.ext.presence"),
        ("m3p", "mcpx.ext.system"),
    ],
)
def test_only_the_gateway_says_what_is_the_gateways_in_every_dialect(dialect: str, kind: str) -> None:
    """D-10, D-44: whatever capabilities a member holds."""
    driver = SpaceDriver(participants={"human": ["*"], "mallory": ["*", "system/*"]})
    driver.enter("human")
    driver.enter("mallory", dialect=dialect)
    assert driver.says("mallory", kind, {"event": "join"}) == "capability_violation"
    assert driver.received["mallory"][-1]["payload"]["detail"] == "reserved_kind"
    assert driver.kinds("human") == []


@pytest.mark.parametrize(
    "kind", ["mcpx.ext.system/welcome", "mcpx.ext.chat", "system", "presence", "chat:x", "mcp.withdraw"]
)
def test_m3p_has_no_second_spelling_to_hide_behind(kind: str) -> None:
    """D-47, D-50: every kind has one spelling."""
    driver = SpaceDriver(participants={"human": ["*"], "mallory": ["*"]})
    driver.enter("human")
    driver.enter("mallory", dialect="m3p")
    assert driver.says("mallory", kind, {}) == "invalid_envelope"


# The kind says one thing, the payload does another


@pytest.mark.parametrize("rights", [["mcp/request:tools/call:safe"], [{"kind": "mcp/request"}], ["*"]])
@pytest.mark.parametrize(("dialect", "kind"), [("mcpx", "mcp/request:"), ("m3p", "mcp.request.")])
def test_a_kind_that_claims_another_call_than_its_payload_goes_nowhere(
    rights: list[Json], dialect: str, kind: str
) -> None:
    """D-48: METHOD and CONTEXT in the kind must equal the payload, under strings and objects alike."""
    driver = SpaceDriver(participants={"human": ["*"], "mallory": rights})
    driver.enter("human")
    driver.enter("mallory", dialect=dialect)
    danger = {"method": "tools/call", "params": {"name": "danger"}}
    for claim in ("tools/call:safe", "tools/list", "tools/call:dange", "tools/call:danger2"):
        assert driver.says("mallory", kind + claim, danger) == "kind_payload_mismatch"
    assert driver.kinds("human") == []


@pytest.mark.parametrize("kind", ["mcp/request:tools/call", "mcp/request:tools/callx:read_file"])
def test_a_shorter_or_longer_kind_is_no_way_around_a_right_with_a_context(kind: str) -> None:
    """D-46: a short kind is refused under a contextual right, and parts are compared whole."""
    driver = SpaceDriver(participants={"mallory": ["mcp/request:tools/call:read_*"]})
    driver.enter("mallory", dialect="mcpx")
    method = kind.split(":")[1]
    payload = {"method": method, "params": {"name": "read_file"}}
    assert driver.says("mallory", kind, payload) == "capability_violation"


def test_a_lazy_space_keeps_a_mismatch_within_its_dialect() -> None:
    """D-48: never translated into another dialect, and never under an object capability."""
    driver = SpaceDriver(
        participants={"mew": ["*"], "dot": [], "x": [], "mallory": ["mcp/request:tools/call:safe"]},
        kind_validation="lazy",
    )
    driver.enter("mew")
    driver.enter("dot", dialect="m3p")
    driver.enter("x", "mallory", dialect="mcpx")
    danger = {"method": "tools/call", "params": {"name": "danger"}}
    driver.says("mallory", "mcp/request:tools/call:safe", danger, id="r1")
    assert (driver.kinds("mew"), driver.kinds("dot")) == ([], [])
    assert driver.kinds("x") == ["mcp/request:tools/call:safe"]
    assert driver.refusal("mallory") == "kind_payload_mismatch"
    grant(driver, "mew", "x", {"kind": "mcp/request"})
    assert driver.says("x", "mcp/request:tools/call:safe", danger) == "capability_violation"
