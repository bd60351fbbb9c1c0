"""What an operator does to a space: rights, reload, health, restore; and how members come and go."""

from __future__ import annotations

import json

import pytest

from moot.config.space.space_reader import read_space
from moot.conformance.pure_driver import CountingMint, PureDriver
from moot.errors import InvalidOperation, InvalidRequest, ParticipantNotFound, UsageError
from moot.protocol.dialects import MEW
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import SessionId
from moot.space.effects import Credential, Mail, Result, Token
from moot.space.members.member import Options
from moot.space.space import Space

PARTICIPANTS: Json = {"alice": [{"kind": "*"}], "bob": ["chat"]}


def new_driver(**settings: Json) -> PureDriver:
    driver = PureDriver({"participants": PARTICIPANTS} | settings)
    for name in ("alice", "bob"):
        driver.join(name, {})
    return driver


@pytest.mark.requirement("MCPX-10.3-2", "MCPX-10.3-3")
def test_an_admin_change_is_live_at_once_and_told_with_a_new_welcome() -> None:
    """MCPx 10.3, D-55."""
    driver = new_driver()
    add, remove = read_capabilities(["mcp/proposal"]), read_capabilities(["chat"])
    effects = driver.space.change_capabilities("bob", add, remove, "root", driver.now, driver.mint)
    received = driver._carry_out(effects)
    assert received["bob"][0]["payload"]["you"]["capabilities"] == [{"kind": "mcp/proposal"}]
    assert received["alice"] == []
    (result,) = [effect for effect in effects if isinstance(effect, Result)]
    assert result.fields["oldCapabilities"] == ["chat"]
    assert result.fields["newCapabilities"] == ["mcp/proposal"]
    assert result.fields["modifiedBy"] == "root"
    refused = driver.send("bob", {"kind": "chat", "payload": {"text": "still?"}})
    assert refused["bob"][0]["payload"]["error"] == "capability_violation"


def test_an_admin_change_for_nobody_is_refused() -> None:
    with pytest.raises(ParticipantNotFound):
        new_driver().space.change_capabilities("zoe", (), (), "root", 0.0, CountingMint())


def test_rights_that_rested_on_a_static_right_fall_with_it() -> None:
    """D-18, through the operator's door."""
    driver = new_driver()
    grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/proposal"}]}
    driver.send("alice", {"kind": "capability/grant", "payload": grant})
    wide, narrow = read_capabilities([{"kind": "*"}]), read_capabilities(["chat"])
    effects = driver.space.change_capabilities("alice", narrow, wide, "root", driver.now, driver.mint)
    assert driver._carry_out(effects)["bob"][0]["payload"]["you"]["capabilities"] == [{"kind": "chat"}]


def test_restore_lifts_a_kick_and_mints_another_token() -> None:
    """D-24."""
    driver = new_driver()
    driver.send("alice", {"kind": "space/kick", "payload": {"participant_id": "bob", "reason": "x"}})
    assert Credential("bob", ()) in driver.effects  # type: ignore[arg-type]
    with pytest.raises(ParticipantNotFound):
        driver.space.join(SessionId("b2"), "bob", "mew", Options(), driver.now, driver.mint)
    effects = driver.space.restore_member("bob", driver.mint)
    (credential,) = [effect for effect in effects if isinstance(effect, Credential)]
    assert driver.space.find_token_owner(credential.hashes[0]) == "bob"
    driver.join("bob", {})
    with pytest.raises(InvalidOperation):
        driver.space.restore_member("bob", driver.mint)
    with pytest.raises(ParticipantNotFound):
        driver.space.restore_member("zoe", driver.mint)


@pytest.mark.parametrize(
    ("add", "remove", "drops_added", "expected"),
    [
        (["mcp/*"], [], True, ["chat"]),
        ([], ["chat"], True, []),
        # As an earlier version recorded it.
        (["mcp/*"], [], False, ["chat", "mcp/*"]),
    ],
)
def test_a_restored_member_has_nothing_that_an_administrator_had_added(
    add: list[str], remove: list[str], drops_added: bool, expected: list[str]
) -> None:
    """D-24: as with grants. What was taken away stays away."""
    driver = new_driver()
    changes = read_capabilities(add), read_capabilities(remove)
    driver.space.change_capabilities("bob", *changes, "root", driver.now, driver.mint)
    driver.send("alice", {"kind": "space/kick", "payload": {"participant_id": "bob", "reason": "x"}})
    driver.space.restore_member("bob", driver.mint, drops_added=drops_added)
    rights = driver.space.state.roster.find("bob").rights.capabilities
    assert [right.original for right in rights] == expected


def test_a_token_can_be_rotated_with_or_without_the_old_one() -> None:
    space = new_driver().space
    space.rotate_credential("bob", Token("h1"), 0.0, CountingMint(), keep=False)
    space.rotate_credential("bob", Token("h2"), 0.0, CountingMint(), keep=True)
    assert (space.find_token_owner("h1"), space.find_token_owner("h2")) == ("bob", "bob")
    space.rotate_credential("bob", Token("h3"), 0.0, CountingMint(), keep=False)
    assert (space.find_token_owner("h1"), space.find_token_owner("h3"), space.find_token_owner("")) == (
        None,
        "bob",
        None,
    )


def test_reload_changes_rights_without_dropping_anyone_who_stays() -> None:
    driver = new_driver()
    config = read_space(
        "lab", {"participants": {"alice": [{"kind": "*"}], "bob": ["mcp/proposal"], "new": []}}
    )
    received = driver._carry_out(driver.space.reload(config, driver.now, driver.mint))
    assert received["alice"] == []
    assert received["bob"][0]["payload"]["you"]["capabilities"] == [{"kind": "mcp/proposal"}]
    assert driver.join("new", {})["new"][0]["kind"] == "system/welcome"


def test_reload_removes_who_is_no_longer_named_and_keeps_the_invited() -> None:
    driver = new_driver()
    driver.send("alice", {"kind": "space/invite", "payload": {"participant_id": "ina"}})
    driver.join("ina", {})
    config = read_space("lab", {"participants": {"alice": [{"kind": "*"}]}})
    received = driver._carry_out(driver.space.reload(config, driver.now, driver.mint))
    assert received["bob"][0]["closed"] == 4003
    assert [message["payload"]["event"] for message in received["ina"]] == ["leave"]
    with pytest.raises(ParticipantNotFound):
        driver.space.join(SessionId("b2"), "bob", "mew", Options(), driver.now, driver.mint)


def test_an_invitation_by_mail_says_where_and_the_token_is_in_no_repr() -> None:
    """MEW 3.6.5."""
    driver = new_driver(connection_url="ws://x/participants/{id}/ws?space=lab")
    invite: Json = {"participant_id": "ina", "email": "ina@example.org"}
    driver.send("alice", {"kind": "space/invite", "payload": invite})
    (mail,) = [effect for effect in driver.effects if isinstance(effect, Mail)]
    assert (mail.address, mail.connection_url) == ("ina@example.org", "ws://x/participants/ina/ws?space=lab")
    assert mail.token.secret is not None
    assert mail.token.secret not in repr(mail)
    assert driver.space.find_token_owner(mail.token.hash) == "ina"
    assert mail.token.secret not in json.dumps(driver.space.save())


@pytest.mark.parametrize("email", [3, "nobody", "a@b\r\nBcc: c@d"])
def test_an_address_that_is_none_is_refused(email: Json) -> None:
    driver = new_driver()
    invite: Json = {"participant_id": "ina", "email": email}
    received = driver.send("alice", {"kind": "space/invite", "payload": invite})
    assert received["alice"][0]["payload"]["error"] == "invalid_request"


def test_who_has_not_joined_cannot_speak() -> None:
    space = new_driver().space
    envelope = MEW.decode(b'{"kind":"chat","payload":{"text":"boo"}}')
    with pytest.raises(UsageError):
        space.receive(SessionId("ghost"), envelope, 0.0, CountingMint())
    assert space.leave(SessionId("ghost"), 0.0, CountingMint()) == []
    assert space.refuse(SessionId("ghost"), InvalidRequest("x"), 0.0, CountingMint()) == []


def test_one_session_joins_once() -> None:
    driver = new_driver()
    with pytest.raises(UsageError):
        driver.space.join(SessionId("bob"), "bob", "mew", Options(), driver.now, driver.mint)


def test_a_dialect_that_the_space_does_not_speak_is_refused() -> None:
    (refused,) = new_driver().join("b2", {"as": "bob", "dialect": "mcpx"})["b2"]
    assert refused == {"refused": "invalid_request", "message": refused["message"]}
    assert "mew" in refused["message"]


def test_guests_come_only_where_they_are_welcome_and_leave_nothing_behind() -> None:
    """D-17, D-21."""
    (refused,) = new_driver().join("guest", {"anonymous": True})["guest"]
    assert refused["refused"] == "invalid_request"
    driver = new_driver(anonymous=["chat"])
    driver.join("guest", {"anonymous": True})
    (taken,) = driver.join("g2", {"as": "bob", "anonymous": True})["g2"]
    assert taken["refused"] == "invalid_request"
    grant: Json = {"recipient": "guest", "capabilities": [{"kind": "mcp/proposal"}]}
    driver.send("alice", {"kind": "capability/grant", "id": "g1", "payload": grant})
    received = driver.leave("guest")
    assert [message["payload"]["event"] for message in received["bob"]] == ["leave"]
    assert driver.space.state.grants.by_id == {}
    assert "guest" not in driver.space.state.roster.members


def test_a_snapshot_is_plain_json_and_the_same_space_again() -> None:
    driver = new_driver()
    driver.send("bob", {"kind": "chat", "id": "c1", "payload": {"text": "x"}})
    saved = json.loads(json.dumps(driver.space.save()))
    again = Space(driver.space.state.config, saved=saved)
    assert again.save() == driver.space.save()
    envelope = MEW.decode(b'{"kind":"chat","id":"c1","payload":{"text":"again"}}')
    (answer,) = again.receive(SessionId("bob"), envelope, driver.now, driver.mint)
    assert answer.notice.payload["error"] == "duplicate_id"  # type: ignore[union-attr]
