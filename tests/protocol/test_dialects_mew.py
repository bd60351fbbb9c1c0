"""What a MEW connection reads (MEW 3, D-05 to D-08, D-83, D-93)."""

from __future__ import annotations

import pytest

from moot.errors import InvalidEnvelope, InvalidJson, MalformedEnvelope, ProtocolMismatch
from moot.protocol.dialects import MEW
from moot.protocol.envelope import NO_PAYLOAD, EnvelopeLimits
from moot.protocol.kinds import KINDS
from tests.protocol.corpus import REFUSALS, TS, Refusal, call, read, text
from tests.rows import for_each_row


@pytest.mark.requirement("MEW-3-1", "MEW-3-2", "MEW-3-4", "MEW-3-6", "MEW-3-8", "MEW-3-9", "MEW-8.1-11")
@for_each_row("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_what_is_no_envelope_is_refused_by_name(refusal: Refusal) -> None:
    """Ladder step 1: one class and one sentence for each fault."""
    with pytest.raises(MalformedEnvelope) as caught:
        MEW.decode(refusal.raw)
    assert type(caught.value) is refusal.error
    assert refusal.says in caught.value.message


@pytest.mark.requirement("MEW-3-10", "MEW-3-3", "MEW-3-5", "MEW-3-61")
def test_all_nine_fields_are_read_and_the_bytes_kept() -> None:
    raw = text(
        "mew", "mcp/request", to=["files"], correlation_id=["p1"], context="w/1", payload=call("read_file")
    )
    envelope = MEW.decode(raw)
    assert envelope.dialect == "mew"
    assert (envelope.kind, envelope.wire_kind, envelope.claim) == ("mcp/request", "mcp/request", None)
    assert (envelope.id, envelope.ts, envelope.sender) == ("e1", TS, "alice")
    assert (envelope.to, envelope.correlation_id, envelope.context) == (["files"], ["p1"], "w/1")
    assert envelope.payload == call("read_file")
    assert envelope.missing == ()
    assert envelope.raw is raw


@pytest.mark.requirement("MEW-3-7")
def test_absent_and_empty_lists_say_the_same() -> None:
    absent, empty = read("mew", "chat"), read("mew", "chat", to=[], correlation_id=[])
    assert not absent.to
    assert not empty.to
    assert not absent.correlation_id
    assert not empty.correlation_id


@pytest.mark.requirement("MEW-3-9")
def test_an_absent_payload_counts_as_an_empty_one() -> None:
    """D-05."""
    assert read("mew", "participant/resume").payload is NO_PAYLOAD


@pytest.mark.requirement("MEW-3-51", "MEW-6.4-5")
def test_a_lone_correlation_id_becomes_a_list_for_receivers_too() -> None:
    """D-07."""
    raw = text("mew", "chat", payload={"n": 1.50}, correlation_id="a", x=1)
    envelope = MEW.decode(raw)
    assert envelope.correlation_id == ["a"]
    assert envelope.raw == raw.replace(b'"correlation_id":"a"', b'"correlation_id":["a"]')


@pytest.mark.requirement("MEW-3-58")
def test_several_correlations_pass_unchanged() -> None:
    assert read("mew", "chat", correlation_id=["a", "b", "c"]).correlation_id == ["a", "b", "c"]


@pytest.mark.requirement("MEW-8.1-14")
def test_unknown_fields_stay_in_the_bytes() -> None:
    raw = text("mew", "chat", payload={}, x_vendor={"deep": [None]}, timestamp=None)
    assert MEW.decode(raw).raw is raw


def test_missing_fields_are_listed_in_one_order() -> None:
    """D-05: filled later."""
    envelope = MEW.decode(b'{"payload":{"text":"hi"},"kind":"chat"}')
    assert envelope.missing == ("protocol", "id", "ts", "from")
    assert (envelope.id, envelope.ts, envelope.sender) == ("", "", "")


@pytest.mark.requirement("MEW-6.1-1", "MEW-6.1-2", "MEW-6.2-1", "MEW-6.3-1", "MEW-6.4-1")
@pytest.mark.parametrize("protocol", ["mew/v0.3", "meup/v0.2", "mcp-x/v0", "mcpx/v0.1", "MEW/v0.4"])
def test_another_protocol_is_refused_with_both_names(protocol: str) -> None:
    """D-06."""
    with pytest.raises(ProtocolMismatch) as caught:
        read("mew", "chat", protocol=protocol)
    assert protocol in caught.value.message
    assert "mew/v0.4" in caught.value.message


@pytest.mark.requirement("MEW-6.5-2")
def test_the_configuration_may_admit_an_older_protocol() -> None:
    raw = text("mew", "chat", protocol="mew/v0.3")
    assert MEW.decode(raw, accept_protocols=frozenset({"mew/v0.3"})).raw is raw


@pytest.mark.requirement("MEW-6.4-2", "MEW-3.1-1")
@pytest.mark.parametrize("kind", ["mcp/request:tools/call", "mcp/response:tools/call:x", "mcp/proposal:x"])
def test_a_method_in_the_kind_is_refused_with_what_to_write(kind: str) -> None:
    """D-93."""
    with pytest.raises(InvalidEnvelope) as caught:
        read("mew", kind)
    assert f"write {kind.partition(':')[0]!r}" in caught.value.message


@pytest.mark.parametrize(
    "kind", ["acme/run", "acme:run", "x", "mcp/notification", "a.b/c", "日本/語", "mcp/request "]
)
def test_vendor_kinds_pass_whatever_they_look_like(kind: str) -> None:
    """D-08."""
    assert read("mew", kind).kind == kind


@for_each_row("kind", KINDS)
def test_every_kind_of_the_table_is_read(kind: str) -> None:
    assert read("mew", kind, payload={}).kind == kind


@pytest.mark.requirement("MEW-3-56")
@pytest.mark.parametrize("protocol", ["mew/v0.4", "mcpx/v0.1"])
def test_a_refusal_says_which_message_it_is_about(protocol: str) -> None:
    """D-42: correlation_id whenever an id was readable."""
    with pytest.raises(MalformedEnvelope) as caught:
        read("mew", "chat", id="e7", protocol=protocol, to="bob")
    assert (caught.value.about, caught.value.kind) == ("e7", "chat")


@pytest.mark.parametrize(
    ("members", "about", "kind"),
    [
        ({"id": 5, "to": 1}, None, "chat"),
        ({"id": "a\nb"}, None, "chat"),
        ({"kind": ["chat"]}, "e1", None),
        ({"kind": "k" * 5000}, "e1", None),
        ({"kind": ..., "id": ...}, None, None),
        ({"kind": "mcp/request:tools/call"}, "e1", "mcp/request:tools/call"),
    ],
)
def test_a_refusal_repeats_nothing_that_was_wrong_itself(
    members: dict[str, object], about: str | None, kind: str | None
) -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        read("mew", "chat", **members)
    assert (caught.value.about, caught.value.kind) == (about, kind)


def test_unreadable_json_is_about_nothing() -> None:
    with pytest.raises(InvalidJson) as caught:
        MEW.decode(b'{"id":"e1","kind":"chat"')
    assert (caught.value.about, caught.value.kind) == (None, None)


def test_limits_hold_on_the_quick_way_too() -> None:
    most = {"id": "x" * 256, "to": ["bob"] * 1024, "correlation_id": ["a"] * 256, "context": "a" * 1024}
    MEW.decode(text("mew", "chat", **most))
    wrong: tuple[dict[str, object], ...] = (
        {"id": "x" * 257},
        {"from_": "x" * 257},
        {"to": ["a"] * 1025},
        {"to": ["x" * 257]},
        {"correlation_id": ["a"] * 257},
        {"context": "a" * 1025},
    )
    for members in wrong:
        with pytest.raises(InvalidEnvelope):
            MEW.decode(text("mew", "chat", payload={}, **members))


def test_a_size_at_the_limit_passes_and_one_more_byte_does_not() -> None:
    raw = text("mew", "chat", payload={"text": "hi"})
    assert MEW.decode(raw, EnvelopeLimits(max_bytes=len(raw))).raw is raw
    with pytest.raises(InvalidEnvelope, match="max_bytes"):
        MEW.decode(raw, EnvelopeLimits(max_bytes=len(raw) - 1))


def test_deep_payloads_pass_up_to_the_limit_wherever_they_stand() -> None:
    """D-83: 64 levels, the envelope itself being the first."""
    lists = b"[" * 62 + b"]" * 62
    raw = text("mew", "chat", payload=...)[:-1] + b',"payload":{"a":' + lists + b"}}"
    assert MEW.decode(raw).kind == "chat"
    raw = text("mew", "chat", payload={})[:-1] + b',"x":[' + lists + b"]}"
    assert MEW.decode(raw).kind == "chat"
