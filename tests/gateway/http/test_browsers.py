"""Browsers: exact lists of Host and Origin, no cookies, and headers that keep pages apart (D-84)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.raw import raw_client, upgrade
from tests.gateway.running_gateway import (
    LocalGateway,
    SharedGateway,
    participants,
    running_gateway,
    space_settings,
)

PEOPLE = participants(alice=["*"], bob=["chat"])
CHAT = b'{"kind":"chat"}'


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("browsers"), {"lab": space_settings(PEOPLE)}, max_connections_per_address=0
    )
    yield shared_gateway
    shared_gateway.close()


async def upgrade_status(gateway: LocalGateway, headers: dict[str, str]) -> int:
    async with raw_client(gateway.port) as client:
        client.send(upgrade(gateway.port, "/ws?space=lab", {"Authorization": "Bearer t-alice"} | headers))
        return (await client.answer())[0]


async def http_statuses(gateway: LocalGateway, headers: dict[str, str]) -> set[int]:
    token = {"Authorization": "Bearer t-alice", "Content-Type": "application/json"} | headers
    admin = token | {"Authorization": "Bearer t-root"}
    return {
        (await gateway.http.get("/health", headers=headers)).status_code,
        (await gateway.http.get("/", headers=headers)).status_code,
        (await gateway.http.get("/metrics", headers=headers)).status_code,
        (await gateway.http.get("/spaces", headers=token)).status_code,
        (await gateway.http.get("/participants/alice/messages", headers=token)).status_code,
        (await gateway.http.post("/participants/alice/messages", content=CHAT, headers=token)).status_code,
        (await gateway.http.get("/admin/connections", headers=admin)).status_code,
    }


OTHER_HOSTS = [
    "evil.example",
    "evil.example:PORT",
    "127.0.0.1.evil.example:PORT",
    "localhost.:PORT",
    "10.1.2.3.:PORT",
    "10.1.2:PORT",
    "::2",
    "[10.1.2.3]:PORT",
]
OTHER_ADDRESSES = ["127.0.0.1:1", "10.1.2.3", "10.1.2.3:PORT", "[::2]:PORT", "[fe80::1]"]


@pytest.mark.parametrize("host", OTHER_HOSTS)
async def test_a_name_that_is_not_ours_is_not_answered(shared_gateway: SharedGateway, host: str) -> None:
    """DNS rebinding: the page's name leads to us, but it is not our name."""
    named = {"Host": host.replace("PORT", str(shared_gateway.gateway.port))}
    alice = await shared_gateway.gateway.join("alice")
    assert await http_statuses(shared_gateway.gateway, named) == {421}
    assert await upgrade_status(shared_gateway.gateway, named) == 421
    assert await alice.fence() == []


@pytest.mark.parametrize("host", OTHER_ADDRESSES)
async def test_an_address_that_is_not_ours_reads_health_and_figures_and_nothing_else(
    shared_gateway: SharedGateway, host: str
) -> None:
    """Monitoring asks by address; a page cannot, as rebinding takes a name."""
    named = {"Host": host.replace("PORT", str(shared_gateway.gateway.port))}
    assert await http_statuses(shared_gateway.gateway, named) == {200, 421}
    for where in ("/health", "/metrics"):
        assert (await shared_gateway.gateway.http.get(where, headers=named)).status_code == 200
        page = named | {"Origin": "https://evil.example"}
        assert (await shared_gateway.gateway.http.get(where, headers=page)).status_code == 403
    for where in ("/", "/status", "/openapi.json", "/spaces"):
        assert (await shared_gateway.gateway.http.get(where, headers=named)).status_code == 421
    assert await upgrade_status(shared_gateway.gateway, named) == 421


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "[::1]:PORT"])
async def test_the_loopback_names_are_ours(shared_gateway: SharedGateway, host: str) -> None:
    named = {"Host": host.replace("PORT", str(shared_gateway.gateway.port))}
    assert await http_statuses(shared_gateway.gateway, named) == {200}
    assert await upgrade_status(shared_gateway.gateway, named) == 101


ORIGINS = {
    "https://evil.example": 403,
    "null": 403,
    "http://127.0.0.1:1": 403,
    "https://127.0.0.1:PORT": 403,
    "http://127.0.0.1:PORT.evil.example": 403,
    "http://localhost:PORT@evil.example": 403,
    "": 403,
    "http://127.0.0.1:PORT": 200,
    "http://localhost:PORT": 200,
}


@pytest.mark.parametrize(("origin", "status"), ORIGINS.items())
async def test_pages_of_others_are_kept_out_even_with_a_good_token(
    shared_gateway: SharedGateway, origin: str, status: int
) -> None:
    """Cross-site WebSocket hijacking and request forgery; clients that are no browsers send no Origin."""
    headers = {"Origin": origin.replace("PORT", str(shared_gateway.gateway.port))}
    alice = await shared_gateway.gateway.join("bob")
    await alice.fence()
    assert await http_statuses(shared_gateway.gateway, headers) == {status}
    assert await upgrade_status(shared_gateway.gateway, headers) == (101 if status == 200 else 403)
    received = [each["kind"] for each in await alice.fence()]
    assert ("chat" in received) == (status == 200)


async def test_the_lists_can_be_set_and_are_exact(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path,
        PEOPLE,
        allowed_hosts=["moot.example", "127.0.0.1"],
        allowed_origins=["https://moot.example"],
    ) as gateway:
        for host, status in (
            ("moot.example", 101),
            (f"moot.example:{gateway.port}", 101),
            ("MOOT.example", 101),
            ("sub.moot.example", 421),
            ("localhost", 421),
        ):
            assert await upgrade_status(gateway, {"Host": host}) == status, host
        for origin, status in (
            ("https://moot.example", 101),
            ("http://moot.example", 403),
            ("https://moot.example.evil", 403),
            (f"http://127.0.0.1:{gateway.port}", 403),
        ):
            assert await upgrade_status(gateway, {"Origin": origin}) == status, origin


@pytest.mark.parametrize(
    "where",
    ["/", "/health", "/readyz", "/metrics", "/openapi.json", "/spaces", "/nope", "/admin/connections"],
)
async def test_every_answer_forbids_scripts_of_others_framing_sniffing_and_keeping(
    shared_gateway: SharedGateway, where: str
) -> None:
    for method in ("GET", "POST"):
        answer = await shared_gateway.gateway.http.request(method, where)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        # The console's own files may be kept, but are asked for anew each time.
        kept = "no-cache" if (method, where) == ("GET", "/") else "no-store"
        assert answer.headers["cache-control"] == kept
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


async def test_a_cookie_is_no_authority(shared_gateway: SharedGateway) -> None:
    cookies = {"Cookie": "token=t-alice; Authorization=Bearer t-alice; authorization=t-alice"}
    answer = await shared_gateway.gateway.http.get("/participants/alice/messages", headers=cookies)
    assert answer.status_code == 401


async def test_no_answer_holds_a_token_but_the_invite_s_and_the_restore_s(
    shared_gateway: SharedGateway,
) -> None:
    gateway = shared_gateway.gateway
    alice = await gateway.join("alice")
    invited = await gateway.post("alice", {"kind": "space/invite", "payload": {"participant_id": "zoe"}})
    token = invited.json()["token"]
    await alice.ask("chat", {"text": "hi"})
    headers = {"Authorization": "Bearer t-alice"}
    texts = [
        (await gateway.http.get("/participants/alice/messages", headers=headers)).text,
        (await gateway.http.get("/spaces", headers=headers)).text,
        (await gateway.post("alice", {"kind": "system/x"})).text,
        (await gateway.post("alice", b"{")).text,
        (await gateway.http.get("/spaces", headers={"Authorization": "Bearer wrong-token-value"})).text,
        (await gateway.admin("GET", "connections")).text,
        (await gateway.http.get("/metrics")).text,
        (await gateway.http.get("/health")).text,
        str(alice.received),
    ]
    for text in texts:
        for secret in (token, "t-alice", "t-bob", "t-root", "wrong-token-value"):
            assert secret not in text
