"""What strangers, guests and holders of a wrong token try at a gateway: they get nothing, and cost little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from moot.gateway import gateway_metrics
from moot.gateway.gateway_metrics import GatewayMeasures
from moot.metrics import MetricTable
from moot.space.config import Name
from moot.space.members.lookalikes import find_lookalike
from moot.space.space import Space
from tests.gateway.running_gateway import (
    CALL,
    ROOT,
    SharedGateway,
    fields,
    participants,
    running_gateway,
    space_settings,
)
from tests.rows import for_each_row

PEOPLE: Final = participants(alice=["*"], bob=["chat"], carol=["chat", "mcp/proposal"])
# What members read with their token, and what administrators do with theirs.
READ: Final = [
    ("GET", "/participants/alice/messages?space=lab"),
    ("HEAD", "/participants/alice/messages?space=lab"),
    ("GET", "/participants/guest-1/messages?space=lab"),
    ("GET", "/participants/alice/roster?space=lab"),
    ("GET", "/spaces/lab/proposals"),
    ("GET", "/spaces/lab/proposals/x"),
    ("GET", "/spaces/lab/history"),
    ("GET", "/spaces"),
    ("GET", "/push-subscriptions"),
    ("POST", "/participants/alice/tokens?space=lab"),
    ("POST", "/sign-in-links"),
]
ADMINISTRATION: Final = [
    ("GET", "/admin/connections"),
    ("GET", "/admin/cluster"),
    ("POST", "/admin/cluster/shards/1"),
    ("DELETE", "/admin/cluster/shards/1"),
    ("POST", "/admin/participants/bob/token?space=lab"),
    ("POST", "/admin/participants/bob/tokens?space=lab"),
    ("POST", "/admin/participants/bob/restore?space=lab"),
    ("POST", "/admin/participants/bob/capabilities?space=lab"),
]
CREDENTIALS: Final = [
    None,
    "Bearer",
    "Basic dC1hbGljZTo=",
    "Bearer t-alice t-root",
    "Bearer T-ALICE",
    "Bearer t-alice\xa0",
]


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    spaces = {
        "lab": space_settings(PEOPLE, access="public", anonymous=["chat"]),
        "den": space_settings(participants(alice=["*"], dora=["chat"])),
    }
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("shared_gateway"), spaces, wrong_tokens_per_minute=0
    )
    yield shared_gateway
    shared_gateway.close()


async def test_no_credential_of_others_reads_or_administers_anything(shared_gateway: SharedGateway) -> None:
    async def send(method: str, where: str, given: str | None) -> httpx.Response:
        headers = [] if given is None else [(b"authorization", given.encode("latin-1"))]
        headers += [(b"content-type", b"application/json")] if method == "POST" else []
        return await shared_gateway.gateway.http.request(
            method, where, headers=headers, content=b"{}" if method == "POST" else None
        )

    attempts = [(*each, given) for each in READ + ADMINISTRATION for given in CREDENTIALS]
    # A member is no administrator, and an administrator no member.
    attempts += [(*each, "Bearer t-alice") for each in ADMINISTRATION]
    attempts += [(*each, f"Bearer {ROOT}") for each in READ]
    answers = await asyncio.gather(*(send(*each) for each in attempts))
    got_through = {
        attempt: answer.status_code
        for attempt, answer in zip(attempts, answers, strict=True)
        if answer.status_code not in (400, 401, 403)
    }
    assert not got_through
    assert len(attempts) > 100


@pytest.mark.parametrize("id", ["Alice", "ALICE", "aIice", "a1ice", "alice.", "al-ice", "alice:", "B0b"])
async def test_no_guest_takes_an_id_that_people_take_for_a_member_s(
    shared_gateway: SharedGateway, id: str
) -> None:
    guest = await shared_gateway.gateway.open("/ws")
    await guest.send({"type": "join", "space": "lab", "participant_id": id})
    refused = await guest.hear("system/error")
    assert refused["payload"]["error"] == "invalid_request"
    assert f"'{id}' looks like the participant" in refused["payload"]["message"]
    assert (await guest.closed())[0] == 1008


async def test_other_ids_of_guests_are_taken_and_members_call_themselves_what_nobody_else_is_called(
    shared_gateway: SharedGateway,
) -> None:
    guest = await shared_gateway.gateway.open("/ws")
    await guest.send({"type": "join", "space": "lab", "participant_id": "visitor"})
    assert (await guest.hear("system/welcome"))["payload"]["you"]["id"] == "visitor"
    other = await shared_gateway.gateway.open("/ws")
    await other.send({"type": "join", "space": "lab", "participant_id": "Visitor"})
    assert (await other.hear("system/error"))["payload"]["error"] == "invalid_request"
    bob = await shared_gateway.gateway.open("/ws")
    await bob.send({"type": "join", "space": "lab", "token": "t-bob", "participant_id": "bob:1"})
    assert (await bob.hear("system/welcome"))["payload"]["you"]["id"] == "bob:1"
    again = await shared_gateway.gateway.open("/ws")
    await again.send({"type": "join", "space": "lab", "token": "t-bob", "participant_id": "aIice"})
    assert (await again.hear("system/error"))["payload"]["error"] == "invalid_request"


async def test_nobody_is_invited_under_a_name_that_looks_like_a_member_s(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, participants(alice=["*"], bob=["space/*", "chat"])) as gateway:
        bob = await gateway.join("bob")
        ack = await bob.ask("space/invite", {"participant_id": "aIice", "initial_capabilities": []})
        assert ack["payload"]["status"] == "error"
        assert "'aIice' looks like the participant 'alice'" in ack["payload"]["message"]
        assert (await bob.ask("space/invite", {"participant_id": "alina"}))["payload"]["status"] == "created"


async def test_a_guest_whose_automatic_name_is_taken_gets_the_next_one(tmp_path: Path) -> None:
    people = participants(**{"guest-1": ["*"], "Guest2": ["*"]})
    lab = space_settings(people, access="public", anonymous=[{"kind": "chat"}])
    async with running_gateway(tmp_path, spaces={"lab": lab}) as gateway:
        names = []
        for _ in range(2):
            guest = await gateway.open("/ws")
            await guest.send({"type": "join", "space": "lab"})
            names.append((await guest.hear("system/welcome"))["payload"]["you"]["id"])
        assert names == ["guest-3", "guest-4"]


@for_each_row(
    "name, other",
    [
        ("alice", "Alice"),
        ("a1ice", "aiIce"),
        ("mia", "rnia"),
        ("wim", "vvim"),
        ("ro-bot", "r0b.ot"),
        ("ana", None),
        ("alice2", None),
        ("", None),
    ],
)
def test_names_that_look_alike_are_found(name: str, other: str | None) -> None:
    others = ["bob"] + ([other] if other is not None else ["Alice", "carol"])
    assert find_lookalike(name, others) == other


@pytest.mark.parametrize(
    ("kind", "payload", "to"),
    [
        ("mcp/request", CALL, ["bob"]),
        ("mcp/proposal", CALL, ["bob"]),
        ("space/invite", {"participant_id": "x"}, []),
        ("space/kick", {"participant_id": "bob"}, []),
        ("capability/grant", {"recipient": "guest-1", "capabilities": [{"kind": "*"}]}, []),
        ("participant/pause", {}, ["bob"]),
        ("stream/request", {"direction": "upload"}, []),
        ("system/join", {"token": "t-alice"}, []),
    ],
)
async def test_a_guest_does_nothing_but_what_guests_may(
    shared_gateway: SharedGateway, kind: str, payload: dict[str, object], to: list[str]
) -> None:
    guest = await shared_gateway.gateway.open("/ws")
    await guest.send({"type": "join", "space": "lab"})
    await guest.fence()
    assert await guest.refused(kind, payload, to=to) is not None


async def test_who_asks_for_headers_alone_reads_as_with_get_and_posts_nothing(
    shared_gateway: SharedGateway,
) -> None:
    headers = {"Authorization": "Bearer t-bob", "Content-Type": "application/json"}
    where = "/participants/bob/messages?space=lab"
    alice = await shared_gateway.gateway.join("alice")
    body = json.dumps(fields("chat", {"text": "by HEAD"}, id="by-head"))
    answer = await shared_gateway.gateway.http.request("HEAD", where, headers=headers, content=body)
    assert (answer.status_code, answer.content) == (200, b"")
    await alice.fence()
    assert "by-head" not in [each["id"] for each in alice.received]


async def test_of_many_who_invite_or_redeem_at_once_one_gets_the_token(shared_gateway: SharedGateway) -> None:
    gateway = shared_gateway.gateway
    invite = {"participant_id": "race", "initial_capabilities": [{"kind": "chat"}]}
    answers = await asyncio.gather(
        *(gateway.post("alice", fields("space/invite", invite), space="lab") for _ in range(20))
    )
    (token,) = [each.json()["token"] for each in answers if "token" in each.json()]
    made = await gateway.http.post("/sign-in-links", json={}, headers={"Authorization": f"Bearer {token}"})
    redeem = {"code": made.json()["code"]}
    answers = await asyncio.gather(
        *(gateway.http.post("/sign-in-links/redeem", json=redeem) for _ in range(20))
    )
    assert [each.json()["token"] for each in answers if each.status_code == 200] == [token]
    # Out with the kick, also when the same name is invited again.
    link = (
        await gateway.http.post("/sign-in-links", json={}, headers={"Authorization": f"Bearer {token}"})
    ).json()
    assert (await gateway.post("alice", fields("space/kick", invite), space="lab")).status_code == 200
    assert (await gateway.post("alice", fields("space/invite", invite), space="lab")).status_code == 200
    assert await gateway.status("/ws?space=lab", token=token) == 401
    answer = await gateway.http.post("/sign-in-links/redeem", json={"code": link["code"]})
    assert answer.status_code == 403


# What strangers may cost


async def test_a_wrong_token_is_looked_up_once_in_each_space_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was once for each pair of them: 50 ms of the loop with 200 spaces."""
    spaces = {f"s{number}": space_settings(participants(alice=["*"])) for number in range(12)}
    looked: list[str] = []
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        find = Space.find_token_owner

        def count(space: Space, token: str) -> Name | None:
            looked.append(space.state.config.name)
            return find(space, token)

        monkeypatch.setattr(Space, "find_token_owner", count)
        headers = {"Authorization": "Bearer nobody's"}
        for method, where in (("GET", "/spaces"), ("POST", "/sign-in-links")):
            looked.clear()
            answer = await gateway.http.request(method, where, headers=headers)
            assert (answer.status_code, sorted(looked)) == (401, sorted(spaces))
        headers = {"Authorization": "Bearer t-alice"}
        listed = (await gateway.http.get("/spaces", headers=headers)).json()["spaces"]
        assert {each["name"] for each in listed} == set(spaces)


def test_figures_that_take_long_to_write_down_are_given_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may ask for them: however often that is, it takes a twentieth of the loop's time at most."""
    # Figures of other tests are always fresh.
    monkeypatch.setattr(gateway_metrics, "_CHEAP_SECONDS", 0.005)
    now, cpu, cost = 100.0, 0.0, 0.004

    def cpu_clock() -> float:
        nonlocal cpu
        cpu += cost
        return cpu

    measures = GatewayMeasures(clock=lambda: now, cpu_clock=cpu_clock)
    number = MetricTable().gauge("x", "A number.").of(measures.registry)

    def shown(value: int) -> bool:
        number.value = value
        return f"\nx {value}\n" in measures.exposition()

    assert shown(1)
    assert shown(2)
    cost = 0.05
    assert shown(3)
    now += 0.99
    assert not shown(4)
    now += 0.02
    assert shown(5)
