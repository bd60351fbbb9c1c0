"""One-time links: a code that gives the token once, in time, and to nobody after it was revoked."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from moot.gateway.sign_in import sign_in_links
from moot.gateway.sign_in.sign_in_links import MAX_LINKS_PER_TOKEN, MemoryLinks, SignInLinks, qr_rows
from moot.protocol.operation import Json
from tests.gateway.disk import everything_under
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS

PEOPLE = participants(alice=["*"], bob=["chat"])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def links(clock: Clock) -> SignInLinks:
    return SignInLinks(clock, MemoryLinks())


async def test_a_code_works_once_and_in_time() -> None:
    clock = Clock()
    store = links(clock)
    code, late = await store.create("t"), await store.create("t")
    assert await store.redeem("another") is None
    clock.now = 599
    assert await store.redeem(code) == "t"
    assert await store.redeem(code) is None
    clock.now = 600
    assert await store.redeem(late) is None


async def test_of_too_many_links_the_oldest_are_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_links, "MAX_LINKS", 6)
    store = links(Clock())
    own = [await store.create("a") for _ in range(MAX_LINKS_PER_TOKEN + 1)]
    assert await store.redeem(own[0]) is None
    assert await store.redeem(own[1]) == "a"
    others = [await store.create(f"t{number}") for number in range(6)]
    assert await store.redeem(own[2]) is None
    assert [await store.redeem(code) for code in others] == [f"t{number}" for number in range(6)]


async def test_what_is_kept_of_a_link_tells_neither_code_nor_token() -> None:
    kept = MemoryLinks()
    store = SignInLinks(Clock(), kept)
    code = await store.create("t-alice")
    ((key, value),) = kept._links.items()
    assert code not in key
    assert not [secret for secret in (b"t-alice", code.encode()) if secret in value]


def test_a_qr_code_has_the_text() -> None:
    """A square with the three corners that readers look for; the browser's tests read one."""
    rows = qr_rows("http://127.0.0.1:8080/#sign-in=abc")
    assert {len(row) for row in rows} == {len(rows)}
    corner = ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"]
    assert [row[:7] for row in rows[:7]] == corner
    assert [row[-7:] for row in rows[:7]] == corner
    assert [row[:7] for row in rows[-7:]] == corner


async def post(gateway: LocalGateway, path: str, body: object, token: str | None = None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
        return await client.post(f"{gateway.url}/{path}", json=body, headers=headers)


async def test_over_http_a_code_gives_the_token_and_leaves_no_trace(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        page = f"{gateway.url}/"
        made = await post(gateway, "sign-in-links", {"page": page}, "t-alice")
        assert made.status_code == 201
        body = made.json()
        assert body["address"] == f"{page}#sign-in={body['code']}"
        assert body["valid_seconds"] == 600
        assert made.headers["cache-control"] == "no-store"
        redeemed = await post(gateway, "sign-in-links/redeem", {"code": body["code"]})
        assert redeemed.json() == {"token": "t-alice"}
        assert redeemed.headers["cache-control"] == "no-store"
        again = await post(gateway, "sign-in-links/redeem", {"code": body["code"]})
        assert again.status_code == 403
        assert "used already" in again.json()["message"]
    assert body["code"].encode() not in everything_under(tmp_path)


async def test_a_link_of_a_gateway_on_every_address_opens_on_this_machine(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, host="0.0.0.0") as server:  # noqa: S104  # what is tested
        page, _, code = (await server.gateway.make_sign_in_link("t-alice")).partition("/#sign-in=")
        assert page == f"http://127.0.0.1:{server.gateway.port}"
        async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
            redeemed = await client.post(f"{page}/sign-in-links/redeem", json={"code": code})
        assert redeemed.json() == {"token": "t-alice"}


async def test_a_link_of_a_gateway_behind_a_proxy_leads_to_the_proxy(tmp_path: Path) -> None:
    proxied: dict[str, Json] = {
        "public_url": "https://moot.example.org/team/",
        "allowed_hosts": ["moot.example.org"],
    }
    async with running_gateway(tmp_path, PEOPLE, **proxied) as server:
        link = await server.gateway.make_sign_in_link("t-alice")
        assert link.startswith("https://moot.example.org/team/#sign-in=")
        assert server.gateway.addresses.machine_url == server.gateway.url


@pytest.mark.parametrize(
    ("page", "opened"),
    [
        # What `moot open` knows, and what the page itself is opened at.
        ("http://127.0.0.1:8080/", "https://moot.example.org/team/"),
        ("https://Moot.example.org/other/", "https://Moot.example.org/other/"),
    ],
)
async def test_a_link_leads_to_a_page_that_is_answered(tmp_path: Path, page: str, opened: str) -> None:
    proxied: dict[str, Json] = {
        "public_url": "https://moot.example.org/team",
        "allowed_hosts": ["moot.example.org", "localhost"],
        "allowed_origins": ["https://moot.example.org"],
    }
    async with running_gateway(tmp_path, PEOPLE, **proxied) as server:
        body = (await post(server, "sign-in-links", {"page": page}, "t-alice")).json()
        assert body["address"] == f"{opened}#sign-in={body['code']}"


@pytest.mark.parametrize("token", [None, "t-nobody"])
async def test_strangers_get_no_link(tmp_path: Path, token: str | None) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        assert (await post(gateway, "sign-in-links", {}, token)).status_code == 401


@pytest.mark.parametrize(
    "page",
    [
        "ftp://x/",
        "http://[x/",
        "javascript:alert(1)",
        "http://x/?a",
        "http://x/#b",
        "/",
        7,
        "http://" + "x" * 300,
    ],
)
async def test_a_link_leads_to_a_page_only(tmp_path: Path, page: object) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        assert (await post(gateway, "sign-in-links", {"page": page}, "t-alice")).status_code == 400


@pytest.mark.usefixtures("no_refill")
async def test_links_are_made_at_a_rate_whichever_of_their_tokens_somebody_uses(tmp_path: Path) -> None:
    """Otherwise one member voids the links of all others: of too many, the oldest are void."""
    async with running_gateway(tmp_path, PEOPLE, sign_in_links_per_minute=3) as gateway:
        other = (await post(gateway, "participants/bob/tokens", {"seconds": 60}, "t-bob")).json()["token"]
        tokens = ["t-bob", "t-bob", other, other, "t-bob"]
        made = [await post(gateway, "sign-in-links", {}, token) for token in tokens]
        assert [each.status_code for each in made] == [201, 201, 201, 429, 429]
        assert 1 <= int(made[-1].headers["Retry-After"]) <= 20
        assert "3 a minute" in made[-1].json()["message"]
        assert (await post(gateway, "sign-in-links", {}, "t-alice")).status_code == 201


@pytest.mark.usefixtures("no_refill")
async def test_guessing_codes_is_limited_like_guessing_tokens(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, wrong_tokens_per_minute=3) as gateway:
        answers = [await post(gateway, "sign-in-links/redeem", {"code": f"x{n}"}) for n in range(5)]
        assert [answer.status_code for answer in answers] == [403, 403, 403, 429, 429]
        made = await post(gateway, "sign-in-links", {}, "t-alice")
        # The right one gets in, whatever others tried.
        redeemed = await post(gateway, "sign-in-links/redeem", {"code": made.json()["code"]})
        assert redeemed.status_code == 200


async def test_a_link_of_somebody_who_was_removed_meanwhile_opens_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        made = await post(gateway, "sign-in-links", {}, "t-bob")
        kick = {"kind": "space/kick", "payload": {"participant_id": "bob", "reason": "enough"}}
        kicked = await post(gateway, "participants/alice/messages?space=lab", kick, "t-alice")
        assert kicked.status_code == 200, kicked.text
        redeemed = await post(gateway, "sign-in-links/redeem", {"code": made.json()["code"]})
        assert redeemed.status_code == 403


async def test_what_strangers_send_is_read_up_to_a_kilobyte(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        answer = await post(gateway, "sign-in-links/redeem", {"code": "x" * 5_000})
        assert answer.status_code == 400
        assert "1024 bytes" in answer.json()["message"]
