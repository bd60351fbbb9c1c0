"""There is one ladder (dialects.md section 7): whatever it says over WebSocket, it says over HTTP (D-40)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from moot.errors import Refused
from moot.gateway.http.http_replies import STATUS
from moot.protocol.operation import Json
from tests.gateway.disk import no_room_on_disk
from tests.gateway.running_gateway import (
    ALL_DIALECTS,
    CALL,
    Client,
    LocalGateway,
    SharedGateway,
    fields,
    healthy,
    participants,
    refusal_in,
    running_gateway,
    space_settings,
)

PEOPLE: Final = participants(
    alice=["*"],
    bob=["chat", "mcp/response", "stream/*", "mcp/withdraw", "space/invite"],
    agent=["chat", "mcp/proposal", "mcp/request", "capability/grant"],
    tool=[],
)
# Somebody who never comes.
AWAY: Final = participants(away=[])
PROPOSAL: Final = fields("mcp/proposal", CALL, id="p1")
OTHER_CALL: Final[Json] = {"method": "tools/call", "params": {"name": "delete_file"}}
DEEP: Final = b'{"id":"d1","kind":"chat","payload":' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}"

Setup = Callable[[Mapping[str, Client]], Awaitable[None]]


def sending(*envelopes: tuple[str, dict[str, Json]]) -> Setup:
    """Members who say something before; all of it is accepted."""

    async def setup(clients: Mapping[str, Client]) -> None:
        for name, envelope in envelopes:
            await clients[name].send(envelope)
            assert not any(refusal_in(message) for message in await clients[name].fence())

    return setup


async def nothing(clients: Mapping[str, Client]) -> None:
    """No setup."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What `sender` sends, and the one answer that it gets on both ways; None: accepted, 200."""

    rung: str
    sends: Json
    code: str | None = None
    status: int = 200
    sender: str = "agent"
    before: Setup = nothing
    dialect: str = "mew"
    rules: dict[str, Json] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return self.sends if isinstance(self.sends, bytes) else orjson.dumps(self.sends)


def case(rung: str, sends: Json, code: str | None = None, status: int = 200, **more: Any) -> Case:
    return Case(rung=rung, sends=sends, code=code, status=status, **more)


CHAT: Final = fields("chat", {"text": "hi"})
MISMATCH: Final[Json] = {
    "protocol": "mcpx/v0.1",
    "id": "m1",
    "kind": "mcp/request:tools/call:safe",
    "payload": {"method": "tools/call", "params": {"name": "danger"}},
}
DOTTED: Final[Json] = {"id": "m2", "kind": "mcp.request.tools/call:safe", "payload": MISMATCH["payload"]}
TWO_NEEDED: Final[dict[str, Json]] = {
    "quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}]
}
INVITE: Final[Json] = {"participant_id": "zoe"}
USED: Final = fields("chat", id="c1")
REQUEST: Final = fields("mcp/request", CALL, id="r1", to=["tool"])

CASES: Final = [
    # 1 decode
    case("not JSON", b'{"id":"x1","kind":"chat"', "invalid_json", 400),
    case("empty", b"", "invalid_json", 400),
    case("a key twice", b'{"id":"x2","kind":"chat","kind":"chat"}', "invalid_json", 400),
    case("too deep", DEEP, "invalid_json", 400),
    case("no number", b'{"id":"x3","kind":"chat","payload":{"n":NaN}}', "invalid_json", 400),
    case("half a character", b'{"id":"x4","kind":"chat","payload":{"t":"\\ud800"}}', "invalid_json", 400),
    case("no object", b"[1,2]", "invalid_envelope", 400),
    case("no kind", {"id": "x5", "payload": {}}, "invalid_envelope", 400),
    case("payload is a list", {"id": "x6", "kind": "chat", "payload": []}, "invalid_envelope", 400),
    case("to is a number", {"id": "x7", "kind": "chat", "to": 7}, "invalid_envelope", 400),
    case("id is empty", {"id": "", "kind": "chat"}, "invalid_envelope", 400),
    case("old version", CHAT | {"protocol": "mew/v0.3"}, "protocol_mismatch", 400),
    case("old spelling", {"id": "x8", "kind": "mcp/request:tools/call"}, "invalid_envelope", 400),
    # 2 rate: the fence that followed the join was the one message of this second
    case("too fast", CHAT, "rate_limited", 429, rules={"limits": {"messages_per_second": 0.05}}),
    # 3 identity
    case("somebody else's name", CHAT | {"from": "alice"}, "auth_violation", 403),
    # 4 shut down, paused
    case(
        "shut down",
        CHAT,
        "participant_shutdown",
        403,
        before=sending(("alice", fields("participant/shutdown", to=["agent"]))),
    ),
    case(
        "paused",
        CHAT,
        "participant_paused",
        403,
        before=sending(("alice", fields("participant/pause", to=["agent"]))),
    ),
    # 5 duplicate
    case("used id", fields("chat", id="c1"), "duplicate_id", 409, before=sending(("bob", USED))),
    # 6 reserved
    case("reserved system kind", fields("system/register"), "capability_violation", 400, sender="alice"),
    case("reserved stream kind", fields("stream/open"), "capability_violation", 403, sender="alice"),
    case("reserved ack", fields("space/invite-ack"), "capability_violation", 403, sender="alice"),
    # 7 agreement
    case("claims another tool", MISMATCH, "kind_payload_mismatch", 400, dialect="mcpx"),
    case("claims another tool, dotted", DOTTED, "kind_payload_mismatch", 400, dialect="m3p"),
    # 8 capability
    case("no capability", REQUEST, "capability_violation", 403, sender="tool"),
    # 9 who may answer
    case(
        "answers what another was asked",
        fields("mcp/response", {"result": {}}, to=["alice"], about=["r1"]),
        "unauthorized",
        403,
        sender="bob",
        before=sending(("alice", REQUEST)),
    ),
    case(
        "answers nothing",
        fields("mcp/response", {"result": {}}, to=["alice"], about=["never"]),
        "request_not_found",
        404,
        sender="bob",
    ),
    case(
        "answers twice",
        fields("mcp/response", {"result": {}}, to=["alice"], about=["r1"]),
        "already_answered",
        409,
        sender="bob",
        before=sending(
            ("alice", fields("mcp/request", CALL, id="r1")),
            ("bob", fields("mcp/response", {"result": {}}, about=["r1"])),
        ),
    ),
    # 10 ledger
    case(
        "approves for somebody unknown",
        fields("mcp/request", CALL, to=["nobody"], about=["p1"]),
        "target_not_found",
        404,
        before=sending(("agent", PROPOSAL)),
    ),
    case(
        "approves for somebody who is away",
        fields("mcp/request", CALL, to=["away"], about=["p1"]),
        "target_absent",
        409,
        before=sending(("agent", PROPOSAL)),
    ),
    case(
        "withdraws another's",
        fields("mcp/withdraw", about=["p1"]),
        "unauthorized",
        403,
        sender="bob",
        before=sending(("agent", PROPOSAL)),
    ),
    case(
        "fulfils twice",
        fields("mcp/request", CALL, about=["p1"]),
        "proposal_settled",
        409,
        before=sending(("agent", PROPOSAL), ("alice", fields("mcp/request", CALL, about=["p1"]))),
    ),
    case(
        "fulfils another call",
        fields("mcp/request", OTHER_CALL, about=["p1"]),
        "proposal_mismatch",
        409,
        before=sending(("agent", PROPOSAL)),
    ),
    case(
        "fulfils too early",
        fields("mcp/request", CALL, about=["p1"]),
        "approval_required",
        409,
        before=sending(("agent", PROPOSAL)),
        rules=TWO_NEEDED,
    ),
    # 11 shape
    case(
        "grants nothing",
        fields("capability/grant", {"recipient": "tool", "capabilities": []}),
        "invalid_request",
        400,
    ),
    case(
        "grants what it lacks",
        fields("capability/grant", {"recipient": "tool", "capabilities": [{"kind": "space/kick"}]}),
        "capability_violation",
        403,
    ),
    case(
        "kicks itself",
        fields("space/kick", {"participant_id": "alice"}),
        "invalid_operation",
        400,
        sender="alice",
    ),
    case(
        "kicks nobody",
        fields("space/kick", {"participant_id": "who"}),
        "participant_not_found",
        404,
        sender="alice",
    ),
    case("stream without direction", fields("stream/request"), "invalid_request", 400, sender="bob"),
    case(
        "stream to nobody",
        fields("stream/request", {"direction": "upload", "target": ["who"]}),
        "target_not_found",
        404,
        sender="bob",
    ),
    case(
        "closes no stream",
        fields("stream/close", {"stream_id": "stream-0"}),
        "stream_not_found",
        404,
        sender="bob",
    ),
    # 13 limits
    case("too many proposals", PROPOSAL, "resource_limit", 429, rules={"limits": {"max_open_proposals": 0}}),
    case(
        "beyond a budget",
        fields("mcp/request", CALL, to=["tool"]),
        "budget_exceeded",
        409,
        rules={"budgets": {"none": {"per": "day", "at_most": 0}}},
    ),
    case("a vote without a passkey", fields("moot/approve", {}, about=["p1"]), "passkey_required", 403,
         sender="alice", before=sending(("agent", PROPOSAL)), rules={"passkeys": {"required": [{}]}}),
    case("a vote with a passkey that is none", fields("moot/approve", {"passkey": 1}, about=["p1"]),
         "passkey_invalid", 403, sender="alice", before=sending(("agent", PROPOSAL)),
         rules={"passkeys": {"required": [{}]}}),
    # 14 accepted
    case("a chat", CHAT),
    case("a chat without an id", {"kind": "chat", "payload": {"text": "hi"}}),
    case("a request", fields("mcp/request", CALL, to=["tool"])),
    case("a proposal", PROPOSAL),
    case("a vendor's kind", fields("acme/thing", {"a": 1}), sender="alice"),
    case("an owed answer", fields("mcp/response", {"result": {}}, to=["alice"], about=["r1"]), sender="tool",
         before=sending(("alice", REQUEST))),
    case("a grant", fields("capability/grant", {"recipient": "tool", "capabilities": [{"kind": "chat"}]})),
    case("a stream", fields("stream/request", {"direction": "upload"}), sender="bob"),
    case("a kick", fields("space/kick", {"participant_id": "tool"}), sender="alice"),
    case("an MCPx chat", CHAT | {"protocol": "mcpx/v0.1"}, dialect="mcpx"),
    case("an m3p chat", {"id": "y2", "kind": "chat.message", "payload": {}}, dialect="m3p"),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    """Two spaces for each case, one for each way: nothing is left over from another."""
    spaces = {
        f"{way}-{number}": space_settings(PEOPLE | AWAY, **one.rules)
        for number, one in enumerate(CASES)
        for way in ("socket", "http")
    }
    shared_gateway = SharedGateway(tmp_path_factory.mktemp("ladder"), spaces, max_connections_per_address=0)
    yield shared_gateway
    shared_gateway.close()


async def prepared(gateway: LocalGateway, one: Case, space: str) -> dict[str, Client]:
    clients = {name: await gateway.join(name, space=space) for name in PEOPLE}
    if one.dialect != "mew":
        clients[one.sender] = await gateway.join(one.sender, f"&dialect={one.dialect}", space=space)
    await one.before(clients)
    return clients


async def over_socket(gateway: LocalGateway, one: Case, space: str) -> dict[str, Any]:
    client = (await prepared(gateway, one, space))[one.sender]
    await client.send(one.body.decode())
    answers = [message for message in await client.fence() if refusal_in(message)]
    assert len(answers) <= 1, answers
    return dict(answers[0]["payload"]) if answers else {}


async def over_http(gateway: LocalGateway, one: Case, space: str) -> dict[str, Any]:
    await prepared(gateway, one, space)
    params = {"space": space} | ({"dialect": "m3p"} if one.dialect == "m3p" else {})
    answer = await gateway.post(one.sender, one.body, **params)
    assert answer.status_code == one.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: dict[str, Any] = answer.json()
    if one.code == "rate_limited":
        assert int(answer.headers["retry-after"]) >= 1
    if one.status != 200:
        return body
    assert body.keys() >= {"id", "status", "timestamp"}
    return {}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[one.rung.replace(" ", "-") for one in CASES])
async def test_the_ladder_answers_the_same_on_both_ways(shared_gateway: SharedGateway, number: int) -> None:
    one = CASES[number]
    received = await over_socket(shared_gateway.gateway, one, f"socket-{number}")
    answered = await over_http(shared_gateway.gateway, one, f"http-{number}")
    assert received.get("error") == answered.get("error") == one.code
    if one.dialect == "mew":
        # Not only the word: the sentence, and whatever helps to do better.
        if one.code == "rate_limited":
            for answer in (received, answered):
                assert 0 < answer.pop("retry_after") <= 20
                answer.pop("message")
        assert received == answered


async def test_without_a_journal_both_ways_answer_unavailable(tmp_path: Path) -> None:
    """Step 12, D-85: while the disk takes nothing."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        with no_room_on_disk(gateway.journal()):
            await alice.say("chat", {"text": "the record that finds no room"})
            await healthy(gateway, "degraded")
            for kind, payload in (("mcp/request", CALL), ("mcp/proposal", CALL), ("space/invite", INVITE)):
                assert await alice.refused(kind, payload) == "unavailable"
                answer = await gateway.post("alice", fields(kind, payload))
                assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
            assert await alice.refused("chat", {"text": "goes on"}) is None


@pytest.mark.parametrize(
    ("invite", "status", "words"),
    [
        ({"participant_id": "zoe", "initial_capabilities": [{"kind": "chat"}]}, 200, "created"),
        ({"participant_id": "alice"}, 409, "already_exists"),
        ({"participant_id": "zoe", "initial_capabilities": [{"kind": "space/kick"}]}, 400, "error"),
    ],
)
async def test_an_invite_answers_the_same_on_both_ways(
    tmp_path: Path, invite: Json, status: int, words: str
) -> None:
    """MEW 3.6.6, D-40: over HTTP the result is the body; only the token is another one."""
    payloads = []
    for way in ("socket", "http"):
        (tmp_path / way).mkdir()
        async with running_gateway(
            tmp_path / way, PEOPLE, rules={"connection_url": "ws://x/{id}"}
        ) as gateway:
            if way == "socket":
                bob = await gateway.join("bob")
                answer = await bob.ask("space/invite", invite)
                assert answer["kind"] == "space/invite-ack"
                payload = answer["payload"]
            else:
                response = await gateway.post("bob", fields("space/invite", invite))
                assert response.status_code == status
                payload = response.json()
                assert payload.pop("id")
                assert payload.pop("timestamp")
        assert payload["status"] == words
        assert ("token" in payload) == (words == "created")
        payload.pop("token", None)
        payloads.append(payload)
    assert payloads[0] == payloads[1]


def test_every_word_of_the_ladder_is_provoked() -> None:
    """A word that is added to the ladder needs a case here."""
    frames_only = {"unauthorized_stream_write"}
    # Contracts of XProtocol are refused in words of their own, never on the ladder.
    ladder = {each for each in _subclasses(Refused) if each.__module__ == "moot.errors"}
    words = {each.code for each in ladder} - frames_only
    # Of a disk that fails: test_disk.py, test_failing_disk.py.
    assert words == {one.code for one in CASES if one.code} | {"unavailable", "outcome_unknown"}
    assert set(STATUS) <= words
    assert set(ALL_DIALECTS) == {one.dialect for one in CASES}


def _subclasses(of: type[Refused]) -> set[type[Refused]]:
    return {deeper for each in of.__subclasses__() for deeper in (each, *_subclasses(each))}
