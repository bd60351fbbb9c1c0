"""Web Push: a browser is told what waits for its person, and the push service in between reads none of it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from moot.config.notification_config import PushConfig
from moot.errors import InvalidRequest
from moot.gateway.notifications.push.encryption import BrowserKeys, read_browser_keys, seal
from moot.gateway.notifications.push.subscription import check_endpoint
from moot.gateway.notifications.sender import NotificationSender
from moot.protocol.operation import Json
from tests.gateway.notifications.push_browser import PushBrowser, decoded, encoded
from tests.gateway.notifications.receivers import Receiver, receiver
from tests.gateway.notifications.test_notifications import PEOPLE, propose
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway, space_settings
from tests.gateway.sign_in.test_short_lived_tokens import mint
from tests.waiting import HANG_SECONDS, until

LOCAL: dict[str, Json] = {
    "allowed_hosts": ["127.0.0.1"],
    "allow_private_addresses": True,
    "after_seconds": 0,
}


def quick(**push: Json) -> dict[str, Json]:
    """Looks often, and tries again soon."""
    return {
        "push": LOCAL | push,
        "scan_seconds": 0.02,
        "retry_first_seconds": 0.02,
        "max_retry_seconds": 0.05,
    }


class Devices:
    """`/push-subscriptions` of a gateway, as a page of a participant uses it."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(
        self, method: str, path: str = "", *, who: str = "maria", body: Json = None
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer t-{who}"}
        return await self._http.request(method, f"/push-subscriptions{path}", headers=headers, json=body)

    async def key(self, who: str = "maria") -> str:
        answer = await self.ask("GET", who=who)
        assert answer.status_code == 200, answer.text
        key: str = answer.json()["key"]
        return key

    async def ids(self, who: str = "maria") -> list[str]:
        return [each["id"] for each in (await self.ask("GET", who=who)).json()["subscriptions"]]

    async def add(self, browser: PushBrowser, *, who: str = "maria", **more: Json) -> httpx.Response:
        return await self.ask("POST", who=who, body=browser.subscription | more)


@asynccontextmanager
async def devices_of(gateway: LocalGateway) -> AsyncIterator[Devices]:
    async with httpx.AsyncClient(base_url=gateway.gateway.url, trust_env=False, timeout=HANG_SECONDS) as http:
        yield Devices(http)


async def scanned(gateway: LocalGateway) -> None:
    """Every device has looked once more, from beginning to end."""
    for sender in list(gateway.gateway.notifier.devices.senders.values()):
        await until(partial(_has_scanned, sender, sender.scans + 2))


def _has_scanned(sender: NotificationSender, scans: int) -> bool:
    return sender.scans >= scans


def kept(gateway: LocalGateway) -> Any:
    return json.loads((gateway.gateway.config.data / "push" / "devices.json").read_bytes())


def reasons(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(str(record.__dict__.get("why", "")) for record in caplog.records)


def messages(service: Receiver, browser: PushBrowser, key: str) -> list[Any]:
    return [browser.read(each, key) for each in service.requests]


def test_the_example_of_the_standard_comes_out_to_the_byte() -> None:
    """RFC 8291, appendix A."""
    own = ec.derive_private_key(
        int.from_bytes(decoded("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big"), ec.SECP256R1()
    )
    browser = read_browser_keys(
        decoded("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
        decoded("BTBZMqHH6r4Tts7J_aSIgg"),
    )
    sealed = seal(
        b"When I grow up, I want to be a watermelon",
        browser,
        own_key=own,
        salt=decoded("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert encoded(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS"
        "6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_no_message_is_larger_than_services_take() -> None:
    own, browser = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    keys = BrowserKeys(browser.public_key(), bytes(16))
    assert len(seal(b"x" * 3_993, keys, own_key=own, salt=bytes(16))) == 4_096
    with pytest.raises(ValueError, match="3993"):
        seal(b"x" * 3_994, keys, own_key=own, salt=bytes(16))


async def test_a_device_is_told_who_proposes_what_where_and_nothing_secret(tmp_path: Path) -> None:
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        browser, key = PushBrowser(service.url), await devices.key()
        added = await devices.add(browser)
        assert (added.status_code, added.json()) == (201, {"id": browser.id})
        (first,) = messages(service, browser, key)
        assert first["title"] == "Notifications are on"
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        call: Json = {
            "method": "tools/call",
            "params": {"name": "write_file", "arguments": {"path": "s3cr3t-argument"}},
        }
        assert await agent.refused("mcp/proposal", call, id="p 1/2", to=["files"]) is None
        await service.has(2)
        answer = messages(service, browser, key)[1]
        assert answer["title"] == "agent proposes write_file on files (lab)"
        assert answer["path"] == "#/lab/approvals/p%201%2F2"
        assert set(answer) == {"title", "body", "path", "tag"}
        assert "s3cr3t-argument" not in json.dumps(answer)
        headers = service.requests[1].headers
        assert 86_000 < int(headers["ttl"]) <= 86_400
        assert headers["urgency"] == "high"
        assert 0 < len(headers["topic"]) <= 32
        for request in service.requests:
            assert b"write_file" not in request.body
            assert "t-maria" not in str(request)
        await scanned(gateway)
        assert len(service.requests) == 2
        assert gateway.gateway.notifier.outcomes["sent"] == 1


async def test_only_who_may_decide_it_is_told_and_not_before_time(tmp_path: Path) -> None:
    people = participants(maria=["*"], watcher=["chat"], agent=["mcp/proposal", "mcp/withdraw"])
    async with receiver(status=201) as hers, receiver(status=201) as watchers:
        settings = quick(after_seconds=30)
        async with (
            running_gateway(tmp_path, people, notifications=settings) as gateway,
            devices_of(gateway) as devices,
        ):
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            browser, key = PushBrowser(hers.url), await devices.key()
            assert (await devices.add(browser)).status_code == 201
            assert (await devices.add(PushBrowser(watchers.url), who="watcher")).status_code == 201
            agent = await gateway.join("agent")
            await propose(agent, "decided", to=())
            await propose(agent, "left", to=())
            assert await agent.refused("mcp/withdraw", about=["decided"]) is None
            host.journaled.clock = lambda: start + 29.9
            await scanned(gateway)
            assert len(hers.requests) == 1
            host.journaled.clock = lambda: start + 30
            await hers.has(2)
            await scanned(gateway)
            assert [each["path"] for each in messages(hers, browser, key)[1:]] == ["#/lab/approvals/left"]
            assert len(watchers.requests) == 1


async def test_quiet_hours_are_those_of_the_device(tmp_path: Path) -> None:
    """Both are told the same; one of them not now."""
    async with (
        receiver(status=201) as loud,
        receiver(status=201) as quiet,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        hour = time.gmtime().tm_hour
        hours: Json = {
            "from": f"{(hour - 1) % 24:02}:00",
            "to": f"{(hour + 2) % 24:02}:00",
            "time_zone": "UTC",
        }
        browser, key = PushBrowser(quiet.url), await devices.key()
        assert (await devices.add(PushBrowser(loud.url))).status_code == 201
        assert (await devices.add(browser, quiet_hours=hours)).status_code == 201
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        await propose(agent, "p1")
        await loud.has(2)
        await scanned(gateway)
        assert len(quiet.requests) == 1
        for sender in gateway.gateway.notifier.devices.senders.values():
            sender.clock = lambda: time.time() + 5 * 3_600
        await quiet.has(2)
        assert messages(quiet, browser, key)[1]["path"] == "#/lab/approvals/p1"


@pytest.mark.parametrize("status", [404, 410])
async def test_a_subscription_that_its_service_does_not_know_is_removed(tmp_path: Path, status: int) -> None:
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        assert (await devices.add(PushBrowser(service.url))).status_code == 201
        service.status = status
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        await propose(agent, "p1")
        await service.has(2)
        await until(lambda: not gateway.gateway.notifier.devices.senders)
        assert await devices.ids() == []
        await until(lambda: kept(gateway) == [])
        await until(lambda: not list((gateway.gateway.config.data / "notifications").glob("push-*")))


async def test_a_service_that_is_down_loses_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    async with receiver(status=201) as down, receiver(status=201) as up:
        settings = quick() | {"timeout_seconds": HANG_SECONDS}
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway,
            devices_of(gateway) as devices,
        ):
            browser, key = PushBrowser(down.url), await devices.key()
            assert (await devices.add(browser)).status_code == 201
            assert (await devices.add(PushBrowser(up.url))).status_code == 201
            down.status, down.headers = 503, {"Retry-After": "0"}
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            await propose(agent, "p1")
            await up.has(2)
            await down.has(3)
            # Not before: whoever answers late would be sent everything once more.
            for sender in gateway.gateway.notifier.devices.senders.values():
                poster = sender._channel._poster  # type: ignore[attr-defined]
                poster._client = replace(poster._client, timeout_seconds=0.2)
            await down.has(len(down.requests) + 2)
            down.hangs = True
            await down.has(len(down.requests) + 1)
            down.hangs, down.status = False, 201
            tried = len(down.requests)
            await down.has(tried + 1)
            await scanned(gateway)
            assert len(up.requests) == 2
            last = [browser.read(each, key) for each in down.requests[1:]]
            assert {each["tag"] for each in last} == {last[0]["tag"]}
            assert await devices.ids() == [browser.id, PushBrowser(up.url).id]


async def test_turning_off_and_signing_out_end_it_for_this_device_alone(tmp_path: Path) -> None:
    async with (
        receiver(status=201) as service,
        receiver(status=201) as other,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        browser, second = PushBrowser(service.url), PushBrowser(other.url)
        assert (await devices.add(browser)).status_code == 201
        assert (await devices.add(second)).status_code == 201
        # Nobody turns off what is another's.
        assert (await devices.ask("DELETE", f"/{browser.id}", who="ana")).status_code == 404
        assert (await devices.ask("DELETE", f"/{browser.id}")).status_code == 200
        assert (await devices.ask("DELETE", f"/{browser.id}")).status_code == 404
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        await propose(agent, "p1")
        await other.has(2)
        await scanned(gateway)
        assert len(service.requests) == 1
        assert await devices.ids() == [second.id]


async def test_a_token_that_is_replaced_takes_its_devices_with_it(tmp_path: Path) -> None:
    async with receiver(status=201) as service:
        settings: dict[str, Json] = {"notifications": quick(), "admin_tokens": {"root": {"token": "t-root"}}}
        async with running_gateway(tmp_path, PEOPLE, **settings) as gateway, devices_of(gateway) as devices:
            assert (await devices.add(PushBrowser(service.url))).status_code == 201
            await gateway.gateway.rotation.rotate(
                gateway.gateway.directory.hosts["lab"], "maria", "root", keep=False
            )
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            await propose(agent, "p1")
            await until(lambda: not gateway.gateway.notifier.devices.senders)
            assert len(service.requests) == 1
            assert (await devices.add(PushBrowser(service.url))).status_code == 401
            await until(lambda: kept(gateway) == [])


async def test_a_token_that_ends_by_itself_turns_nothing_on(tmp_path: Path) -> None:
    """It would be on for an hour, and its person would think that it still is."""
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
    ):
        short = (await mint(gateway, "maria", "t-maria", seconds=60)).json()["token"]
        headers = {"Authorization": f"Bearer {short}"}
        body = PushBrowser(service.url).subscription
        refused = await gateway.http.post("/push-subscriptions", json=body, headers=headers)
        assert refused.status_code == 403
        assert "ends by itself" in refused.json()["message"]
        listing = (await gateway.http.get("/push-subscriptions", headers=headers)).json()
        assert listing["subscriptions"] == []
        # Known before anybody is asked for a permission.
        assert "ends by itself" in listing["refused"]
        lasting = {"Authorization": "Bearer t-maria"}
        assert (await gateway.http.get("/push-subscriptions", headers=lasting)).json()["refused"] is None
        assert service.requests == []
        host = gateway.gateway.directory.hosts["lab"]
        late = host.journaled.clock() + 61
        host.journaled.clock = lambda: late
        assert (await gateway.http.get("/push-subscriptions", headers=headers)).status_code == 401


async def test_who_is_kicked_is_told_nothing_more(tmp_path: Path) -> None:
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        assert (await devices.add(PushBrowser(service.url), who="ana")).status_code == 201
        maria, agent, _ = (
            await gateway.join("maria"),
            await gateway.join("agent"),
            await gateway.join("files"),
        )
        assert await maria.refused("space/kick", {"participant_id": "ana"}) is None
        await propose(agent, "p1")
        await until(lambda: not gateway.gateway.notifier.devices.senders)
        assert len(service.requests) == 1


async def test_a_restart_goes_on_where_it_was_and_tells_nothing_twice(tmp_path: Path) -> None:
    async with receiver(status=201) as service:
        browser = PushBrowser(service.url)
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            key = await devices.key()
            assert (await devices.add(browser)).status_code == 201
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            await propose(agent, "p1")
            await service.has(2)
            folder = gateway.gateway.config.data
        for file in ("vapid.pem", "devices.json"):
            assert (folder / "push" / file).stat().st_mode & 0o777 == 0o600
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            assert await devices.key() == key
            await scanned(gateway)
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            await propose(agent, "p2")
            await service.has(3)
            paths = [each["path"] for each in messages(service, browser, key)[1:]]
            assert paths == ["#/lab/approvals/p1", "#/lab/approvals/p2"]


async def test_a_lost_key_ends_all_subscriptions_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiver(status=201) as service:
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            key = await devices.key()
            assert (await devices.add(PushBrowser(service.url))).status_code == 201
            file = gateway.gateway.config.data / "push" / "vapid.pem"
        file.unlink()
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            assert "people turn notifications on again" in caplog.text
            assert await devices.key() != key
            assert await devices.ids() == []
            assert len(service.requests) == 1


async def test_a_key_that_is_damaged_or_known_to_others_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        await devices.key()
        file = gateway.gateway.config.data / "push" / "vapid.pem"
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    async with (
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        answer = await devices.ask("GET")
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert "Put it back from a backup" in reasons(caplog)
        assert file.read_bytes() == whole[:40]
        file.write_bytes(whole)
        file.chmod(0o644)
        assert (await devices.ask("GET")).status_code == 503
        assert "chmod 600" in reasons(caplog)
        file.chmod(0o600)
        assert (await devices.ask("GET")).status_code == 200


async def test_what_no_service_took_is_not_called_on(tmp_path: Path) -> None:
    async with receiver(status=403) as service:
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            refused = await devices.add(PushBrowser(service.url))
            assert (refused.status_code, refused.json()["error"]) == (502, "push_failed")
            assert "status 403" in refused.json()["message"]
            service.status = 302
            service.headers = {"Location": service.url}
            assert "redirects are not followed" in (await devices.add(PushBrowser(service.url))).text
            service.status = 410
            assert "turn notifications on again" in (await devices.add(PushBrowser(service.url))).text
            assert len(service.requests) == 3
            assert await devices.ids() == []
        gone = service.url
    async with (
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        assert "cannot be reached" in (await devices.add(PushBrowser(gone))).text


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com.evil.example/x",
        "https://evilpush.apple.com.example/",
        "https://push.apple.com.evil.example/",
        "https://xpush.apple.com/x",
        "http://fcm.googleapis.com/x",
        "https://user@fcm.googleapis.com/x",
        "https://fcm.googleapis.com@evil.example/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://169.254.169.254/latest",
        "https://fcm.googleapis.com:0/x",
        "https://fcm.googleapis.com/x#y",
        "https://fcm.googleapis.com/x\r\nHost: evil",
        "https://fcm.googleapis.com/x y",
        "file:///etc/passwd",
        "https:///x",
        "",
        "https://fcm.googleapis.com/" + "x" * 1_000,
    ],
)
def test_endpoints_that_are_no_push_service_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidRequest):
        check_endpoint(endpoint, PushConfig())


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://fcm.googleapis.com/fcm/send/abc:def",
        "https://updates.push.services.mozilla.com/wpush/v2/abc",
        "https://wns2-par02p.notify.windows.com/w/?token=abc",
        "https://web.push.apple.com/abc",
    ],
)
def test_endpoints_of_the_vendors_are_taken(endpoint: str) -> None:
    check_endpoint(endpoint, PushConfig())


async def test_no_member_makes_the_gateway_connect_to_its_own_network(tmp_path: Path) -> None:
    """Although every host is allowed: names and numbers that lead inside are looked through first."""
    async with receiver(status=201) as inside:
        push: Json = {"allowed_hosts": ["*"]}
        settings: dict[str, Json] = {"notifications": {"push": push}}
        async with running_gateway(tmp_path, PEOPLE, **settings) as gateway, devices_of(gateway) as devices:
            for host in (
                "127.0.0.1",
                "localhost",
                "[::1]",
                "2130706433",
                "127.1",
                "[::ffff:127.0.0.1]",
                "0.0.0.0",  # noqa: S104
            ):
                answer = await devices.add(PushBrowser(f"https://{host}:{inside.port}/x"))
                assert answer.status_code in (400, 502), host
                assert "not public" in answer.text or "cannot be reached" in answer.text, answer.text
            assert inside.connections == 0
            answer = await devices.add(PushBrowser(f"http://127.0.0.1:{inside.port}/x"))
            assert answer.status_code == 400
            assert inside.connections == 0


@pytest.mark.usefixtures("no_refill")
async def test_devices_are_bounded_for_each_and_for_all(tmp_path: Path) -> None:
    async with receiver(status=201) as service:
        settings = quick(max_devices_per_participant=2, max_devices=3, max_subscribes_per_minute=4)
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway,
            devices_of(gateway) as devices,
        ):
            browsers = [PushBrowser(f"{service.url}/{number}") for number in range(4)]
            for browser in browsers[:3]:
                assert (await devices.add(browser)).status_code == 201
            assert await devices.ids() == [browser.id for browser in browsers[1:3]]
            # The same one again is no further one.
            assert (await devices.add(browsers[1])).status_code == 201
            assert len(await devices.ids()) == 2
            often = await devices.add(browsers[3])
            assert (often.status_code, "retry-after" in often.headers) == (429, True)
            assert (await devices.add(browsers[0], who="ana")).status_code == 201
            full = await devices.add(browsers[3], who="agent")
            assert (full.status_code, full.json()["limit"]) == (429, "max_devices")


async def test_on_one_device_the_last_who_signed_in_is_told(tmp_path: Path) -> None:
    """In each space: who left without signing out is not told there what is theirs."""
    spaces = {"lab": space_settings(PEOPLE), "attic": space_settings(participants(hermit=["*"]))}
    async with receiver(status=201) as service:
        settings: dict[str, Json] = {"notifications": quick()}
        async with (
            running_gateway(tmp_path, spaces=spaces, **settings) as gateway,
            devices_of(gateway) as devices,
        ):
            browser = PushBrowser(service.url)
            for who in ("maria", "hermit", "ana"):
                assert (await devices.add(browser, who=who)).status_code == 201
            assert await devices.ids("maria") == []
            assert await devices.ids("hermit") == await devices.ids("ana") == [browser.id]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"endpoint": 1},
        {"keys": {"p256dh": "AAAA", "auth": "AAAA"}},
        {"keys": None},
        {"quiet_hours": {"from": "22:00", "to": "22:00", "time_zone": "UTC"}},
        {"quiet_hours": {"from": "22:00", "to": "07:00", "time_zone": "../../etc/passwd"}},
        {"quiet_hours": {"from": "22:00", "to": "07:00", "time_zone": "Mars/Olympus"}},
        {"quiet_hours": {"from": "9", "to": "07:00", "time_zone": "UTC"}},
        {"quiet_hours": "at night"},
    ],
)
async def test_what_is_no_subscription_is_refused(tmp_path: Path, body: dict[str, Json]) -> None:
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
        devices_of(gateway) as devices,
    ):
        whole = PushBrowser(service.url).subscription if body else {}
        answer = await devices.ask("POST", body=whole | body)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert service.requests == []


async def test_strangers_and_where_it_is_turned_off(tmp_path: Path) -> None:
    async with receiver(status=201) as service:
        browser = PushBrowser(service.url)
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            assert (await devices.add(browser)).status_code == 201
            for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{browser.id}")):
                assert (await devices.ask(method, path, who="nobody")).status_code == 401
            large = browser.subscription | {"more": "x" * 5_000}
            assert (await devices.ask("POST", body=large)).status_code == 400
        settings = quick(enabled=False)
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway,
            devices_of(gateway) as devices,
        ):
            answer = await devices.ask("GET")
            assert (answer.status_code, answer.json()["message"]) == (
                404,
                "this gateway sends no push notifications",
            )
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            await propose(agent, "p1")
            assert gateway.gateway.notifier.devices.senders == {}
        assert len(service.requests) == 1
        # Off is not gone: whoever turns it on again finds the devices.
        async with (
            running_gateway(tmp_path, PEOPLE, notifications=quick()) as gateway,
            devices_of(gateway) as devices,
        ):
            assert await devices.ids() == [browser.id]
