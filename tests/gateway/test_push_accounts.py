"""Web Push for people who sign in with a provider: told while nobody is signed in, until that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.config.notification_config import PushConfig
from moot.gateway.notifications.push.device_owners import AccountHolder, SignInEnded, seen_again
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.protocol.operation import Json
from tests.gateway.oidc_provider import Provider, person
from tests.gateway.push_browser import PushBrowser
from tests.gateway.receivers import Receiver, receiver
from tests.gateway.running_gateway import LocalGateway, participants
from tests.gateway.test_notifications import propose
from tests.gateway.test_sign_in import enter, signing_in
from tests.gateway.test_web_push import kept, messages, quick, scanned
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
            room,
            provider,
        ),
    ):
        yield room, provider, service, PushBrowser(service.url)


async def ask(room: LocalGateway, method: str, token: str, body: Json = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return await room.http.request(method, "/push-subscriptions", headers=headers, json=body)


async def test_an_account_is_told_after_its_token_has_ended_and_not_after_a_sign_out(tmp_path: Path) -> None:
    async with with_provider(tmp_path) as (room, provider, service, browser):
        token = provider.token()
        ana = await enter(room, token)
        listing = (await ask(room, "GET", token)).json()
        assert (listing["refused"], listing["ends_after_seconds"]) == (None, WEEK_SECONDS)
        assert (await ask(room, "POST", token, browser.subscription)).status_code == 201
        await ana.leave()
        host = room.gateway.directory.hosts["lab"]
        # As after a restart: the provider's tokens are forgotten, and its people are not.
        host.space.state.temporary_tokens.remove(list(host.space.state.temporary_tokens.by_hash))
        agent, _ = await room.join("agent"), await room.join("files")
        await propose(agent, "p1")
        await service.has(2)
        told = messages(service, browser, listing["key"])[1]
        assert told["path"] == "#/lab/approvals/p1"
        (device,) = kept(room)
        assert token not in str(device)
        assert "u-ana" not in str(device)

        # Of another account the device is nobody's.
        other = provider.token("u-eve")
        await enter(room, other)
        assert (await ask(room, "GET", other)).json()["subscriptions"] == []

        headers = {"Authorization": f"Bearer {provider.token()}"}
        assert (await room.http.post("/oidc/sign-out", headers=headers)).status_code == 200
        await service.has(3)
        assert messages(service, browser, listing["key"])[2]["title"] == "Notifications have ended"
        await until(lambda: kept(room) == [])
        await propose(agent, "p2")
        await scanned(room)
        assert len(service.requests) == 3


async def test_a_device_is_found_by_other_sessions_and_ends_with_its_own(tmp_path: Path) -> None:
    async with with_provider(tmp_path) as (room, provider, _, browser):
        first, second = provider.token(sid="s-1"), provider.token(sid="s-2")
        for token in (first, second):
            await enter(room, token)
        assert (await ask(room, "POST", first, browser.subscription)).status_code == 201
        found = (await ask(room, "GET", second)).json()["subscriptions"]
        assert [each["id"] for each in found] == [browser.id]
        # Their session on another device ends there alone.
        gone = {"logout_token": provider.logout_token(sid="s-2")}
        assert (await room.http.post("/oidc/backchannel-logout", data=gone)).status_code == 200
        await scanned(room)
        assert len(kept(room)) == 1
        gone = {"logout_token": provider.logout_token(sid="s-1")}
        assert (await room.http.post("/oidc/backchannel-logout", data=gone)).status_code == 200
        await until(lambda: kept(room) == [])


async def test_where_it_is_turned_off_for_accounts_they_are_refused(tmp_path: Path) -> None:
    async with with_provider(tmp_path, max_seconds_since_sign_in=0) as (room, provider, _, browser):
        token = provider.token()
        await enter(room, token)
        assert "ends by itself" in (await ask(room, "GET", token)).json()["refused"]
        assert (await ask(room, "POST", token, browser.subscription)).status_code == 403


@pytest.mark.parametrize("seconds", [WEEK_SECONDS, 10 * WEEK_SECONDS, -3_600.0])
async def test_an_account_that_was_not_seen_for_a_week_is_told_no_more(
    tmp_path: Path, seconds: float
) -> None:
    """Nor where the clock was set back, so that nobody knows for how long."""
    async with with_provider(tmp_path) as (room, provider, _, _browser):
        await enter(room, provider.token())
        (token,) = room.gateway.directory.hosts["lab"].space.state.temporary_tokens.by_hash.values()
        account = ProviderAccount(
            keys=token.keys, issued_at=token.issued_at, participants={"lab": "ana"}, seen_at=1_000_000.0
        )
        now = [account.seen_at + WEEK_SECONDS - 1]
        holder = AccountHolder(
            room.gateway.directory, account.owner, account, PushConfig(), wall=lambda: now[0]
        )
        holder.check()
        now[0] = account.seen_at + seconds
        with pytest.raises(SignInEnded):
            holder.check()


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
