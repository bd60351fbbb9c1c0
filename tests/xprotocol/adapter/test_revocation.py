"""A registered adapter obeys when its parent revokes its key, and so do its callers; else it is said who not.

Nothing is configured for it and nobody restarts: `register`, then `revoke`, as somebody types them.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from moot.errors import McpError
from moot.mcp.downstream.backend import BackendCall
from moot.protocol.operation import Json
from moot.xprotocol.adapter.adapter import Adapter
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.event_store.event_query import EventQuery
from moot.xprotocol.events.delegation import delegate
from moot.xprotocol.events.events import REVOKE
from moot.xprotocol.events.revocation import revoke
from moot.xprotocol.identity import keyfile
from moot.xprotocol.identity.keys import Identity
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    AdapterEnvironment,
    adapter_environment,
    notes_server,
)
from tests.xprotocol.adapter.command_runner import CommandResult, Shell
from tests.xprotocol.adapter.outbound_environment import open_outbound, source
from tests.xprotocol.people import person
from tests.xprotocol.relay.raw_client import relay_in

ORG, STRANGER = person("org"), person("stranger")


async def typed(shell: Shell, *words: str | Path) -> CommandResult:
    return await asyncio.to_thread(shell, *words)


async def register(shell: Shell, environment: AdapterEnvironment, *more: str | Path) -> Json:
    if not (environment.folder / "org.key").exists():
        keyfile.create(environment.folder / "org.key", ORG)
    words = ("--parent-key", environment.folder / "org.key", "--capabilities", READ, "--publish", "--json")
    done = await typed(shell, "register", "--config", environment.file, *words, *more)
    assert done.code == 0, done.err
    return done.json


async def revoked(shell: Shell, environment: AdapterEnvironment, key: str) -> CommandResult:
    words = ("--by", environment.folder / "org.key", "--publish", "--config", environment.file, "--json")
    return await typed(shell, "revoke", key, *words)


CALL = BackendCall("tools/call", {"name": "com_acme_desk_read_note", "arguments": {"name": "one"}})


async def test_a_registered_adapter_and_its_callers_obey_its_parent(tmp_path: Path, shell: Shell) -> None:
    """Between two organisations, with both running all the time."""
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["access"] = {person("alice").key.text: [f"{NAMESPACE}.*"]}
        async with (
            environment.running() as acme,
            open_outbound(environment.url, source(environment.url, key=acme.key)) as beta,
        ):
            await beta.wait_settled(HANG_SECONDS)
            assert await beta.backend.perform(CALL)
            told = await register(shell, environment)
            assert told["adapter_follows"] is True
            # A parent that nobody configured gives no rights here, it can only take them.
            assert acme.access.authorities(time.time()) == {acme.key}
            assert ORG.key.text not in acme.access.trust
            assert await beta.backend.perform(CALL)
            # Whoever only says that they stand above it is not obeyed.
            forged = delegate(STRANGER, acme.key, [READ], ends=int(time.time()) + 60, now=time.time())
            await environment.alice.send(forged)
            await environment.alice.send(revoke(STRANGER, acme.key, now=time.time()))
            assert await beta.backend.perform(CALL)
            remote = beta.sources[0].remote
            assert remote is not None
            await until(lambda: ORG.key.text in remote._parents)
            done = await revoked(shell, environment, acme.key)
            assert (done.code, done.json["not_noticed"]) == (0, [])
            await until(lambda: acme.is_own_key_revoked and remote.is_revoked)
            with pytest.raises(McpError) as caught:
                await beta.backend.perform(CALL)
            assert f"was revoked by its parent {ORG.key.text}" in caught.value.data["detail"]
            refused = await environment.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert "has been revoked" in refused.payload["message"]
        # Who comes later, or comes back, learns it as well.
        async with (
            environment.running() as acme,
            open_outbound(environment.url, source(environment.url, key=acme.key)) as beta,
        ):
            await until(lambda: acme.is_own_key_revoked)
            await beta.wait_settled(HANG_SECONDS)
            with pytest.raises(McpError):
                await beta.backend.perform(CALL)


async def test_the_root_above_the_parent_is_obeyed_too(tmp_path: Path, shell: Shell) -> None:
    root = person("root")
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["access"] = {person("alice").key.text: [f"{NAMESPACE}.*"]}
        keyfile.create(tmp_path / "org.key", ORG)
        ends = int(time.time()) + 1_000_000_000
        above = delegate(root, ORG.key.text, ["com.acme.*"], ends=ends, now=time.time())
        (tmp_path / "org.delegation.json").write_bytes(above.raw)
        async with (
            environment.running() as acme,
            open_outbound(environment.url, source(environment.url, key=acme.key)) as beta,
        ):
            await beta.wait_settled(HANG_SECONDS)
            chain = ("--parent-delegation", tmp_path / "org.delegation.json")
            assert (await register(shell, environment, *chain))["adapter_follows"] is True
            remote = beta.sources[0].remote
            assert remote is not None
            await until(lambda: root.key.text in remote._parents)
            await environment.alice.send(revoke(root, acme.key, now=time.time()))
            await until(lambda: acme.is_own_key_revoked and remote.is_revoked)


async def test_a_revocation_that_nobody_obeys_is_no_success_and_says_who(
    tmp_path: Path, shell: Shell
) -> None:
    """The adapter was never told of its parent: it goes on, and so does who calls it."""
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        keyfile.create(tmp_path / "org.key", ORG)
        async with environment.running() as acme:
            await environment.announce()
            elsewhere = ("--output", tmp_path / "elsewhere.json")
            assert (await register(shell, environment, *elsewhere))["adapter_follows"] is False
            done = await revoked(shell, environment, acme.key)
            assert done.code == 1
            (said,) = done.json["not_noticed"]
            assert f"does not name {ORG.key.text} as its parent: the adapter goes on answering" in said
            assert "Revoke it with its own key file as well (--by)" in said
            assert not acme.is_own_key_revoked
            # As it says: with its own key everybody obeys.
            own = acme.settings.identity.key_file
            words = ("--by", own, "--publish", environment.url, "--json")
            done = await typed(shell, "revoke", acme.key, *words)
            assert (done.code, done.json["not_noticed"]) == (0, [])
            await until(lambda: acme.is_own_key_revoked)


async def test_every_relay_is_told_and_one_that_is_away_is_named(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Identity.generate()
    keyfile.create(tmp_path / "own.key", key)
    away = "ws://127.0.0.1:1"
    wait_connected = RelayClient.wait_connected

    async def give_away_up_soon(client: RelayClient, seconds: float) -> str:
        return await wait_connected(client, 0.1 if client.urls == (away,) else seconds)

    monkeypatch.setattr(RelayClient, "wait_connected", give_away_up_soon)
    async with relay_in(tmp_path / "one") as one, relay_in(tmp_path / "two") as two:
        config = tmp_path / "relays.yml"
        urls = [one.url, away, two.url]
        config.write_text(json.dumps({"identity": {"key_file": "own.key"}, "relay": {"urls": urls}}))
        words = ("--by", tmp_path / "own.key", "--publish", "--config", config)
        done = await typed(shell, "revoke", key.key.text, *words)
        assert done.code == 1
        assert f"published at  {one.url}\npublished at  {two.url}" in done.out
        assert f"who uses {away} is not told" in done.err
        for relay in (one, two):
            assert [each async for each in relay.store.find(EventQuery(kinds=(REVOKE,)))]


@pytest.mark.parametrize("wrong", ["of another key", "nonsense", "ended"])
async def test_a_wrong_registration_beside_the_key_stops_no_adapter(tmp_path: Path, wrong: str) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        async with environment.running() as adapter:
            key, key_file = adapter.key, adapter.settings.identity.key_file
        now = time.time()
        made = {
            "of another key": delegate(ORG, STRANGER.key.text, [READ], ends=int(now) + 60, now=now).raw,
            "nonsense": b"{",
            "ended": delegate(ORG, key, [READ], ends=int(now) - 100, now=now - 200).raw,
        }[wrong]
        key_file.with_suffix(".delegation.json").write_bytes(made)
        async with environment.running() as adapter:
            assert isinstance(adapter, Adapter)
            # A registration that has ended gives nothing, but who stood above may still revoke.
            follows = wrong == "ended"
            assert adapter.config.parent_key == (ORG.key.text if follows else None)
            assert adapter.config.delegations == ()
            await environment.alice.send(revoke(ORG, key, now=time.time()))
            if follows:
                await until(lambda: adapter.is_own_key_revoked)
