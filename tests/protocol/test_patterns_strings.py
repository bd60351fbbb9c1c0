"""String capabilities: the table of dialects.md section 3 both ways, and what senders may do under them."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from moot.errors import InvalidPattern
from moot.protocol.operation import Operation
from moot.protocol.patterns import Capability, Notation, Rights, read_capabilities, read_capability
from tests.rows import for_each_row

Json = Any
Place = Literal["mew", "mcpx", "m3p"]

NONE = Operation(None, None)


def mcpx(text: str) -> Capability:
    return read_capability(text, notation="mcpx")


def m3p(text: str) -> Capability:
    return read_capability(text, notation="m3p")


def request(method: Json, **params: Json) -> dict[str, Json]:
    return {"kind": "mcp/request", "payload": {"method": method, **({"params": params} if params else {})}}


MCP_THREE = [{"kind": "mcp/request"}, {"kind": "mcp/response"}, {"kind": "mcp/proposal"}]

# MCPx string, m3p string, MEW objects: one right in three notations.
ROWS: list[tuple[str, str, list[Json]]] = [
    ("*", "*", [{"kind": "*"}]),
    ("chat", "chat.message", [{"kind": "chat"}]),
    ("mcp/*", "mcp.*", MCP_THREE),
    ("mcp/request:*", "mcp.request.*", [{"kind": "mcp/request"}]),
    ("mcp/request:tools/*", "mcp.request.tools/*", [request("tools/*")]),
    ("mcp/request:*/list", "mcp.request.*/list", [request("*/list")]),
    ("mcp/request:tools/call", "mcp.request.tools/call", [request("tools/call")]),
    (
        "mcp/request:tools/call:read_*",
        "mcp.request.tools/call:read_*",
        [request("tools/call", name="read_*")],
    ),
    (
        "mcp/request:resources/read:file:///a.b",
        "mcp.request.resources/read:file:///a.b",
        [request("resources/read", uri="file:///a.b")],
    ),
    (
        "mcp/request:prompts/get:debug",
        "mcp.request.prompts/get:debug",
        [request("prompts/get", name="debug")],
    ),
    (
        "mcp/request:completion/complete:r",
        "mcp.request.completion/complete:r",
        [request("completion/complete", ref={"name": "r"}), request("completion/complete", ref={"uri": "r"})],
    ),
    (
        "mcp/proposal:tools/call:rm",
        "mcp.proposal.tools/call:rm",
        [{**request("tools/call", name="rm"), "kind": "mcp/proposal"}],
    ),
    ("mcp/response:*", "mcp.response.*", [{"kind": "mcp/response"}]),
    (
        "mcp/response:tools/*",
        "mcp.response.tools/*",
        [{"kind": "mcp/response", "x-moot-request": {"method": "tools/*"}}],
    ),
    (
        "mcp/response:tools/call:a",
        "mcp.response.tools/call:a",
        [{"kind": "mcp/response", "x-moot-request": {"method": "tools/call", "context": "a"}}],
    ),
    ("proposal/withdraw", "mcpx.withdraw.proposal", [{"kind": "mcp/withdraw"}]),
    ("proposal/reject", "mcpx.reject.proposal", [{"kind": "mcp/reject"}]),
    ("proposal/*", "mcpx.*", [{"kind": "mcp/withdraw"}, {"kind": "mcp/reject"}]),
    ("stream/*", "stream.*", [{"kind": "stream/*"}]),
    ("participant/request-status", "participant.request-status", [{"kind": "participant/request-status"}]),
    ("system/*", "system.*", [{"kind": "system/*"}]),
    ("acme/x", "acme.x", [{"kind": "acme/x"}]),
    ("acme", "mcpx.ext.acme", [{"kind": "acme"}]),
    ("a.b/c", "mcpx.ext.a.b/c", [{"kind": "a.b/c"}]),
]


@for_each_row(("text", "dotted", "objects"), ROWS)
def test_each_row_of_the_table_reads_and_shows_as_printed(
    text: str, dotted: str, objects: list[Json]
) -> None:
    """dialects.md section 3."""
    assert mcpx(text).view("mew") == objects
    assert m3p(dotted).view("mew") == objects
    assert mcpx(text).view("m3p") == [dotted]
    assert m3p(dotted).view("mcpx") == [text]
    assert mcpx(text).view("mcpx") == [text]
    assert m3p(dotted).view("m3p") == [dotted]


@for_each_row(("text", "dotted", "objects"), [row for row in ROWS if len(row[2]) == 1])
def test_each_row_with_one_object_shows_as_the_strings_printed(
    text: str, dotted: str, objects: list[Json]
) -> None:
    right = read_capability(objects[0])
    assert right.view("mcpx") == [text]
    assert right.view("m3p") == [dotted]
    assert right.view("mew") == objects


SHOWN: list[tuple[Json, list[str], list[str] | None]] = [
    (
        {"kind": "mcp/*"},
        ["mcp/*", "proposal/withdraw", "proposal/reject"],
        ["mcp.*", "mcpx.withdraw.proposal", "mcpx.reject.proposal"],
    ),
    ({"kind": ["chat", "chat/*"]}, ["chat", "chat/*"], ["chat.*"]),
    ({"kind": "chat/*"}, ["chat/*"], []),
    ({"kind": ["mcp/withdraw", "mcp/reject"]}, ["proposal/*"], ["mcpx.*"]),
    ({"kind": "mcp/re*"}, ["mcp/request:*", "mcp/response:*", "proposal/reject"], None),
    ({"kind": ["mcp/request", "mcp/response", "mcp/proposal"]}, ["mcp/*"], ["mcp.*"]),
    (request(["tools/call", "tools/list"]), ["mcp/request:tools/call", "mcp/request:tools/list"], None),
    (
        {
            "kind": ["mcp/request", "mcp/proposal"],
            "payload": {"method": "tools/call", "params": {"name": ["a", "b"]}},
        },
        [
            "mcp/request:tools/call:a",
            "mcp/request:tools/call:b",
            "mcp/proposal:tools/call:a",
            "mcp/proposal:tools/call:b",
        ],
        None,
    ),
    (
        request("completion/complete", ref=[{"name": "r"}, {"uri": "r"}]),
        ["mcp/request:completion/complete:r"],
        None,
    ),
    # A lone star in an object asks for a string to be there; in a string that is two stars.
    (request("*"), ["mcp/request:**"], ["mcp.request.**"]),
    (request("tools/call", name="*"), ["mcp/request:tools/call:**"], None),
    ({"kind": "**"}, ["*"], ["*"]),
    ({"kind": "mcp/foo"}, ["mcp/foo"], ["mcp.foo"]),
    ({"kind": "proposal/foo"}, ["proposal/foo"], ["proposal.foo"]),
]


@for_each_row(("source", "texts", "dotted"), SHOWN)
def test_an_object_shows_as_strings_that_say_the_same(
    source: Json, texts: list[str], dotted: list[str] | None
) -> None:
    """D-52, D-53."""
    right = read_capability(source)
    assert right.view("mcpx") == texts
    if dotted is not None:
        assert right.view("m3p") == dotted


OMITTED: list[Json] = [
    {"kind": "/^mcp/"},
    {"kind": "!chat"},
    {"kind": "chat", "to": ["bob"]},
    {"kind": "chat", "payload": {"text": "*"}},
    {"kind": "m*"},
    {"kind": "*", "payload": {"method": "tools/*"}},
    {"kind": "mcp/response", "payload": {"method": "tools/*"}},
    {"kind": "mcp/request", "x-moot-request": {"method": "tools/*"}},
    {"kind": "mcp/response", "x-moot-request": {"method": "/x/"}},
    {"kind": "mcp/response", "payload": {"a": 1}, "x-moot-request": {"method": "x"}},
    request("/tools/"),
    request("!tools/call"),
    request("a:b"),
    request(""),
    request("tools/call", name="read_*", arguments={"path": "a"}),
    request("tools/call", arguments={"path": "a"}),
    request("tools/call", uri="a"),
    request("tools/*", name="a"),
    request("tools/call", name="/a/"),
    request("tools/call", name=""),
    request("tools/call", name=1),
    request("tools/list", name="a"),
    request("completion/complete", ref={"name": "a"}),
    request("completion/complete", ref=[{"name": "a"}, {"uri": "b"}]),
    {"kind": "mcp/request", "payload": {"params": {"name": "a"}}},
    {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {}}},
    {"kind": "mcp/request", "payload": {"$.method": "tools/call"}},
    {"kind": "mcp/request", "payload": {"**": "tools/call"}},
    {"kind": "mcp/request", "payload": {"meth*": "tools/call"}},
    request([f"m{number}" for number in range(65)]),
    {"kind": [f"k/{number}" for number in range(65)]},
    {"kind": "mcp/request", "payload": {"method": ["a", "b"] * 9, "params": {"name": ["a", "b"] * 9}}},
]


@for_each_row("source", OMITTED)
def test_what_strings_cannot_say_is_omitted(source: Json) -> None:
    """D-53: under-reporting only leads to proposals, showing more would mislead."""
    right = read_capability(source)
    assert right.view("mcpx") == []
    assert right.view("m3p") == []


def test_only_the_alternatives_that_strings_can_say_are_shown() -> None:
    assert read_capability({"kind": ["chat", "/x/", "!y"]}).view("mcpx") == ["chat"]
    assert read_capability(request(["tools/list", "/x/"])).view("m3p") == ["mcp.request.tools/list"]


def test_a_vendor_kind_that_looks_like_another_word_is_not_shown_as_it() -> None:
    assert read_capability({"kind": "proposal/withdraw"}).view("m3p") == ["proposal.withdraw"]
    assert read_capability({"kind": "proposal/withdraw"}).view("mcpx") == []
    assert read_capability({"kind": "proposal/*"}).view("m3p") == ["proposal.*"]
    assert read_capability({"kind": "proposal/*"}).view("mcpx") == []
    assert read_capability({"kind": "chat/message"}).view("m3p") == []


@for_each_row(
    ("text", "place", "notation"),
    [
        ("mcp.*", "mew", "m3p"),
        ("chat.message", "mcpx", "m3p"),
        ("mcp.request.tools/call:a", "mew", "m3p"),
        ("mcp/request:tools/call", "mew", "mcpx"),
        ("mcp/*:tools/call", "mew", "mcpx"),
        ("mcp/request:resources/read:config.json", "mew", "mcpx"),
        ("mcp/*", "mew", "mew"),
        ("mcp/*", "mcpx", "mcpx"),
        ("mcp/*", "m3p", "mcpx"),
        ("chat", "mew", "mew"),
        ("acme/x:y", "mew", "mew"),
        ("!chat.x", "mew", "mew"),
        ("/a.b/", "mew", "mew"),
        ("*", "mew", "mew"),
        ("*", "m3p", "mcpx"),
    ],
)
def test_the_notation_of_a_bare_string_follows_from_its_shape_and_place(
    text: str, place: Place, notation: Notation
) -> None:
    """D-90."""
    right = read_capability(text, place=place)
    assert right.notation == notation
    assert right.original == text


def test_a_bare_string_in_a_mew_place_is_short_for_its_kind() -> None:
    """D-90: `mcp/*` means five kinds in MEW and three in MCPx."""
    right = read_capability("mcp/*")
    assert right.view("mew") == [{"kind": "mcp/*"}]
    assert right.matches("mcp/withdraw", {})
    assert not read_capability("mcp/*", notation="mcpx").matches("mcp/withdraw", {})
    assert right != read_capability("mcp/*", notation="mcpx")
    assert right != read_capability({"kind": "mcp/*"})


def test_an_object_is_mew_whatever_the_place_or_notation() -> None:
    for right in read_capabilities([{"kind": "chat"}], notation="mcpx", place="m3p"):
        assert right.notation == "mew"


BAD_MCPX = [
    *("mcp/request:", "mcp/request::x", "mcp/request:tools/call:", ":x", "chat:", "chat:x", "stream/open:x"),
    *("mcp/withdraw", "mcp/reject", "mcp/x*", "proposal/x*", "proposal/*:x", "m*", "*/request", "p*", "**/x"),
    *("!chat", "/chat/", "mcp/request:!tools/call", "mcp/request:tools/call:!x", "x" * 1025),
    "mcp/request:resources/read:/a*/",
]
BAD_M3P = [
    *(
        "chat",
        "mcp.",
        ".x",
        "mcp..x",
        "mcp.request.",
        "mcp.request.tools/call:",
        "mcp.request.:x",
        "*.request",
    ),
    *(
        "mcp.withdraw",
        "mcp.reject",
        "mcp.x*",
        "mcpx.withdraw.request",
        "mcpx.x*",
        "mcpx.ext.*",
        "mcpx.ext.chat",
    ),
    *("mcpx.ext.a/b", "mcpx.ext.!x", "chat.message.text", "a/b.c", "!a.b", "mcp.request.!x", "m*.x"),
]


@for_each_row("text", BAD_MCPX)
def test_a_malformed_mcpx_string_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidPattern, match="capability"):
        mcpx(text)


@for_each_row("text", BAD_M3P)
def test_a_malformed_m3p_string_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidPattern, match="capability"):
        m3p(text)


def test_a_refusal_says_what_to_write() -> None:
    for text, hint in [
        ("mcp/withdraw", "write proposal/withdraw"),
        ("chat:x", "write chat"),
        ("m*", "write mcp/*"),
    ]:
        with pytest.raises(InvalidPattern, match=hint.replace("*", r"\*")):
            mcpx(text)
    for text, hint in [("mcp.reject", "write mcpx.reject.proposal"), ("chat", "write chat.message")]:
        with pytest.raises(InvalidPattern, match=hint):
            m3p(text)


# What senders may do. A legacy sender is asked by its claim, a MEW sender by its payload.


def claims(right: Capability, kind: str, method: str | None = None, context: str | None = None) -> bool:
    return right.matches(kind, {}, claim=Operation(method, context), agreed=False)


def facts(right: Capability, kind: str, method: str, **params: Json) -> bool:
    return right.matches(kind, {"method": method, "params": params})


def allowed(rights: list[str], kind: str, method: str | None = None, context: str | None = None) -> bool:
    """Whether a legacy sender with these strings may send that, and agrees with a MEW sender."""
    held = Rights(read_capabilities(rights, place="mcpx"))
    by_claim = held.allow(kind, {}, claim=Operation(method, context))
    payload = {"method": method, "params": {"name": context, "uri": context}} if method else {}
    by_facts = held.allow(kind, payload, asked=Operation(method, context) if method else None)
    assert by_claim == by_facts
    return by_claim


@pytest.mark.requirement("MCPX-4.1-3")
def test_mcp_star_covers_requests_responses_and_proposals_and_no_more() -> None:
    for kind in ("mcp/request", "mcp/response", "mcp/proposal"):
        assert allowed(["mcp/*"], kind, "tools/call", "a")
    for kind in ("mcp/withdraw", "mcp/reject", "mcp/vendor", "chat"):
        assert not allowed(["mcp/*"], kind)


@pytest.mark.requirement("MCPX-4.1-4")
def test_all_requests_covers_notifications_too() -> None:
    for method in ("tools/call", "ping", "notifications/progress"):
        assert allowed(["mcp/request:*"], "mcp/request", method)
    assert not allowed(["mcp/request:*"], "mcp/proposal", "tools/call")


@pytest.mark.requirement("MCPX-4.1-5", "MCPX-4.1-6")
def test_tools_and_resources_are_told_apart() -> None:
    for method in ("tools/call", "tools/list"):
        assert allowed(["mcp/request:tools/*"], "mcp/request", method)
        assert not allowed(["mcp/request:resources/*"], "mcp/request", method)
    for method in ("resources/read", "resources/list", "resources/subscribe"):
        assert allowed(["mcp/request:resources/*"], "mcp/request", method)
        assert not allowed(["mcp/request:tools/*"], "mcp/request", method)


@pytest.mark.requirement("MCPX-4.1-7", "MCPX-4.1-8", "D002-20")
def test_all_responses_and_all_proposals() -> None:
    assert allowed(["mcp/response:*"], "mcp/response", "tools/call", "a")
    assert allowed(["mcp/response:*"], "mcp/response"), "whatever it answers"
    assert allowed(["mcp/proposal:*"], "mcp/proposal", "tools/call", "a")
    assert not allowed(["mcp/response:*"], "mcp/request", "tools/call")


@pytest.mark.requirement("MCPX-4.1-14")
def test_profile_full_access() -> None:
    rights = ["mcp/*", "chat"]
    for kind in ("mcp/request", "mcp/response", "mcp/proposal"):
        assert allowed(rights, kind, "tools/call", "a")
    assert allowed(rights, "chat")


@pytest.mark.requirement("MCPX-4.1-15", "MCPX-4.1-16")
def test_profile_proposal_only() -> None:
    rights = ["mcp/proposal:*", "mcp/response:*", "chat"]
    assert allowed(rights, "mcp/proposal", "tools/call", "a")
    assert allowed(rights, "mcp/response", "tools/call", "a")
    assert allowed(rights, "chat")
    assert not allowed(rights, "mcp/request", "tools/call", "a")


@pytest.mark.requirement("MCPX-4.1-17")
def test_profile_response_only() -> None:
    rights = ["mcp/response:*", "chat"]
    assert allowed(rights, "mcp/response", "tools/call")
    assert not allowed(rights, "mcp/request", "tools/call")
    assert not allowed(rights, "mcp/proposal", "tools/call")


@pytest.mark.requirement("MCPX-4.1-18")
def test_profile_read_only() -> None:
    rights = ["mcp/request:resources/read", "mcp/request:*/list", "mcp/response:*", "chat"]
    assert allowed(rights, "mcp/request", "resources/read", "file:///a")
    assert allowed(rights, "mcp/request", "tools/list")
    assert not allowed(rights, "mcp/request", "tools/call", "a")
    assert not allowed(rights, "mcp/request", "resources/subscribe", "file:///a")


@pytest.mark.requirement("MCPX-4.1-19")
def test_profile_tool_only() -> None:
    rights = ["mcp/request:tools/*", "mcp/response:tools/*", "chat"]
    assert allowed(rights, "mcp/request", "tools/call", "a")
    assert allowed(rights, "mcp/response", "tools/list")
    assert not allowed(rights, "mcp/request", "resources/read", "a")
    assert not allowed(rights, "mcp/response", "resources/read", "a")


@pytest.mark.requirement("MCPX-4.2-9")
def test_a_tools_call_request_matches_the_four_patterns_of_the_text() -> None:
    for text in ("mcp/*", "mcp/request:*", "mcp/request:tools/*", "mcp/request:tools/call"):
        assert allowed([text], "mcp/request", "tools/call")
        assert allowed([text], "mcp/request", "tools/call", "read_file"), "a last star covers what follows"


@pytest.mark.requirement("MCPX-4.2-10")
def test_a_tools_call_response_matches_the_three_patterns_of_the_text() -> None:
    for text in ("mcp/*", "mcp/response:*", "mcp/response:tools/*"):
        assert allowed([text], "mcp/response", "tools/call")
    assert not mcpx("mcp/response:tools/*").matches("mcp/response", {}), "of an unknown request"


@pytest.mark.requirement("MCPX-4.2-11")
def test_chat_matches_only_chat() -> None:
    assert allowed(["chat"], "chat")
    assert not allowed(["mcp/*"], "chat")
    assert not allowed(["chat/*"], "chat")
    assert not allowed(["chat"], "chat/acknowledge")


@pytest.mark.requirement("D002-17", "D002-18", "D002-19")
def test_a_right_for_one_tool_is_for_that_tool() -> None:
    assert allowed(["mcp/request:tools/call:read_file"], "mcp/request", "tools/call", "read_file")
    assert not allowed(["mcp/request:tools/call:read_file"], "mcp/request", "tools/call", "read_file2")
    assert allowed(["mcp/request:tools/call:write_*"], "mcp/request", "tools/call", "write_file")
    assert not allowed(["mcp/request:tools/call:write_*"], "mcp/request", "tools/call", "rewrite_file")
    assert allowed(["mcp/proposal:tools/call:delete_file"], "mcp/proposal", "tools/call", "delete_file")
    assert not allowed(["mcp/proposal:tools/call:delete_file"], "mcp/request", "tools/call", "delete_file")


@pytest.mark.requirement("D002-27", "D002-29")
def test_a_star_or_no_context_covers_any_context_and_none() -> None:
    """D-46."""
    for text in ("mcp/request:tools/call:*", "mcp/request:tools/call"):
        assert allowed([text], "mcp/request", "tools/call")
        assert allowed([text], "mcp/request", "tools/call", "read_file")
        assert not allowed([text], "mcp/request", "tools/callx")


@pytest.mark.requirement("D002-28")
def test_a_short_kind_is_refused_under_a_context() -> None:
    """D-46: it closes a bypass."""
    assert claims(mcpx("mcp/request:tools/call:read_*"), "mcp/request", "tools/call", "read_a")
    for pattern in ("read_*", "**"):
        assert not claims(mcpx(f"mcp/request:tools/call:{pattern}"), "mcp/request", "tools/call")
        assert not claims(m3p(f"mcp.request.tools/call:{pattern}"), "mcp/request", "tools/call")
    assert not claims(m3p("mcp.request.tools/*"), "mcp/request"), "nor is a kind without METHOD"
    assert claims(m3p("mcp.request.*"), "mcp/request")


def test_separators_after_the_first_ones_belong_to_the_context() -> None:
    """D-47."""
    uri = "file:///a:b/config.json"
    for right in (mcpx(f"mcp/request:resources/read:{uri}"), m3p(f"mcp.request.resources/read:{uri}")):
        assert claims(right, "mcp/request", "resources/read", uri)
        assert facts(right, "mcp/request", "resources/read", uri=uri)
        assert not facts(right, "mcp/request", "resources/read", uri="file:///a")


def test_a_context_pattern_does_not_reach_above_its_folder() -> None:
    """D-11."""
    right = mcpx("mcp/request:resources/read:file:///safe/*")
    assert facts(right, "mcp/request", "resources/read", uri="file:///safe/a/b")
    assert not facts(right, "mcp/request", "resources/read", uri="file:///safe/../etc")
    assert not claims(right, "mcp/request", "resources/read", "file:///safe/../etc")


@pytest.mark.requirement("M3P-32", "M3P-33", "M3P-34")
def test_dotted_rights_on_mcp() -> None:
    for kind in ("mcp/request", "mcp/response", "mcp/proposal"):
        assert claims(m3p("mcp.*"), kind, "tools/call", "a")
    assert not claims(m3p("mcp.*"), "mcp/withdraw")
    assert claims(m3p("mcp.request.*"), "mcp/request", "ping")
    assert not claims(m3p("mcp.request.*"), "mcp/response", "ping")
    assert claims(m3p("mcp.request.tools/*"), "mcp/request", "tools/call", "a")
    assert not claims(m3p("mcp.request.tools/*"), "mcp/request", "resources/read", "a")


@pytest.mark.requirement("M3P-35")
def test_dotted_right_to_withdraw() -> None:
    for text in ("mcpx.withdraw.*", "mcpx.withdraw.proposal", "mcpx.withdraw"):
        assert claims(m3p(text), "mcp/withdraw")
        assert not claims(m3p(text), "mcp/reject")
        assert m3p(text).view("mcpx") == ["proposal/withdraw"]


@pytest.mark.requirement("M3P-36")
def test_dotted_system_rights_are_inert() -> None:
    for text in ("system.*", "system.welcome", "system.welcome.participant"):
        assert m3p(text).inert
    assert m3p("system.*").view("mew") == [{"kind": "system/*"}]
    assert not m3p("stream.*").inert


@pytest.mark.requirement("M3P-37")
def test_dotted_chat_star_covers_all_chat() -> None:
    right = m3p("chat.*")
    for kind in ("chat", "chat/acknowledge", "chat/cancel"):
        assert claims(right, kind)
        assert right.matches(kind, {})
    assert right.view("mew") == [{"kind": "chat"}, {"kind": "chat/*"}]
    assert right.view("mcpx") == ["chat", "chat/*"]
    assert not claims(m3p("chat.message"), "chat/cancel")


def test_a_method_with_wildcards_and_a_context_stands_for_the_methods_that_have_one() -> None:
    """D-49: no payload field could prove the context of any other method, so only a claim can meet it."""
    right = mcpx("mcp/request:tools/*:x")
    assert right.view("mew") == [request("tools/call", name="x")]
    assert claims(right, "mcp/request", "tools/list", "x")
    assert not facts(right, "mcp/request", "tools/list", name="x")
    every = mcpx("mcp/request:*:x").view("mew")
    assert len(every) == 7
    assert request("completion/complete", ref={"uri": "x"}) in every
    alone = mcpx("mcp/request:tools/list:x")
    assert alone.patterns == ()
    assert alone.view("mew") == []
    assert alone.view("m3p") == ["mcp.request.tools/list:x"]
    assert claims(alone, "mcp/request", "tools/list", "x")


def test_a_context_that_would_read_as_a_regular_expression_stays_a_text() -> None:
    right = mcpx("mcp/request:resources/read:/data/")
    assert facts(right, "mcp/request", "resources/read", uri="/data/")
    assert not facts(right, "mcp/request", "resources/read", uri="x/data/y")
    (view,) = right.view("mew")
    assert not facts(read_capability(view), "mcp/request", "resources/read", uri="x/data/y")


def test_a_vendor_kind_with_a_colon_has_no_method() -> None:
    """D-93."""
    right = mcpx("acme/x:y")
    assert claims(right, "acme/x:y")
    assert not claims(right, "acme/x")
    assert right.view("mew") == [{"kind": "acme/x:y"}]
