"""Profiles against the capability sets of MEW 4.1, MCPx 4.1 and MEW 9.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import hash_token
from moot.config.configuration import TokenGrant
from moot.config.profiles import BUILT_IN, LIST_OFFERS, WITHDRAW_OWN
from moot.conformance.pure_driver import PureDriver
from moot.protocol.operation import Operation
from moot.protocol.patterns import Rights, read_capabilities
from moot.space.space import Space
from tests.config.files import lab, loaded

REQUESTS = (
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/subscribe",
    "prompts/list",
)


def allowed(profile: str) -> set[str]:
    """What a profile lets a member send: kinds, with the method of requests and of what responses answer."""
    rights = BUILT_IN[profile]
    kinds = (
        "chat",
        "mcp/proposal",
        "mcp/withdraw",
        "mcp/reject",
        "space/kick",
        "capability/grant",
        "chat/cancel",
    )
    found = {kind for kind in kinds if any(right.matches(kind, {}) for right in rights)}
    for method in REQUESTS:
        if any(right.matches("mcp/request", {"method": method}) for right in rights):
            found.add(f"request {method}")
        if any(right.matches("mcp/response", {}, asked=Operation(method, None)) for right in rights):
            found.add(f"response {method}")
    return found


ALL_REQUESTS = {f"request {method}" for method in REQUESTS}
ALL_RESPONSES = {f"response {method}" for method in REQUESTS}
TOOLS = ("tools/call", "tools/list")


@pytest.mark.requirement("MEW-4.1-12", "MEW-4.1-18", "MEW-9.3-1", "MCPX-4.1-14", "MCPX-4.1-23")
def test_full_may_send_every_mcp_kind_and_chat() -> None:
    """One profile for full access and for the last stage of trust, where it replaces the narrower entries."""
    mcp = {"mcp/proposal", "mcp/withdraw", "mcp/reject"}
    assert allowed("full") == {"chat", *mcp, *ALL_REQUESTS, *ALL_RESPONSES}
    assert BUILT_IN["full"] == read_capabilities([{"kind": "mcp/*"}, {"kind": "chat"}])


@pytest.mark.requirement("MEW-4.1-13", "MCPX-4.1-15", "MCPX-4.1-16")
def test_proposal_only_proposes_and_answers_but_never_requests() -> None:
    assert allowed("proposal-only") == {"chat", "mcp/proposal", *ALL_RESPONSES}


def test_a_participant_that_only_proposes_may_list_what_it_can_propose_and_withdraw_it(
    tmp_path: Path,
) -> None:
    people = "participants: {a: {profile: proposal-only}, b: {profile: initial}, c: {capabilities: [chat]}}"
    given = lab(tmp_path, people).config.participants
    assert given["a"].capabilities == (*BUILT_IN["proposal-only"], *LIST_OFFERS, *WITHDRAW_OWN)
    assert given["b"].capabilities == BUILT_IN["initial"]
    assert given["c"].capabilities == read_capabilities(["chat"])
    rights = Rights(LIST_OFFERS)
    for method, allowed in (("tools/list", True), ("resources/templates/list", True), ("roots/list", False)):
        assert rights.allow("mcp/request", {"method": method}, ["files"]) == allowed
    assert not rights.allow("mcp/request", {"method": "tools/call", "params": {"name": "x"}}, ["files"])


@pytest.mark.requirement("MCPX-4.1-17", "MEW-9.3-2")
def test_response_only_answers_and_starts_nothing() -> None:
    assert allowed("response-only") == {"chat", *ALL_RESPONSES}


@pytest.mark.requirement("MCPX-4.1-18", "MEW-9.3-4")
def test_read_only_reads_and_lists_and_calls_nothing() -> None:
    lists = {f"request {method}" for method in REQUESTS if method.endswith("/list")}
    assert allowed("read-only") == {"chat", "request resources/read", *lists, *ALL_RESPONSES}


@pytest.mark.requirement("MCPX-4.1-19")
def test_tool_only_has_to_do_with_tools_both_ways() -> None:
    expected = {f"{side} {method}" for side in ("request", "response") for method in TOOLS}
    assert allowed("tool-only") == {"chat", *expected}


@pytest.mark.requirement("MEW-4.1-15", "MEW-9.3-3", "MEW-7.3-1", "MCPX-4.1-20")
def test_a_new_agent_proposes_and_chats() -> None:
    assert allowed("initial") == {"chat", "mcp/proposal"}


@pytest.mark.requirement("MEW-4.1-16", "MEW-4.1-17", "MCPX-4.1-21", "MCPX-4.1-22")
def test_trust_grows_by_reading_and_then_by_tools() -> None:
    assert allowed("basic") == allowed("initial") | {"request resources/read"}
    assert allowed("trusted") == allowed("basic") | {f"request {method}" for method in TOOLS}
    assert allowed("trusted") < allowed("full")


@pytest.mark.parametrize(
    ("profile", "strings"),
    [
        ("full", {"mcp/*", "proposal/withdraw", "proposal/reject", "chat"}),
        ("proposal-only", {"mcp/proposal:*", "mcp/response:*", "chat"}),
        ("response-only", {"mcp/response:*", "chat"}),
        ("read-only", {"mcp/request:resources/read", "mcp/request:*/list", "mcp/response:*", "chat"}),
        ("tool-only", {"mcp/request:tools/*", "mcp/response:tools/*", "chat"}),
        ("initial", {"mcp/proposal:*", "chat"}),
        ("basic", {"mcp/proposal:*", "chat", "mcp/request:resources/read"}),
        ("trusted", {"mcp/proposal:*", "chat", "mcp/request:resources/read", "mcp/request:tools/*"}),
    ],
)
@pytest.mark.requirement("MCPX-4.1-13")
def test_in_mcpx_a_profile_is_the_list_that_mcpx_prints(profile: str, strings: set[str]) -> None:
    """MCPx 4.1; `mcp/*` of MEW holds the two kinds of the life cycle besides (D-52)."""
    assert {text for right in BUILT_IN[profile] for text in right.view("mcpx")} == strings


@pytest.mark.requirement("MEW-4.1-19")
def test_the_welcome_shows_the_patterns_behind_a_profile(tmp_path: Path) -> None:
    settings = lab(tmp_path, "participants: {agent: {profile: read-only, tokens: [t]}}")
    driver = PureDriver({})
    driver.space = Space(settings.config)
    welcome = driver.join("agent", {})["agent"][0]
    assert welcome["kind"] == "system/welcome"
    assert welcome["payload"]["you"]["capabilities"] == [right.original for right in BUILT_IN["read-only"]]


def test_own_profiles_stand_beside_the_built_in_ones(tmp_path: Path) -> None:
    configuration = loaded(
        tmp_path,
        """
        profiles:
          reviewer: [chat, {kind: mcp/reject}]
          legacy: {notation: mcpx, capabilities: ["mcp/*"]}
        spaces:
          lab:
            participants:
              a: {profile: reviewer}
              b: {profile: legacy}
              c: {profile: initial, capabilities: [mcp/withdraw, chat]}
        """,
    )
    rights = {
        name: config.capabilities for name, config in configuration.spaces["lab"].config.participants.items()
    }
    assert rights["a"] == read_capabilities(["chat", {"kind": "mcp/reject"}])
    assert rights["b"] == read_capabilities(["mcp/*"], notation="mcpx")
    # Both together, profile first. An object and a string are two entries, as they are in a welcome.
    assert rights["c"] == (*BUILT_IN["initial"], *read_capabilities(["mcp/withdraw", "chat"]))


@pytest.mark.requirement("MEW-5.1-2", "MEW-5.1-3")
def test_a_token_may_bring_a_profile_or_capabilities_of_its_own(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        participants:
          alice:
            profile: full
            tokens:
              - plain
              - {token: phone, profile: read-only}
              - {token_env: SCRIPT, capabilities: [chat]}
        """,
        SCRIPT="script",
    )
    assert space.tokens == {
        hash_token("plain"): TokenGrant(participant="alice"),
        hash_token("phone"): TokenGrant(
            participant="alice", capabilities=BUILT_IN["read-only"], profile="read-only"
        ),
        hash_token("script"): TokenGrant(participant="alice", capabilities=read_capabilities(["chat"])),
    }
    phone = space.tokens[hash_token("phone")].capabilities
    assert phone is not None
    assert not Rights(phone).allow("mcp/request", {"method": "tools/call"})
    assert Rights(space.config.participants["alice"].capabilities).allow(
        "mcp/request", {"method": "tools/call"}
    )


@pytest.mark.requirement("MEW-5.1-4")
def test_an_identity_is_mapped_to_a_set_of_its_own(tmp_path: Path) -> None:
    space = lab(tmp_path, "participants: {a: {profile: full}, b: {profile: initial}}")
    assert space.config.participants["a"].capabilities == BUILT_IN["full"]
    assert space.config.participants["b"].capabilities == BUILT_IN["initial"]
