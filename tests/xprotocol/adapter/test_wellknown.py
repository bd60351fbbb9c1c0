"""What strangers read over HTTP: discovery, contracts, health, metrics (XP 7.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from moot.errors import MootError
from moot.xprotocol.adapter.telemetry.adapter_metrics import ADAPTER_METRICS
from moot.xprotocol.contracts.contracts import read_contract
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    TOOLS,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.relay.raw_client import raw_client

WELL_KNOWN = "/.well-known/xprotocol-endpoint"


@pytest.mark.requirement("XP-7.3-1", "XP-7.3-3", "XP-7.3-5", "XP-3.1-42")
async def test_discovery_leads_to_the_key_the_relay_and_all_contracts(tmp_path: Path) -> None:
    async with (
        running_adapter(tmp_path, notes_server(tmp_path)) as adapter,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        await adapter.adapter.announcer.wait_announced()
        answer = await client.get(adapter.adapter.address + WELL_KNOWN)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        document: dict[str, Any] = answer.json()
        assert document == {
            "version": "xp1",
            "endpoint": adapter.relay.url,
            "public_key": adapter.adapter.key,
            "encryption_key": adapter.adapter.identity.enc_key.text,
            "schema_url": adapter.adapter.address + "/xp/schemas",
            "adapter": True,
            "mcp_sources": ["desk"],
            "xprotocol_sources": [],
        }
        # The endpoint is a relay that can be talked to.
        async with raw_client(document["endpoint"]) as raw:
            assert raw.challenge
        schemas = await client.get(document["schema_url"])
        kinds = [read_contract(each).kind for each in schemas.json()]
        assert kinds == [contract.kind for contract in adapter.adapter.registry.contracts()]
        assert len(kinds) == len(TOOLS) + 2
        assert f"{NAMESPACE}.read_note" in kinds
        tag = schemas.headers["etag"]
        same = await client.get(document["schema_url"], headers={"if-none-match": tag})
        assert same.status_code == 304


async def test_the_catalogue_follows_the_servers(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with (
        running_adapter(tmp_path, notes) as adapter,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        url = adapter.adapter.address + "/xp/schemas"
        before = await client.get(url)
        notes.list_tools(TOOLS[:2])
        digest = adapter.adapter.registry.digest
        await until(lambda: adapter.adapter.registry.digest != digest)
        after = await client.get(url)
        assert len(before.json()) - len(after.json()) == len(TOOLS) - 2
        assert before.headers["etag"] != after.headers["etag"]


async def test_behind_a_proxy_the_public_address_is_told_and_never_what_a_stranger_made_up(
    tmp_path: Path,
) -> None:
    async with (
        adapter_environment(tmp_path, notes_server(tmp_path)) as environment,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        async with environment.running() as adapter:
            strange = await client.get(
                adapter.address + WELL_KNOWN, headers={"host": 'evil.example/"><script>'}
            )
            assert strange.status_code in (200, 400)
            if strange.status_code == 200:
                assert strange.json()["schema_url"] == adapter.address + "/xp/schemas"
        environment.document["discovery"]["public_url"] = "https://adapter.acme.example"
        async with environment.running() as adapter:
            answer = await client.get(adapter.address + WELL_KNOWN)
            assert answer.json()["schema_url"] == "https://adapter.acme.example/xp/schemas"


async def test_health_says_what_is_wrong_and_metrics_count_calls_without_keys(tmp_path: Path) -> None:
    async with (
        running_adapter(tmp_path, notes_server(tmp_path)) as adapter,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        await adapter.adapter.announcer.wait_announced()
        health = await client.get(adapter.adapter.address + "/health")
        assert health.json()["status"] == "ok"
        for probe, reply in (("/livez", "ok"), ("/readyz", "ready")):
            answer = await client.get(adapter.adapter.address + probe, headers={"Host": "10.1.2.3:80"})
            assert (answer.status_code, answer.json()) == (200, {"status": reply})
        await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
        stranger = await adapter.somebody("carol")
        await stranger.ask(f"{NAMESPACE}.read_note", {"name": "one"})
        await until(lambda: adapter.adapter.metrics.calls["ok"] == 1)
        text = (await client.get(adapter.adapter.address + "/metrics")).text
        assert 'moot_adapter_calls_total{outcome="ok",source="desk"} 1' in text
        assert 'moot_adapter_events_total{outcome="AUTHORIZATION_INSUFFICIENT"} 1' in text
        assert "\nmoot_adapter_sources_up 1\n" in text
        assert "\nmoot_adapter_relay_connected 1\n" in text
        described = {(each.name, each.type, each.help) for each in ADAPTER_METRICS}
        for family in text_string_to_metric_families(text):
            name = family.name + ("_total" if family.type == "counter" else "")
            assert (name, family.type, family.documentation) in described
            described.discard((name, family.type, family.documentation))
        assert not described
        assert adapter.alice.key not in text
        await adapter.adapter.audit.flush()
        adapter.adapter.audit.is_writable = False
        degraded = (await client.get(adapter.adapter.address + "/health")).json()
        assert degraded["status"] == "degraded"
        assert "audit" in degraded["problems"][0]
        assert (await client.get(adapter.adapter.address + "/livez")).status_code == 200
        ready = await client.get(adapter.adapter.address + "/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "degraded")


@pytest.mark.requirement("XP-3.1-43")
async def test_it_listens_where_it_is_told_and_on_this_machine_alone_unless_told(tmp_path: Path) -> None:
    """The document's example listens everywhere; ours has to be told so."""
    async with (
        adapter_environment(tmp_path, notes_server(tmp_path)) as environment,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        async with environment.running() as adapter:
            port = adapter.address.rpartition(":")[2]
            assert adapter.address == f"http://127.0.0.1:{port}"
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"http://127.0.0.2:{port}/health")
        environment.document["discovery"] |= {"well_known_host": "0.0.0.0"}  # noqa: S104
        async with environment.running() as adapter:
            port = adapter.address.rpartition(":")[2]
            for host in ("127.0.0.1", "127.0.0.2"):
                assert (await client.get(f"http://{host}:{port}/health")).status_code == 200


async def test_nothing_can_be_written_there_and_other_pages_say_what_there_is(tmp_path: Path) -> None:
    async with (
        running_adapter(
            tmp_path, notes_server(tmp_path), discovery={"well_known_port": 0, "metrics": False}
        ) as adapter,
        httpx2.AsyncClient(timeout=HANG_SECONDS) as client,
    ):
        base = adapter.adapter.address
        assert (await client.post(base + "/xp/schemas")).status_code == 405
        assert (await client.get(base + "/metrics")).status_code == 404
        lost = await client.get(base + "/elsewhere")
        assert lost.status_code == 404
        assert WELL_KNOWN in lost.json()["message"]


async def test_a_port_that_is_taken_stops_the_start_with_words(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        port = int(adapter.adapter.address.rpartition(":")[2])
        adapter.document = dict(adapter.document) | {
            "identity": {"key_file": str(tmp_path / "other" / "adapter.key")},
            "discovery": {"well_known_port": port},
        }
        with pytest.raises(MootError, match="well_known_port"):
            async with adapter.running():
                pass
