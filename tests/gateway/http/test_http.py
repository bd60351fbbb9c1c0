"""Posting and polling over HTTP (MEW 5.3, D-40)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    CALL,
    LocalGateway,
    SharedGateway,
    fields,
    participants,
    running_gateway,
    space_settings,
)

PEOPLE = participants(alice=["*"], bob=["chat"], carol=["chat", "space/invite"])


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("http"), {"lab": space_settings(PEOPLE)}, max_connections_per_address=0
    )
    yield shared_gateway
    shared_gateway.close()


async def now(gateway: LocalGateway, name: str = "bob") -> str:
    """Where this participant's past ends."""
    return str((await gateway.poll(name))["next"])


def texts(polled: Any) -> list[str]:
    chats = [each for each in polled["messages"] if each["kind"] == "chat"]
    return [each.get("payload", {}).get("text", "") for each in chats]


# Posting


@pytest.mark.requirement("MEW-5.3-1", "MEW-5.3-3", "MEW-5.3-4")
async def test_kind_and_payload_suffice_and_the_answer_says_id_time_and_accepted(
    shared_gateway: SharedGateway,
) -> None:
    alice = await shared_gateway.gateway.join("alice")
    answer = await shared_gateway.gateway.post("bob", {"kind": "chat", "payload": {"text": "posted"}})
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"id", "status", "timestamp"}
    assert body["status"] == "accepted"
    received = await alice.hear("chat")
    assert (received["id"], received["ts"], received["from"]) == (body["id"], body["timestamp"], "bob")
    assert received["protocol"] == "mew/v0.4"
    # Nobody came or went for that.
    assert [each["kind"] for each in await alice.fence()] == []


@pytest.mark.requirement("MEW-5.3-2")
async def test_an_unauthorised_post_is_403_and_delivers_nothing(shared_gateway: SharedGateway) -> None:
    alice = await shared_gateway.gateway.join("alice")
    answer = await shared_gateway.gateway.post("bob", fields("mcp/request", CALL, to=["alice"]))
    assert (answer.status_code, answer.json()["error"]) == (403, "capability_violation")
    assert answer.json()["your_capabilities"] == [{"kind": "chat"}]
    assert await alice.fence() == []


@pytest.mark.parametrize(
    ("where", "headers", "status"),
    [
        ("/participants/bob/messages", {}, 401),
        ("/participants/bob/messages", {"Authorization": "Basic t-bob"}, 401),
        ("/participants/bob/messages", {"Authorization": "Bearer wrong"}, 403),
        ("/participants/bob/messages", {"Authorization": "Bearer t-alice"}, 403),
        ("/participants/nobody/messages", {"Authorization": "Bearer t-bob"}, 403),
        ("/participants/bob/messages?space=nowhere", {"Authorization": "Bearer t-bob"}, 404),
    ],
)
async def test_wrong_callers_are_told_so_and_nothing_is_delivered(
    shared_gateway: SharedGateway, where: str, headers: dict[str, str], status: int
) -> None:
    alice = await shared_gateway.gateway.join("alice")
    posted = await shared_gateway.gateway.http.post(where, json={"kind": "chat"}, headers=headers)
    polled = await shared_gateway.gateway.http.get(where, headers=headers)
    assert posted.status_code == polled.status_code == status
    assert posted.json()["message"]
    assert ("www-authenticate" in posted.headers) == (status == 401)
    assert await alice.fence() == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_only_json_is_taken(shared_gateway: SharedGateway, kind: str) -> None:
    """D-84: what a form of another page can send without asking is refused."""
    for where, token in (
        ("/participants/alice/messages", "t-alice"),
        ("/admin/participants/bob/capabilities", "t-root"),
    ):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        answer = await shared_gateway.gateway.http.post(where, content=b'{"kind":"chat"}', headers=headers)
        assert answer.status_code == 415, where


async def test_json_with_a_charset_is_json(shared_gateway: SharedGateway) -> None:
    headers = {"Authorization": "Bearer t-bob", "Content-Type": "Application/JSON; charset=utf-8"}
    where = "/participants/bob/messages"
    answer = await shared_gateway.gateway.http.post(where, content=b'{"kind":"chat"}', headers=headers)
    assert answer.status_code == 200


async def test_a_body_that_is_too_large_is_413_with_and_without_a_length(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": {"max_bytes": 9_500}}) as gateway:
        body = b'{"kind":"chat","payload":{"text":"%b"}}' % (b"x" * 20_000)

        async def chunks() -> Any:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        headers = {"Authorization": "Bearer t-bob", "Content-Type": "application/json"}
        for content in (body, chunks()):
            answer = await gateway.http.post("/participants/bob/messages", content=content, headers=headers)
            assert answer.status_code == 413
        ok = await gateway.post("bob", {"kind": "chat", "payload": {"text": "x" * 9_000}})
        assert ok.status_code == 200


async def test_the_body_s_protocol_chooses_the_dialect_however_it_is_escaped(
    shared_gateway: SharedGateway,
) -> None:
    alice = await shared_gateway.gateway.join("alice")
    for number, text in enumerate((b'"mcpx/v0.1"', b'"mcpx\\/v0.1"', b'"\\u006dcpx/v0.1"')):
        raw = b'{"protocol":%b,"kind":"chat","id":"esc-%d","payload":{}}' % (text, number)
        answer = await shared_gateway.gateway.post("bob", raw)
        assert answer.status_code == 200, answer.text
        assert (await alice.hear("chat"))["x_origin"]["protocol"] == "mcpx/v0.1"
    answer = await shared_gateway.gateway.post("bob", {"kind": "chat"}, dialect="latin")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_envelope")


async def test_posts_at_once_all_arrive_once_and_in_one_order_for_everybody(
    shared_gateway: SharedGateway,
) -> None:
    alice, bob = await shared_gateway.gateway.join("alice"), await shared_gateway.gateway.join("bob")
    await alice.fence()
    answers = await asyncio.gather(*(shared_gateway.gateway.post("carol", fields("chat")) for _ in range(80)))
    ids = {answer.json()["id"] for answer in answers}
    assert {answer.status_code for answer in answers} == {200}
    received = [
        [each["id"] for each in await client.fence() if each["kind"] == "chat"] for client in (alice, bob)
    ]
    assert received[0] == received[1]
    assert sorted(received[0]) == sorted(ids)


# Polling


@pytest.mark.requirement("MEW-5.3-6", "MEW-5.3-7")
async def test_polling_gives_what_came_since_as_whole_as_the_socket_s_copies(
    shared_gateway: SharedGateway,
) -> None:
    alice, bob = await shared_gateway.gateway.join("alice"), await shared_gateway.gateway.join("bob")
    await bob.fence()
    since = await now(shared_gateway.gateway)
    await alice.say(
        "chat", {"text": "one", "unknown": [1, {"a": None}]}, to=["carol"], x_extra={"kept": True}
    )
    await alice.ask("chat", {"text": "two"}, about=["e-0"], context="a/b")
    received = [each for each in await bob.fence() if each["kind"] == "chat"]
    polled = await shared_gateway.gateway.poll("bob", since=since)
    assert [each for each in polled["messages"] if each["kind"] == "chat"] == received
    assert len(received) == 2


async def test_next_leads_on_without_a_gap_or_a_repeat(shared_gateway: SharedGateway) -> None:
    alice = await shared_gateway.gateway.join("alice")
    next = await now(shared_gateway.gateway)
    found: list[str] = []
    for number in range(40):
        await alice.ask("chat", {"text": str(number)})
        polled = await shared_gateway.gateway.poll("bob", since=next)
        found += texts(polled)
        next = polled["next"]
        again = await shared_gateway.gateway.poll("bob", since=next)
        assert again == {"messages": [], "next": next}
    assert found == [str(number) for number in range(40)]


async def test_since_is_a_timestamp_too_and_strict(shared_gateway: SharedGateway) -> None:
    alice = await shared_gateway.gateway.join("alice")
    await alice.ask("chat", {"text": "early"})
    await asyncio.sleep(0.01)
    middle = (await alice.ask("chat", {"text": "middle"}))["ts"]
    await asyncio.sleep(0.01)
    await alice.ask("chat", {"text": "late"})
    polled = texts(await shared_gateway.gateway.poll("bob", since=middle))
    assert polled in (["middle", "late"], ["late"])
    with_zone = middle.replace("Z", "+00:00")
    assert texts(await shared_gateway.gateway.poll("bob", since=with_zone)) == polled
    assert "early" in texts(await shared_gateway.gateway.poll("bob", since="0"))


@pytest.mark.parametrize("since", ["yesterday", "nan", "inf", "-inf", "1e999", "0x10", "2026-13-01", "[]"])
async def test_a_since_that_is_no_moment_is_400(shared_gateway: SharedGateway, since: str) -> None:
    headers = {"Authorization": "Bearer t-bob"}
    where = "/participants/bob/messages"
    answer = await shared_gateway.gateway.http.get(where, params={"since": since}, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.requirement("MEW-5.3-8")
async def test_polling_leaves_out_what_others_alone_were_told(shared_gateway: SharedGateway) -> None:
    """Welcome, error and invite-ack go to whom they are for, and their token to nobody else."""
    since = await now(shared_gateway.gateway)
    carol = await shared_gateway.gateway.join("carol")
    await carol.refused("mcp/request", CALL)
    ack = await carol.ask("space/invite", {"participant_id": "guest-of-carol"})
    polled = await shared_gateway.gateway.poll("bob", since=since)
    assert {each["kind"] for each in polled["messages"]} <= {"system/presence", "chat"}
    assert ack["payload"]["token"] not in str(polled)
    own = await shared_gateway.gateway.poll("carol", since=since)
    # Told once, to the socket that asked: not again to whoever polls with the inviter's token later.
    assert ack["payload"]["token"] not in str(own)
    (polled_ack,) = [each for each in own["messages"] if each["kind"] == "space/invite-ack"]
    assert polled_ack["id"] == ack["id"]
    assert polled_ack["payload"] == {name: value for name, value in ack["payload"].items() if name != "token"}
    assert {"system/welcome", "system/error", "space/invite-ack"} <= {
        each["kind"] for each in own["messages"]
    }


@pytest.mark.parametrize(
    "query", ["", "&echo=0", "&hears=mine", "&dialect=mcpx&routing=directed", "&dialect=m3p"]
)
async def test_who_only_polls_hears_what_a_socket_would_hear(
    shared_gateway: SharedGateway, query: str
) -> None:
    """Whatever the options of those who are connected, and whoever is addressed; presence included."""
    since = await now(shared_gateway.gateway)
    carol = await shared_gateway.gateway.join("carol")
    alice = await shared_gateway.gateway.join("alice", query)
    dotted = "m3p" in query
    await alice.say("chat.message" if dotted else "chat", {"text": "to all"})
    await alice.say("chat.message" if dotted else "chat", {"text": "to carol"}, to=["carol"])
    await alice.fence()
    await carol.fence()
    polled = await shared_gateway.gateway.poll("bob", since=since)
    assert texts(polled) == ["to all", "to carol"]
    joined = [each["payload"]["participant"]["id"] for each in polled["messages"] if each["kind"] != "chat"]
    assert joined == ["carol", "alice"]


async def test_polling_speaks_the_dialect_that_is_asked_for(shared_gateway: SharedGateway) -> None:
    since = await now(shared_gateway.gateway)
    alice = await shared_gateway.gateway.join("alice")
    await alice.ask("mcp/request", CALL, id="dialect-1", to=["bob"])
    for dialect, kind in (
        ("mew", "mcp/request"),
        ("mcpx", "mcp/request:tools/call:read_file"),
        ("m3p", "mcp.request.tools/call:read_file"),
    ):
        polled = await shared_gateway.gateway.poll("bob", since=since, dialect=dialect)
        assert kind in [each["kind"] for each in polled["messages"]]


async def test_who_reads_more_than_it_may_send_is_told_when_to_come_again(tmp_path: Path) -> None:
    """Each answer is made anew, up to megabytes: asked for in a loop, it would keep the loop from others."""
    rules: Json = {"limits": {"bytes_per_second": 100}}
    people = participants(alice=["chat"], bob=["chat"])
    async with running_gateway(tmp_path, people, rules=rules) as gateway:
        answer = {"kind": "chat", "payload": {"text": "x" * 50_000}}
        assert (await gateway.post("alice", answer)).status_code == 200
        assert (await gateway.poll("bob"))["messages"]
        headers = {"Authorization": "Bearer t-bob"}
        for path in ("/participants/bob/messages", "/spaces/lab/proposals", "/participants/bob/roster"):
            refused = await gateway.http.get(path, headers=headers)
            assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited"), path
            assert refused.json()["limit"] == "bytes_per_second"
            assert int(refused.headers["Retry-After"]) >= 1
        # Everybody has their own rate, and what was sent is counted apart.
        assert (await gateway.poll("alice"))["messages"]
        assert (await gateway.post("bob", {"kind": "chat", "payload": {"text": "hi"}})).status_code == 200


async def test_nobody_polls_for_what_was_said_before_or_without_them(tmp_path: Path) -> None:
    """D-40: member at the time; an invitee, and somebody who was removed and is back."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "before zoe"})
        ack = await alice.ask("space/invite", {"participant_id": "zoe"})
        await alice.ask("chat", {"text": "with zoe"})
        await alice.ask("space/kick", {"participant_id": "carol"})
        await alice.ask("chat", {"text": "behind carol's back"})
        gone = await gateway.http.get(
            "/participants/carol/messages", headers={"Authorization": "Bearer t-carol"}
        )
        assert gone.status_code == 403
        restored = (await gateway.admin("POST", "participants/carol/restore")).json()["token"]
        await alice.ask("chat", {"text": "carol is back"})
        for name, token, expected in (
            ("zoe", ack["payload"]["token"], ["with zoe", "behind carol's back", "carol is back"]),
            ("carol", restored, ["carol is back"]),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            for since in ("", "0", "2020-01-01T00:00:00Z"):
                where = f"/participants/{name}/messages"
                polled = await gateway.http.get(where, params={"since": since}, headers=headers)
                assert texts(polled.json()) == expected


async def test_the_past_is_bounded_in_messages_and_bytes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, poll_messages=20, poll_bytes=5_000) as gateway:
        alice = await gateway.join("alice")
        for number in range(50):
            await alice.ask("chat", {"text": str(number)})
        assert texts(await gateway.poll("bob")) == [str(number) for number in range(30, 50)]
        for number in range(50):
            await alice.ask("chat", {"text": str(number) + " " * 1000})
        kept = texts(await gateway.poll("bob"))
        assert 1 <= len(kept) <= 5
        assert kept[-1].strip() == "49"


@pytest.mark.requirement("MEW-6.2-4")
async def test_posting_polling_metrics_and_admin_can_be_turned_off(tmp_path: Path) -> None:
    off: Json = {"inject": False, "poll": False, "metrics": False, "admin": False}
    async with running_gateway(tmp_path, PEOPLE, http=off) as gateway:
        alice = await gateway.join("alice")
        assert (await gateway.post("bob", {"kind": "chat"})).status_code in (404, 405)
        headers = {"Authorization": "Bearer t-bob"}
        polled = await gateway.http.get("/participants/bob/messages", headers=headers)
        assert polled.status_code in (404, 405)
        assert (await gateway.http.get("/metrics")).status_code == 404
        assert (await gateway.admin("GET", "connections")).status_code in (403, 404)
        assert (await gateway.http.get("/health")).status_code == 200
        assert await alice.fence() == []
        # And the document says what is there.
        paths = (await gateway.http.get("/openapi.json")).json()["paths"]
        assert "/metrics" not in paths
        assert "/participants/{id}/messages" not in paths
        assert not [path for path in paths if path.startswith("/admin")]


@pytest.mark.parametrize("by_http", [False, True])
async def test_the_token_of_an_invite_is_told_once_and_kept_nowhere(tmp_path: Path, by_http: bool) -> None:
    """Not in a poll, in any dialect; not in the journal, the snapshots or a file that records a space."""
    invite = {"participant_id": "zoe"}
    people = participants(alice=["*"]) | {"log": {"output_log": "space.log"}}
    async with running_gateway(tmp_path, people, snapshot_records=1) as gateway:
        alice = await gateway.join("alice")
        if by_http:
            answer = await gateway.post("alice", {"id": "i-1", "kind": "space/invite", "payload": invite})
            token = answer.json()["token"]
            again = await gateway.post("alice", {"id": "i-2", "kind": "space/invite", "payload": invite})
            assert again.status_code == 409
            assert token not in again.text
        else:
            token = (await alice.ask("space/invite", invite))["payload"]["token"]
            assert token not in str(await alice.ask("space/invite", invite))
        zoe = await gateway.open("/ws?space=lab", token=token)
        await zoe.hear("system/welcome")
        for dialect in ("mew", "mcpx", "m3p"):
            assert token not in str(await gateway.poll("alice", dialect=dialect))
        received = [message["kind"] for message in alice.received if token in str(message)]
        assert received == ([] if by_http else ["space/invite-ack"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path for path in files if token.encode() in path.read_bytes()] == []
