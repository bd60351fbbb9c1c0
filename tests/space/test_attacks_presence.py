"""What a clever member tries in order to stay, to be heard or to listen in."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random

import msgspec
import pytest

from moot.errors import ParticipantNotFound, UsageError
from moot.protocol.frames import write_frame
from moot.protocol.operation import Json
from moot.space.config import SessionId
from moot.space.effects import Credential, Mail, Reply
from moot.space.space import Space

from .space_driver import CALL, SpaceDriver


def space_driver(**settings: Json) -> SpaceDriver:
    members = {"human": ["*"], "agent": ["chat", "stream/*", "participant/resume"], "pal": ["*"]}
    driver = SpaceDriver(participants=members, **settings)
    driver.enter("human", "agent", "pal")
    return driver


# Pause


@pytest.mark.requirement("MEW-3.9.1-4")
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "chat"),
        ({"injected": True}, "chat"),
        ({"dialect": "mcpx"}, "chat"),
        ({"dialect": "m3p"}, "chat.message"),
        ({"dialect": "m3p"}, "stream.request"),
    ],
)
def test_a_paused_member_is_paused_on_every_connection(options: dict[str, Json], kind: str) -> None:
    """D-25: rights and pauses belong to the member, not to the socket; coming anew lifts nothing."""
    driver = space_driver()
    driver.says("human", "participant/pause", {}, to=["agent"])
    driver.join("agent/2", {"as": "agent", **options})
    assert driver.says("agent/2", kind, {"direction": "upload", "text": "hi"}) == "participant_paused"
    driver.leave("agent/2")
    driver.leave("agent")
    driver.enter("agent")
    assert driver.says("agent", "chat", {"text": "hi"}) == "participant_paused"


def test_nobody_lifts_their_own_pause_nor_shortens_anothers() -> None:
    """D-25: it ends at its timeout or by another member's resume; a second, short pause is neither."""
    driver = space_driver()
    driver.says("human", "participant/pause", {}, to=["agent"])
    assert driver.says("agent", "participant/resume", {}, to=["agent"]) is None
    assert driver.says("pal", "participant/pause", {"timeout_seconds": 0.01}, to=["agent"]) is None
    driver.wait(10)
    assert driver.says("agent", "chat", {"text": "hi"}) == "participant_paused"
    driver.says("pal", "participant/resume", {}, to=["agent"])
    assert driver.says("agent", "chat", {"text": "hi"}) is None


@pytest.mark.parametrize("kind", ["participant/pause", "participant/shutdown", "participant/clear"])
def test_an_order_to_the_gateway_is_not_an_order_to_everybody(kind: str) -> None:
    """D-13, D-25: who may not broadcast does not do so by naming the gateway."""
    driver = SpaceDriver(
        participants={"mallory": [{"kind": "participant/*", "to": ["*"]}], "agent": ["chat"]}
    )
    driver.enter("mallory", "agent")
    assert driver.says("mallory", kind, {}) == "capability_violation"
    assert driver.says("mallory", kind, {}, to=["gateway"]) is not None
    driver.wait(6)
    assert driver.says("agent", "chat", {"text": "hi"}) is None


def test_a_paused_member_writes_no_frames() -> None:
    """D-25: frames too."""
    driver = space_driver()
    stream = driver.opens_stream("agent")
    driver.says("human", "participant/pause", {}, to=["agent"])
    assert driver.writes("agent", stream) == "participant_paused"


# Kick


@pytest.mark.requirement("MEW-3.6.7-1", "MEW-3-25")
def test_a_kicked_member_is_out_on_all_sockets_and_no_old_key_fits() -> None:
    """D-24: sockets, HTTP and token."""
    driver = space_driver()
    driver.join("agent/2", {"as": "agent", "dialect": "mcpx"})
    driver.join("agent/http", {"as": "agent", "injected": True})
    stream = driver.opens_stream("agent")
    frame = write_frame(stream, b"still here", binary=True)
    driver.says("human", "space/kick", {"participant_id": "agent"})
    for session in ("agent", "agent/2", "agent/http"):
        assert {"closed", "reason"} <= driver.received[session][-1].keys()
        with pytest.raises(UsageError):
            driver.space.frame(SessionId(session), frame, driver.now, driver.mint)
    assert driver.comes("agent") == "participant_not_found"
    assert driver.space.find_token_owner("") is None
    assert driver.writes("pal", stream) == "stream_not_found"


def test_the_invitation_of_somebody_who_was_kicked_before_coming_is_void() -> None:
    """D-24: the token is revoked, also one that was never used."""
    driver = space_driver()
    driver.says("human", "space/invite", {"participant_id": "ivy"})
    hashes = next(e.hashes for e in driver.effects if isinstance(e, Credential))
    assert driver.space.find_token_owner(hashes[0]) == "ivy"
    driver.says("human", "space/kick", {"participant_id": "ivy"})
    assert driver.space.find_token_owner(hashes[0]) is None
    assert driver.comes("ivy") == "participant_not_found"


def test_whoever_is_invited_back_starts_with_nothing_of_the_old() -> None:
    """D-24: grants, streams, targets and pauses ended with the kick."""
    driver = space_driver()
    driver.says(
        "human", "capability/grant", {"recipient": "agent", "capabilities": [{"kind": "mcp/request"}]}
    )
    shared = driver.opens_stream("pal", target=["agent", "human"])
    driver.says("pal", "stream/grant-write", {"stream_id": shared, "participant_id": "agent"})
    driver.says("human", "space/kick", {"participant_id": "agent"})
    driver.says(
        "human", "space/invite", {"participant_id": "agent", "initial_capabilities": [{"kind": "chat"}]}
    )
    driver.enter("agent")
    assert driver.rights("agent") == [{"kind": "chat"}]
    assert driver.says("agent", "mcp/request", CALL) == "capability_violation"
    assert driver.writes("agent", shared) == "unauthorized_stream_write"
    driver.writes("pal", shared)
    assert (driver.kinds("agent"), driver.kinds("human")) == ([], ["frame"])


@pytest.mark.parametrize("way", ["invited", "restored"])
def test_a_reload_makes_no_voided_token_fit_again(way: str) -> None:
    """D-24: who was kicked comes back with a new token, and keeps that one."""
    driver = space_driver()
    config = driver.space.state.config
    agent = msgspec.structs.replace(config.participants["agent"], credentials=("old",))
    config = msgspec.structs.replace(config, participants={**config.participants, "agent": agent})
    driver.space.reload(config, driver.now, driver.mint)
    assert driver.space.find_token_owner("old") == "agent"
    driver.says("human", "space/kick", {"participant_id": "agent"})
    if way == "invited":
        driver.says("human", "space/invite", {"participant_id": "agent"})
    else:
        driver.space.restore_member("agent", driver.mint)
    driver.space.reload(config, driver.now, driver.mint)
    assert driver.space.find_token_owner("old") is None


def test_rights_that_a_kicked_member_gave_fall_with_it() -> None:
    """D-18, D-24: nothing rests on somebody who is gone."""
    driver = space_driver()
    driver.says("pal", "capability/grant", {"recipient": "agent", "capabilities": [{"kind": "mcp/request"}]})
    driver.says("human", "space/kick", {"participant_id": "pal"})
    assert driver.says("agent", "mcp/request", CALL) == "capability_violation"


# Shutdown


@pytest.mark.requirement("MEW-3-35")
def test_a_shut_down_member_does_not_go_on_over_http_or_by_being_shut_down_again() -> None:
    """D-26: refused until it rejoins; a second shutdown gives no second grace."""
    driver = space_driver()
    driver.says("human", "participant/shutdown", {}, to=["agent"])
    driver.join("agent/http", {"as": "agent", "injected": True})
    assert driver.says("agent/http", "chat", {"text": "hi"}) == "participant_shutdown"
    driver.wait(4)
    driver.says("human", "participant/shutdown", {}, to=["agent"])
    driver.wait(1)
    driver.join("agent/http2", {"as": "agent", "injected": True})
    assert driver.says("agent/http2", "chat", {"text": "hi"}) == "participant_shutdown"
    assert "agent" not in driver.space.state.roster.sessions
    driver.enter("agent")
    assert driver.says("agent", "chat", {"text": "hi"}) is None


def test_a_second_socket_does_not_prolong_the_life_of_one_that_is_closing() -> None:
    """D-26: five seconds are five seconds."""
    driver = space_driver()
    driver.says("human", "participant/shutdown", {}, to=["agent"])
    driver.join("agent/2", {"as": "agent"})
    driver.wait(4)
    driver.says("human", "participant/shutdown", {}, to=["agent"])
    driver.wait(1)
    assert "agent" not in driver.space.state.roster.sessions
    assert "agent/2" in driver.space.state.roster.sessions


# Streams


@pytest.mark.requirement("MEW-3.10.4-5")
def test_frames_go_only_to_open_streams_of_ones_own() -> None:
    """D-36: not a writer, closed and never opened, each with its word; and nobody hears any of it."""
    driver = space_driver()
    stream = driver.opens_stream("pal")
    assert driver.writes("agent", stream) == "unauthorized_stream_write"
    assert driver.writes("agent", "stream-made-up") == "stream_not_found"
    driver.says("pal", "stream/close", {"stream_id": stream})
    assert driver.writes("pal", stream) == "stream_not_found"
    assert (driver.kinds("human"), driver.kinds("agent")) == ([], [])


def test_a_request_cannot_say_what_only_the_gateway_says_about_a_stream() -> None:
    """D-33: server values win, for late joiners too."""
    driver = space_driver()
    forged = {"stream_id": "stream-0", "owner": "human", "authorized_writers": ["pal"], "created": "never"}
    stream = driver.opens_stream("agent", **forged, participantId="human", encoding="odd", note="kept")
    driver.join("human/2", {"as": "human"})
    shown = driver._received["human/2"][0]["payload"]["active_streams"][0]
    assert shown["stream_id"] == stream != "stream-0"
    assert (shown["owner"], shown["authorized_writers"], shown["note"]) == ("agent", ["agent"], "kept")
    assert shown["created"] == driver.clock
    assert "participantId" not in shown
    assert driver.writes("pal", stream) == "unauthorized_stream_write"


@pytest.mark.parametrize("kind", ["stream/close", "stream/grant-write", "stream/revoke-write"])
def test_only_its_owner_acts_on_a_stream_however_it_is_named(kind: str) -> None:
    """D-37: by stream_id, by correlation to the open, or to the request."""
    driver = space_driver()
    driver.says("pal", "stream/request", {"direction": "upload"}, id="req")
    opened = driver.received["pal"][-1]
    stream = opened["payload"]["stream_id"]
    assert driver.says("agent", kind, {"stream_id": stream, "participant_id": "agent"}) == "unauthorized"
    if kind == "stream/close":
        assert driver.says("agent", kind, {}, about=[opened["id"]]) == "unauthorized"
        assert driver.says("agent", kind, {}, about=["req"]) == "unauthorized"
    assert stream in driver.space.state.streams.open


@pytest.mark.requirement("MEW-3.10.7-3")
def test_whoever_gave_a_stream_away_has_nothing_left_of_it() -> None:
    """D-38: writing goes with ownership."""
    driver = space_driver()
    stream = driver.opens_stream("agent")
    driver.says("agent", "stream/transfer-ownership", {"stream_id": stream, "new_owner": "pal"})
    assert driver.writes("agent", stream) == "unauthorized_stream_write"
    for kind in ("stream/close", "stream/transfer-ownership", "stream/grant-write"):
        payload = {"stream_id": stream, "participant_id": "agent", "new_owner": "agent"}
        assert driver.says("agent", kind, payload) == "unauthorized"


def test_streams_cannot_be_piled_on_somebody_else() -> None:
    """Ladder step 13: the limit of streams counts for the heir too."""
    driver = space_driver(limits={"max_streams_per_member": 2})
    for _ in range(2):
        stream = driver.opens_stream("agent")
        driver.says("agent", "stream/transfer-ownership", {"stream_id": stream, "new_owner": "pal"})
    stream = driver.opens_stream("agent")
    handing_on = {"stream_id": stream, "new_owner": "pal"}
    assert driver.says("agent", "stream/transfer-ownership", handing_on) == "resource_limit"


def test_a_stream_whose_targets_are_gone_is_heard_by_nobody() -> None:
    """D-39: never by all; and a namesake is not the target."""
    driver = space_driver(anonymous=["chat"])
    driver.enter("gus", anonymous=True)
    stream = driver.opens_stream("pal", target=["gus"])
    driver.leave("gus")
    driver.enter("gus", anonymous=True)
    driver.writes("pal", stream)
    assert all(driver.kinds(name) == [] for name in ("human", "agent", "pal", "gus"))


# Tokens


@pytest.mark.requirement("MEW-3.6.6-7", "MEW-3.6.6-6", "MEW-3.6.5-8")
@pytest.mark.parametrize("dialect", ["mew", "mcpx", "m3p"])
def test_a_token_is_in_nothing_but_the_inviters_answer_and_the_invitees_mail(dialect: str) -> None:
    """MEW 3.6.6: not in presence, welcomes, the saved state, nor on the inviter's other socket."""
    driver = space_driver()
    driver.join("human/2", {"as": "human", "dialect": dialect})
    kind = "space.invite" if dialect == "m3p" else "space/invite"
    driver.says("human/2", kind, {"participant_id": "ivy", "email": "ivy@example.org"})
    secret = driver.received["human/2"][0]["payload"]["token"]
    for effect in driver.effects:
        alone = isinstance(effect, Mail) or (isinstance(effect, Reply) and effect.session == "human/2")
        assert alone or secret not in str(effect)
    assert secret not in json.dumps([driver.received[name] for name in ("human", "agent", "pal")])
    driver.join("ivy", {})
    driver.says("human", "space/invite", {"participant_id": "ivy"})
    assert driver.received["human"][0]["payload"] == {"status": "already_exists", "participant_id": "ivy"}
    assert secret not in json.dumps(driver.space.save())


def test_a_token_is_found_by_its_hash_in_whatever_order_tokens_change_hands() -> None:
    """The index says what a look at every member would; also after a restart."""
    driver = space_driver()
    random = Random(11)
    hashes = [f"h{number}" for number in range(4)]
    names = sorted(driver.space.state.config.participants)
    for _ in range(300):
        config = driver.space.state.config
        held = {name: tuple(random.sample(hashes, random.randrange(3))) for name in names}
        changed = {
            name: msgspec.structs.replace(config.participants[name], credentials=held[name]) for name in names
        }
        match random.randrange(5):
            case 0:
                driver.says("human", "space/kick", {"participant_id": "pal"})
            case 1:
                driver.says("human", "space/invite", {"participant_id": "pal"})
            case 2:
                token = driver.mint.token()
                with suppress(ParticipantNotFound):
                    driver.space.rotate_credential(
                        random.choice(names), token, driver.now, driver.mint, keep=random.random() < 0.5
                    )
            case _:
                driver.space.reload(
                    msgspec.structs.replace(config, participants=changed), driver.now, driver.mint
                )
        again = Space(driver.space.state.config, saved=driver.space.save())
        members = list(driver.space.state.roster)
        known = {hash for member in members for hash in member.credentials} | set(hashes)
        for hash in known:
            owners = [each.name for each in members if hash in each.credentials and not each.kicked]
            first = owners[0] if owners else None
            assert driver.space.find_token_owner(hash) == first
            assert again.find_token_owner(hash) == first
