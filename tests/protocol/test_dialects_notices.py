"""What the gateway says, in each dialect (dialects.md section 6, D-03, D-23)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moot.errors import CapabilityViolation
from moot.protocol import payloads
from moot.protocol.dialects import DIALECTS, M3P, MCPX, MEW
from moot.protocol.envelope import DialectName
from moot.protocol.kinds import EXTENSIONS
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.protocol.payloads import GatewayNotice
from tests.protocol.corpus import TS

RIGHTS = read_capabilities(
    [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "!secret/*"}, {"kind": "mcp/*"}]
)
OBJECTS = [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "!secret/*"}, {"kind": "mcp/*"}]
STRINGS = ["chat", "mcp/proposal:*", "mcp/*", "proposal/withdraw", "proposal/reject"]
DOTTED = ["chat.message", "mcp.proposal.*", "mcp.*", "mcpx.withdraw.proposal", "mcpx.reject.proposal"]


def encoded(dialect: DialectName, kind: str, payload: Any, **members: Any) -> dict[str, Any] | None:
    raw = DIALECTS[dialect].encode_notice(
        GatewayNotice(kind=kind, id="g1", ts=TS, payload=payload, **members)
    )
    if raw is None:
        return None
    envelope = DIALECTS[dialect].decode(raw)
    assert (envelope.kind, envelope.missing) == (kind, ())
    fields: dict[str, Any] = json.loads(raw)
    return fields


def shown(dialect: DialectName) -> list[Json]:
    fields = encoded(
        dialect, "system/presence", payloads.presence("join", payloads.member("a", capabilities=RIGHTS))
    )
    assert fields is not None
    rights: list[Json] = fields["payload"]["participant"]["capabilities"]
    return rights


@pytest.mark.requirement("MCPX-3.4-5", "MEW-3.7-5")
def test_capabilities_are_shown_in_each_notation_and_never_wider() -> None:
    """D-53: what cannot be said is left out."""
    assert shown("mew") == OBJECTS
    assert shown("mcpx") == STRINGS
    assert shown("m3p") == DOTTED


@pytest.mark.requirement("MEW-3.8.1-1", "MEW-3.8.1-2", "MEW-3.8.1-3", "MEW-3.8.1-4")
def test_a_mew_welcome_has_names_objects_and_streams() -> None:
    you = payloads.member("bob-2", name="bob", capabilities=RIGHTS[:1])
    others = [payloads.member("alice", capabilities=RIGHTS[1:2])]
    welcome = payloads.welcome(you, others, [{"stream_id": "stream-1"}])
    assert encoded("mew", "system/welcome", welcome, to=["bob-2"]) == {
        "protocol": "mew/v0.4",
        "id": "g1",
        "ts": TS,
        "from": "system:gateway",
        "to": ["bob-2"],
        "kind": "system/welcome",
        "payload": {
            "you": {"id": "bob-2", "name": "bob", "capabilities": [{"kind": "chat"}]},
            "participants": [{"id": "alice", "capabilities": [{"kind": "mcp/proposal"}]}],
            "active_streams": [{"stream_id": "stream-1"}],
            "extensions": EXTENSIONS,
        },
    }


@pytest.mark.requirement("MCPX-3.5.1-1", "MCPX-3.5.1-2", "MCPX-3.5.1-3", "M3P-23")
@pytest.mark.parametrize(
    ("dialect", "kind", "chat", "proposal"),
    [
        ("mcpx", "system/welcome", "chat", "mcp/proposal:*"),
        ("m3p", "system.welcome", "chat.message", "mcp.proposal.*"),
    ],
)
def test_a_legacy_welcome_has_ids_and_strings_only(
    dialect: DialectName, kind: str, chat: str, proposal: str
) -> None:
    you = payloads.member("bob-2", name="bob", capabilities=RIGHTS[:1])
    others = [payloads.member("alice", capabilities=RIGHTS[1:2])]
    welcome = payloads.welcome(you, others, [{"stream_id": "stream-1"}])
    assert encoded(dialect, "system/welcome", welcome, to=["bob-2"]) == {
        "protocol": "mcpx/v0.1",
        "id": "g1",
        "ts": TS,
        "from": "system:gateway",
        "to": ["bob-2"],
        "kind": kind,
        "payload": {
            "you": {"id": "bob-2", "capabilities": [chat]},
            "participants": [{"id": "alice", "capabilities": [proposal]}],
            "extensions": EXTENSIONS,
        },
    }


@pytest.mark.requirement("MCPX-3.4-2", "MEW-3.7-2", "MCPX-3.4-3", "MCPX-3.4-4", "M3P-24")
def test_invitations_are_news_for_mew_alone() -> None:
    """D-23."""
    invited = payloads.presence("invited", payloads.member("carol"), invited_by="alice")
    assert encoded("mew", "system/presence", invited) is not None
    assert encoded("mcpx", "system/presence", invited) is None
    assert encoded("m3p", "system/presence", invited) is None
    left = payloads.presence("leave", payloads.member("carol", name="Carol"), reason="kicked")
    fields = encoded("mcpx", "system/presence", left)
    assert fields is not None
    assert fields["payload"] == {"event": "leave", "participant": {"id": "carol"}, "reason": "kicked"}


@pytest.mark.requirement("MEW-3.8.2-2", "MEW-3.8.2-3", "MEW-3.8.2-4", "MEW-3.8.2-5", "MEW-3-56")
@pytest.mark.requirement("MCPX-3-16", "MCPX-3.5.2-1", "MCPX-3.5.2-2", "MCPX-3.5.2-4", "MCPX-3.5.2-5")
@pytest.mark.parametrize(
    ("dialect", "correlation", "rights"),
    [("mew", ["e1"], [{"kind": "chat"}]), ("mcpx", "e1", ["chat"]), ("m3p", "e1", ["chat.message"])],
)
def test_an_error_points_at_its_cause_the_way_the_dialect_does(
    dialect: DialectName, correlation: Json, rights: list[Json]
) -> None:
    refusal = CapabilityViolation("no", reason="reserved_kind")
    payload = payloads.error(refusal, attempted_kind="mcp/request:tools/call", capabilities=RIGHTS[:1])
    fields = encoded(dialect, "system/error", payload, to=["bob"], correlation_id=["e1"])
    assert fields is not None
    assert fields["correlation_id"] == correlation
    assert fields["payload"] == {
        "error": "capability_violation",
        "message": "no",
        "attempted_kind": "mcp/request:tools/call",
        "your_capabilities": rights,
        "reason": "reserved_kind",
    }


@pytest.mark.parametrize(
    ("dialect", "kind", "sender"),
    [
        ("mew", "stream/open", "gateway"),
        ("mew", "space/invite-ack", "system:gateway"),
        ("mcpx", "stream/open", "system:gateway"),
        ("m3p", "stream/write-granted", "system:gateway"),
    ],
)
@pytest.mark.requirement("MEW-3.7-7")
def test_the_gateway_signs_as_each_dialect_expects(dialect: DialectName, kind: str, sender: str) -> None:
    """D-03."""
    fields = encoded(dialect, kind, {"stream_id": "stream-1"}, correlation_id=["q1"])
    assert fields is not None
    assert fields["from"] == sender


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_empty_is_left_out(dialect: DialectName) -> None:
    fields = encoded(dialect, "system/presence", payloads.presence("join", payloads.member("a")))
    assert fields is not None
    assert "to" not in fields
    assert "correlation_id" not in fields


def test_capabilities_are_found_in_any_list_at_any_depth() -> None:
    payload = {"left": {"over": [RIGHTS[0], "as is", [RIGHTS[1]]]}, "n": 10**30}
    raw = MCPX.encode_notice(GatewayNotice(kind="system/error", id="g1", ts=TS, payload=payload))
    assert raw is not None
    assert json.loads(raw)["payload"] == {
        "left": {"over": ["chat", "as is", ["mcp/proposal:*"]]},
        "n": 10**30,
    }


def test_a_kind_that_a_dialect_cannot_say_is_not_said() -> None:
    notice = GatewayNotice(kind="presence", id="g1", ts=TS, payload={})
    assert MCPX.encode_notice(notice) is None
    assert MEW.encode_notice(notice) is not None
    assert M3P.encode_notice(GatewayNotice(kind="mcp/response", id="g1", ts=TS, payload={})) is not None


def test_notices_are_compact_json() -> None:
    raw = MEW.encode_notice(GatewayNotice(kind="system/error", id="g1", ts=TS, payload={"message": "é"}))
    assert raw is not None
    assert raw == json.dumps(json.loads(raw), separators=(",", ":"), ensure_ascii=False).encode()
