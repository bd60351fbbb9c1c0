"""Web Push for people who sign in with a provider: told while nobody is signed in, until that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.config.notification_config import PushConfig
from moot.gateway.notifications.push.device_owners import DeviceOwner, SignInEnded, seen_again
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.protocol.operation import Json
from tests.gateway.notifications.push_browser import PushBrowser
from tests.gateway.notifications.receivers import Receiver, receiver
from tests.gateway.notifications.test_notifications import propose
from tests.gateway.notifications.test_web_push import kept, messages, quick, scanned
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.oidc_provider import Provider, person
from tests.gateway.sign_in.test_passkeys import Browser
from tests.gateway.sign_in.test_sign_in import enter, signing_in
from tests.waiting import until

TOOLS = participants(agent=["mcp/proposal", "mcp/withdraw", "chat"], files=["mcp/response", "chat"])
DECIDES: list[Json] = ["mcp/request", "mcp/reject", "moot/approve", "chat"]
WEEK_SECONDS = 604_800.0


@asynccontextmanager
async def with_provider(
    folder: Path, **push: Json
) -> AsyncIterator[tuple[LocalGateway, Provider, Receiver, PushBrowser]]:
    async with (
        receiver(status=201) as service,
        signing_in(folder, person(capabilities=DECIDES), people=TOOLS, notifications=quick(**push)) as (
            gateway,
            provider,
        ),
    ):
        yield gateway, provider, service, PushBrowser(service.url)


async def ask(gateway: LocalGateway, method: str, token: str, body: Json = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return await gateway.http.request(method, "/push-subscriptions", headers=headers, json=body)


async def test_an_account_is_told_after_its_token_has_ended_and_not_after_a_sign_out(tmp_path: Path) -> None:
    async with with_provider(tmp_path) as (gateway, provider, service, browser):
        token = provider.token()
        ana = await enter(gateway, token)
        listing = (await ask(gateway, "GET", token)).json()
        assert (listing["refused"], listing["ends_after_seconds"]) == (None, WEEK_SECONDS)
        assert (await ask(gateway, "POST", token, browser.subscription)).status_code == 201
        await ana.leave()
        host = gateway.gateway.directory.hosts["lab"]
        # As after a restart: the provider's tokens are forgotten, and its people are not.
        host.space.state.temporary_tokens.remove(list(host.space.state.temporary_tokens.by_hash))
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        await propose(agent, "p1")
        await service.has(2)
        told = messages(service, browser, listing["key"])[1]
        assert told["path"] == "#/lab/approvals/p1"
        (device,) = kept(gateway)
        assert token not in str(device)
        assert "u-ana" not in str(device)

        # Of another account the device is nobody's.
        other = provider.token("u-eve")
        await enter(gateway, other)
        assert (await ask(gateway, "GET", other)).json()["subscriptions"] == []

        headers = {"Authorization": f"Bearer {provider.token()}"}
        assert (await gateway.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        await service.has(3)
        assert messages(service, browser, listing["key"])[2]["title"] == "Notifications have ended"
        await until(lambda: kept(gateway) == [])
        await propose(agent, "p2")
        await scanned(gateway)
        assert len(service.requests) == 3


async def test_a_device_is_found_by_other_sessions_and_ends_with_its_own(tmp_path: Path) -> None:
    async with with_provider(tmp_path) as (gateway, provider, _, browser):
        first, second = provider.token(sid="s-1"), provider.token(sid="s-2")
        for token in (first, second):
            await enter(gateway, token)
        assert (await ask(gateway, "POST", first, browser.subscription)).status_code == 201
        found = (await ask(gateway, "GET", second)).json()["subscriptions"]
        assert [each["id"] for each in found] == [browser.id]
        # Their session on another device ends there alone.
        gone = {"logout_token": provider.logout_token(sid="s-2")}
        assert (await gateway.http.post("/oidc/backchannel-logout", data=gone)).status_code == 200
        await scanned(gateway)
        assert len(kept(gateway)) == 1
        gone = {"logout_token": provider.logout_token(sid="s-1")}
        assert (await gateway.http.post("/oidc/backchannel-logout", data=gone)).status_code == 200
        await until(lambda: kept(gateway) == [])


async def test_where_it_is_turned_off_for_accounts_they_are_refused(tmp_path: Path) -> None:
    async with with_provider(tmp_path, max_seconds_since_sign_in=0) as (gateway, provider, _, browser):
        token = provider.token()
        await enter(gateway, token)
        assert "ends by itself" in (await ask(gateway, "GET", token)).json()["refused"]
        assert (await ask(gateway, "POST", token, browser.subscription)).status_code == 403


@pytest.mark.parametrize("seconds", [WEEK_SECONDS, 10 * WEEK_SECONDS, -3_600.0])
async def test_an_account_that_was_not_seen_for_a_week_is_told_no_more(
    tmp_path: Path, seconds: float
) -> None:
    """Nor where the clock was set back, so that nobody knows for how long."""
    async with with_provider(tmp_path) as (gateway, provider, _, _browser):
        await enter(gateway, provider.token())
        (token,) = gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens.by_hash.values()
        account = ProviderAccount(
            keys=token.keys, issued_at=token.issued_at, participants={"lab": "ana"}, seen_at=1_000_000.0
        )
        now = [account.seen_at + WEEK_SECONDS - 1]
        holder = DeviceOwner(
            gateway.gateway.directory, account.owner, account, PushConfig(), wall=lambda: now[0]
        )
        await holder.check()
        now[0] = account.seen_at + seconds
        with pytest.raises(SignInEnded):
            await holder.check()


def test_being_seen_again_is_written_now_and_then_and_a_new_space_at_once() -> None:
    account = ProviderAccount(keys=("k",), issued_at=0.0, participants={"lab": "ana"}, seen_at=1_000.0)
    device = Subscription(
        endpoint="e", p256dh="p", auth="a", owner=account.owner, account=account, key="k", since=0
    )

    def at(seen_at: float, participants: dict[str, str] = account.participants) -> Subscription | None:
        again = ProviderAccount(keys=("k2",), issued_at=5.0, participants=participants, seen_at=seen_at)
        return seen_again(device, again, PushConfig())

    assert at(1_060.0) is None
    later = at(1_000.0 + WEEK_SECONDS / 2)
    assert later is not None
    assert later.account is not None
    assert later.account.seen_at == 1_000.0 + WEEK_SECONDS / 2
    # Of the session that turned it on: that of another device does not end it.
    assert later.account.keys == ("k",)
    wider = at(1_060.0, {"attic": "ana"})
    assert wider is not None
    assert wider.account is not None
    assert wider.account.participants == {"lab": "ana", "attic": "ana"}


async def test_who_signs_in_with_a_passkey_is_told_until_the_passkey_is_removed(tmp_path: Path) -> None:
    people = {**TOOLS, **participants(ana=DECIDES)}
    async with (
        receiver(status=201) as service,
        running_gateway(tmp_path, people, notifications=quick()) as gateway,
    ):
        page = Browser(gateway, "t-ana")
        assert (await page.add())[0] == 201
        token = (await page.sign_in())[1]["token"]
        listing = (await ask(gateway, "GET", token)).json()
        assert (listing["refused"], listing["ends_after_seconds"]) == (None, WEEK_SECONDS)
        browser = PushBrowser(service.url)
        assert (await ask(gateway, "POST", token, browser.subscription)).status_code == 201
        # The sign-in ends, and the person is told all the same.
        tokens = gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens
        tokens.by_hash.clear()
        agent, _ = await gateway.join("agent"), await gateway.join("files")
        await propose(agent, "p1")
        await service.has(2)
        assert messages(service, browser, listing["key"])[1]["path"] == "#/lab/approvals/p1"
        # At the next sign-in it is the same device.
        found = (await ask(gateway, "GET", (await page.sign_in())[1]["token"])).json()["subscriptions"]
        assert [each["id"] for each in found] == [browser.id]
        headers = {"Authorization": "Bearer t-ana"}
        assert (await gateway.http.delete(f"/passkeys/{page.key.id}", headers=headers)).status_code == 200
        await until(lambda: kept(gateway) == [])
