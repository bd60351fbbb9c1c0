"""What an adapter says of itself before anybody trusts it (XP 6.3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.errors import UsageError
from moot.xprotocol.adapter.discovery.dns_record import record_of
from moot.xprotocol.events.delegation import delegate, read_chain
from moot.xprotocol.events.events import ANNOUNCE, SignedPublic, decode
from moot.xprotocol.events.revocation import revoke
from moot.xprotocol.identity.keys import Identity
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    OBJECT,
    TOOLS,
    AdapterEnvironment,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.people import ALICE, EVE, person
from tests.xprotocol.relay.raw_client import relay_in


@pytest.mark.requirement("XP-6.3-4", "XP-3.2-1", "XP-1.2-1")
async def test_a_minimal_file_is_enough_and_the_announce_can_be_read_before_any_call(tmp_path: Path) -> None:
    """XP 3.2: identity, one relay and a source of four lines."""
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        environment.document = {
            "identity": {
                "key_file": str(tmp_path / "keys" / "adapter.key"),
                "display_name": "My Adapter",
            },
            "relay": {"urls": [environment.relay.url]},
            "mcp_sources": [
                {
                    "name": "desk",
                    "transport": "stdio",
                    "command": " ".join([notes.source["command"], *notes.source["args"]]),
                    "xprotocol_namespace": NAMESPACE,
                }
            ],
            # The usual port may be taken on this machine.
            "discovery": {"well_known_port": 0},
        }
        async with environment.running() as adapter:
            announce = await environment.announce()
            assert announce.sender == adapter.key
            assert announce.sender_enc_key == adapter.identity.enc_key.text
            assert announce.expires_at == announce.timestamp + 3_600
            payload = announce.payload
            assert payload["display_name"] == "My Adapter"
            assert payload["mcp_sources"] == [
                {"name": "desk", "transport": "stdio", "namespace": NAMESPACE, "tool_count": len(TOOLS)}
            ]
            assert payload["xprotocol_sources"] == []
            assert payload["schemas_digest"] == adapter.registry.digest
            # It stays on the relay for whoever comes later.
            stranger = await environment.somebody("carol")
            wanted = [{"kinds": [ANNOUNCE], "senders": [adapter.key]}]
            async with stranger.relays.subscribe(wanted) as events:
                found = decode(await anext(events))
            assert found.event.id == announce.id


async def test_poor_descriptions_and_contradictions_are_disclosed(tmp_path: Path) -> None:
    """XP 4.6, D-64."""
    notes = notes_server(tmp_path)
    vague = {"name": "handle_thing", "description": "handles", "inputSchema": OBJECT}
    sly = next(each for each in TOOLS if each["name"] == "read_note") | {
        "name": "get_everything",
        "annotations": {"destructiveHint": True},
    }
    notes.list_tools([*TOOLS, vague, sly])
    async with running_adapter(tmp_path, notes) as adapter:
        payload = (await adapter.announce()).payload
        (flagged,) = payload["low_quality_schemas"]
        assert flagged["kind"] == f"{NAMESPACE}.handle_thing"
        assert flagged["description_quality_score"] < 0.4
        assert flagged["issue"]
        assert [each["kind"] for each in payload["warnings"]] == [f"{NAMESPACE}.get_everything"]


async def delegate_to_adapter(
    environment: AdapterEnvironment, root: Identity, department: Identity, file: Path
) -> tuple[str, SignedPublic, SignedPublic]:
    """Configure a chain root → department → adapter; the adapter's key and the two delegations."""
    async with environment.running() as adapter:
        key = adapter.key
    now, ends = time.time(), int(time.time()) + 3_600
    first = delegate(root, department.key.text, ["com.acme.*"], ends=ends, now=now)
    chain = read_chain(first.raw, holder=department.key.text)
    second = delegate(department, key, [f"{NAMESPACE}.*"], ends=ends, now=now, by=chain)
    file.write_bytes(orjson.dumps([orjson.loads(first.raw), orjson.loads(second.raw)]))
    environment.document["identity"] |= {
        "parent_key": department.key.text,
        "parent_delegation_event": str(file),
    }
    return key, first, second


@pytest.mark.requirement("XP-8.1-2")
async def test_the_chain_of_the_organisation_is_announced_and_can_be_walked_from_it(tmp_path: Path) -> None:
    """XP 6.1: hierarchy, DNS record, well-known document and announce name one key."""
    root, department = person("root"), person("department")
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        file = tmp_path / "delegation.json"
        key, first, second = await delegate_to_adapter(environment, root, department, file)
        async with environment.running() as adapter:
            announce = await environment.announce(lambda answer: "delegations" in answer)
            assert announce.payload["parent_key"] == department.key.text
            assert announce.delegation == second.event.id
            walked = read_chain(orjson.dumps(announce.payload["delegations"]), holder=announce.sender)
            assert walked.keys == (root.key.text, department.key.text, key)
            # The delegations stand on the relay by themselves, too.
            assert await environment.relay.store.get(first.event.id) == first.raw
            document: dict[str, Any] = adapter._status.discovery_document(adapter.address)
            record = record_of(adapter.settings, adapter.identity)
            assert document["public_key"] == record.key == announce.sender == key
            assert document["encryption_key"] == record.encryption_key == announce.sender_enc_key
            # Whoever stands above may give rights here, and whoever does not may not.
            assert department.key.text in adapter.access.authorities(time.time())
        file.write_bytes(second.raw.replace(b'"signature":"ed25519:', b'"signature":"ed25519:A', 1))
        with pytest.raises(UsageError, match="parent_delegation_event"):
            async with environment.running():
                pass


async def test_it_is_said_again_to_another_relay_and_before_it_expires(tmp_path: Path) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["relay"] |= {"event_ttl_seconds": 2}
        async with environment.running() as adapter:
            first = await environment.announce()
            await until(lambda: len(environment.public) >= 2)
            second = environment.public[1]
            assert second.timestamp > first.timestamp
            assert second.payload == first.payload
            # Counted when the relay has said yes, which is after it has told us.
            await until(lambda: adapter.announcer.count >= 2)


async def announces_at(environment: AdapterEnvironment, url: str) -> list[str]:
    from moot.xprotocol.endpoint.relay_client import RelayClient

    async with (
        RelayClient([url], EVE) as relays,
        relays.subscribe([{"kinds": [ANNOUNCE]}]) as events,
    ):
        signed = decode(await anext(events))
        assert isinstance(signed, SignedPublic)
        return [signed.event.sender]


@pytest.mark.requirement("XP-3.1-6", "XP-2.2-11")
async def test_with_the_first_relay_down_the_next_is_used_and_the_first_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["relay"] = {
            "urls": ["ws://127.0.0.1:9", environment.relay.url],
            "reconnect_interval_seconds": 0.1,
        }
        async with environment.running() as adapter:
            await environment.announce()
            assert adapter.relays.url == environment.relay.url
            assert len(environment.relay.sockets) >= 2
            answer = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert answer.payload["content"] == "first words"


@pytest.mark.requirement("XP-3.1-7")
async def test_relays_that_cannot_be_used_are_tried_again_after_the_interval(tmp_path: Path) -> None:
    tries: list[float] = []

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(asyncio.get_running_loop().time())
        writer.close()

    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        urls = [f"ws://127.0.0.1:{port}"]
        environment.document["relay"] = {"urls": urls, "reconnect_interval_seconds": 0.4}
        began = asyncio.get_running_loop().time()
        async with server, environment.running():
            await until(lambda: len(tries) >= 4)
        # From the start: a try that was noticed late is nearer to the next. Timers may be a bit early.
        assert tries[3] - began >= 3 * 0.4 - 0.02
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        # Less than the five seconds that it is by default; one of them at least on a machine that is busy.
        assert min(pauses) < 5
        environment.document["relay"] = {"urls": urls}
        assert environment.settings().relay.reconnect_interval_seconds == 5


async def test_no_relay_at_all_is_no_reason_to_fall_over_and_one_that_comes_late_is_found(
    tmp_path: Path,
) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        async with relay_in(tmp_path / "second") as second:
            port = second.port
        environment.document["relay"] = {
            "urls": [f"ws://127.0.0.1:{port}"],
            "reconnect_interval_seconds": 0.1,
        }
        async with environment.running() as adapter:
            assert adapter.health()["problems"] == ["no relay can be reached"]
            async with relay_in(tmp_path / "second", port=port) as second:
                await adapter.announcer.wait_announced()
                assert adapter.health()["status"] == "ok"
                assert await announces_at(environment, second.url) == [adapter.key]


async def test_an_announce_that_cannot_be_sent_is_told_of_and_the_next_change_is_another_chance(
    tmp_path: Path,
) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["identity"]["display_name"] = "x" * 200_000
        async with environment.running() as adapter:
            await until(lambda: adapter.announcer.trouble)
            assert "not announced" in str(adapter.health()["problems"])
            # Nobody hears of it, but whoever knows it is answered.
            assert (await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})).code is None
            environment.document["identity"]["display_name"] = "Short"
            await adapter.reload(environment.settings())
            assert (await environment.announce()).payload["display_name"] == "Short"
            await until(lambda: not adapter.announcer.trouble)


def has_digest(digest: str) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: bool(answer["schemas_digest"] == digest)


async def test_announces_of_one_second_do_not_depend_on_chance(tmp_path: Path) -> None:
    """A relay keeps the later one by whole seconds; of two within one, the smaller id."""
    notes = notes_server(tmp_path, flags=["--quiet"])
    async with running_adapter(tmp_path, notes) as adapter:
        await adapter.adapter.announcer.wait_announced()
        for number in range(4):
            notes.list_tools(TOOLS[: 5 + number])
            await adapter.alice.ask("xp.schema.refresh", {})
            digest = adapter.adapter.registry.digest
            await adapter.announce(has_digest(digest))
        times = [event.timestamp for event in adapter.public]
        assert times == sorted(set(times))


async def test_an_announce_after_a_restart_is_later_than_the_last_one_before_it(tmp_path: Path) -> None:
    def is_called(name: str) -> Callable[[dict[str, Any]], bool]:
        return lambda answer: bool(answer["display_name"] == name)

    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        times = []
        for number in range(4):
            environment.document["identity"]["display_name"] = f"Adapter {number}"
            async with environment.running():
                answer = await environment.announce(is_called(f"Adapter {number}"))
                times.append(answer.timestamp)
        assert times == sorted(set(times))
        # However quickly they follow each other, they do not run ahead of the clock.
        assert times[-1] <= time.time() + 60


async def test_nothing_of_a_sources_address_that_is_secret_is_announced(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        environment.document["mcp_sources"].append(
            {
                "name": "remote",
                "transport": "sse",
                "url": "http://127.0.0.1:9/mcp?api_key=sk-very-secret-123",
                "xprotocol_namespace": "com.acme.remote",
            }
        )
        async with environment.running() as adapter:
            # The first may come before the desk has answered.
            announce = await environment.announce(
                lambda answer: bool(answer["mcp_sources"][0]["tool_count"] == len(TOOLS))
            )
            assert "sk-very-secret" not in str([each.payload for each in environment.public])
            assert "sk-very-secret" not in str(adapter.status())
            assert "sk-very-secret" not in str(adapter.health())
            # A source that never answered is no reason to hold back the others, and is disclosed.
            counts = [(each["name"], each["tool_count"]) for each in announce.payload["mcp_sources"]]
            assert counts == [("desk", len(TOOLS)), ("remote", 0)]


def names(source: str) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: bool(answer["mcp_sources"][0]["name"] == source)


@pytest.mark.requirement("XP-2.3-2")
async def test_two_sidecars_are_two_identities(tmp_path: Path) -> None:
    one, other = (
        notes_server(tmp_path, "one", "com.acme.one"),
        notes_server(tmp_path, "other", "com.acme.other"),
    )
    async with adapter_environment(tmp_path, one) as environment, environment.running() as first:
        second_file = dict(environment.document) | {
            "identity": {"key_file": str(tmp_path / "other-keys" / "adapter.key")},
            "mcp_sources": [other.source],
            "access": {ALICE.key.text: ["com.acme.other.*"]},
        }
        first_file, environment.document = environment.document, second_file
        async with environment.running() as second:
            found = [await environment.announce(names("one")), await environment.announce(names("other"))]
            keys = {announce.sender for announce in found}
            assert keys == {first.key, second.key}
            assert len(keys) == 2
            answer = await environment.alice.ask("com.acme.other.read_note", {"name": "one"})
            assert answer.event.sender == second.key
            refused = await environment.alice.ask("com.acme.one.read_note", {"name": "one"})
            assert refused.code == "NOT_FOUND"
        environment.document = first_file


async def test_an_adapter_that_its_parent_revoked_calls_nothing_and_announces_nothing(tmp_path: Path) -> None:
    """Also after a restart, and also where only the root of its chain is trusted by name."""
    root, department = person("root"), person("department")
    server = notes_server(tmp_path)
    server.note("one", "words")
    async with adapter_environment(tmp_path, server) as environment:
        key, _, _ = await delegate_to_adapter(environment, root, department, tmp_path / "delegation.json")
        async with environment.running() as adapter:
            await environment.announce(lambda reply: "delegations" in reply)
            answer = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert answer.code is None
            called = len(server.requests())
            await environment.alice.send(revoke(department, key, now=time.time()))
            await until(lambda: adapter.is_own_key_revoked)
            refused = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert refused.code == "ENDPOINT_UNAVAILABLE"
            assert "has been revoked" in refused.payload["message"]
            assert len(server.requests()) == called
            announced = adapter.announcer.count
            adapter.announcer.notify_change(force=True)
            await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert adapter.announcer.count == announced
            assert "the adapter's own key has been revoked" in str(adapter.health())
        async with environment.running() as adapter:
            await until(lambda: adapter.is_own_key_revoked)
            again = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert again.code == "ENDPOINT_UNAVAILABLE"
            assert len(server.requests()) == called
