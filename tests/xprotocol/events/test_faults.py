"""Faults both ways (XP 5.3, D-69)."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.events.faults import (
    MAX_MESSAGE_CHARS,
    Fault,
    FaultCode,
    error_payload,
    fault,
    fault_of_mcp,
    mcp_error,
    read_error,
    scrub,
    unavailable,
)
from tests.rows import for_each_row


@pytest.mark.requirement("XP-11.3-7")
@pytest.mark.parametrize(
    ("code", "rpc", "message"),
    [
        pytest.param(
            "AUTHORIZATION_INSUFFICIENT",
            -32600,
            "Insufficient capability for this operation",
            marks=pytest.mark.requirement("XP-5.3-1"),
        ),
        pytest.param(
            "SCHEMA_VIOLATION",
            -32602,
            "Request payload does not conform to schema",
            marks=pytest.mark.requirement("XP-5.3-2"),
        ),
        pytest.param("EXPIRED", -32600, "Event has expired", marks=pytest.mark.requirement("XP-5.3-3")),
        pytest.param(
            "REVOKED", -32600, "Sender key has been revoked", marks=pytest.mark.requirement("XP-5.3-4")
        ),
        pytest.param(
            "NOT_FOUND", -32600, "Resource or schema not found", marks=pytest.mark.requirement("XP-5.3-5")
        ),
        pytest.param(
            "RATE_LIMITED", -32600, "Rate limit exceeded", marks=pytest.mark.requirement("XP-5.3-6")
        ),
        pytest.param(
            "ENDPOINT_UNAVAILABLE",
            -32603,
            "XProtocol endpoint unavailable",
            marks=pytest.mark.requirement("XP-5.3-7"),
        ),
        ("INTERNAL", -32603, "Internal error"),
    ],
)
def test_each_code_has_its_mcp_error_whatever_a_stranger_wrote(
    code: FaultCode, rpc: int, message: str
) -> None:
    for answer in (fault(code), Fault(code, "something else, said by the other side")):
        error = mcp_error(answer)
        assert (error.code, error.message) == (rpc, message)
        assert error.data["xprotocol_code"] == code


@pytest.mark.requirement("XP-5.3-8")
def test_an_upstream_error_arrives_with_its_own_words() -> None:
    """From the wrapped server through XProtocol to the MCP client at the far end."""
    there = fault_of_mcp(-32000, "disk quota of project 7 is used up")
    assert there.code == "UPSTREAM_ERROR"
    here = mcp_error(read_error(error_payload(there, "e1")))
    assert (here.code, here.message) == (-32603, "disk quota of project 7 is used up")


@pytest.mark.requirement("XP-5.3-9")
@given(st.sampled_from(get_args(FaultCode)), st.text(), st.text())
def test_one_code_always_maps_to_one_error(code: str, one: str, other: str) -> None:
    first, second = mcp_error(Fault(code, one)), mcp_error(Fault(code, other))
    assert first.code == second.code
    assert first.message == second.message or code == "UPSTREAM_ERROR"


@pytest.mark.parametrize("code", ["", "no such code", "internal", "X" * 10_000])
def test_a_code_that_nobody_knows_is_an_internal_error(code: str) -> None:
    """D-69."""
    error = mcp_error(Fault(code, "what happened"))
    assert (error.code, error.message) == (-32603, "what happened")
    assert len(error.data["xprotocol_code"]) <= 64


@for_each_row(
    ("rpc", "code"),
    [
        (-32602, "SCHEMA_VIOLATION"),
        (-32601, "NOT_FOUND"),
        (-32603, "UPSTREAM_ERROR"),
        (-32600, "UPSTREAM_ERROR"),
        (-32002, "UPSTREAM_ERROR"),
        (-32700, "UPSTREAM_ERROR"),
        (0, "UPSTREAM_ERROR"),
        (1, "UPSTREAM_ERROR"),
    ],
)
def test_what_an_mcp_server_answers_has_a_code_in_xprotocol(rpc: int, code: str) -> None:
    """D-69, the inverse table."""
    answer = fault_of_mcp(rpc, "a reason")
    assert (answer.code, answer.message) == (code, "a reason")
    assert fault_of_mcp(rpc, "").message


def test_a_server_that_cannot_be_reached_is_unavailable_and_its_address_stays_ours() -> None:
    """D-69."""
    assert unavailable() == Fault("ENDPOINT_UNAVAILABLE", "XProtocol endpoint unavailable")
    assert mcp_error(unavailable()).code == -32603


def test_a_fault_goes_over_the_wire_and_back() -> None:
    for answer in (fault("NOT_FOUND"), fault("RATE_LIMITED", retry_after=2.5), fault("INTERNAL", "why")):
        payload = error_payload(answer, "an id")
        assert {"code", "message"} <= payload.keys() <= {"code", "message", "in_reply_to", "retry_after"}
        assert payload["in_reply_to"] == "an id"
        assert read_error(payload) == answer
    assert mcp_error(fault("RATE_LIMITED", retry_after=2)).data["retry_after"] == 2


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"code": "EXPIRED"}, Fault("EXPIRED", "")),
        ({"code": "EXPIRED", "message": 7, "retry_after": "soon"}, Fault("EXPIRED", "")),
        ({"code": "EXPIRED", "message": "a", "retry_after": True}, Fault("EXPIRED", "a")),
    ],
)
def test_a_strangers_fault_is_read_as_far_as_it_goes(payload: Json, expected: Fault) -> None:
    assert read_error(payload) == expected


@pytest.mark.parametrize("payload", [None, [], "EXPIRED", {}, {"code": 7}, {"message": "x"}])
def test_what_is_no_fault_is_refused(payload: Json) -> None:
    with pytest.raises(ContractRefused):
        read_error(payload)


@for_each_row(
    "message",
    [
        "401 for Bearer {}",
        "Authorization: Basic {}",
        "api_key={} is not valid",
        'sent {{"token": "{}"}}',
        "password: {}, try again",
        "GET https://user:{}@db.example.com/x failed",
        "GET https://example.com/x?access_token={}&a=1 failed",
        "header X-Api-Key: {}",
        "client_secret='{}'",
    ],
)
def test_what_looks_like_a_secret_does_not_leave(message: str) -> None:
    """D-69: secrets scrubbed."""
    secret = "h8Kq2-zz91_LmP0x"
    assert secret not in scrub(message.format(secret))
    assert secret not in fault_of_mcp(-32000, message.format(secret)).message
    assert secret not in mcp_error(Fault("UPSTREAM_ERROR", message.format(secret))).message


@pytest.mark.parametrize(
    "secret", ["sk-abcdefghijklmnop1234", "ghp_abcdefghijklmnop1234", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln"]
)
def test_keys_of_well_known_shape_do_not_leave(secret: str) -> None:
    assert secret not in scrub(f"could not use {secret} there")


@given(st.text(min_size=1), st.text(), st.text())
def test_a_secret_in_use_never_leaves(secret: str, before: str, after: str) -> None:
    """Whatever stands around it; but a text that is itself our placeholder cannot be told from it."""
    cleaned = scrub(before + secret + after, [secret])
    assert secret not in cleaned or secret in "[hidden]" or secret in "…" or secret in before + after
    assert len(cleaned) <= MAX_MESSAGE_CHARS


def test_ordinary_words_stay() -> None:
    message = "no such file: reports/q1.csv (key column 3, token count 12)"
    assert scrub(message) == message


def test_a_message_is_one_short_line_and_quickly_made() -> None:
    assert scrub("a\nb\x1b[31mc\u202ed") == "a b [31mc d"
    for hostile in ("eyJ-" * 500_000, "://a" * 500_000, "key" * 500_000, "Bearer " * 300_000):
        assert len(scrub(hostile)) <= MAX_MESSAGE_CHARS
