"""`xprotocol-adapter register` and `revoke`: an organisation says what its adapter may do, and ends it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from moot.errors import InvalidStatement
from moot.xprotocol.events.delegation import read_chain
from moot.xprotocol.events.events import REVOKE, SignedPublic, decode, verify_event
from moot.xprotocol.events.key_statements import read_revocation
from moot.xprotocol.identity import keyfile
from tests.xprotocol.adapter.command_runner import CommandResult, Shell
from tests.xprotocol.adapter.test_settings import MINIMAL, written
from tests.xprotocol.people import BOB, person
from tests.xprotocol.relay.raw_client import relay_in

DAY = 86_400
ORG, DEPARTMENT, ADAPTER = (person(name) for name in ("org", "department", "adapter"))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Root, department and adapter, each with its key file."""
    for name, identity in (("org", ORG), ("dept", DEPARTMENT), ("adapter", ADAPTER)):
        keyfile.create(tmp_path / f"{name}.key", identity)
    return tmp_path


def register(shell: Shell, folder: Path, *words: str | Path) -> CommandResult:
    return shell("register", "--key", folder / "adapter.key", "--parent-key", folder / "org.key", *words)


@pytest.mark.requirement("XP-6.2-2", "XP-A-2")
def test_register_writes_a_delegation_that_the_parent_signed(shell: Shell, keys: Path) -> None:
    """The call of XP 6.2, as printed."""
    answer = register(shell, keys, "--capabilities", "filesystem.read,filesystem.write, crm.read")
    assert answer.code == 0
    chain = read_chain((keys / "adapter.delegation.json").read_bytes(), holder=ADAPTER.key.text)
    (link,) = chain.links
    assert (link.signer, link.delegated_key) == (ORG.key.text, ADAPTER.key.text)
    assert link.capabilities == {"filesystem.read", "filesystem.write", "crm.read"}
    assert abs(link.ends - (time.time() + 365 * DAY)) < 60
    assert f"parent_key: {ORG.key.text}" in answer.out


@pytest.mark.requirement("XP-8.6-2")
def test_without_a_list_of_capabilities_nothing_is_delegated(shell: Shell, keys: Path) -> None:
    """XP 8.6: a delegation is of something, never of everything."""
    answer = register(shell, keys)
    assert answer.code == 2
    assert "--capabilities is missing" in answer.err
    for nothing in ("", " , "):
        assert register(shell, keys, "--capabilities", nothing).code == 2
    everything = register(shell, keys, "--capabilities", "*")
    assert everything.code == 1
    assert "'*'" in everything.err
    assert not list(keys.glob("*.json"))


def test_with_a_configuration_short_names_are_written_out_and_the_key_is_known(
    shell: Shell, keys: Path
) -> None:
    """D-60, D-75; the delegation that the configuration names already may still be missing."""
    source = MINIMAL["mcp_sources"][0]
    document: dict[str, Any] = MINIMAL | {
        "identity": {"key_file": "adapter.key", "parent_delegation_event": "not-yet.json"},
        "mcp_sources": [
            source | {"name": "crm", "xprotocol_namespace": "com.acme.crm"},
            source
            | {
                "name": "files",
                "xprotocol_namespace": "com.acme.files",
                "capability_inference": "explicit",
                "capabilities": ["files.read"],
            },
        ],
    }
    file = written(keys, document)
    words = ("register", "--parent-key", keys / "org.key", "--config", file, "--json", "--force")
    output = shell(*words, "--capabilities", "crm.read,org.other.thing")
    assert output.json["capabilities"] == ["com.acme.crm.read", "org.other.thing"]
    assert output.json["delegated_key"] == ADAPTER.key.text
    assert shell(*words).json["capabilities"] == ["com.acme.crm.*", "com.acme.files.read"]
    # XP 9, week 1: the file has the document's name, and nothing needs to be said twice.
    file.rename(keys / "xprotocol-mcp-adapter.yml")
    output = shell("register", "--parent-key", keys / "org.key", "--output", keys / "week-1.json")
    assert output.code == 0


@pytest.mark.requirement("XP-6.1-3")
def test_a_department_hands_on_what_it_has_and_no_more(shell: Shell, keys: Path) -> None:
    """Root → department → adapter; the file holds the whole chain."""
    shell(
        *("register", "--key", keys / "dept.key", "--parent-key", keys / "org.key"),
        *("--capabilities", "com.acme.*", "--expires", "30d"),
    )
    by_department = (
        *("register", "--key", keys / "adapter.key", "--parent-key", keys / "dept.key", "--expires", "7d"),
        *("--parent-delegation", keys / "dept.delegation.json"),
    )
    output = shell(*by_department, "--capabilities", "com.acme.crm.read", "--json")
    assert (output.json["root"], output.json["parent_key"]) == (ORG.key.text, DEPARTMENT.key.text)
    chain = read_chain((keys / "adapter.delegation.json").read_bytes(), holder=ADAPTER.key.text)
    assert chain.keys == (ORG.key.text, DEPARTMENT.key.text, ADAPTER.key.text)
    more = shell(*by_department, "--capabilities", "org.other.read", "--force")
    assert more.code == 1
    assert "not ours to hand on" in more.err
    longer = shell(*by_department, "--capabilities", "com.acme.crm.read", "--expires", "60d", "--force")
    assert "ends before that" in longer.err
    stolen = keys / "stolen.json"
    events = json.loads((keys / "adapter.delegation.json").read_text())
    stolen.write_text(json.dumps(events[1:]))
    with pytest.raises(InvalidStatement):
        read_chain(stolen.read_bytes(), holder=ADAPTER.key.text)


def test_nothing_is_overwritten_and_bad_keys_and_times_are_told(shell: Shell, keys: Path) -> None:
    words = ("--capabilities", "com.acme.read")
    assert register(shell, keys, *words).code == 0
    again = register(shell, keys, *words)
    assert again.code == 1
    assert "use --force" in again.err
    assert register(shell, keys, *words, "--force").code == 0
    past = register(shell, keys, *words, "--force", "--expires", "2020-01-01")
    assert "must end in the future" in past.err
    assert register(shell, keys, *words, "--expires", "soon").code == 2
    nobody = shell("register", "--key", "ed25519:abc", "--parent-key", keys / "org.key", *words)
    assert nobody.code == 1
    missing = shell("register", "--key", BOB.key.text, "--parent-key", keys / "none.key", *words)
    assert "there is no key file" in missing.err
    itself = shell("register", "--key", ORG.key.text, "--parent-key", keys / "org.key", *words)
    assert "part of the chain already" in itself.err


async def test_a_revocation_is_signed_by_the_authority_and_reaches_a_relay(shell: Shell, keys: Path) -> None:
    async with relay_in(keys / "relay") as relay:
        words = ("revoke", ADAPTER.key.text, "--by", keys / "org.key", "--publish", relay.url, "--json")
        output = await asyncio.to_thread(shell, *words, "--output", keys / "void.json")
        assert output.json["published"] == relay.url
        signed = decode(json.dumps(json.loads((keys / "void.json").read_text())).encode())
        assert isinstance(signed, SignedPublic)
        verify_event(signed)
        assert signed.event.kind == REVOKE
        found = read_revocation(signed)
        assert (found.signer, found.revoked_key) == (ORG.key.text, ADAPTER.key.text)


def test_a_revocation_that_nobody_would_hear_of_is_a_mistake(shell: Shell, keys: Path) -> None:
    output = shell("revoke", ADAPTER.key.text, "--by", keys / "org.key")
    assert output.code == 2
    assert "--publish RELAY" in output.err
    unknown = shell("revoke", ADAPTER.key.text, "--by", keys / "org.key", "--publish")
    assert unknown.code == 2
    assert shell("revoke", "ed25519:abc", "--by", keys / "org.key", "--output", keys / "x").code == 1
