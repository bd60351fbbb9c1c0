"""What members of another dialect get of an envelope (dialects.md sections 5 and 8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moot.errors import InvalidEnvelope, MalformedEnvelope, ProtocolMismatch
from moot.protocol.agreement import check_agreement
from moot.protocol.dialects import DIALECTS, M3P, MCPX, MEW
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json, Operation
from tests.protocol.corpus import REFUSALS, TS, call, proposed, read, text
from tests.rows import for_each_row

READ_FILE = Operation("tools/call", "read_file")
LEGACY: list[DialectName] = ["mcpx", "m3p"]


def decoded(raw: bytes | None) -> dict[str, Any]:
    assert raw is not None
    members: dict[str, Any] = json.loads(raw)
    return members


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.requirement("MEW-8.1-14", "MCPX-3-18")
def test_the_same_dialect_gets_the_senders_own_bytes(dialect: DialectName) -> None:
    word = {"mew": "mcp/response", "mcpx": "mcp/response:x", "m3p": "mcp.response.x"}[dialect]
    raw = text(dialect, word, to=["a"], payload={"n": 1.50}, x_unknown=[None])
    envelope = DIALECTS[dialect].decode(raw)
    assert DIALECTS[dialect].encode(envelope, operation=READ_FILE, proposer="p") is raw


# Section 8, row by row.


@pytest.mark.requirement("MCPX-3-15", "MCPX-3.2.1-3")
def test_a_fulfilment_from_mew() -> None:
    envelope = read("mew", "mcp/request", correlation_id=["p1"], payload=call("read_file"))
    mcpx, m3p = decoded(MCPX.encode(envelope)), decoded(M3P.encode(envelope))
    assert (mcpx["kind"], mcpx["correlation_id"]) == ("mcp/request:tools/call:read_file", "p1")
    assert (m3p["kind"], m3p["correlation_id"]) == ("mcp.request.tools/call:read_file", "p1")


@pytest.mark.requirement("MCPX-3-13", "MCPX-3-14", "MCPX-3.1.2-1", "D002-26")
def test_a_response_from_mcpx() -> None:
    envelope = read("mcpx", "mcp/response:tools/call:read_file", correlation_id="r1", payload={"result": {}})
    mew = decoded(MEW.encode(envelope))
    assert (mew["kind"], mew["correlation_id"]) == ("mcp/response", ["r1"])
    assert mew["x_origin"] == {"protocol": "mcpx/v0.1", "kind": "mcp/response:tools/call:read_file"}


@pytest.mark.requirement("MCPX-3.2.1-6", "MCPX-3.2.1-7")
def test_a_response_to_a_fulfilment_reaches_the_proposer_by_name() -> None:
    """D-30."""
    envelope = read("mew", "mcp/response", to=["human"], correlation_id=["f1"], payload={"result": {}})
    mcpx = decoded(MCPX.encode(envelope, operation=READ_FILE, proposer="agent"))
    assert mcpx["kind"] == "mcp/response:tools/call:read_file"
    assert (mcpx["to"], mcpx["correlation_id"]) == (["human", "agent"], "f1")


@pytest.mark.requirement("M3P-26", "M3P-27")
def test_a_rejection_from_m3p() -> None:
    envelope = read("m3p", "mcpx.reject.proposal", correlation_id="p1")
    mew, mcpx = decoded(MEW.encode(envelope)), decoded(MCPX.encode(envelope))
    assert (mew["kind"], mew["correlation_id"]) == ("mcp/reject", ["p1"])
    assert (mcpx["kind"], mcpx["correlation_id"]) == ("proposal/reject", "p1")


def test_a_chat_with_two_correlations_and_a_context() -> None:
    envelope = read("mew", "chat", correlation_id=["a", "b"], context="w/1", payload={"text": "hi"})
    for dialect, kind in ((MCPX, "chat"), (M3P, "chat.message")):
        copy = decoded(dialect.encode(envelope))
        assert (copy["kind"], copy["correlation_id"], copy["context"]) == (kind, "a", "w/1")
        assert copy["x_correlation_ids"] == ["a", "b"]


# Section 5, field by field.


@pytest.mark.requirement("M3P-53", "MCPX-3.1.2-6", "D002-24", "D002-8")
@for_each_row("origin", DIALECTS)
@for_each_row("other", DIALECTS)
def test_what_is_not_translated_keeps_its_bytes(origin: DialectName, other: DialectName) -> None:
    if origin == other:
        return
    kind = "acme.run" if origin == "m3p" else "acme/run"
    odd = b'"payload":{"n": 1.50, "big": 123456789012345678901234567890, "t": "\\u00e9\\/"},"x": [ 1E2 ]}'
    envelope = DIALECTS[origin].decode(text(origin, kind, to=["bob"])[:-1] + b"," + odd)
    raw = DIALECTS[other].encode(envelope)
    copy = decoded(raw)
    assert raw is not None
    assert odd[:-1].split(b',"x"')[0] in raw
    assert b'"x":[ 1E2 ]' in raw
    assert (copy["protocol"], copy["id"], copy["ts"], copy["from"]) == (
        DIALECTS[other].protocol,
        "e1",
        TS,
        "alice",
    )
    assert copy["to"] == ["bob"]
    assert copy["x_origin"] == {"protocol": DIALECTS[origin].protocol, "kind": kind}


@pytest.mark.parametrize("other", LEGACY)
def test_an_empty_correlation_is_no_correlation_elsewhere(other: DialectName) -> None:
    copy = decoded(DIALECTS[other].encode(read("mew", "chat", correlation_id=[])))
    assert "correlation_id" not in copy
    assert "x_correlation_ids" not in copy


@pytest.mark.requirement("MCPX-3.2.1-2")
@pytest.mark.parametrize("other", LEGACY)
@pytest.mark.parametrize("ids", [["a"], ["a", "b"]])
def test_a_proposals_correlation_stands_beside_in_legacy_copies(other: DialectName, ids: list[str]) -> None:
    """D-29."""
    raw = DIALECTS[other].encode(read("mew", "mcp/proposal", correlation_id=ids, payload=proposed()))
    assert "correlation_id" not in decoded(raw)
    assert decoded(raw)["x_correlation_ids"] == ids
    assert raw is not None
    assert DIALECTS[other].decode(raw).correlation_id == ids


@for_each_row("dialect", LEGACY)
@for_each_row(
    ("members", "ids"),
    [
        ({"correlation_id": "a", "x_correlation_ids": ["a", "b"]}, ["a", "b"]),
        ({"correlation_id": "a", "x_correlation_ids": ["b", "a"]}, ["a"]),
        ({"correlation_id": "a", "x_correlation_ids": []}, ["a"]),
        ({"correlation_id": "a", "x_correlation_ids": "a"}, ["a"]),
        ({"correlation_id": "a", "x_correlation_ids": ["a", 1]}, ["a"]),
        ({"correlation_id": "a", "x_correlation_ids": ["a"] * 257}, ["a"]),
        ({"correlation_id": "a", "x_correlation_ids": None}, ["a"]),
        ({"x_correlation_ids": ["a", "b"]}, []),
    ],
)
def test_several_correlations_are_restored_when_the_first_is_the_same(
    dialect: DialectName, members: dict[str, Json], ids: list[str]
) -> None:
    raw = text(dialect, "acme.run" if dialect == "m3p" else "acme/run", **members)
    envelope = DIALECTS[dialect].decode(raw)
    assert list(envelope.correlation_id) == ids
    assert envelope.raw is raw
    mew = decoded(MEW.encode(envelope))
    assert mew.get("correlation_id", []) == ids
    assert "x_correlation_ids" not in mew


@pytest.mark.parametrize("other", LEGACY)
def test_a_mew_sender_cannot_slip_correlations_past_the_gateway(other: DialectName) -> None:
    """What legacy readers would restore was never checked for MEW."""
    for kind, ids in (("chat", ["a"]), ("mcp/proposal", [])):
        envelope = read("mew", kind, correlation_id=ids, x_correlation_ids=["a", "z"], payload=proposed())
        raw = DIALECTS[other].encode(envelope)
        assert "x_correlation_ids" not in decoded(raw)
        assert raw is not None
        assert list(DIALECTS[other].decode(raw).correlation_id) == ids


def test_only_the_gateway_says_where_a_copy_comes_from() -> None:
    envelope = read("mew", "chat", x_origin={"protocol": "mcpx/v0.1", "kind": "system/welcome"})
    assert decoded(MCPX.encode(envelope))["x_origin"] == {"protocol": "mew/v0.4", "kind": "chat"}


@for_each_row(
    ("origin", "kind", "to", "proposer", "expected"),
    [
        ("mew", "mcp/response", ["human"], "agent", ["human", "agent"]),
        ("mew", "mcp/response", ["human", "agent"], "agent", ["human", "agent"]),
        ("mew", "mcp/response", ["human"], None, ["human"]),
        ("mew", "mcp/response", [], "agent", []),
        ("mew", "mcp/response", ..., "agent", None),
        ("mew", "chat", ["human"], "agent", ["human"]),
        ("m3p", "mcp.response.tools/call", ["human"], "agent", ["human", "agent"]),
        ("m3p", "mcp.response.tools/call", ["human", "agent"], "agent", ["human", "agent"]),
    ],
)
def test_the_proposer_is_added_where_it_was_left_out(
    origin: DialectName, kind: str, to: Json, proposer: str | None, expected: Json
) -> None:
    """D-30."""
    envelope = read(origin, kind, to=to, payload={})
    copy = decoded(MCPX.encode(envelope, operation=READ_FILE, proposer=proposer))
    assert copy.get("to") == expected


# Capabilities inside payloads (section 3).


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        ("capability/grant", "capabilities"),
        ("capability/revoke", "capabilities"),
        ("space/invite", "initial_capabilities"),
    ],
)
def test_capabilities_are_shown_in_the_readers_notation(kind: str, member: str) -> None:
    objects = [{"kind": "chat"}, {"kind": "mcp/request", "payload": {"method": "tools/call"}}]
    mew = read("mew", kind, payload={"recipient": "bob", member: objects, "n": 1})
    mcpx, m3p = decoded(MCPX.encode(mew)), decoded(M3P.encode(mew))
    assert mcpx["payload"] == {"recipient": "bob", member: ["chat", "mcp/request:tools/call"], "n": 1}
    assert m3p["payload"] == {"recipient": "bob", member: ["chat.message", "mcp.request.tools/call"], "n": 1}
    strings = read("mcpx", kind, payload={member: ["chat", "mcp/request:tools/call"]})
    assert decoded(MEW.encode(strings))["payload"] == {member: objects}


def test_mcp_means_three_kinds_in_mcpx_and_five_in_mew() -> None:
    """D-52: the notation follows the sender's dialect."""
    mcpx = read("mcpx", "capability/grant", payload={"capabilities": ["mcp/*"]})
    shown = decoded(MEW.encode(mcpx))["payload"]["capabilities"]
    assert sorted(entry["kind"] for entry in shown) == ["mcp/proposal", "mcp/request", "mcp/response"]
    mew = read("mew", "capability/grant", payload={"capabilities": ["mcp/*"]})
    assert decoded(MCPX.encode(mew))["payload"]["capabilities"] == [
        "mcp/*",
        "proposal/withdraw",
        "proposal/reject",
    ]


def test_a_right_that_a_notation_cannot_say_is_left_out() -> None:
    """D-53."""
    rights: list[Json] = [{"kind": "!chat"}, {"kind": "chat"}, {"kind": "x", "limit": 1}, 5, None]
    envelope = read("mew", "capability/grant", payload={"capabilities": rights})
    assert decoded(MCPX.encode(envelope))["payload"]["capabilities"] == ["chat"]


@pytest.mark.parametrize(
    "payload", [{"grant_id": "g1"}, {"capabilities": "chat"}, {"capabilities": None}, {}]
)
def test_a_grant_without_a_list_passes_as_it_is(payload: dict[str, Json]) -> None:
    envelope = read("mew", "capability/revoke", payload=payload)
    assert decoded(MCPX.encode(envelope))["payload"] == payload


# Chat formats (D-50).


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("chat.message", {"text": "hi"}, {"text": "hi"}),
        ("chat.message.text", {"text": "hi"}, {"text": "hi", "format": "plain"}),
        ("chat.message.markdown", {"text": "hi"}, {"text": "hi", "format": "markdown"}),
        ("chat.message.markdown", {"text": "hi", "format": "markdown"}, {"text": "hi", "format": "markdown"}),
        ("chat.message.text", ..., {"format": "plain"}),
    ],
)
@pytest.mark.requirement("M3P-31", "MCPX-3.3-3")
def test_the_third_level_of_a_chat_becomes_its_format(kind: str, payload: Json, expected: Json) -> None:
    envelope = read("m3p", kind, payload=payload)
    for dialect in (MEW, MCPX):
        assert decoded(dialect.encode(envelope))["payload"] == expected


def test_a_format_is_neither_overwritten_nor_taken_from_a_vendors_kind() -> None:
    contradicting = read("m3p", "chat.message.markdown", payload={"format": "plain"})
    assert decoded(MEW.encode(contradicting))["payload"] == {"format": "plain"}
    vendor = read("mew", "chat.message.markdown", payload={})
    assert decoded(MCPX.encode(vendor))["payload"] == {}


# What legacy connections read.


@pytest.mark.parametrize("dialect", LEGACY)
@pytest.mark.requirement("MCPX-3-1", "MCPX-3-2", "MCPX-3-6", "MCPX-3-18")
def test_legacy_connections_refuse_what_is_no_envelope_too(dialect: DialectName) -> None:
    """The same corpus in their own words; a string is the right correlation here."""
    for refusal in REFUSALS:
        raw = refusal.raw.replace(b"mew/v0.4", b"mcpx/v0.1")
        if dialect == "m3p":
            raw = raw.replace(b'"chat"', b'"chat.message"')
        if (
            b"correlation_id" in raw
            or "of MCPx" in refusal.name
            or refusal.name == "another dialect's protocol"
        ):
            continue
        with pytest.raises(MalformedEnvelope):
            DIALECTS[dialect].decode(raw)


@for_each_row("dialect", LEGACY)
@for_each_row("value", [["a"], [], None, 5, {}])
@pytest.mark.requirement("MCPX-3-13")
def test_a_legacy_correlation_is_one_string(dialect: DialectName, value: Json) -> None:
    with pytest.raises(InvalidEnvelope, match="correlation_id must be a string"):
        read(dialect, "acme.run" if dialect == "m3p" else "acme/run", correlation_id=value)


@pytest.mark.parametrize("dialect", LEGACY)
@pytest.mark.parametrize("value", ["", "x" * 257])
def test_a_legacy_correlation_is_an_id(dialect: DialectName, value: str) -> None:
    with pytest.raises(InvalidEnvelope, match="correlation_id must hold"):
        read(dialect, "acme.run" if dialect == "m3p" else "acme/run", correlation_id=value)


@pytest.mark.parametrize("dialect", LEGACY)
@pytest.mark.requirement("MCPX-3-2")
def test_mew_is_another_protocol_to_legacy_connections(dialect: DialectName) -> None:
    kind = "chat.message" if dialect == "m3p" else "chat"
    with pytest.raises(ProtocolMismatch) as caught:
        read(dialect, kind, protocol="mew/v0.4")
    assert "mew/v0.4" in caught.value.message
    assert "mcpx/v0.1" in caught.value.message
    assert (caught.value.about, caught.value.kind) == ("e1", kind)
    accepted = DIALECTS[dialect].decode(
        text(dialect, kind, protocol="mcpx/v0.0"), accept_protocols=frozenset({"mcpx/v0.0"})
    )
    assert accepted.kind == "chat"


@pytest.mark.parametrize("dialect", LEGACY)
def test_legacy_envelopes_are_filled_like_any_other(dialect: DialectName) -> None:
    envelope = DIALECTS[dialect].decode(
        b'{"kind":"chat.message"}' if dialect == "m3p" else b'{"kind":"chat"}'
    )
    assert envelope.missing == ("protocol", "id", "ts", "from")
    assert envelope.kind == "chat"


def test_copies_of_what_mew_says_agree_with_their_payload() -> None:
    """D-48: the gateway never makes what it would refuse."""
    for kind, payload in (
        ("mcp/request", call()),
        ("mcp/proposal", proposed()),
        ("mcp/response", {"result": {}}),
    ):
        envelope = read("mew", kind, correlation_id=["r1"], payload=payload)
        for name in LEGACY:
            raw = DIALECTS[name].encode(envelope, operation=READ_FILE)
            assert raw is not None
            check_agreement(DIALECTS[name].decode(raw), asked=READ_FILE)
