"""Notifications on a device in a cluster: turned on and off at any gateway, told by the one that serves the
space, and by the next one without a repetition."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.js.kv import KeyValue

from moot.errors import Unavailable
from moot.gateway.cluster.nats import served_exchange
from moot.gateway.cluster.nats.shared_values import SharedValues
from moot.gateway.notifications.recipients import Subject
from moot.gateway.notifications.sender import (
    NotificationSender,
    SenderRules,
    decode_notified,
    encode_notified,
)
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_questions import divided
from tests.gateway.cluster.test_shards import LAB, node
from tests.gateway.notifications.push_browser import PushBrowser
from tests.gateway.notifications.receivers import Receiver, receiver
from tests.gateway.notifications.test_notifications import PEOPLE, propose
from tests.gateway.notifications.test_push_accounts import DECIDES, TOOLS, ask
from tests.gateway.notifications.test_web_push import Devices, devices_of, messages, quick
from tests.gateway.running_gateway import LocalGateway, space_settings
from tests.gateway.sign_in.oidc_provider import person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys
from tests.waiting import HANG_SECONDS, until

SPACES: dict[str, Json] = {"lab": space_settings(PEOPLE), "other": space_settings(PEOPLE)}


@pytest.fixture(autouse=True)
def _what_is_told_is_known_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def with_devices(
    start: StartGateway,
) -> AsyncIterator[tuple[LocalGateway, LocalGateway, Devices, Devices, Receiver]]:
    async with (
        receiver(status=201) as service,
        divided(start, notifications=quick(), spaces=SPACES) as (a, b),
        devices_of(a) as at_a,
        devices_of(b) as at_b,
    ):
        # No gateway serves all spaces.
        await node(b).leave(1)
        yield a, b, at_a, at_b, service


def senders(*gateways: LocalGateway) -> list[int]:
    return [len(each.gateway.notifier.devices.senders) for each in gateways]


async def looked(*gateways: LocalGateway) -> None:
    """Each device has looked once more at each gateway, from beginning to end."""
    for sender in [one for each in gateways for one in each.gateway.notifier.devices.senders.values()]:
        scans = sender.scans + 2
        await until(partial(lambda sender, scans: sender.scans >= scans, sender, scans))


def paths(service: Receiver, browser: PushBrowser, key: str) -> list[Any]:
    return [each["path"] for each in messages(service, browser, key)[1:]]


async def test_a_device_is_told_by_whoever_serves_the_space_and_nothing_twice(start: StartGateway) -> None:
    async with with_devices(start) as (a, b, at_a, at_b, service):
        browser, key = PushBrowser(service.url), await at_a.key()
        assert (await at_a.add(browser)).status_code == 201
        assert await at_b.ids() == [browser.id]
        agent, _ = await b.join("agent"), await b.join("files")
        await propose(agent, "at-b")
        await service.has(2)
        await looked(b)
        await node(a).serve(LAB)
        await node(b).leave(LAB)
        await until(lambda: bool(node(b).told_to_serve(LAB)))
        agent, _ = await a.join("agent"), await a.join("files")
        await propose(agent, "at-a")
        await service.has(3)
        await looked(a, b)
        told = [f"#/lab/approvals/{each}" for each in ("at-b", "at-a")]
        assert paths(service, browser, key) == told
        assert (await at_b.ask("DELETE", f"/{browser.id}")).status_code == 200
        assert await at_a.ids() == []
        await until(lambda: senders(a, b) == [0, 0])
        await propose(agent, "nobody's")
        assert len(service.requests) == 3


async def test_on_one_device_the_last_who_signed_in_is_told_wherever_that_was(start: StartGateway) -> None:
    async with with_devices(start) as (a, b, at_a, at_b, service):
        browser = PushBrowser(service.url)
        assert (await at_a.add(browser, who="ana")).status_code == 201
        assert (await at_b.add(browser, who="maria")).status_code == 201
        assert await at_a.ids(who="ana") == []
        await until(lambda: senders(a, b) == [1, 1])


async def test_a_device_ends_when_no_gateway_knows_its_owner(start: StartGateway) -> None:
    async with with_devices(start) as (a, b, at_a, _, service):
        assert (await at_a.add(PushBrowser(service.url), who="ana")).status_code == 201
        await until(lambda: senders(a, b) == [1, 1])
        in_other = await a.join("maria", space="other")
        assert await in_other.refused("space/kick", {"participant_id": "ana"}) is None
        await looked(a, b)
        assert senders(a, b) == [1, 1], "ana is in another space still"
        in_lab = await b.join("maria")
        assert await in_lab.refused("space/kick", {"participant_id": "ana"}) is None
        await until(lambda: senders(a, b) == [0, 0])
        assert len(service.requests) == 1


async def test_an_account_is_told_once_that_its_sign_in_has_ended_everywhere(start: StartGateway) -> None:
    spaces: dict[str, Json] = {"lab": space_settings(TOOLS), "other": space_settings(TOOLS)}
    async with running_provider() as provider, receiver(status=201) as service:
        rules = provider.rules(person(capabilities=DECIDES, spaces=["lab", "other"]))
        async with divided(start, oidc=rules, spaces=spaces, notifications=quick()) as (a, b):
            await until(lambda: has_keys(a) and has_keys(b))
            token = provider.token()
            await enter(b, token)
            browser, listing = PushBrowser(service.url), (await ask(a, "GET", token)).json()
            assert listing["refused"] is None
            assert (await ask(a, "POST", token, browser.subscription)).status_code == 201
            agent, _ = await b.join("agent"), await b.join("files")
            await propose(agent, "p1")
            await service.has(2)
            headers = {"Authorization": f"Bearer {token}"}
            assert (await a.http.post("/oidc/sign-out", headers=headers)).status_code == 200
            await until(lambda: senders(a, b) == [0, 0])
            await service.has(3)
            told = messages(service, browser, listing["key"])
            assert [each["title"] for each in told][::2] == [
                "Notifications are on",
                "Notifications have ended",
            ]
            assert len(told) == 3


async def test_a_device_that_one_gateway_had_alone_becomes_the_clusters(
    start: StartGateway, tmp_path: Path
) -> None:
    async with receiver(status=201) as service:
        more: dict[str, Json] = {"notifications": quick(), "spaces": SPACES}
        browser, file = PushBrowser(service.url), tmp_path / "a" / "data" / "push" / "devices.json"
        async with start("a", **more) as a, devices_of(a) as devices:
            assert (await devices.add(browser)).status_code == 201
            values = a.gateway.notifier.shared
            assert isinstance(values, SharedValues)
            kept = await values.read("push-devices")
            assert kept is not None
            assert json.loads(kept)[0]["endpoint"] == browser.endpoint
            # As an earlier version left it.
            await values.write("push-devices", b"[]")
        file.write_bytes(kept)
        async with start("a", **more) as a, start("b", **more) as b, devices_of(b) as devices:
            await until(lambda: senders(a, b) == [1, 1])
            assert not file.exists()
            assert (await devices.ask("DELETE", f"/{browser.id}")).status_code == 200
        async with start("a", **more) as a, devices_of(a) as devices:
            assert await devices.ids() == []


async def test_what_two_gateways_change_at_once_is_changed_by_both(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        values = [each.gateway.notifier.shared for each in (a, b)]

        def add(found: bytes | None) -> bytes:
            return (found or b"") + b"x"

        async with asyncio.TaskGroup() as group:
            for each in values * 3:
                assert each is not None
                group.create_task(each.change("count", add))
        assert values[0] is not None
        assert await values[0].read("count") == b"x" * 6
        with pytest.raises(Unavailable, match="not connected"):
            await SharedValues(node(a).config, lambda: None).change("count", add)


async def test_a_device_is_off_although_its_account_was_seen_again_meanwhile(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = SharedValues.change

    def see_again(found: bytes | None) -> bytes:
        devices = json.loads(found or b"")
        devices[0]["account"]["seen_at"] += 1
        return json.dumps(devices).encode()

    async def change_second(self: SharedValues, key: str, edit: Callable[[bytes | None], bytes]) -> bytes:
        await change(self, key, see_again)
        return await change(self, key, edit)

    async with running_provider() as provider, receiver(status=201) as service:
        rules = provider.rules(person(capabilities=DECIDES, spaces=["lab"]))
        async with start("a", oidc=rules, spaces={"lab": space_settings(TOOLS)}, notifications=quick()) as a:
            await until(lambda: has_keys(a))
            token, browser = provider.token(), PushBrowser(service.url)
            await enter(a, token)
            await ask(a, "GET", token)
            assert (await ask(a, "POST", token, browser.subscription)).status_code == 201
            monkeypatch.setattr(SharedValues, "change", change_second)
            headers = {"Authorization": f"Bearer {token}"}
            where = f"/push-subscriptions/{browser.id}"
            assert (await a.http.delete(where, headers=headers)).json()["removed"]
            monkeypatch.undo()
            assert (await ask(a, "GET", token)).json()["subscriptions"] == []
            assert (await a.http.delete(where, headers=headers)).status_code == 404


async def test_a_time_zone_that_a_gateway_does_not_know_keeps_no_device_from_being_told(
    start: StartGateway,
) -> None:
    async with with_devices(start) as (a, b, at_a, at_b, service):
        hours = {"from": "00:00", "to": "23:59", "time_zone": "UTC"}
        assert (await at_a.add(PushBrowser(service.url), quiet_hours=hours)).status_code == 201
        values = a.gateway.notifier.shared
        assert values is not None
        await values.change("push-devices", lambda found: (found or b"").replace(b"UTC", b"Mars/Olympus"))
        hers = PushBrowser(f"{service.url}/hers")
        assert (await at_b.add(hers, who="ana")).status_code == 201
        await until(lambda: senders(a, b) == [2, 2])
        agent, _ = await b.join("agent"), await b.join("files")
        await propose(agent, "p1")
        await service.has(4)


def sender_of(spaces: Mapping[str, Any], shared: Any, folder: Path) -> NotificationSender:
    recipient: Any = SimpleNamespace(owner="ana", participant_in=lambda _space: "ana")
    rules, channel, files = SenderRules(0, False, None), cast("Any", None), cast("Any", None)
    return NotificationSender(
        "ana", recipient, rules, channel, spaces,
        public_url=None, file=folder / "told", files=files, outcomes=Counter(), shared=shared,
    )  # fmt: skip


async def test_of_a_space_that_comes_while_it_is_read_what_was_told_nothing_is_told_yet(
    tmp_path: Path,
) -> None:
    """What the gateway that had it told meanwhile is not in what was read."""
    journal = SimpleNamespace(writable=True)
    spaces = {
        name: SimpleNamespace(journal=journal, order=SimpleNamespace(is_first=name == "lab"))
        for name in ("lab", "other")
    }

    class Shared:
        async def read(self, _key: str) -> None:
            spaces["other"].order.is_first = True

    sender = sender_of(spaces, Shared(), tmp_path)
    await sender._take_over()
    assert list(sender._readable_hosts()) == ["lab"]
    await sender._take_over()
    assert list(sender._readable_hosts()) == ["lab", "other"]


async def test_what_two_gateways_told_at_once_is_remembered_of_both(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_devices(start) as (a, b, at_a, _, service):
        assert (await at_a.add(PushBrowser(service.url))).status_code == 201
        await until(lambda: senders(a, b) == [1, 1])
        await looked(a, b)
        (sender,) = b.gateway.notifier.devices.senders.values()
        key, owner, values = sender._shared_key, sender._recipient.owner, b.gateway.notifier.shared
        written, get = asyncio.Event(), KeyValue.get

        async def get_before_it_is_written(self: KeyValue, name: str) -> KeyValue.Entry:
            try:
                return await get(self, name)
            finally:
                if name == key and not written.is_set():
                    written.set()
                    told = Subject("other", "proposal.pending", 1, "elsewhere")
                    await self.put(key, encode_notified(owner, [told]))

        monkeypatch.setattr(KeyValue, "get", get_before_it_is_written)
        agent, _ = await b.join("agent"), await b.join("files")
        await propose(agent, "here")
        await service.has(2)
        await written.wait()
        await looked(b)
        assert isinstance(values, SharedValues)
        kept = decode_notified(await values.read(key) or b"", owner)
        assert {each.space for each in kept} == {"lab", "other"}
