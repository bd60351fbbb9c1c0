"""What a clever member tries in order to stay, to be heard or to listen in."""

from __future__ import annotations

import json

import msgspec
import pytest

from moot.errors import UsageError
from moot.protocol.frames import write_frame
from moot.protocol.operation import Json
from moot.space.config import SessionId
from moot.space.effects import Credential, Mail, Reply

from .lab import CALL, Lab


def room(**settings: Json) -> Lab:
    members = {"human": ["*"], "agent": ["chat", "stream/*", "participant/resume"], "pal": ["*"]}
    lab = Lab(participants=members, **settings)
    lab.enter("human", "agent", "pal")
    return lab


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
    lab = room()
    lab.says("human", "participant/pause", {}, to=["agent"])
    lab.join("agent/2", {"as": "agent", **options})
    assert lab.says("agent/2", kind, {"direction": "upload", "text": "hi"}) == "participant_paused"
    lab.leave("agent/2")
    lab.leave("agent")
    lab.enter("agent")
    assert lab.says("agent", "chat", {"text": "hi"}) == "participant_paused"


def test_nobody_lifts_their_own_pause_nor_shortens_anothers() -> None:
    """D-25: it ends at its timeout or by another member's resume; a second, short pause is neither."""
    lab = room()
    lab.says("human", "participant/pause", {}, to=["agent"])
    assert lab.says("agent", "participant/resume", {}, to=["agent"]) is None
    assert lab.says("pal", "participant/pause", {"timeout_seconds": 0.01}, to=["agent"]) is None
    lab.wait(10)
    assert lab.says("agent", "chat", {"text": "hi"}) == "participant_paused"
    lab.says("pal", "participant/resume", {}, to=["agent"])
    assert lab.says("agent", "chat", {"text": "hi"}) is None


@pytest.mark.parametrize("kind", ["participant/pause", "participant/shutdown", "participant/clear"])
def test_an_order_to_the_gateway_is_not_an_order_to_everybody(kind: str) -> None:
    """D-13, D-25: who may not broadcast does not do so by naming the gateway."""
    lab = Lab(participants={"mallory": [{"kind": "participant/*", "to": ["*"]}], "agent": ["chat"]})
    lab.enter("mallory", "agent")
    assert lab.says("mallory", kind, {}) == "capability_violation"
    assert lab.says("mallory", kind, {}, to=["gateway"]) is not None
    lab.wait(6)
    assert lab.says("agent", "chat", {"text": "hi"}) is None


def test_a_paused_member_writes_no_frames() -> None:
    """D-25: frames too."""
    lab = room()
    stream = lab.opens_stream("agent")
    lab.says("human", "participant/pause", {}, to=["agent"])
    assert lab.writes("agent", stream) == "participant_paused"


# Kick


@pytest.mark.requirement("MEW-3.6.7-1", "MEW-3-25")
def test_a_kicked_member_is_out_on_all_sockets_and_no_old_key_fits() -> None:
    """D-24: sockets, HTTP and token."""
    lab = room()
    lab.join("agent/2", {"as": "agent", "dialect": "mcpx"})
    lab.join("agent/http", {"as": "agent", "injected": True})
    stream = lab.opens_stream("agent")
    frame = write_frame(stream, b"still here", binary=True)
    lab.says("human", "space/kick", {"participant_id": "agent"})
    for session in ("agent", "agent/2", "agent/http"):
        assert {"closed", "reason"} <= lab.heard[session][-1].keys()
        with pytest.raises(UsageError):
            lab.space.frame(SessionId(session), frame, lab.now, lab.mint)
    assert lab.comes("agent") == "participant_not_found"
    assert lab.space.admits("") is None
    assert lab.writes("pal", stream) == "stream_not_found"


def test_the_invitation_of_somebody_who_was_kicked_before_coming_is_void() -> None:
    """D-24: the token is revoked, also one that was never used."""
    lab = room()
    lab.says("human", "space/invite", {"participant_id": "ivy"})
    hashes = next(e.hashes for e in lab.effects if isinstance(e, Credential))
    assert lab.space.admits(hashes[0]) == "ivy"
    lab.says("human", "space/kick", {"participant_id": "ivy"})
    assert lab.space.admits(hashes[0]) is None
    assert lab.comes("ivy") == "participant_not_found"


def test_whoever_is_invited_back_starts_with_nothing_of_the_old() -> None:
    """D-24: grants, streams, targets and pauses ended with the kick."""
    lab = room()
    lab.says("human", "capability/grant", {"recipient": "agent", "capabilities": [{"kind": "mcp/request"}]})
    shared = lab.opens_stream("pal", target=["agent", "human"])
    lab.says("pal", "stream/grant-write", {"stream_id": shared, "participant_id": "agent"})
    lab.says("human", "space/kick", {"participant_id": "agent"})
    lab.says("human", "space/invite", {"participant_id": "agent", "initial_capabilities": [{"kind": "chat"}]})
    lab.enter("agent")
    assert lab.rights("agent") == [{"kind": "chat"}]
    assert lab.says("agent", "mcp/request", CALL) == "capability_violation"
    assert lab.writes("agent", shared) == "unauthorized_stream_write"
    lab.writes("pal", shared)
    assert (lab.kinds("agent"), lab.kinds("human")) == ([], ["frame"])


@pytest.mark.parametrize("way", ["invited", "restored"])
def test_a_reload_makes_no_voided_token_fit_again(way: str) -> None:
    """D-24: who was kicked comes back with a new token, and keeps that one."""
    lab = room()
    config = lab.space.state.config
    agent = msgspec.structs.replace(config.participants["agent"], credentials=("old",))
    config = msgspec.structs.replace(config, participants={**config.participants, "agent": agent})
    lab.space.reload(config, lab.now, lab.mint)
    assert lab.space.admits("old") == "agent"
    lab.says("human", "space/kick", {"participant_id": "agent"})
    if way == "invited":
        lab.says("human", "space/invite", {"participant_id": "agent"})
    else:
        lab.space.restore_member("agent", lab.mint)
    lab.space.reload(config, lab.now, lab.mint)
    assert lab.space.admits("old") is None


def test_rights_that_a_kicked_member_gave_fall_with_it() -> None:
    """D-18, D-24: nothing rests on somebody who is gone."""
    lab = room()
    lab.says("pal", "capability/grant", {"recipient": "agent", "capabilities": [{"kind": "mcp/request"}]})
    lab.says("human", "space/kick", {"participant_id": "pal"})
    assert lab.says("agent", "mcp/request", CALL) == "capability_violation"


# Shutdown


@pytest.mark.requirement("MEW-3-35")
def test_a_shut_down_member_does_not_go_on_over_http_or_by_being_shut_down_again() -> None:
    """D-26: refused until it rejoins; a second shutdown gives no second grace."""
    lab = room()
    lab.says("human", "participant/shutdown", {}, to=["agent"])
    lab.join("agent/http", {"as": "agent", "injected": True})
    assert lab.says("agent/http", "chat", {"text": "hi"}) == "participant_shutdown"
    lab.wait(4)
    lab.says("human", "participant/shutdown", {}, to=["agent"])
    lab.wait(1)
    lab.join("agent/http2", {"as": "agent", "injected": True})
    assert lab.says("agent/http2", "chat", {"text": "hi"}) == "participant_shutdown"
    assert "agent" not in lab.space.state.roster.sessions
    lab.enter("agent")
    assert lab.says("agent", "chat", {"text": "hi"}) is None


def test_a_second_socket_does_not_prolong_the_life_of_one_that_is_closing() -> None:
    """D-26: five seconds are five seconds."""
    lab = room()
    lab.says("human", "participant/shutdown", {}, to=["agent"])
    lab.join("agent/2", {"as": "agent"})
    lab.wait(4)
    lab.says("human", "participant/shutdown", {}, to=["agent"])
    lab.wait(1)
    assert "agent" not in lab.space.state.roster.sessions
    assert "agent/2" in lab.space.state.roster.sessions


# Streams


@pytest.mark.requirement("MEW-3.10.4-5")
def test_frames_go_only_to_open_streams_of_ones_own() -> None:
    """D-36: not a writer, closed and never opened, each with its word; and nobody hears any of it."""
    lab = room()
    stream = lab.opens_stream("pal")
    assert lab.writes("agent", stream) == "unauthorized_stream_write"
    assert lab.writes("agent", "stream-made-up") == "stream_not_found"
    lab.says("pal", "stream/close", {"stream_id": stream})
    assert lab.writes("pal", stream) == "stream_not_found"
    assert (lab.kinds("human"), lab.kinds("agent")) == ([], [])


def test_a_request_cannot_say_what_only_the_gateway_says_about_a_stream() -> None:
    """D-33: server values win, for late joiners too."""
    lab = room()
    forged = {"stream_id": "stream-0", "owner": "human", "authorized_writers": ["pal"], "created": "never"}
    stream = lab.opens_stream("agent", **forged, participantId="human", encoding="odd", note="kept")
    lab.join("human/2", {"as": "human"})
    shown = lab._heard["human/2"][0]["payload"]["active_streams"][0]
    assert shown["stream_id"] == stream != "stream-0"
    assert (shown["owner"], shown["authorized_writers"], shown["note"]) == ("agent", ["agent"], "kept")
    assert shown["created"] == lab.clock
    assert "participantId" not in shown
    assert lab.writes("pal", stream) == "unauthorized_stream_write"


@pytest.mark.parametrize("kind", ["stream/close", "stream/grant-write", "stream/revoke-write"])
def test_only_its_owner_acts_on_a_stream_however_it_is_named(kind: str) -> None:
    """D-37: by stream_id, by correlation to the open, or to the request."""
    lab = room()
    lab.says("pal", "stream/request", {"direction": "upload"}, id="req")
    opened = lab.heard["pal"][-1]
    stream = opened["payload"]["stream_id"]
    assert lab.says("agent", kind, {"stream_id": stream, "participant_id": "agent"}) == "unauthorized"
    if kind == "stream/close":
        assert lab.says("agent", kind, {}, about=[opened["id"]]) == "unauthorized"
        assert lab.says("agent", kind, {}, about=["req"]) == "unauthorized"
    assert stream in lab.space.state.streams.open


@pytest.mark.requirement("MEW-3.10.7-3")
def test_whoever_gave_a_stream_away_has_nothing_left_of_it() -> None:
    """D-38: writing goes with ownership."""
    lab = room()
    stream = lab.opens_stream("agent")
    lab.says("agent", "stream/transfer-ownership", {"stream_id": stream, "new_owner": "pal"})
    assert lab.writes("agent", stream) == "unauthorized_stream_write"
    for kind in ("stream/close", "stream/transfer-ownership", "stream/grant-write"):
        payload = {"stream_id": stream, "participant_id": "agent", "new_owner": "agent"}
        assert lab.says("agent", kind, payload) == "unauthorized"


def test_streams_cannot_be_piled_on_somebody_else() -> None:
    """Ladder step 13: the limit of streams counts for the heir too."""
    lab = room(limits={"max_streams_per_member": 2})
    for _ in range(2):
        stream = lab.opens_stream("agent")
        lab.says("agent", "stream/transfer-ownership", {"stream_id": stream, "new_owner": "pal"})
    stream = lab.opens_stream("agent")
    handing_on = {"stream_id": stream, "new_owner": "pal"}
    assert lab.says("agent", "stream/transfer-ownership", handing_on) == "resource_limit"


def test_a_stream_whose_targets_are_gone_is_heard_by_nobody() -> None:
    """D-39: never by all; and a namesake is not the target."""
    lab = room(anonymous=["chat"])
    lab.enter("gus", anonymous=True)
    stream = lab.opens_stream("pal", target=["gus"])
    lab.leave("gus")
    lab.enter("gus", anonymous=True)
    lab.writes("pal", stream)
    assert all(lab.kinds(name) == [] for name in ("human", "agent", "pal", "gus"))


# Tokens


@pytest.mark.requirement("MEW-3.6.6-7", "MEW-3.6.6-6", "MEW-3.6.5-8")
@pytest.mark.parametrize("dialect", ["mew", "mcpx", "m3p"])
def test_a_token_is_in_nothing_but_the_inviters_answer_and_the_invitees_mail(dialect: str) -> None:
    """MEW 3.6.6: not in presence, welcomes, the saved state, nor on the inviter's other socket."""
    lab = room()
    lab.join("human/2", {"as": "human", "dialect": dialect})
    kind = "space.invite" if dialect == "m3p" else "space/invite"
    lab.says("human/2", kind, {"participant_id": "ivy", "email": "ivy@example.org"})
    secret = lab.heard["human/2"][0]["payload"]["token"]
    for effect in lab.effects:
        alone = isinstance(effect, Mail) or (isinstance(effect, Reply) and effect.session == "human/2")
        assert alone or secret not in str(effect)
    assert secret not in json.dumps([lab.heard[name] for name in ("human", "agent", "pal")])
    lab.join("ivy", {})
    lab.says("human", "space/invite", {"participant_id": "ivy"})
    assert lab.heard["human"][0]["payload"] == {"status": "already_exists", "participant_id": "ivy"}
    assert secret not in json.dumps(lab.space.save())
