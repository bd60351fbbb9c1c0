"""Kinds in three spellings: every row of dialects.md section 2, both ways, and the grammars behind them."""

from __future__ import annotations

import json

import pytest

from moot.errors import InvalidEnvelope
from moot.protocol.dialects import DIALECTS, M3P, MCPX, MEW
from moot.protocol.envelope import DialectName
from moot.protocol.kinds import KINDS, OPERATION_KINDS, is_reserved
from moot.protocol.operation import Json, Operation
from tests.protocol.corpus import call, read, text

READ_FILE = Operation("tools/call", "read_file")

# MEW, MCPx, m3p.
ROWS = [
    ("mcp/request", "mcp/request:tools/call:read_file", "mcp.request.tools/call:read_file"),
    ("mcp/response", "mcp/response:tools/call:read_file", "mcp.response.tools/call:read_file"),
    ("mcp/proposal", "mcp/proposal:tools/call:read_file", "mcp.proposal.tools/call:read_file"),
    ("mcp/withdraw", "proposal/withdraw", "mcpx.withdraw.proposal"),
    ("mcp/reject", "proposal/reject", "mcpx.reject.proposal"),
    ("chat", "chat", "chat.message"),
    ("chat/acknowledge", "chat/acknowledge", "chat.acknowledge"),
    ("chat/cancel", "chat/cancel", "chat.cancel"),
    ("reasoning/start", "reasoning/start", "reasoning.start"),
    ("reasoning/thought", "reasoning/thought", "reasoning.thought"),
    ("reasoning/conclusion", "reasoning/conclusion", "reasoning.conclusion"),
    ("reasoning/cancel", "reasoning/cancel", "reasoning.cancel"),
    ("capability/grant", "capability/grant", "capability.grant"),
    ("capability/revoke", "capability/revoke", "capability.revoke"),
    ("capability/grant-ack", "capability/grant-ack", "capability.grant-ack"),
    ("space/invite", "space/invite", "space.invite"),
    ("space/invite-ack", "space/invite-ack", "space.invite-ack"),
    ("space/kick", "space/kick", "space.kick"),
    ("participant/pause", "participant/pause", "participant.pause"),
    ("participant/resume", "participant/resume", "participant.resume"),
    ("participant/status", "participant/status", "participant.status"),
    ("participant/request-status", "participant/request-status", "participant.request-status"),
    ("participant/forget", "participant/forget", "participant.forget"),
    ("participant/compact", "participant/compact", "participant.compact"),
    ("participant/compact-done", "participant/compact-done", "participant.compact-done"),
    ("participant/clear", "participant/clear", "participant.clear"),
    ("participant/restart", "participant/restart", "participant.restart"),
    ("participant/shutdown", "participant/shutdown", "participant.shutdown"),
    ("stream/request", "stream/request", "stream.request"),
    ("stream/open", "stream/open", "stream.open"),
    ("stream/close", "stream/close", "stream.close"),
    ("stream/grant-write", "stream/grant-write", "stream.grant-write"),
    ("stream/revoke-write", "stream/revoke-write", "stream.revoke-write"),
    ("stream/transfer-ownership", "stream/transfer-ownership", "stream.transfer-ownership"),
    ("stream/write-granted", "stream/write-granted", "stream.write-granted"),
    ("stream/write-revoked", "stream/write-revoked", "stream.write-revoked"),
    ("stream/ownership-transferred", "stream/ownership-transferred", "stream.ownership-transferred"),
    ("system/presence", "system/presence", "system.presence"),
    ("system/welcome", "system/welcome", "system.welcome"),
    ("system/error", "system/error", "system.error"),
    ("moot/approve", "moot/approve", "moot.approve"),
    ("moot/settle", "moot/settle", "moot.settle"),
    ("moot/assign", "moot/assign", "moot.assign"),
    ("moot/delegate", "moot/delegate", "moot.delegate"),
    ("moot/end-delegation", "moot/end-delegation", "moot.end-delegation"),
    ("moot/votes", "moot/votes", "moot.votes"),
    ("moot/origins", "moot/origins", "moot.origins"),
    ("moot/endorse", "moot/endorse", "moot.endorse"),
    ("moot/opinion", "moot/opinion", "moot.opinion"),
    ("moot/preview", "moot/preview", "moot.preview"),
    ("moot/plan", "moot/plan", "moot.plan"),
    ("moot/outcome", "moot/outcome", "moot.outcome"),
    ("moot/list-proposals", "moot/list-proposals", "moot.list-proposals"),
    ("moot/proposals", "moot/proposals", "moot.proposals"),
    ("moot/roster", "moot/roster", "moot.roster"),
    ("moot/roster-page", "moot/roster-page", "moot.roster-page"),
    ("moot/list-owners", "moot/list-owners", "moot.list-owners"),
    ("moot/owners", "moot/owners", "moot.owners"),
    ("trust/rule", "trust/rule", "trust.rule"),
    ("acme/b", "acme/b", "acme.b"),
    ("acme/b/c", "acme/b/c", "acme.b/c"),
    ("acme/v1.2", "acme/v1.2", "acme.v1.2"),
    ("a.b/c", "a.b/c", "mcpx.ext.a.b/c"),
    ("acme", "acme", "mcpx.ext.acme"),
    ("acme.run", "acme.run", "mcpx.ext.acme.run"),
    ("acme/b:c", "acme/b:c", "acme.b:c"),
    ("mcp/notification", "mcp/notification", "mcp.notification"),
]


def test_the_table_has_every_kind() -> None:
    assert set(KINDS) <= {row[0] for row in ROWS}


def kind_of(raw: bytes | None) -> Json:
    return None if raw is None else json.loads(raw)["kind"]


@pytest.mark.requirement(
    "M3P-12", "M3P-21", "M3P-22", "M3P-23", "M3P-24", "M3P-25", "M3P-26", "M3P-27", "D002-7"
)
@pytest.mark.requirement("MCPX-3-7", "MCPX-3-8", "MCPX-3-9", "MCPX-3-10", "MCPX-3-11", "MCPX-3-12")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
@pytest.mark.parametrize("origin", [0, 1, 2], ids=["mew", "mcpx", "m3p"])
def test_each_row_is_read_from_and_written_into_every_dialect(row: tuple[str, str, str], origin: int) -> None:
    """dialects.md section 2."""
    names: list[DialectName] = ["mew", "mcpx", "m3p"]
    payload = call("read_file") if row[0] in OPERATION_KINDS else {}
    envelope = read(names[origin], row[origin], payload=payload)
    assert envelope.kind == row[0]
    assert envelope.wire_kind == row[origin]
    for name, spelled in zip(names, row, strict=True):
        copy = DIALECTS[name].encode(envelope, operation=READ_FILE)
        assert kind_of(copy) == spelled
        assert copy is not None
        assert DIALECTS[name].decode(copy).kind == row[0]


# MCPx v0.1: BASE[:METHOD[:CONTEXT]].


@pytest.mark.requirement("MCPX-3.1-1", "MCPX-3.1-2", "MCPX-3.1-3", "MCPX-3.2-2", "D002-37", "D002-38")
@pytest.mark.requirement("D002-10", "D002-11", "D002-12", "D002-13", "D002-21", "D002-39")
@pytest.mark.parametrize("base", ["mcp/request", "mcp/response", "mcp/proposal"])
@pytest.mark.parametrize(
    ("rest", "claim"),
    [
        ("tools/call", Operation("tools/call", None)),
        ("tools/call:read_file", Operation("tools/call", "read_file")),
        ("tools/list", Operation("tools/list", None)),
        ("tools/list:ignored", Operation("tools/list", "ignored")),
        ("resources/read:config.json", Operation("resources/read", "config.json")),
        ("resources/read:file:///a:b.c", Operation("resources/read", "file:///a:b.c")),
        ("resources/subscribe:file:///x", Operation("resources/subscribe", "file:///x")),
        ("resources/list", Operation("resources/list", None)),
        ("prompts/get:debug_prompt", Operation("prompts/get", "debug_prompt")),
        ("prompts/list", Operation("prompts/list", None)),
        ("completion/complete:ref", Operation("completion/complete", "ref")),
        ("notifications/progress", Operation("notifications/progress", None)),
        ("a:b::", Operation("a", "b::")),
    ],
)
def test_mcpx_splits_at_the_first_two_colons(base: str, rest: str, claim: Operation) -> None:
    """D-47."""
    envelope = read("mcpx", f"{base}:{rest}")
    assert (envelope.kind, envelope.claim) == (base, claim)


@pytest.mark.requirement("D002-36")
def test_mcpx_takes_long_kinds() -> None:
    context = "x" * 1024
    assert read("mcpx", f"mcp/request:tools/call:{context}").claim == Operation("tools/call", context)
    with pytest.raises(InvalidEnvelope, match="longer than 2048"):
        read("mcpx", "mcp/request:tools/call:" + "x" * 2048)
    with pytest.raises(InvalidEnvelope, match="longer than 256"):
        read("mcpx", "acme/" + "x" * 256)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("mcp/request", "mcp/request:METHOD"),
        ("mcp/response", "mcp/response:METHOD"),
        ("mcp/proposal", "mcp/proposal:METHOD"),
        ("mcp/request:", "no part empty"),
        ("mcp/request::read_file", "no part empty"),
        ("mcp/request:tools/call:", "no part empty"),
        ("mcp", "MCPx v0.0"),
        ("mcp:tools/call", "MCPx v0.0"),
        ("mcp/withdraw", "write proposal/withdraw"),
        ("mcp/reject", "write proposal/reject"),
        ("proposal/withdraw:now", "takes no METHOD"),
        ("chat:loud", "takes no METHOD"),
        ("system/welcome:x", "takes no METHOD"),
        ("presence:join", "takes no METHOD"),
    ],
)
def test_mcpx_refuses_what_its_grammar_does_not_have(kind: str, says: str) -> None:
    """D-44, D-47."""
    with pytest.raises(InvalidEnvelope) as caught:
        read("mcpx", kind)
    assert says in caught.value.message
    assert (caught.value.about, caught.value.kind) == ("e1", kind)


@pytest.mark.requirement("MCPX-3-11", "MCPX-3-12")
@pytest.mark.parametrize("kind", ["presence", "system", "system/presence", "system/anything"])
def test_mcpx_reads_reserved_names_so_that_the_space_can_refuse_them(kind: str) -> None:
    """D-10, D-44."""
    envelope = read("mcpx", kind)
    assert envelope.kind == kind
    assert is_reserved(envelope.kind)


@pytest.mark.requirement("M3P-2", "M3P-39", "M3P-40")
@pytest.mark.parametrize(
    "kind", ["request/mcp:tools/call", "mcpx/proposal/withdraw", "mcp/proposals:withdraw"]
)
def test_spellings_of_rejected_drafts_are_vendor_kinds_to_mcpx(kind: str) -> None:
    envelope = read("mcpx", kind)
    assert (envelope.kind, envelope.claim) == (kind, Operation(None, None))


@pytest.mark.requirement("M3P-2")
def test_a_proposal_to_withdraw_is_no_withdrawal() -> None:
    envelope = read("mcpx", "mcp/proposal:withdraw")
    assert (envelope.kind, envelope.claim) == ("mcp/proposal", Operation("withdraw", None))


@pytest.mark.parametrize(
    "kind", ["proposal/withdraw", "presence", "system", "mcp", "chat:x", "proposal/reject:x", "mcp:x"]
)
def test_a_vendor_kind_that_mcpx_would_misread_is_not_sent_there(kind: str) -> None:
    """D-44: nothing that reads as something else is ever sent."""
    assert MCPX.encode(read("mew", kind)) is None


# m3p: PROTOCOL.OPERATION[.METHOD[:CONTEXT]].


@pytest.mark.requirement("M3P-3", "M3P-4", "M3P-5", "M3P-6", "M3P-8", "M3P-9", "M3P-11", "M3P-13", "M3P-28")
@pytest.mark.requirement("M3P-1", "M3P-54", "M3P-62")
@pytest.mark.parametrize("operation", ["request", "response", "proposal"])
@pytest.mark.parametrize(
    ("rest", "claim"),
    [
        ("", Operation(None, None)),
        (".tools/call", Operation("tools/call", None)),
        (".tools/call:read_file", Operation("tools/call", "read_file")),
        (".resources/read:config.json", Operation("resources/read", "config.json")),
        (".resources/read:file:///a:b.c", Operation("resources/read", "file:///a:b.c")),
        (".acme.v2/run:x.y", Operation("acme.v2/run", "x.y")),
    ],
)
def test_m3p_splits_at_the_first_two_dots_and_then_a_colon(
    operation: str, rest: str, claim: Operation
) -> None:
    """D-47, D-50."""
    envelope = read("m3p", f"mcp.{operation}{rest}")
    assert (envelope.kind, envelope.claim) == (f"mcp/{operation}", claim)


@pytest.mark.requirement("M3P-10", "M3P-19", "M3P-20", "M3P-29", "M3P-30", "M3P-31", "M3P-46", "M3P-7")
@pytest.mark.parametrize(
    ("wire_kind", "kind"),
    [
        ("chat.message", "chat"),
        ("chat.message.text", "chat"),
        ("chat.message.markdown", "chat"),
        ("mcpx.withdraw", "mcp/withdraw"),
        ("mcpx.withdraw.proposal", "mcp/withdraw"),
        ("mcpx.reject", "mcp/reject"),
        ("mcpx.reject.proposal", "mcp/reject"),
        ("system.welcome", "system/welcome"),
        ("system.welcome.participant", "system/welcome"),
        ("system.presence.join", "system/presence"),
        ("system.presence.leave", "system/presence"),
        ("system.error.capability", "system/error"),
        ("system.heartbeat", "system/heartbeat"),
        ("acme.run.fast:now", "acme/run.fast:now"),
        ("acme.run:now", "acme/run:now"),
        ("mcpx.ext.acme", "acme"),
        ("mcpx.ext.a.b/c", "a.b/c"),
        ("mcpx.ext.presence", "presence"),
        ("mcpx.ext.chat/message", "chat/message"),
        ("mcpx.ext.mcp/request.tools/call", "mcp/request.tools/call"),
        ("mcpx.later", "mcpx/later"),
    ],
)
def test_m3p_takes_two_levels_or_three(wire_kind: str, kind: str) -> None:
    """D-50, D-56."""
    envelope = read("m3p", wire_kind)
    assert (envelope.kind, envelope.claim) == (kind, Operation(None, None))


@pytest.mark.requirement("M3P-39", "M3P-40", "M3P-41", "M3P-42", "M3P-61", "M3P-63")
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("chat", "PROTOCOL.OPERATION"),
        ("system", "PROTOCOL.OPERATION"),
        ("presence", "PROTOCOL.OPERATION"),
        ("mcp/request:tools/call", "PROTOCOL.OPERATION"),
        ("mcp/request:resources/read:config.json", "PROTOCOL.OPERATION"),
        ("request/mcp:tools/call", "PROTOCOL.OPERATION"),
        ("mcpx/proposal/withdraw", "PROTOCOL.OPERATION"),
        (">mcp:tools/call", "PROTOCOL.OPERATION"),
        ("call:tools", "PROTOCOL.OPERATION"),
        ("request:mcp/tools/call", "PROTOCOL.OPERATION"),
        ("propose:mcp/tools/call", "PROTOCOL.OPERATION"),
        ("withdraw:proposal", "PROTOCOL.OPERATION"),
        ("send:chat", "PROTOCOL.OPERATION"),
        (".request", "no part empty"),
        ("mcp.", "no part empty"),
        ("mcp..tools/call", "no part empty"),
        ("mcp.request.", "no part empty"),
        ("mcp.request.:read_file", "no part empty"),
        ("mcp.request.tools/call:", "no part empty"),
        ("acme/x.y", "no part empty"),
        ("acme:x.y", "no part empty"),
        ("mcp.request:tools/call", "no CONTEXT without a METHOD"),
        ("chat.message:text", "no CONTEXT without a METHOD"),
        ("mcpx.withdraw:proposal", "no CONTEXT without a METHOD"),
        ("chat.message.html", "no third level 'html'"),
        ("chat.message.text:x", "no third level"),
        ("mcpx.withdraw.request", "no third level 'request'"),
        ("mcpx.withdraw.proposal:x", "no third level"),
        ("reasoning.start.now", "no third level 'now'"),
        ("mcp.withdraw", "write 'mcpx.withdraw.proposal'"),
        ("mcp.reject.proposal", "write 'mcpx.reject.proposal'"),
        ("mcp.withdraw:x", "write 'mcpx.withdraw.proposal'"),
        ("mcpx.ext.", "must go on"),
        ("mcpx.ext.chat", "write 'chat.message'"),
        ("mcpx.ext.mcp/request", "write 'mcp.request'"),
        ("mcpx.ext.mcp/withdraw", "write 'mcpx.withdraw.proposal'"),
        ("mcpx.ext.acme/run", "write 'acme.run'"),
        ("mcpx.ext.mcp/request:tools/call", "spelled as in MCPx"),
    ],
)
def test_m3p_refuses_what_two_readers_could_take_for_two_things(kind: str, says: str) -> None:
    """D-47, D-50: one kind, one spelling."""
    with pytest.raises(InvalidEnvelope) as caught:
        read("m3p", kind)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        ("chat/message", "mcpx.ext.chat/message"),
        ("chat/message.text", "mcpx.ext.chat/message.text"),
        ("mcp/request.tools/call", "mcpx.ext.mcp/request.tools/call"),
        ("mcpx/withdraw", "mcpx.ext.mcpx/withdraw"),
        ("mcpx/withdraw.proposal", "mcpx.ext.mcpx/withdraw.proposal"),
        ("mcpx/ext.acme", "mcpx.ext.mcpx/ext.acme"),
        ("reasoning/start.now", "mcpx.ext.reasoning/start.now"),
        ("/a", "mcpx.ext./a"),
        ("a/", "mcpx.ext.a/"),
        ("a:b/c", "mcpx.ext.a:b/c"),
        ("mcpx.ext.a", "mcpx.ext.mcpx.ext.a"),
        ("proposal/withdraw", "proposal.withdraw"),
    ],
)
def test_a_vendor_kind_that_m3p_would_misread_is_written_whole(kind: str, spelled: str) -> None:
    raw = M3P.encode(read("mew", kind))
    assert kind_of(raw) == spelled
    assert raw is not None
    assert M3P.decode(raw).kind == kind


# METHOD and CONTEXT in copies.


@pytest.mark.parametrize(
    ("payload", "mcpx", "m3p"),
    [
        (call("read_file"), "mcp/request:tools/call:read_file", "mcp.request.tools/call:read_file"),
        (call("a:b.c"), "mcp/request:tools/call:a:b.c", "mcp.request.tools/call:a:b.c"),
        (call(""), "mcp/request:tools/call", "mcp.request.tools/call"),
        (call("two\nlines"), "mcp/request:tools/call", "mcp.request.tools/call"),
        (call("x" * 3000), "mcp/request:tools/call", "mcp.request.tools/call"),
        (
            {"method": "tools/list", "params": {"name": "x"}},
            "mcp/request:tools/list",
            "mcp.request.tools/list",
        ),
        (
            {"method": "notifications/progress"},
            "mcp/request:notifications/progress",
            "mcp.request.notifications/progress",
        ),
        (
            {"method": "resources/read", "params": {"uri": "file:///a:b"}},
            "mcp/request:resources/read:file:///a:b",
            "mcp.request.resources/read:file:///a:b",
        ),
        (
            {"method": "completion/complete", "params": {"ref": {"type": "ref/prompt", "name": "p"}}},
            "mcp/request:completion/complete:p",
            "mcp.request.completion/complete:p",
        ),
        (
            {"method": "completion/complete", "params": {"ref": {"uri": "file:///x"}}},
            "mcp/request:completion/complete:file:///x",
            "mcp.request.completion/complete:file:///x",
        ),
        ({"method": "a:b"}, None, None),
        ({"method": ""}, None, None),
        ({"method": "two\nlines"}, None, None),
        ({"method": "m" * 3000}, None, None),
        ({"method": "v1.2/run"}, "mcp/request:v1.2/run", "mcp.request.v1.2/run"),
        ({"method": 5}, None, "mcp.request"),
        ({}, None, "mcp.request"),
    ],
)
@pytest.mark.requirement("MCPX-3.1.1-1", "D002-25", "M3P-17", "M3P-18")
def test_a_request_is_named_after_its_payload_or_not_at_all(
    payload: dict[str, Json], mcpx: str | None, m3p: str | None
) -> None:
    """D-49, dialects.md section 4: a CONTEXT that a kind cannot hold is left out, a METHOD never."""
    envelope = read("mew", "mcp/request", payload=payload)
    assert kind_of(MCPX.encode(envelope)) == mcpx
    assert kind_of(M3P.encode(envelope)) == m3p


@pytest.mark.requirement("MCPX-3.1.2-3", "D002-14", "D002-15", "D002-16", "D002-1")
@pytest.mark.parametrize(
    ("operation", "mcpx", "m3p"),
    [
        (READ_FILE, "mcp/response:tools/call:read_file", "mcp.response.tools/call:read_file"),
        (
            Operation("resources/read", "config.json"),
            "mcp/response:resources/read:config.json",
            "mcp.response.resources/read:config.json",
        ),
        (
            Operation("prompts/get", "debug_prompt"),
            "mcp/response:prompts/get:debug_prompt",
            "mcp.response.prompts/get:debug_prompt",
        ),
        (Operation("tools/list", None), "mcp/response:tools/list", "mcp.response.tools/list"),
        (Operation(None, None), "mcp/response:unknown", "mcp.response.unknown"),
        (None, "mcp/response:unknown", "mcp.response.unknown"),
        (Operation("a:b", None), None, None),
    ],
)
def test_a_response_is_named_after_the_request_it_answers(
    operation: Operation | None, mcpx: str | None, m3p: str | None
) -> None:
    envelope = read("mew", "mcp/response", correlation_id=["r1"], payload={"result": {}})
    assert kind_of(MCPX.encode(envelope, operation=operation)) == mcpx
    assert kind_of(M3P.encode(envelope, operation=operation)) == m3p


@pytest.mark.requirement("D002-2", "D002-3", "D002-4", "D002-33")
def test_a_legacy_response_to_a_forgotten_request_keeps_its_own_word_for_it() -> None:
    """D-45: a lone response tells what it answers."""
    envelope = read("mcpx", "mcp/response:tools/call:read_file", correlation_id="r1", payload={})
    assert kind_of(M3P.encode(envelope)) == "mcp.response.tools/call:read_file"
    assert (
        kind_of(M3P.encode(envelope, operation=Operation("tools/call", "x"))) == "mcp.response.tools/call:x"
    )
    short = read("mcpx", "mcp/response:tools/call", correlation_id="r1", payload={})
    assert kind_of(M3P.encode(short, operation=READ_FILE)) == "mcp.response.tools/call:read_file"


def test_a_context_that_its_method_has_no_field_for_stays_in_the_original() -> None:
    """dialects.md section 4."""
    envelope = read("mcpx", "mcp/request:tools/list:mine", payload={"method": "tools/list"})
    copy = M3P.encode(envelope)
    assert copy is not None
    assert kind_of(copy) == "mcp.request.tools/list"
    assert json.loads(copy)["x_origin"]["kind"] == "mcp/request:tools/list:mine"
    answer = read("m3p", "mcp.response.tools/list:mine", payload={})
    assert kind_of(MCPX.encode(answer)) == "mcp/response:tools/list"


def test_the_short_m3p_request_gets_its_method_from_the_payload() -> None:
    envelope = read("m3p", "mcp.request", payload=call("read_file"))
    assert kind_of(MCPX.encode(envelope)) == "mcp/request:tools/call:read_file"
    assert kind_of(MEW.encode(envelope)) == "mcp/request"
    bare = read("m3p", "mcp.request", payload={})
    assert MCPX.encode(bare) is None
    assert kind_of(MEW.encode(bare)) == "mcp/request"


@pytest.mark.requirement("D002-42", "D002-9")
def test_short_kinds_are_as_good_as_long_ones() -> None:
    """D-51."""
    raw = text("mcpx", "mcp/request:tools/call", payload=call("read_file"))
    assert MCPX.encode(MCPX.decode(raw)) is not None
    assert MCPX.decode(raw).raw is raw
