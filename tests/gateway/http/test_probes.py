"""`/livez` and `/readyz`: what Kubernetes, Docker or a load balancer asks, by address, without a secret."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from moot.cli.process.exit_codes import EXIT_FAILED, exit_code_of
from moot.config import load
from moot.errors import FolderInUse
from moot.gateway.app import Gateway
from moot.gateway.space_factory import SpaceFactory
from tests.gateway.running_gateway import (
    GatewayUnderTest,
    gateway_settings,
    healthy,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.waiting import HANG_SECONDS

PEOPLE = participants(alice=["*"])


def settings(folder: Path) -> Path:
    return write_config(folder, gateway_settings({"lab": space_settings(PEOPLE)}))


@pytest.mark.parametrize("host", [None, "10.1.2.3:8080", "[fd00::1]:8080", "pod-7.moot.svc", "evil.example"])
async def test_probes_are_answered_whatever_the_host_and_say_nothing_but_a_status(
    tmp_path: Path, host: str | None
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        named = {} if host is None else {"Host": host}
        for where, reply in (("/livez", "ok"), ("/readyz", "ready")):
            answer = await gateway.http.get(where, headers=named | {"Origin": "http://elsewhere"})
            assert (answer.status_code, answer.json()) == (200, {"status": reply})
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers
            bare = await gateway.http.head(where, headers=named)
            assert (bare.status_code, bare.content) == (200, b"")
            assert (await gateway.http.post(where, headers=named)).status_code == 405


async def test_a_journal_that_cannot_be_written_is_not_ready_but_alive(tmp_path: Path) -> None:
    async with served(settings(tmp_path)) as gateway:
        segment = max((tmp_path / "data" / "spaces" / "lab" / "journal").glob("*.jsonl"))
        gateway.limit_file_size(segment.stat().st_size)
        await gateway.post("alice", {"kind": "chat", "payload": {"text": "no room"}})
        await healthy(gateway, "degraded")
        ready = await gateway.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "degraded")
        assert set(ready.json()) == {"status", "message"}
        assert "lab" not in ready.text
        assert (await gateway.http.get("/livez")).status_code == 200
        gateway.limit_file_size(None)
        await healthy(gateway, "ok")
        assert (await gateway.http.get("/readyz")).status_code == 200


async def test_while_it_starts_probes_are_answered_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open, may_open = asyncio.Event(), asyncio.Event()
    open_all = SpaceFactory.open_all

    async def held(opener: SpaceFactory) -> None:
        is_open.set()
        await may_open.wait()
        await open_all(opener)

    monkeypatch.setattr(SpaceFactory, "open_all", held)
    gateway = Gateway(load(settings(tmp_path), environ={}))
    starting = asyncio.create_task(gateway.start())
    async with asyncio.timeout(HANG_SECONDS):
        await is_open.wait()
    running = GatewayUnderTest(gateway.url)
    try:
        assert (await running.http.get("/livez")).status_code == 200
        ready = await running.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "starting")
        for where in ("/health", "/metrics", "/spaces", "/"):
            refused = await running.http.get(where)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert await running.status("/ws?space=lab", token="t-alice") == 503
        may_open.set()
        async with asyncio.timeout(HANG_SECONDS):
            await starting
        assert (await running.http.get("/readyz")).json() == {"status": "ready"}
        await running.join("alice")
    finally:
        may_open.set()
        await starting
        await running.close()
        await gateway.stop()


async def test_while_it_stops_it_is_not_ready_and_lets_nobody_in(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        # Said by hand: a gateway that really stops takes no more connections to ask over.
        gateway.gateway.readiness.phase = "stopping"
        ready = await gateway.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "stopping")
        assert (await gateway.http.get("/livez")).status_code == 200
        assert await gateway.status("/ws?space=lab", token="t-alice") == 503
        gateway.gateway.readiness.phase = "running"
    assert gateway.gateway.readiness.reason == "stopping"


async def test_a_start_that_fails_leaves_no_port_behind(tmp_path: Path) -> None:
    file = settings(tmp_path)
    first = Gateway(load(file, environ={}))
    await first.start()
    try:
        second = Gateway(load(file, environ={}))
        with pytest.raises(FolderInUse, match="another process writes the journal") as refusal:
            await second.start()
        assert exit_code_of(refusal.value) == EXIT_FAILED
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
                await client.get(f"{second.url}/livez")
    finally:
        await first.stop()
