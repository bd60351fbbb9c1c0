"""The console in Firefox: every view, without a connection, and Web Push from the subscription to its end."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.console.firefox import Firefox, PushService, firefox, push_service
from tests.gateway.notifications.test_notifications import PEOPLE, propose
from tests.gateway.notifications.test_web_push import quick
from tests.gateway.running_gateway import LocalGateway, running_gateway
from tests.waiting import until

LIVE = "document.querySelector('.top .pill')?.textContent === 'Live'"


def press(text: str, within: str = "document") -> str:
    return (
        f"[...{within}.querySelectorAll('button')].find((each) => (each.textContent + each.title)"
        f".includes('{text}')).click()"
    )


def run_firefox(rounds: int, _seed: int) -> str:
    views = 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            views = asyncio.run(_run(Path(folder)))
    return (
        f"{rounds} rounds: {views} views, offline and back, a subscription, two messages opened, signed out"
    )


async def _run(folder: Path) -> int:
    profile = folder / "profile"
    profile.mkdir()
    async with (
        push_service() as service,
        firefox(profile, _settings(service)) as page,
    ):
        async with running_gateway(folder, PEOPLE, notifications=quick()) as room:
            views = await _look_around(page, room)
            await _get_told(page, room, service)
            url, port = room.gateway.url, room.gateway.port
            await page.run("document.querySelector('.sign-in-form input[type=checkbox]').checked = true")
            await _sign_in(page)
        await page.reload()
        await page.see("document.querySelector('h1')?.textContent === 'Not connected'")
        async with running_gateway(folder, PEOPLE, notifications=quick(), port=port):
            await page.see(LIVE)
            assert await page.run("location.origin") == url
        assert page.complaints == []
    return views


def _settings(service: PushService) -> dict[str, str | int | bool]:
    return {
        # What else is set for a Firefox that is driven: push would be off.
        "remote.prefs.recommended": False,
        "permissions.default.desktop-notification": 1,
        "dom.push.serverURL": service.url,
        "dom.push.testing.allowInsecureServerURL": True,
        "dom.push.alwaysConnect": True,
    }


async def _sign_in(page: Firefox) -> None:
    await page.see("!!document.querySelector('input[type=password]')")
    await page.run("document.querySelector('input[type=password]').value = 't-maria'")
    await page.run("document.querySelector('.sign-in-form button[type=submit]').click()")
    await page.see(LIVE)


async def _look_around(page: Firefox, room: LocalGateway) -> int:
    await page.go(room.gateway.url)
    await _sign_in(page)
    await page.see("!!navigator.serviceWorker.controller")
    links = (
        "[...document.querySelectorAll('.nav a')].map((each) => each.hash).filter((each) => each.length > 1)"
    )
    views: list[str] = (await page.run(f"{links}.join(' ')")).split()
    for view in views:
        await page.run(f"location.hash = '{view}'")
        await page.see(f"!!document.querySelector('.view-{view.rpartition('/')[2]} h1')")
        assert await page.run("document.documentElement.scrollWidth <= innerWidth"), view
    return len(set(views))


async def _get_told(page: Firefox, room: LocalGateway, service: PushService) -> None:
    devices = room.gateway.notifier.devices
    await page.run("document.querySelector('.space-button').click()")
    await page.run(press("Notifications on this device"))
    await page.see("!!document.querySelector('.push-state')")
    await page.run(press("Turn on", "document.querySelector('dialog')"))
    await page.see("document.querySelector('.push-state')?.textContent.startsWith('On.')")
    await page.run(press("Close", "document.querySelector('dialog')"))
    agent, _ = await room.join("agent"), await room.join("files")
    await propose(agent, "p1")
    await until(lambda: len(service.acknowledged) == 2)
    assert service.acknowledged == [PushService.DELIVERED] * 2
    await page.run(press("Sign out"))
    await until(lambda: not devices.senders)
    assert await page.run("localStorage.length") == 0
