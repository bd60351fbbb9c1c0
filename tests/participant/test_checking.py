"""What an SDK believes, whatever it is sent (MEW 4.3, 7.2, 8.2; MCPx 4.3)."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moot.errors import UsageError
from moot.participant import IncomingRequest, ProtocolViolation, connect
from moot.participant.connection.correlation_index import CorrelationIndex
from moot.participant.connection.inbound_check import InboundValidator, ViolationLog
from moot.participant.connection.payload_shapes import _SHAPES, PayloadShapeError, check_shape
from moot.protocol.dialects import MEW
from moot.protocol.kinds import KINDS
from moot.protocol.operation import Json
from tests.examples import examples
from tests.participant.gateway_with_members import QUICK, ReceivedEnvelopes, gateway_with, settled
from tests.participant.rogue_gateway import rogue_gateway

# For each kind: payloads that are right, and payloads that are wrong.
SHAPES: dict[str, tuple[list[Json], list[Json]]] = {
    "mcp/request": (
        [
            {"method": "x", "id": 1},
            {"method": "x", "id": "a", "params": {}, "jsonrpc": "2.0"},
            {"method": "notifications/x"},
        ],
        [
            {},
            {"method": ""},
            {"method": 5, "id": 1},
            {"method": "x"},
            {"method": "x", "id": None},
            {"method": "x", "id": 1.5},
            {"method": "x", "id": True},
            {"method": "x", "id": 1, "params": [1]},
            {"method": "x", "id": 1, "jsonrpc": "1.0"},
            {"method": "notifications/x", "id": 1},
            {"result": {}, "id": 1},
        ],
    ),
    "mcp/response": (
        [{"id": 1, "result": {}}, {"id": "a", "error": {"code": 1, "message": "m"}, "method": "extra"}],
        [
            {},
            {"id": 1},
            {"id": 1, "result": []},
            {"result": {}},
            {"id": 1, "error": {}},
            {"id": 1, "error": {"code": True, "message": "m"}},
            {"id": 1, "result": {}, "error": {"code": 1, "message": "m"}},
            {"method": "x", "id": 1},
        ],
    ),
    "mcp/proposal": (
        [{"method": "x"}, {"method": "x", "params": {}, "jsonrpc": "2.0", "id": 1}],
        [{}, {"method": 1}, {"method": "x", "params": 1}, {"method": "notifications/x"}],
    ),
    "mcp/withdraw": ([{}, {"reason": "own words"}], [{"reason": 1}]),
    "mcp/reject": ([{}, {"reason": "busy"}], [{"reason": None}]),
    "chat": (
        [{"text": "x"}, {"text": "x", "format": "unheard-of"}],
        [{}, {"text": ""}, {"text": "x", "format": 1}],
    ),
    "chat/acknowledge": ([{}, {"status": "read"}], [{"status": 1}]),
    "chat/cancel": ([{}, {"reason": "x"}], [{"reason": []}]),
    "reasoning/start": ([{"message": "x"}], [{}, {"message": 1}]),
    "reasoning/thought": ([{"message": ""}], [{}]),
    "reasoning/conclusion": ([{"message": "x"}], [{"message": None}]),
    "reasoning/cancel": ([{}, {"reason": "x"}], [{"reason": 1}]),
    "capability/grant": (
        [{"recipient": "a", "capabilities": [{}]}],
        [{}, {"recipient": "a", "capabilities": []}, {"recipient": 1, "capabilities": [1]}],
    ),
    "capability/revoke": (
        [{"recipient": "a", "grant_id": "g"}, {"recipient": "a", "capabilities": [{}]}],
        [{"recipient": "a"}, {"grant_id": "g"}],
    ),
    "capability/grant-ack": ([{}, {"status": "accepted"}], [{"status": 5}]),
    "space/invite": ([{"participant_id": "a"}], [{}, {"participant_id": "a", "initial_capabilities": "x"}]),
    "space/invite-ack": ([{"status": "created", "participant_id": "a"}], [{}, {"status": "x"}]),
    "space/kick": ([{"participant_id": "a"}], [{}, {"participant_id": ""}]),
    "participant/pause": (
        [{}, {"timeout_seconds": 1.5, "reason": "x"}],
        [{"timeout_seconds": 0}, {"timeout_seconds": "1"}, {"timeout_seconds": True}, {"reason": 1}],
    ),
    "participant/request-status": ([{}, {"fields": ["tokens"]}], [{"fields": "tokens"}, {"fields": [1]}]),
    "participant/status": (
        [{"messages_in_context": 0, "anyThing": 1}],
        [
            {},
            {"messages_in_context": -1},
            {"messages_in_context": True},
            {"messages_in_context": 1, "tokens": "x"},
        ],
    ),
    "participant/forget": (
        [{"direction": "oldest"}, {"direction": "newest", "entries": 1}],
        [{}, {"direction": "middle"}, {"direction": "oldest", "entries": 0}],
    ),
    "participant/compact": ([{}, {"target_tokens": 5}], [{"target_tokens": "5"}, {"reason": {}}]),
    "participant/compact-done": (
        [{}, {"skipped": True}, {"freed_tokens": 0}],
        [{"skipped": "yes"}, {"freed_tokens": -1}],
    ),
    "stream/request": (
        [{"direction": "upload"}, {"direction": "download", "target": ["a"]}],
        [{}, {"direction": "up"}, {"direction": "upload", "target": "a"}],
    ),
    "stream/open": ([{"stream_id": "s"}], [{}, {"stream_id": 1}, {"stream_id": "s", "target": [1]}]),
    "stream/close": ([{}, {"stream_id": "s"}], [{"stream_id": 1}]),
    "stream/grant-write": ([{"stream_id": "s", "participant_id": "a"}], [{"stream_id": "s"}]),
    "stream/revoke-write": ([{"stream_id": "s", "participant_id": "a"}], [{"participant_id": "a"}]),
    "stream/transfer-ownership": ([{"stream_id": "s", "new_owner": "a"}], [{"stream_id": "s"}]),
    "stream/write-granted": ([{"stream_id": "s", "participant_id": "a"}], [{}]),
    "stream/write-revoked": ([{"stream_id": "s", "participant_id": "a"}], [{}]),
    "stream/ownership-transferred": ([{"stream_id": "s", "new_owner": "a"}], [{}]),
    "moot/settle": (
        [{"outcome": "done"}, {"outcome": "failed", "note": "looked"}],
        [{}, {"outcome": "unknown"}, {"outcome": "done", "note": 5}],
    ),
    "moot/origins": ([{"asks": False}], [{}, {"asks": True, "arguments": {}}]),
    "moot/delegate": (
        [{"to": "bob", "expires_in_seconds": 60}],
        [{}, {"to": "bob"}, {"expires_in_seconds": 6}],
    ),
    "moot/end-delegation": ([{"to": "bob"}, {"from": "ana"}], [{}, {"to": "b", "from": "a"}, {"to": 5}]),
    "moot/assign": ([{"to": ["ana"]}, {"to": []}], [{}, {"to": "ana"}]),
    "moot/endorse": ([{"value": "x"}, {"revoke": "e"}], [{}, {"value": "x", "source": "m"}]),
    "moot/opinion": ([{"says": "no", "because": "x"}], [{}, {"says": "yes", "because": "x"}, {"says": "no"}]),
    "moot/preview": (
        [{"why": "it fails"}, {"effect": "0" * 64}],
        [{}, {"effect": "x"}, {"why": "w", "changes": [{"path": "a", "what": "eaten"}]}],
    ),
    "moot/plan": ([{"task": "t", "lines": []}, {"withdraw": "p"}], [{}, {"withdraw": "p", "lines": []}]),
    "moot/votes": (
        [
            {
                "proposal_id": "p",
                "approvals_needed": 2,
                "approvals_missing": 1,
                "approved_by": ["a"],
                "exempt": [],
            }
        ],
        [
            {},
            {
                "proposal_id": "p",
                "approvals_needed": -1,
                "approvals_missing": 0,
                "approved_by": [],
                "exempt": [],
            },
            {
                "proposal_id": "p",
                "approvals_needed": 1,
                "approvals_missing": 0,
                "approved_by": [1],
                "exempt": [],
            },
            {
                "proposal_id": "p",
                "approvals_needed": 1,
                "approvals_missing": 0,
                "approved_by": [],
                "exempt": "a",
            },
        ],
    ),
    "moot/outcome": (
        [{"proposal_id": "p", "outcome": "unknown"}],
        [{}, {"proposal_id": 1, "outcome": "unknown"}],
    ),
    "moot/proposals": ([{"proposals": []}], [{}, {"proposals": {}}]),
    "system/welcome": (
        [
            {"you": {"id": "a"}},
            {"you": {"id": "a"}, "participants": [], "active_streams": [], "extensions": ["moot/roster"]},
        ],
        [
            {},
            {"you": {}},
            {"you": {"id": "a"}, "participants": {}},
            {"you": {"id": "a"}, "participants": [{"name": "x"}]},
            {"you": {"id": "a"}, "active_streams": [{}]},
            {"you": {"id": "a", "capabilities": "x"}},
            {"you": {"id": "a"}, "extensions": {}},
        ],
    ),
    "moot/roster-page": (
        [{}, {"participants": [{"id": "a", "capabilities": []}], "active_streams": [], "next": "p:a"}],
        [{"participants": {}}, {"participants": [{"name": "x"}]}, {"active_streams": [{}]}],
    ),
    "moot/owners": (
        [{"owners": []}, {"owners": [{"participant": "a", "taken": {"tools": {"x": "b"}}}], "next": ["c"]}],
        [
            {},
            {"owners": [{"participant": "a"}]},
            {"owners": [{"participant": "a", "taken": {"tools": {"x": 1}}}]},
            {"owners": [], "next": "c"},
        ],
    ),
    "system/presence": (
        [{"event": "join", "participant": {"id": "a"}}],
        [{}, {"event": "join"}, {"event": "join", "participant": {"id": ""}}],
    ),
    "system/error": ([{"error": "x"}], [{}, {"error": 5}]),
}


@pytest.mark.requirement("MEW-8.2-3", "MEW-4.3-2", "MEW-8.2-2")
@pytest.mark.parametrize("kind", sorted(_SHAPES))
def test_every_kind_has_a_shape(kind: str) -> None:
    right, wrong = SHAPES[kind]
    for payload in right:
        check_shape(kind, payload, ["id"], "context")
    for payload in wrong:
        with pytest.raises(PayloadShapeError):
            check_shape(kind, payload, ["id"], "context")


def test_kinds_without_a_shape_are_those_that_say_nothing() -> None:
    assert set(KINDS) - set(_SHAPES) == {
        "participant/resume",
        "participant/clear",
        "participant/restart",
        "participant/shutdown",
        "moot/approve",
        "moot/list-owners",
        "moot/list-proposals",
        "moot/roster",
    }


@pytest.mark.requirement(
    "MEW-4.3-1",
    "MEW-4.3-3",
    "MEW-4.3-4",
    "MEW-7.2-5",
    "MEW-7.2-6",
    "MEW-7.2-8",
    "MEW-7.3-3",
    "MEW-8.2-1",
    "MEW-8.2-4",
    "MEW-8.2-5",
)
async def test_what_breaks_the_rules_reaches_no_handler_and_is_reported(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], mallory=["*"]) as gateway:
        alice, mallory = await gateway.join("alice"), await gateway.raw("mallory")
        reports: list[ProtocolViolation] = []
        alice.violations.on_report = reports.append
        received = ReceivedEnvelopes(alice)
        handled: list[IncomingRequest] = []

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            handled.append(request)
            return {}

        alice.server.use_handler(handler)
        await mallory.say("mcp/request", {"no": "method"}, to=["alice"])
        await mallory.say("mcp/request", {"result": {}, "id": 1}, to=["alice"])
        asked = (await alice.send("mcp/request", {"jsonrpc": "2.0", "id": 1, "method": "x"}, to="mallory")).id
        await mallory.hear("mcp/request")
        await mallory.say("mcp/response", {"id": 1, "method": "tools/call"}, about=[asked])
        await mallory.say("chat", {"message": "no text"})
        await mallory.say("reasoning/thought", {"message": "no context"})
        await mallory.fence()
        await settled(alice)
        assert [each.kind for each in received.envelopes if each.sender == "mallory"] == []
        assert handled == []
        assert [report.fault for report in reports] == ["bad_payload"] * 5
        assert [report.kind for report in reports] == [
            "mcp/request",
            "mcp/request",
            "mcp/response",
            "chat",
            "reasoning/thought",
        ]
        assert all(report.sender == "mallory" and report.message for report in reports)
        assert alice.violations.count("mallory") == 5
        assert alice.violations.of("mallory") == {"bad_payload": 5}
        assert alice.violations.senders() == ["mallory"]
        assert alice.counts.dropped == 5
        # A hook that fails harms nobody.
        alice.violations.on_report = _failing
        await mallory.say("chat", {})
        await mallory.fence()
        await settled(alice)
        assert alice.violations.count("mallory") == 6


@pytest.mark.requirement("MEW-7.2-6", "MEW-7.2-7", "MEW-4.3-7", "MCPX-4.3-10")
async def test_a_gateway_that_checks_nothing_fools_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Forged answers, forged notices, broken bytes: each is dropped, and the honest answer still counts."""
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=QUICK) as me:
        call = asyncio.create_task(me.request("bob", "x"))
        request = await gateway.wait_for("mcp/request")
        about, rpc = [request["id"]], request["payload"]["id"]
        forged = {"jsonrpc": "2.0", "id": rpc, "result": {"forged": True}}
        await gateway.emit("mcp/response", forged, sender="mallory", about=about)
        await gateway.emit("mcp/response", forged, sender="bob", about=["another-request"])
        await gateway.emit("system/welcome", {"you": {"id": "victim"}}, sender="mallory", to=["me"])
        await gateway.emit("system/welcome", {"you": {"id": "other", "capabilities": []}}, to=["other"])
        await gateway.emit(
            "system/error", {"error": "unauthorized"}, sender="mallory", to=["me"], about=about
        )
        await gateway.emit("system/error", {"error": "unauthorized"}, to=["somebody"], about=about)
        await gateway.emit("stream/open", {"stream_id": "s"}, sender="mallory")
        await gateway.emit(
            "space/invite-ack", {"status": "x", "participant_id": "y"}, sender="mallory", about=about
        )
        for broken in (
            b"\xff\xfe",
            b"[]",
            b"{",
            b'{"kind":"chat"}',
            b'{"a":1,"a":2}',
            b"",
            b"#no-end",
            b"##",
        ):
            await gateway.send(broken)
        await gateway.send(
            '{"protocol":"mew/v0.3","id":"1","ts":"2026-01-01T00:00:00Z","from":"x","kind":"chat","payload":{}}'
        )
        await gateway.send('{"protocol":"mew/v0.4","id":"1","kind":"chat","payload":{"text":"no sender"}}')
        await gateway.send("[" * 100_000)
        await gateway.fence()
        assert not call.done()
        await gateway.emit("mcp/response", forged | {"result": {"real": True}}, sender="bob", about=about)
        assert await call == {"real": True}
        assert me.me == "me"
        assert me.violations.of("mallory") == {"unasked_answer": 1, "forged_sender": 4}
        assert me.violations.count("") >= 8
        assert me.state == "joined"
    assert "Traceback" not in caplog.text


async def test_forged_progress_withdrawals_and_acknowledgements(tmp_path: Path) -> None:
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=QUICK) as me:
        answer: list[Any] = []
        call = asyncio.create_task(me.request("bob", "x", progress=answer.append))
        request = await gateway.wait_for("mcp/request")
        about = [request["id"]]
        token = request["payload"]["params"]["_meta"]["progressToken"]
        body = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        await gateway.emit("mcp/request", body, sender="mallory", to=["me"], about=about)
        wrong = {"method": "notifications/progress", "params": {"progressToken": "other", "progress": 1}}
        await gateway.emit("mcp/request", wrong, sender="bob", to=["me"], about=about)
        odd = {"method": "notifications/progress", "params": {"progressToken": token, "progress": "half"}}
        await gateway.emit("mcp/request", odd, sender="bob", to=["me"], about=about)
        proposing = asyncio.create_task(me.propose("bob", "tools/call", {"name": "t"}))
        proposal = await gateway.wait_for("mcp/proposal")
        handle = await proposing
        await gateway.emit("mcp/withdraw", {}, sender="mallory", about=[proposal["id"]])
        changed = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "other"}}
        await gateway.emit("mcp/request", changed, sender="mallory", to=["bob"], about=[proposal["id"]])
        await gateway.fence()
        assert answer == []
        assert handle.state == "pending"
        assert me.violations.of("mallory") == {
            "unasked_answer": 1,
            "not_proposer": 1,
            "fulfilment_differs": 1,
        }
        call.cancel()


@pytest.mark.requirement("MEW-4.1-9", "MCPX-4.1-10")
async def test_what_only_the_gateway_says_can_not_be_sent(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        for dialect in ("mew", "mcpx"):
            alice = await gateway.join("alice", dialect=dialect)
            for kind in ("system/error", "system/anything", "stream/open", "space/invite-ack", "presence"):
                with pytest.raises(UsageError, match="reserved for the gateway"):
                    await alice.send(kind, {})
            assert alice.counts.sent == 0


async def test_mistakes_of_the_caller_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice")
        mistakes: list[tuple[str, dict[str, Any]]] = [
            ("", {}),
            ("x" * 300, {}),
            ("a\nb", {}),
            ("chat", {"payload": {"text": "x"}, "to": [""]}),
            ("chat", {"payload": {"text": "x"}, "about": ["x" * 300]}),
            ("chat", {"payload": {"text": "x"}, "context": "x" * 2000}),
            ("chat", {"payload": {"text": "x", "bad": object()}}),
            ("chat", {"payload": {"text": "x" * (1 << 20)}}),
            ("mcp/response", {"payload": {"id": 1, "result": {}}}),
            ("participant/forget", {"payload": {"direction": "up"}, "to": "bob"}),
        ]
        for kind, options in mistakes:
            with pytest.raises(UsageError):
                await alice.send(kind, **options)
        with pytest.raises(UsageError, match="notifications/"):
            await alice.notify("tools/list")
        assert alice.counts.sent == 0


@pytest.mark.requirement("MCPX-7-2")
def test_there_is_no_way_to_leave_the_checks_out() -> None:
    """MCPx 7: nobody turns them off, knowingly or not: no argument, limit or attribute of the SDK does."""
    import inspect

    from moot.participant import JoinedSpace, ParticipantLimits

    options = set(inspect.signature(connect).parameters)
    assert options == {
        "url",
        "space",
        "token",
        "name",
        "dialect",
        "participant",
        "limits",
        "controls",
        "echo",
        "hears",
        "tls",
        "transcript",
        "reconnect",
        "passive",
        "open_socket",
    }
    names = {*ParticipantLimits.__struct_fields__, *dir(JoinedSpace)}
    assert not {name for name in names if "strict" in name or "valid" in name or "check" in name}


# Fuzz: decodes, or is dropped; nothing else comes out of it.

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_words = ["method", "id", "params", "result", "error", "code", "message", "text", "direction", "stream_id"]
_payloads = st.dictionaries(st.sampled_from(_words) | st.text(max_size=8), _json, max_size=5)


@pytest.mark.requirement("MEW-4.3-7", "MEW-7.2-7")
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([*sorted(KINDS), "vendor/kind"]),
    _payloads,
    st.lists(st.text(min_size=1, max_size=4), max_size=2),
    st.sampled_from(["bob", "system:gateway"]),
)
def test_any_payload_is_let_in_or_dropped(kind: str, payload: Json, about: list[str], sender: str) -> None:
    violations = ViolationLog(max_senders=10, max_violations=10)
    validator = InboundValidator(CorrelationIndex(10), violations, lambda _: True)
    try:
        raw = json.dumps(
            {
                "protocol": "mew/v0.4",
                "id": "1",
                "ts": "2026-01-01T00:00:00Z",
                "from": sender,
                "kind": kind,
                "correlation_id": about,
                "payload": payload,
            }
        ).encode()
        envelope = MEW.decode(raw)
    except (UnicodeEncodeError, ValueError):
        return
    except Exception as fault:
        if type(fault).__name__ in ("InvalidJson", "InvalidEnvelope"):
            return
        raise
    assert (validator.check(envelope) is None) == (violations.total == 0)


@pytest.mark.requirement("MEW-4.3-7", "MEW-7.2-7")
async def test_thousands_of_broken_messages_do_not_bring_a_member_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Mutations of every kind of message, straight onto the socket; afterwards the member still works."""
    draw = random.Random(42)
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=QUICK) as me:
        me.server.use_handler(_answer)
        waiting = asyncio.create_task(me.request("bob", "x", timeout_seconds=60))
        request = await gateway.wait_for("mcp/request")
        for kind, (right, wrong) in SHAPES.items():
            for _ in range(20):
                payload = draw.choice([*right, *wrong])
                fields = {
                    "protocol": "mew/v0.4",
                    "id": f"f-{draw.random()}",
                    "ts": "2026-01-01T00:00:00Z",
                    "from": draw.choice(["bob", "me", "mallory", "system:gateway", "gateway"]),
                    "to": draw.choice([["me"], [], ["bob", "me"], "me", None]),
                    "kind": kind,
                    "correlation_id": draw.choice([[], ["x", "y"], "z", 5, None]),
                    "context": draw.choice([None, "a/b", "", 7]),
                    "payload": payload,
                }
                kept = {
                    name: value
                    for name, value in fields.items()
                    if value is not None and draw.random() > 0.03
                }
                if kind in ("system/welcome", "participant/shutdown", "participant/pause", "system/error"):
                    kept["from"] = "mallory" if kind.startswith("system") else kept.get("from", "x")
                    if kind.startswith("participant"):
                        kept["to"] = ["bob"]
                raw = json.dumps(kept).encode()
                if draw.random() < 0.2:
                    spot = draw.randrange(len(raw))
                    raw = raw[:spot] + bytes([draw.randrange(256)]) + raw[spot + 1 :]
                await gateway.send(raw)
        await gateway.fence()
        assert me.state == "joined"
        assert me.counts.received > 500
        assert me.counts.dropped > 200
        body = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {"fine": 1}}
        await gateway.emit("mcp/response", body, sender="bob", about=[request["id"]])
        assert await waiting == {"fine": 1}
    assert "Traceback" not in caplog.text


async def _answer(request: IncomingRequest) -> dict[str, Json]:
    return {"echo": request.method}


def _failing(misdeed: ProtocolViolation) -> None:
    raise ZeroDivisionError


def test_counts_are_bounded() -> None:
    violations = ViolationLog(max_senders=3, max_violations=2)
    for n in range(10):
        violations.report(ProtocolViolation(f"m{n}", "bad_payload", "x", "chat", str(n)))
    assert violations.total == 10
    assert len(violations.recent) == 2
    assert sorted(violations.senders()) == ["m7", "m8", "m9"]
