"""A kind that says something else than the payload does (D-48, D-49, MCPx 4.3, M3P)."""

from __future__ import annotations

import pytest

from moot.errors import KindPayloadMismatch
from moot.protocol.agreement import check_agreement
from moot.protocol.envelope import DialectName
from moot.protocol.operation import CONTEXT_PATHS, Json, Operation, context_of, operation_of
from tests.protocol.corpus import call, proposed, read
from tests.rows import for_each_row

READ_FILE = Operation("tools/call", "read_file")


def spelled(dialect: DialectName, base: str, rest: str) -> str:
    """`request`, `tools/call:x` as either legacy dialect writes it."""
    return f"mcp/{base}:{rest}" if dialect == "mcpx" else f"mcp.{base}.{rest}"


def complaint(dialect: DialectName, kind: str, *, asked: Operation | None = None, **members: Json) -> str:
    with pytest.raises(KindPayloadMismatch) as caught:
        check_agreement(read(dialect, kind, **members), asked=asked)
    return caught.value.message


GOOD: list[tuple[str, dict[str, Json]]] = [
    ("tools/call", call("read_file")),
    ("tools/call:read_file", call("read_file")),
    ("tools/call:a:b.c/d", call("a:b.c/d")),
    ("tools/list", {"method": "tools/list"}),
    ("tools/list:anything", {"method": "tools/list", "params": {"name": "other"}}),
    ("prompts/get:p", {"method": "prompts/get", "params": {"name": "p"}}),
    ("resources/read:file:///a:b.c", {"method": "resources/read", "params": {"uri": "file:///a:b.c"}}),
    ("resources/subscribe:u", {"method": "resources/subscribe", "params": {"uri": "u"}}),
    ("resources/unsubscribe:u", {"method": "resources/unsubscribe", "params": {"uri": "u"}}),
    (
        "completion/complete:n",
        {"method": "completion/complete", "params": {"ref": {"name": "n", "uri": "u"}}},
    ),
    ("completion/complete:u", {"method": "completion/complete", "params": {"ref": {"uri": "u"}}}),
    ("notifications/progress:42", {"method": "notifications/progress", "params": {"progressToken": 7}}),
    ("acme/run:fast", {"method": "acme/run", "params": {"name": "slow"}}),
]


@pytest.mark.requirement(
    "MCPX-4.3-2", "MCPX-4.3-3", "M3P-14", "M3P-15", "M3P-17", "M3P-18", "M3P-9", "M3P-11"
)
@for_each_row("dialect", ["mcpx", "m3p"])
@for_each_row("base", ["request", "proposal"])
@for_each_row(("rest", "payload"), GOOD)
def test_kind_and_payload_may_say_the_same(
    dialect: DialectName, base: str, rest: str, payload: dict[str, Json]
) -> None:
    """D-49: each method has its own field, lists have none."""
    check_agreement(read(dialect, spelled(dialect, base, rest), payload=payload), asked=None)


ATTACKS: list[tuple[str, str, dict[str, Json], list[str]]] = [
    ("another method", "tools/read:read_file", call("write_file"), ["'tools/read'", "'tools/call'"]),
    ("another tool", "tools/call:safe", call("danger"), ["'safe'", "'danger'"]),
    ("another uri", "resources/read:a", {"method": "resources/read", "params": {"uri": "b"}}, ["'a'", "'b'"]),
    ("another prompt", "prompts/get:a", {"method": "prompts/get", "params": {"name": "b"}}, ["'a'", "'b'"]),
    (
        "another completion",
        "completion/complete:u",
        {"method": "completion/complete", "params": {"ref": {"name": "n", "uri": "u"}}},
        ["'u'", "'n'"],
    ),
    (
        "the name in the wrong field",
        "tools/call:a",
        {"method": "tools/call", "params": {"uri": "a"}},
        ["nothing"],
    ),
    ("no name at all", "tools/call:a", {"method": "tools/call"}, ["'a'", "nothing"]),
    (
        "a name that is a list",
        "tools/call:a",
        {"method": "tools/call", "params": {"name": ["a"]}},
        ["nothing"],
    ),
    ("no method", "tools/call", {"params": {"name": "a"}}, ["'tools/call'", "nothing"]),
    ("no payload", "tools/call", {}, ["'tools/call'", "nothing"]),
    ("a method that is a number", "5", {"method": 5}, ["'5'", "nothing"]),
    (
        "a method in other case",
        "tools/call:x",
        {"method": "Tools/Call", "params": {"name": "x"}},
        ["'Tools/Call'"],
    ),
    ("a longer method", "tools/call", {"method": "tools/callx"}, ["'tools/callx'"]),
    ("a wildcard as a name", "tools/call:*", call("danger"), ["'*'", "'danger'"]),
    ("more behind the colon", "tools/call:safe:danger", call("safe"), ["'safe:danger'", "'safe'"]),
    ("a colon moved into the method", "tools:call", call("call"), ["'tools'", "'tools/call'"]),
    ("a space behind", "tools/call:safe ", call("safe"), ["'safe '", "'safe'"]),
    ("a look-alike letter", "tools/call:s\u0430fe", call("safe"), ["'safe'"]),
    ("a longer look-alike", "tools/call:cafe\u0301", call("caf\u00e9"), ["'caf\u00e9'"]),
]


@pytest.mark.requirement("M3P-43", "M3P-44", "M3P-45", "M3P-61", "M3P-14", "M3P-15", "MCPX-4.3-7")
@pytest.mark.requirement("MCPX-4.3-2", "MCPX-4.3-3")
@for_each_row("dialect", ["mcpx", "m3p"])
@for_each_row("base", ["request", "proposal"])
@for_each_row("attack", ATTACKS, ids=lambda attack: attack[0])
def test_a_kind_that_hides_another_operation_is_refused(
    dialect: DialectName, base: str, attack: tuple[str, str, dict[str, Json], list[str]]
) -> None:
    """D-48: both sides are named."""
    _, rest, payload, says = attack
    message = complaint(dialect, spelled(dialect, base, rest), payload=payload)
    assert all(words in message for words in says)


@pytest.mark.requirement("M3P-3")
def test_the_short_m3p_request_claims_nothing_that_could_be_wrong() -> None:
    """D-50."""
    check_agreement(read("m3p", "mcp.request", payload=call("danger")), asked=None)
    check_agreement(read("m3p", "mcp.request"), asked=None)
    check_agreement(read("m3p", "mcp.response"), asked=READ_FILE)


@pytest.mark.requirement("D002-9", "D002-21", "M3P-28", "MCPX-3.1.2-3")
@for_each_row("dialect", ["mcpx", "m3p"])
@for_each_row(
    ("rest", "asked"),
    [
        ("tools/call:read_file", READ_FILE),
        ("tools/call", READ_FILE),
        ("tools/call:read_file", None),
        ("tools/anything:at all", None),
        ("tools/anything", Operation(None, None)),
        ("tools/list:noise", Operation("tools/list", None)),
        ("resources/read:a:b", Operation("resources/read", "a:b")),
    ],
)
def test_a_response_may_say_what_was_asked(dialect: DialectName, rest: str, asked: Operation | None) -> None:
    """D-49: the payload of a response has no method; D-45: what it holds of one is only a hint."""
    kind = spelled(dialect, "response", rest)
    check_agreement(
        read(dialect, kind, correlation_id="r1", payload={"method": "x", "result": {}}), asked=asked
    )


@for_each_row("dialect", ["mcpx", "m3p"])
@for_each_row(
    ("rest", "asked", "says"),
    [
        ("tools/list", READ_FILE, ["'tools/list'", "the request", "'tools/call'"]),
        ("tools/call:safe", READ_FILE, ["'safe'", "the request", "'read_file'"]),
        ("tools/call:safe", Operation("tools/call", None), ["'safe'", "nothing"]),
        ("unknown", READ_FILE, ["'unknown'", "'tools/call'"]),
    ],
)
def test_a_response_that_says_it_answers_something_else_is_refused(
    dialect: DialectName, rest: str, asked: Operation, says: list[str]
) -> None:
    message = complaint(dialect, spelled(dialect, "response", rest), asked=asked, correlation_id="r1")
    assert all(words in message for words in says)


@pytest.mark.requirement("M3P-16", "M3P-19")
@pytest.mark.parametrize(
    ("dialect", "kind"),
    [
        ("mcpx", "proposal/withdraw"),
        ("mcpx", "proposal/reject"),
        ("m3p", "mcpx.withdraw.proposal"),
        ("m3p", "mcpx.withdraw"),
        ("m3p", "mcpx.reject.proposal"),
    ],
)
def test_withdrawing_and_rejecting_must_name_a_proposal(dialect: DialectName, kind: str) -> None:
    check_agreement(read(dialect, kind, correlation_id="p1"), asked=None)
    assert f"{kind} must name its proposal" in complaint(dialect, kind)


@pytest.mark.parametrize(
    ("kind", "text_format"),
    [
        ("chat.message", "markdown"),
        ("chat.message.text", "plain"),
        ("chat.message.markdown", "markdown"),
        ("chat.message.text", ...),
    ],
)
def test_a_chat_may_say_its_format_twice(kind: str, text_format: Json) -> None:
    payload = {"text": "hi"} if text_format is ... else {"text": "hi", "format": text_format}
    check_agreement(read("m3p", kind, payload=payload), asked=None)


@pytest.mark.requirement("M3P-31")
@pytest.mark.parametrize(
    ("kind", "text_format", "says"),
    [
        ("chat.message.text", "markdown", ["chat.message.text", "'plain'", "'markdown'"]),
        ("chat.message.markdown", "plain", ["chat.message.markdown", "'markdown'", "'plain'"]),
        ("chat.message.markdown", None, ["nothing"]),
    ],
)
def test_a_chat_that_contradicts_its_format_is_refused(kind: str, text_format: Json, says: list[str]) -> None:
    """D-50."""
    message = complaint("m3p", kind, payload={"text": "hi", "format": text_format})
    assert all(words in message for words in says)


def test_a_long_lie_is_not_repeated_at_length() -> None:
    assert len(complaint("mcpx", "mcp/request:tools/call:" + "x" * 1500, payload=call("y" * 5000))) < 400


def test_mew_says_everything_once_so_there_is_nothing_to_compare() -> None:
    """MEW 3.1: the payload is the authority."""
    for kind in ("mcp/request", "mcp/proposal", "mcp/response", "mcp/withdraw", "chat", "chat.message.text"):
        check_agreement(read("mew", kind, payload={"format": "markdown", **proposed()}), asked=READ_FILE)


def test_other_kinds_have_nothing_to_agree_on() -> None:
    check_agreement(read("mcpx", "reasoning/start", payload=call()), asked=READ_FILE)
    check_agreement(read("mcpx", "acme/run:fast", payload=call()), asked=None)


@for_each_row("name", ["x", "", 1, [], "x" * 999])
def test_a_call_of_a_tool_is_the_same_however_often_it_comes(name: Json) -> None:
    """Calls of tools are kept by name."""
    payload: dict[str, Json] = {"method": "tools/call", "params": {"name": name}}
    same = Operation("tools/call", context_of("tools/call", payload))
    assert operation_of(payload) == operation_of(payload) == same


@pytest.mark.parametrize("method", [*CONTEXT_PATHS, "tools/list"])
@for_each_row("params", [None, [], {}, {"name": "x"}, {"name": 1}, {"uri": "u"}, {"ref": {"name": "r"}}])
def test_an_operation_is_what_the_table_says(method: str, params: Json) -> None:
    """D-49: calls of tools, whose context is found without the table, too."""
    payload = {"method": method, "params": params}
    assert operation_of(payload) == Operation(method, context_of(method, payload))
    assert operation_of({"method": method}) == Operation(method, None)
