"""docs/topics/dialects.md: which rules for senders hold in which dialect, and that nothing unsafe follows."""

from __future__ import annotations

import pytest

from moot.conformance.pure_driver import PureDriver
from moot.protocol.operation import Json

LEGACY = ("mcpx", "m3p")
KINDS = {
    "withdraw": ("mcp/withdraw", "proposal/withdraw", "mcpx.withdraw.proposal"),
    "reject": ("mcp/reject", "proposal/reject", "mcpx.reject.proposal"),
    "request": ("mcp/request", "mcp/request:tools/list", "mcp.request.tools/list"),
    "proposal": ("mcp/proposal", "mcp/proposal:tools/list", "mcp.proposal.tools/list"),
    "response": ("mcp/response", "mcp/response:tools/list", "mcp.response.tools/list"),
    "chat": ("chat", "chat", "chat.message"),
}


def played(dialect: str, name: str, **fields: Json) -> tuple[str | None, list[Json]]:
    """The code of the refusal, if there is one, and what another member hears."""
    spaces = {"participants": {"one": ["*"], "two": ["*"]}, "dialects": ["mew", *LEGACY]}
    driver = PureDriver(spaces)
    driver.join("one", {"dialect": dialect})
    driver.join("two", {})
    kind = KINDS[name][("mew", *LEGACY).index(dialect)]
    heard = driver.send("one", {"id": "e1", "kind": kind, "payload": {}, **fields})
    errors = [each["payload"]["error"] for each in heard["one"] if "error" in (each.get("payload") or {})]
    return (errors[0] if errors else None), heard["two"]


@pytest.mark.parametrize("dialect", ["mew", *LEGACY])
@pytest.mark.parametrize("name", ["withdraw", "reject", "request", "proposal"])
def test_what_a_kind_needs_is_asked_for_where_the_kind_claims_it(dialect: str, name: str) -> None:
    """MEW 4.2-5 and 4.2-6: a MEW gateway does not look at it."""
    code, heard = played(dialect, name)
    assert code == (None if dialect == "mew" else "kind_payload_mismatch")
    assert bool(heard) == (code is None)


@pytest.mark.parametrize("dialect", ["mew", *LEGACY])
def test_an_answer_to_nothing_is_refused_in_every_dialect(dialect: str) -> None:
    assert played(dialect, "response", payload={"result": {}}) == ("request_not_found", [])


@pytest.mark.parametrize("dialect", ["mew", *LEGACY])
def test_a_correlation_of_another_form_is_taken_by_mew_alone(dialect: str) -> None:
    given = "a" if dialect == "mew" else ["a"]
    code, heard = played(dialect, "chat", correlation_id=given)
    assert code == (None if dialect == "mew" else "invalid_envelope")
    assert [each["correlation_id"] for each in heard] == ([["a"]] if dialect == "mew" else [])


@pytest.mark.parametrize("name", ["withdraw", "reject"])
def test_what_names_no_proposal_settles_none(name: str) -> None:
    driver = PureDriver({"participants": {"one": ["*"], "two": ["*"], "tool": []}})
    for who in ("one", "two", "tool"):
        driver.join(who, {})
    call: Json = {"method": "tools/call", "params": {"name": "pay"}}
    driver.send("one", {"id": "p1", "kind": "mcp/proposal", "to": ["tool"], "payload": call})
    driver.send("one", {"id": "w1", "kind": KINDS[name][0], "payload": {}})
    fulfilment = {
        "id": "f1",
        "kind": "mcp/request",
        "to": ["tool"],
        "correlation_id": ["p1"],
        "payload": call,
    }
    assert driver.send("two", fulfilment)["tool"][0]["id"] == "f1"
