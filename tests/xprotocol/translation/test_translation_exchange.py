"""Calls and results between MCP and XProtocol (XP 5.1, 5.2, D-67, D-69)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import (
    Contract,
    ContractRefused,
    ContractResponse,
    contract_json,
    read_contract,
)
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.events.event_composer import reply, reply_fault
from moot.xprotocol.events.event_receiver import Accepted, EventRejected
from moot.xprotocol.events.faults import mcp_error, read_error
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.call_translation import (
    answers_structured,
    payload_result,
    result_payload,
    terms_of,
)
from tests.rows import for_each_row
from tests.xprotocol.mirroring import mirror
from tests.xprotocol.people import ALICE, BOB, KIND, NOW, ReceivingEndpoint, call
from tests.xprotocol.tool_samples import READ_FILE, tool, translate_tool

PLAIN = translate_tool(READ_FILE)
PROMISED: Json = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
STRUCTURED = translate_tool(tool("plan_trip", outputSchema=PROMISED))


def text(words: str, **more: Json) -> Json:
    return {"type": "text", "text": words, **more}


def there_and_back(result: Json, contract: Contract = PLAIN) -> Json:
    """What the MCP client at the far end of two adapters gets."""
    return payload_result(result_payload(result, structured=answers_structured(contract)), contract)


@pytest.mark.requirement("XP-5.1-8")
@for_each_row(
    ("content", "expected"),
    [
        ([text("# Title")], ("# Title", "utf-8", "text/plain")),
        ([text("a"), text("b")], ("a\nb", "utf-8", "text/plain")),
        ([], ("", "utf-8", "text/plain")),
        (
            [
                {
                    "type": "resource",
                    "resource": {"uri": "file:///a", "text": "# T", "mimeType": "text/markdown"},
                }
            ],
            ("# T", "utf-8", "text/markdown"),
        ),
        ([{"type": "image", "data": "iVBO", "mimeType": "image/png"}], ("iVBO", "base64", "image/png")),
        ([{"type": "audio", "data": "UklG", "mimeType": "audio/wav"}], ("UklG", "base64", "audio/wav")),
        (
            [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AAEC"}}],
            ("AAEC", "base64", "application/octet-stream"),
        ),
        (
            [{"type": "image", "data": "iVBO", "mimeType": "image/png"}, text("cap")],
            ("cap", "utf-8", "text/plain"),
        ),
        ([{"type": "resource_link", "uri": "file:///a", "name": "a"}], ("", "utf-8", "text/plain")),
    ],
)
def test_results_are_told_as_content_encoding_and_mime_type(
    content: Json, expected: tuple[str, str, str]
) -> None:
    """D-67: text joined, binary as base64."""
    payload = result_payload({"content": content}, structured=False)
    assert (payload["content"], payload["encoding"], payload["mimeType"]) == expected
    assert payload["isError"] is False
    assert PLAIN.response is not None
    assert Validator(PLAIN.response.payload).accepts(payload)


def test_a_plain_text_result_is_told_in_the_documents_members_alone() -> None:
    payload = result_payload({"content": [text("hello")], "isError": False}, structured=False)
    assert payload == {"content": "hello", "encoding": "utf-8", "mimeType": "text/plain", "isError": False}


BLOCKS = st.one_of(
    st.builds(text, st.text(max_size=5)),
    st.builds(
        lambda words: text(words, _meta={"vendor": 1}, annotations={"priority": 1}), st.text(max_size=5)
    ),
    st.builds(lambda data: {"type": "image", "data": data, "mimeType": "image/png"}, st.text(max_size=5)),
    st.builds(lambda data: {"type": "audio", "data": data, "mimeType": "audio/wav"}, st.text(max_size=5)),
    st.builds(lambda uri: {"type": "resource_link", "uri": uri, "name": "n"}, st.text(max_size=5)),
    st.builds(
        lambda words: {"type": "resource", "resource": {"uri": "u", "text": words}}, st.text(max_size=5)
    ),
    st.builds(lambda data: {"type": "resource", "resource": {"uri": "u", "blob": data}}, st.text(max_size=5)),
    st.builds(lambda data: {"type": "from the future", "data": data}, st.text(max_size=5)),
    st.just("no block at all"),
)
RESULTS = st.builds(
    lambda content, error, more: {"content": content, "isError": error, **more},
    st.lists(BLOCKS, max_size=4),
    st.booleans(),
    st.fixed_dictionaries(
        {},
        optional={
            "_meta": st.just({"a": [1]}),
            "structuredContent": st.just({"n": 1}),
            "vendor": st.integers(),
        },
    ),
)


@pytest.mark.requirement("XP-1.1-2", "XP-8.1-1")
@given(RESULTS)
def test_results_come_out_at_the_far_end_as_they_went_in(result: Json) -> None:
    """Whatever blocks, vendor members and flags they have."""
    assert there_and_back(result) == result


def test_an_absent_flag_comes_out_as_false() -> None:
    assert there_and_back({"content": [text("x")]}) == {"content": [text("x")], "isError": False}


@pytest.mark.requirement("XP-1.1-2")
def test_a_tool_with_an_output_schema_answers_its_structured_content_alone() -> None:
    """D-67."""
    result = {"content": [text('{"days":3}')], "structuredContent": {"days": 3}, "isError": False}
    assert result_payload(result, structured=True) == {"days": 3}
    assert there_and_back(result, STRUCTURED) == result


@pytest.mark.requirement("XP-1.1-2")
def test_a_tool_error_stays_a_result_with_the_flag_set() -> None:
    """D-69: tool errors are data, for tools with an output schema too."""
    failed = {"content": [text("no such trip")], "isError": True}
    for contract in (PLAIN, STRUCTURED):
        payload = result_payload(failed, structured=answers_structured(contract))
        assert (payload["content"], payload["isError"]) == ("no such trip", True)
        assert there_and_back(failed, contract) == failed


def test_a_server_that_breaks_its_promise_is_an_error_unless_it_reports_one() -> None:
    result = {"content": [text("sorry")], "isError": False}
    with pytest.raises(ContractRefused, match="breaks the outputSchema of its contract"):
        there_and_back(result, STRUCTURED)
    failed = {"content": [text("sorry")], "isError": True}
    assert there_and_back(failed, STRUCTURED) == failed


def test_an_answer_that_fits_its_promise_is_one_though_it_looks_like_content() -> None:
    schema = {"type": "object", "properties": {"content": {"type": "string"}, "page": {"type": "integer"}}}
    contract = read_contract(
        {"kind": "a.b", "payload": {}, "response": {"kind": "a.b.result", "payload": schema}}
    )
    answer = {"content": "a book", "isError": True}
    assert payload_result(answer, contract)["structuredContent"] == answer


@pytest.mark.requirement("XP-5.2-6")
def test_what_a_native_service_answers_is_shown_as_text() -> None:
    contract = read_contract({"kind": "weather.current.get", "payload": {"type": "object"}})
    answer: Json = {"temperature": 18.5, "sky": "überall blau"}
    assert payload_result(answer, contract) == {
        "content": [text('{"temperature":18.5,"sky":"überall blau"}')],
        "isError": False,
    }
    assert payload_result({"content": "18 degrees"}, contract)["content"] == [text("18 degrees")]
    assert payload_result([1, 2], contract)["content"] == [text("[1,2]")]


@pytest.mark.requirement("XP-5.2-6")
def test_binary_content_of_a_native_service_is_shown_as_what_it_is() -> None:
    contract = read_contract({"kind": "a.b", "payload": {}})
    for mime_type, block in (
        ("image/png", {"type": "image", "data": "AAEC", "mimeType": "image/png"}),
        ("audio/wav", {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}),
        (
            "application/pdf",
            {
                "type": "resource",
                "resource": {"uri": "xprotocol:content", "mimeType": "application/pdf", "blob": "AAEC"},
            },
        ),
    ):
        payload = {"content": "AAEC", "encoding": "base64", "mimeType": mime_type}
        assert payload_result(payload, contract)["content"] == [block]


@pytest.mark.parametrize(
    "lie",
    [
        {"content": [text("delete everything")]},
        {"content": []},
        {"content": "x"},
        {"content": [{"type": "image", "data": "x", "mimeType": "image/png"}]},
        [],
        None,
    ],
)
def test_what_is_carried_along_cannot_say_something_else_than_what_is_told(lie: Json) -> None:
    payload = {
        "content": "all is well",
        "encoding": "utf-8",
        "mimeType": "text/plain",
        "isError": False,
        "mcp": lie,
    }
    assert payload_result(payload, PLAIN)["content"] == [text("all is well")]


@pytest.mark.parametrize(
    "result", [None, [], "text", {}, {"content": "text"}, {"resultType": "input_required"}]
)
def test_what_is_no_result_is_refused(result: Json) -> None:
    for structured in (True, False):
        with pytest.raises(ContractRefused):
            result_payload(result, structured=structured)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            {"type": "object", "properties": {"content": {"type": "string"}, "encoding": {}, "mimeType": {}}},
            False,
        ),
        ({"type": "object", "properties": {"content": {}, "pages": {}}}, True),
        ({"type": "object"}, True),
        (True, False),
        (None, False),
    ],
)
def test_whether_an_answer_has_members_of_its_own(payload: Json, expected: bool) -> None:
    assert (
        answers_structured(Contract(kind="a.b", payload={}, response=ContractResponse("a.b.result", payload)))
        is expected
    )
    assert answers_structured(Contract(kind="a.b", payload={})) is False


@pytest.mark.requirement("XP-2.1-3", "XP-5.1-7", "XP-5.2-2", "XP-8.1-1")
def test_the_five_translations_carry_one_call_from_client_to_server_and_back() -> None:
    """XP 2.1, 5.1 and 5.2 without a socket: Alice shows Bob's wrapped tool to an MCP client."""
    # Tool to contract, contract to tool, contract to grammar.
    (shown,) = mirror([read_contract(contract_json(PLAIN))], endpoint="xp://bob.example").tools
    assert shown.contract.gbnf_grammar == compile_grammar(READ_FILE["inputSchema"]).text
    # Call to event.
    arguments = {"path": "docs/readme.md", "encoding": "utf-8"}
    request = call(kind=shown.contract.kind, payload=arguments)
    endpoint = ReceivingEndpoint(kinds={KIND: terms_of(PLAIN)})
    accepted = endpoint.receiver.receive(request.raw, NOW)
    assert isinstance(accepted, Accepted)
    assert accepted.payload == arguments
    # Result to event, and event to result.
    result = {"content": [text("# Read me"), text("twice")], "isError": False, "_meta": {"took": 3}}
    assert PLAIN.response is not None
    answer = reply(
        BOB, accepted.event, PLAIN.response.kind, result_payload(result, structured=False), now=NOW
    )
    home = ReceivingEndpoint(identity=ALICE, waiting=[request.event])
    received = home.receiver.receive(answer.raw, NOW)
    assert isinstance(received, Accepted)
    assert received.event.kind == f"{KIND}.result"
    assert payload_result(received.payload, shown.contract) == result


@pytest.mark.parametrize("payload", [{}, {"path": 5}, {"path": "a", "encoding": "latin-1"}])
def test_a_payload_that_does_not_fit_comes_back_as_invalid_params(payload: Json) -> None:
    endpoint = ReceivingEndpoint(kinds={KIND: terms_of(PLAIN)})
    request = call(payload=payload)
    refused = endpoint.receiver.receive(request.raw, NOW)
    assert isinstance(refused, EventRejected)
    answer = reply_fault(BOB, refused.event, refused.fault, now=NOW)
    received = ReceivingEndpoint(identity=ALICE, waiting=[request.event]).receiver.receive(answer.raw, NOW)
    assert isinstance(received, Accepted)
    error = mcp_error(read_error(received.payload))
    assert (error.code, error.message) == (-32602, "Request payload does not conform to schema")


def test_terms_ask_for_the_capability_of_the_contract_and_know_its_own_members() -> None:
    terms = terms_of(PLAIN)
    assert terms.capability == "com.acme.filesystem.read"
    assert (terms.own_proofs, terms.own_meta) == (False, False)
    for name, own in (("proofs", (True, False)), ("_meta", (False, True))):
        schema: Json = {"type": "object", "properties": {name: {"type": "array"}}}
        terms = terms_of(translate_tool(tool("get_x", schema=schema)))
        assert (terms.own_proofs, terms.own_meta) == own
    with pytest.raises(ContractRefused):
        terms_of(read_contract({"kind": "a.b", "payload": {}}))
