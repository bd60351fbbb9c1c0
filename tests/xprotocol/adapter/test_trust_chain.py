"""`xprotocol-adapter trust-chain`: who stands behind a key, from files, a relay and a host (XP 6.1)."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from moot.errors import MootError, UsageError
from moot.xprotocol.adapter.trust_chain.chain_evidence import ChainEvidence, walk_chain
from moot.xprotocol.adapter.trust_chain.chain_lookup import gather_evidence
from moot.xprotocol.adapter.trust_chain.key_registration import publish_events
from moot.xprotocol.adapter.trust_chain.own_chain import own_chain, trust_anchors
from moot.xprotocol.events.delegation import DelegationChain, assemble, delegate
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import ANNOUNCE, SignedPublic
from moot.xprotocol.events.key_statements import read_delegation
from moot.xprotocol.events.revocation import revoke
from moot.xprotocol.identity import keyfile
from moot.xprotocol.identity.keys import Identity
from tests.xprotocol.adapter.command_runner import CommandResult, Shell, run_program
from tests.xprotocol.adapter.test_settings import MINIMAL, settings_of, written
from tests.xprotocol.people import EVE, person
from tests.xprotocol.relay.raw_client import relay_in

ROOT, DEPARTMENT, ADAPTER = (person(name) for name in ("root", "department", "adapter"))
READ = "com.acme.files.read"


def chain_of(*people: Identity, ends: float = 3_600, capability: str = READ) -> list[SignedPublic]:
    """Each delegates to the next."""
    now = time.time()
    events: list[SignedPublic] = []
    by: DelegationChain | None = None
    for giver, taker in itertools.pairwise(people):
        events.append(delegate(giver, taker.key.text, [capability], ends=int(now + ends), now=now, by=by))
        known = {event.event.id: read_delegation(event) for event in events}
        by = assemble(events[-1].event.id, known.get)
    return events


def file_of(folder: Path, events: list[SignedPublic], name: str = "chain.json") -> Path:
    file = folder / name
    file.write_text(json.dumps([json.loads(event.raw) for event in events]))
    return file


def walked(shell: Shell, *words: str | Path) -> CommandResult:
    return shell("trust-chain", *words, "--json")


@pytest.mark.requirement("XP-6.1-4")
def test_a_chain_is_walked_up_to_its_root_and_shown(shell: Shell, tmp_path: Path) -> None:
    file = file_of(tmp_path, chain_of(ROOT, DEPARTMENT, ADAPTER))
    words = ("trust-chain", ADAPTER.key.text, "--delegation", file, "--trust", ROOT.key.text)
    output = shell(*words)
    assert output.code == 0
    lines = output.out.split("\n")
    assert lines[0] == f"{ROOT.key.text}  (root, trusted)"
    assert DEPARTMENT.key.text in lines[1]
    assert ADAPTER.key.text in lines[3]
    assert READ in lines[4]
    assert "the chain is valid" in output.out
    found = shell(*words, "--json").json
    assert (found["ok"], found["root"], found["trusted"]) == (True, ROOT.key.text, True)
    assert [link["to"] for link in found["links"]] == [DEPARTMENT.key.text, ADAPTER.key.text]


def test_without_a_trusted_key_the_root_is_shown_for_the_reader_to_judge(
    shell: Shell, tmp_path: Path
) -> None:
    file = file_of(tmp_path, chain_of(ROOT, ADAPTER))
    output = walked(shell, ADAPTER.key.text, "--delegation", file)
    assert output.code == 0
    assert (output.json["holds"], output.json["trusted"]) == (True, None)
    text = shell("trust-chain", ADAPTER.key.text, "--delegation", file).out
    assert "compare it with what its owner published" in text


def test_a_chain_that_does_not_hold_is_1_with_the_reason(shell: Shell, tmp_path: Path) -> None:
    whole = chain_of(ROOT, DEPARTMENT, ADAPTER)
    key, trust = ADAPTER.key.text, ("--trust", ROOT.key.text)
    cases: dict[str, list[SignedPublic]] = {
        "is not known": whole[1:],
        "no delegation to this key is known": whole[:1],
        "root is not trusted": chain_of(EVE, ADAPTER),
    }
    for words, events in cases.items():
        output = walked(shell, key, "--delegation", file_of(tmp_path, events), *trust)
        assert output.code == 1
        assert words in output.json["reason"]
    changed = json.loads(whole[1].raw)
    changed["payload"]["capabilities"] = ["com.acme.*"]
    file = tmp_path / "changed.json"
    file.write_text(json.dumps([json.loads(whole[0].raw), changed]))
    output = walked(shell, key, "--delegation", file, *trust)
    assert output.code == 1
    assert any("does not verify" in words for words in output.json["not_verified"])


def test_an_ended_chain_and_a_revoked_key_do_not_hold() -> None:
    now = time.time()
    evidence = ChainEvidence()
    for event in chain_of(ROOT, DEPARTMENT, ADAPTER, ends=60):
        evidence.add(json.loads(event.raw), "test")
    key, anchors = ADAPTER.key.text, {ROOT.key.text}
    assert walk_chain(key, evidence, anchors=anchors, now=now).holds
    ended = walk_chain(key, evidence, anchors=anchors, now=now + 61)
    assert ended.fault is not None
    assert "ended" in ended.fault
    # By somebody who does not stand above it: nothing.
    evidence.add(json.loads(revoke(EVE, DEPARTMENT.key.text, now=now).raw), "test")
    assert walk_chain(key, evidence, anchors=anchors, now=now).holds
    evidence.add(json.loads(revoke(ROOT, DEPARTMENT.key.text, now=now).raw), "test")
    revoked = walk_chain(key, evidence, anchors=anchors, now=now)
    assert not revoked.holds
    assert revoked.chain is not None


def test_whoever_is_trusted_revokes_everywhere_and_a_trusted_key_can_end_itself() -> None:
    now = time.time()
    evidence = ChainEvidence()
    for event in chain_of(ROOT, DEPARTMENT, ADAPTER):
        evidence.add(json.loads(event.raw), "test")
    security = person("security")
    evidence.add(json.loads(revoke(security, DEPARTMENT.key.text, now=now).raw), "test")
    assert walk_chain(ADAPTER.key.text, evidence, anchors={ROOT.key.text}, now=now).holds
    both = {ROOT.key.text, security.key.text}
    assert not walk_chain(ADAPTER.key.text, evidence, anchors=both, now=now).holds
    assert walk_chain(security.key.text, evidence, anchors=both, now=now).holds
    evidence.add(json.loads(revoke(security, security.key.text, now=now).raw), "test")
    assert not walk_chain(security.key.text, evidence, anchors=both, now=now).holds


def test_a_revocation_in_a_file_is_heeded(shell: Shell, tmp_path: Path) -> None:
    chain = file_of(tmp_path, chain_of(ROOT, ADAPTER))
    void = file_of(tmp_path, [revoke(ROOT, ADAPTER.key.text, now=time.time())], "void.json")
    output = walked(
        shell, ADAPTER.key.text, "--delegation", chain, "--revocation", void, "--trust", ROOT.key.text
    )
    assert output.code == 1
    assert "revoked" in output.json["reason"]


def test_files_of_one_event_of_several_and_of_one_a_line_are_read(shell: Shell, tmp_path: Path) -> None:
    events = chain_of(ROOT, DEPARTMENT, ADAPTER)
    one = tmp_path / "one.json"
    one.write_bytes(events[0].raw)
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b"\n".join(event.raw for event in events) + b"\n")
    assert walked(shell, ADAPTER.key.text, "--delegation", lines).code == 0
    assert walked(shell, DEPARTMENT.key.text, "--delegation", one).code == 0
    broken = tmp_path / "broken.json"
    broken.write_text("{not json")
    assert walked(shell, ADAPTER.key.text, "--delegation", broken).code == 1
    assert walked(shell, ADAPTER.key.text, "--delegation", tmp_path / "none").code == 1
    nothing = shell("trust-chain", ADAPTER.key.text)
    assert nothing.code == 2


async def test_a_relay_is_asked_for_what_a_key_announces_and_for_what_is_missing(
    shell: Shell, tmp_path: Path
) -> None:
    """The announce names the last link; the relay has the rest, and every revocation."""
    whole = chain_of(ROOT, DEPARTMENT, ADAPTER)
    now = time.time()
    announce = publish(ADAPTER, ANNOUNCE, {"display_name": "Files"}, now=now, delegation=whole[-1].event.id)
    async with relay_in(tmp_path / "relay") as relay:
        words = (ADAPTER.key.text, "--relay", relay.url, "--trust", ROOT.key.text)
        output = await asyncio.to_thread(walked, shell, *words)
        assert (output.code, output.json["links"]) == (1, [])
        await publish_events([relay.url], ROOT, [*whole, announce])
        output = await asyncio.to_thread(walked, shell, *words)
        assert output.code == 0
        assert len(output.json["links"]) == 2
        assert output.json["channels"][0]["agrees"] is True
        # An announce that brings the last link along: those above it are asked for by their ids.
        brought = {"display_name": "Files", "delegations": [json.loads(whole[-1].raw)]}
        newer = publish(ADAPTER, ANNOUNCE, brought, now=now + 1, delegation=whole[-1].event.id)
        await publish_events([relay.url], ROOT, [newer])
        output = await asyncio.to_thread(walked, shell, *words)
        assert (output.code, len(output.json["links"])) == (0, 2)
        # The department never announced anything; its delegation is found all the same.
        output = await asyncio.to_thread(walked, shell, DEPARTMENT.key.text, *words[1:])
        assert output.code == 0
        await publish_events([relay.url], ROOT, [revoke(ROOT, DEPARTMENT.key.text, now=time.time())])
        output = await asyncio.to_thread(walked, shell, *words)
        assert output.code == 1
        assert "revoked" in output.json["reason"]


async def test_a_relay_that_cannot_be_reached_is_told_and_proves_nothing() -> None:
    evidence = ChainEvidence()
    with pytest.raises(MootError, match=r"ws://127\.0\.0\.1:1 is available"):
        # Nothing listens on port 1.
        await gather_evidence(evidence, ADAPTER.key.text, ["ws://127.0.0.1:1"], within=0.5)
    assert not walk_chain(ADAPTER.key.text, evidence, anchors=(), now=time.time()).holds


def test_the_adapter_s_own_chain_is_the_configured_one(shell: Shell, tmp_path: Path) -> None:
    keyfile.create(tmp_path / "adapter.key", ADAPTER)
    identity: dict[str, Any] = {
        "key_file": "adapter.key",
        "parent_key": DEPARTMENT.key.text,
        "parent_delegation_event": str(file_of(tmp_path, chain_of(ROOT, DEPARTMENT, ADAPTER))),
    }
    config = written(tmp_path, MINIMAL | {"identity": identity, "trust": [ROOT.key.text]})
    output = walked(shell, "--config", config)
    assert output.code == 0
    assert output.json["key"] == ADAPTER.key.text
    config = written(tmp_path, MINIMAL | {"identity": identity})
    output = walked(shell, "--config", config)
    assert (output.code, output.json["root"]) == (0, ROOT.key.text)
    text = shell("trust-chain", "--config", config).out
    assert f"{DEPARTMENT.key.text}  (trusted)" in text
    assert f"{ROOT.key.text}  (root, not trusted here)" in text


def test_the_root_above_a_configured_parent_counts_as_proven_by_the_file(tmp_path: Path) -> None:
    """Whoever names a department and the file of its chain has named the organisation, too."""
    identity: dict[str, Any] = {
        "key_file": "adapter.key",
        "parent_key": DEPARTMENT.key.text,
        "parent_delegation_event": str(file_of(tmp_path, chain_of(ROOT, DEPARTMENT, ADAPTER))),
    }
    settings = settings_of(tmp_path, identity=identity)
    found = own_chain(settings, ADAPTER, now=time.time())
    assert found is not None
    assert trust_anchors(settings, found) == {ROOT.key.text, DEPARTMENT.key.text}
    assert trust_anchors(settings, None) == {DEPARTMENT.key.text}
    with pytest.raises(UsageError, match="expected one delegation to"):
        own_chain(settings, EVE, now=time.time())
    with pytest.raises(UsageError, match="the delegation ended"):
        own_chain(settings, ADAPTER, now=time.time() + 7_200)
    void = settings_of(tmp_path, identity=identity, revoked=[DEPARTMENT.key.text])
    with pytest.raises(UsageError, match="revoked"):
        own_chain(void, ADAPTER, now=time.time())


async def test_a_configuration_says_whom_to_ask_and_whom_to_trust(shell: Shell, tmp_path: Path) -> None:
    async with relay_in(tmp_path / "relay") as relay:
        await publish_events([relay.url], ROOT, chain_of(ROOT, ADAPTER))
        config = written(tmp_path, MINIMAL | {"relay": {"urls": [relay.url]}, "trust": [ROOT.key.text]})
        words = (ADAPTER.key.text, "--config", config)
        output = await asyncio.to_thread(walked, shell, *words)
        assert (output.code, output.json["trusted"]) == (0, True)
        # What is said outright wins.
        output = await asyncio.to_thread(walked, shell, *words, "--trust", EVE.key.text)
        assert (output.code, output.json["trusted"]) == (1, False)


@pytest.mark.requirement("XP-9-3", "XP-6.2-2")
async def test_week_1_an_outsider_verifies_who_authorised_the_adapter(tmp_path: Path) -> None:
    """XP 9: the organisation registers its adapter; who has nothing but its key and a relay checks it."""
    async with relay_in(tmp_path / "relay") as relay:
        inside, outside = tmp_path / "inside", tmp_path / "outside"
        for folder in (inside, outside):
            folder.mkdir()

        async def run_adapter(home: Path, *words: str) -> CommandResult:
            return await asyncio.to_thread(run_program, *words, "--json", env={"HOME": str(home)}, cwd=home)

        org = (await run_adapter(inside, "keygen", "--output", "org.key")).json["public_key"]
        adapter = (await run_adapter(inside, "keygen")).json["public_key"]
        written(inside, MINIMAL | {"relay": {"urls": [relay.url]}}).rename(
            inside / "xprotocol-mcp-adapter.yml"
        )
        registered = await run_adapter(inside, "register", "--parent-key", "org.key", "--publish")
        assert registered.code == 0
        assert registered.json["capabilities"] == ["com.mine.server.*"]
        verified = await run_adapter(outside, "trust-chain", adapter, "--relay", relay.url, "--trust", org)
        assert verified.code == 0
        assert (verified.json["root"], verified.json["trusted"]) == (org, True)
        stranger = await run_adapter(
            outside, "trust-chain", adapter, "--relay", relay.url, "--trust", EVE.key.text
        )
        assert stranger.code == 1
