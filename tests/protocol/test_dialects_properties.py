"""Properties of all three dialects: whatever comes in, and there and back again."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moot.errors import InvalidEnvelope, MalformedEnvelope
from moot.protocol.dialects import DIALECTS, M3P, MCPX, MEW, Dialect
from moot.protocol.kinds import KINDS, OPERATION_KINDS, is_reserved
from moot.protocol.operation import Json, Operation, operation_of
from tests.examples import examples
from tests.protocol.corpus import SEEDS, text
from tests.protocol.decoder_soak import check_case, run_decoder_soak

SOME = settings(max_examples=examples(25), derandomize=True, deadline=None)

dialects = st.sampled_from(list(DIALECTS.values()))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.text("abc-é", min_size=1, max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(
    [
        "protocol",
        "id",
        "ts",
        "from",
        "to",
        "kind",
        "correlation_id",
        "context",
        "payload",
        "x_correlation_ids",
        "x",
    ]
)

# Vendor kinds of the awkward sort: names of the tables, and all the separators, in any order.
parts = st.sampled_from(
    [
        *KINDS,
        "mcp",
        "mcpx",
        "ext",
        "chat",
        "message",
        "text",
        "system",
        "presence",
        "proposal",
        "withdraw",
        "a",
        "ü",
    ]
)
separators = st.sampled_from([*"/.:/.:", "", " ", "::", "..", "//"])
kinds = st.one_of(
    st.sampled_from(list(KINDS)),
    st.lists(parts | separators, min_size=1, max_size=7).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20),
)
names = st.sampled_from(["read_file", "a:b.c", "file:///a:b", "x.y/z", "ü", ""]) | texts
methods = st.sampled_from(
    [
        "tools/call",
        "tools/list",
        "prompts/get",
        "resources/read",
        "completion/complete",
        "v1.2/run",
        "a:b",
        "",
    ]
)
bodies = st.builds(
    lambda method, name, more: {
        "method": method,
        "params": {"name": name, "uri": name, "ref": {"uri": name}},
        **more,
    },
    methods | texts,
    names,
    st.dictionaries(texts.map("x_{}".format), values, max_size=2),
)


@SOME
@given(
    dialects, st.binary(max_size=60) | st.text(max_size=40).map(lambda s: s.encode("utf-8", "surrogatepass"))
)
@pytest.mark.requirement("MEW-3-1", "MCPX-3-1", "MCPX-4.3-11")
def test_any_bytes_are_an_envelope_or_malformed(dialect: Dialect, raw: bytes) -> None:
    check_case(dialect, raw)


@SOME
@given(dialects, values | st.dictionaries(members, values))
def test_any_json_is_an_envelope_or_malformed(dialect: Dialect, value: Json) -> None:
    check_case(dialect, json.dumps(value).encode())


@SOME
@given(st.data())
def test_an_envelope_with_other_values_is_an_envelope_or_malformed(data: st.DataObject) -> None:
    dialect = data.draw(dialects)
    fields = json.loads(data.draw(st.sampled_from(SEEDS[dialect.name])))
    fields |= data.draw(st.dictionaries(members, values, min_size=1, max_size=2))
    check_case(dialect, json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())


@SOME
@given(st.data())
def test_an_envelope_with_bytes_cut_and_put_is_an_envelope_or_malformed(data: st.DataObject) -> None:
    dialect = data.draw(dialects)
    raw = data.draw(st.sampled_from(SEEDS[dialect.name]))
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 9)))
    put = data.draw(
        st.binary(max_size=6) | st.sampled_from([b'"', b"\\", b",", b"{}", b'"kind":', b"\\ud800"])
    )
    check_case(dialect, raw[:start] + put + raw[end:])


@SOME
@given(kinds, st.lists(ids, max_size=3), bodies)
@example("proposal/withdraw", ["a"], {})
@example("mcp/request.tools/call:x", [], {})
@pytest.mark.requirement("M3P-54", "M3P-62", "M3P-53")
def test_from_mew_to_a_legacy_dialect_and_back_nothing_changes(
    kind: str, correlation: list[str], body: dict[str, Json]
) -> None:
    """Or there is no copy; for the kinds of the table there always is one."""
    try:
        envelope = MEW.decode(text("mew", kind, correlation_id=correlation, payload=body))
    except InvalidEnvelope:
        return
    for dialect in (MCPX, M3P):
        raw = dialect.encode(envelope)
        if raw is None:
            assert kind not in KINDS or (kind in OPERATION_KINDS - {"mcp/response"})
            continue
        copy = dialect.decode(raw)
        back = MEW.encode(copy)
        assert back is not None
        again = MEW.decode(back)
        assert (copy.kind, copy.payload) == (kind, body)
        assert (again.kind, list(again.correlation_id), again.payload) == (kind, correlation, body)
        if kind in OPERATION_KINDS - {"mcp/response"}:
            assert copy.claim is not None
            assert copy.claim.method == operation_of(body).method
        assert kind not in KINDS or is_reserved(copy.kind) == is_reserved(kind)


@SOME
@given(st.sampled_from([MCPX, M3P]), kinds, ids | st.none(), bodies)
def test_from_a_legacy_dialect_to_mew_and_back_the_kind_stays(
    dialect: Dialect, wire_kind: str, correlation: str | None, body: dict[str, Json]
) -> None:
    given_ids = {} if correlation is None else {"correlation_id": correlation}
    try:
        envelope = dialect.decode(text(dialect.name, wire_kind, payload=body, **given_ids))
    except InvalidEnvelope:
        return
    there = MEW.encode(envelope)
    assert there is not None
    canonical = MEW.decode(there)
    assert canonical.kind == envelope.kind
    back = dialect.encode(canonical, operation=envelope.claim)
    if back is None:
        # Bare names that MCPx reads only to have them refused, and methods that only the kind had.
        assert envelope.kind in OPERATION_KINDS or is_reserved(envelope.kind)
        return
    again = dialect.decode(back)
    assert (again.kind, list(again.correlation_id)) == (envelope.kind, list(envelope.correlation_id))


@SOME
@given(names, methods | texts)
def test_a_response_is_named_so_that_it_reads_as_what_was_asked(name: str, method: str) -> None:
    envelope = MEW.decode(text("mew", "mcp/response", correlation_id=["r1"], payload={}))
    asked = Operation(method, name)
    for dialect in (MCPX, M3P):
        raw = dialect.encode(envelope, operation=asked)
        if raw is not None:
            claim = dialect.decode(raw).claim
            assert claim in (asked, Operation(method, None))


@SOME
@given(st.sampled_from([MCPX, M3P]), kinds)
def test_no_two_spellings_of_a_vendor_kind(dialect: Dialect, wire_kind: str) -> None:
    """What a dialect reads as a kind outside the table is exactly what it writes for it."""
    try:
        envelope = dialect.decode(text(dialect.name, wire_kind))
    except InvalidEnvelope:
        return
    if envelope.kind in KINDS or is_reserved(envelope.kind):
        return
    copy = MEW.encode(envelope)
    assert copy is not None
    back = dialect.encode(MEW.decode(copy))
    assert back is not None
    assert dialect.decode(back).wire_kind == wire_kind


def test_a_malformed_envelope_is_one_of_three_words() -> None:
    codes = {error.code for error in MalformedEnvelope.__subclasses__()}
    assert codes == {"invalid_json", "invalid_envelope", "protocol_mismatch"}


def test_a_short_soak_holds() -> None:
    """`make soak` walks further."""
    assert "2000 cases" in run_decoder_soak(2000, seed=7)
