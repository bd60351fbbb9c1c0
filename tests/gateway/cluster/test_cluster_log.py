"""The log of a cluster: one tree on all gateways, and one of them signs at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.log_check import check_log
from moot.evidence.log_files import LogReader
from moot.evidence.log_keys import read_keys, rotate_key, use_keys
from moot.evidence.merkle_tree import proves_consistency
from moot.evidence.receipt_maker import receipt_of
from moot.evidence.receipt_verify import verify_receipt
from moot.evidence.witness_policy import parse_policy
from moot.gateway.cluster.nats.log_exchange import LogExchange, key_of
from moot.gateway.evidence import cluster_log
from moot.protocol.operation import Json
from moot.store.journal import SharedRecords
from moot.store.journal_reader import read_records
from moot.store.record_chain import entry_of, shared_number
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.log_failovers import run_log_failovers
from tests.gateway.cluster.log_step_kills import kill_at
from tests.gateway.cluster.moot_killed_at_step import STEPS
from tests.gateway.running_gateway import CALL, LocalGateway, participants, running_gateway
from tests.waiting import until


def reader_of(gateway: LocalGateway) -> LogReader:
    return LogReader(gateway.journal().parent / "log")


def signed_by(gateway: LocalGateway) -> Checkpoint:
    """The newest checkpoint on a gateway's disk; an empty one before it has a log."""
    try:
        return reader_of(gateway).signed()[0]
    except UsageError:
        return Checkpoint("", 0, b"")


def records_of(gateway: LocalGateway) -> SharedRecords:
    return gateway.gateway.logs.records_of(gateway.gateway.directory.hosts["lab"])


def log_of(gateway: LocalGateway) -> str:
    return f"lab/{records_of(gateway).id}"


async def wait_signed(*gateways: LocalGateway) -> Checkpoint:
    """Until all of them have the same checkpoint for all that was said."""
    await until(lambda: {signed_by(each).size for each in gateways} == {records_of(gateways[0]).count})
    assert len({signed_by(each).root for each in gateways}) == 1
    assert not [
        each.gateway.logs.logs["lab"].broken for each in gateways if each.gateway.logs.logs["lab"].broken
    ]
    return signed_by(gateways[0])


def shared_entries(gateway: LocalGateway) -> dict[int, bytes]:
    found = {shared_number(each.line): entry_of(each.line) for each in read_records(gateway.journal())}
    found.pop(0, None)
    return found


async def test_all_gateways_have_one_tree_and_one_signs(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b, start("c") as c:
        alice, bob = await a.join("alice"), await b.join("bob")
        for number in range(5):
            await alice.ask("chat", {"text": f"a{number}"})
            await bob.ask("chat", {"text": f"b{number}"})
        # A refusal is in the journal of the gateway that refused, and in no log.
        await bob.refused("space/invite", {"participant_id": "bob"})
        checkpoint = await wait_signed(a, b, c)
        assert shared_entries(a) == shared_entries(b) == shared_entries(c)
        assert sorted(shared_entries(a)) == list(range(1, checkpoint.size + 1))
        assert len({str(read_keys(each.gateway.config.data)).split("/")[0] for each in (a, b, c)}) == 1
        exchange = a.gateway.logs.exchange
        assert exchange is not None
        seen = await exchange.read(log_of(a), "checkpoint")
        assert seen is not None
        assert parse_checkpoint(seen.raw)[0] == checkpoint
        record = next(each for each in read_records(c.journal()) if each.kind == "chat")
        proof = await c.gateway.logs.proof_of("lab", record.number)
        assert proof is not None
        assert proof.proves(entry_of(record.line))


async def test_the_next_one_continues_the_tree_when_the_signer_is_gone(start: StartGateway) -> None:
    async with start("b") as b:
        async with start("a") as a:
            alice = await a.join("alice")
            await alice.ask("chat", {"text": "before"})
            before = await wait_signed(a, b)
        bob = await b.join("bob")
        await bob.ask("chat", {"text": "after"})
        after = await wait_signed(b)
        assert b.gateway.logs.logs["lab"].is_signer
        assert after.size > before.size
        path = reader_of(b).consistency(before.size, after.size)
        assert proves_consistency(before.size, before.root, after.size, after.root, path)
        async with start("a") as a:
            assert await wait_signed(a, b)


async def test_a_gateway_without_the_past_has_the_whole_tree(
    start: StartGateway, tmp_path: Path, settings: dict[str, Json]
) -> None:
    settings["snapshot_inputs"] = 1000
    async with start("a") as a:
        alice = await a.join("alice")
        for number in range(400):
            await alice.say("chat", {"text": str(number)})
        await alice.fence()
        for number in range(1100):
            await alice.say("chat", {"text": str(number)})
            if not number % 100:
                await alice.fence()
        await alice.fence()
        assert a.gateway.node is not None
        await until(lambda: a.gateway.node.shards[0].stored.position > 0)  # type: ignore[union-attr]
        async with start("b") as b:
            assert min(shared_entries(b), default=2) > 1, "it began at a snapshot"
            await (await b.join("bob")).ask("chat", {"text": "new here"})
            checkpoint = await wait_signed(a, b)
            assert reader_of(b).root(checkpoint.size) == checkpoint.root
        shutil.rmtree(tmp_path / "b")


async def test_a_copy_that_differs_is_not_signed_for(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a") as a:
        alice = await a.join("alice")
        async with start("b") as b:
            await alice.ask("chat", {"text": "the truth"})
            await wait_signed(a, b)
        shutil.rmtree(tmp_path / "b" / "spaces" / "lab" / "log", ignore_errors=True)
        shutil.rmtree(b.journal().parent / "log", ignore_errors=True)
        await wait_signed(a)
        with monkeypatch.context() as other:
            # So that each record is looked at by itself.
            other.setattr(cluster_log, "entries_between", lambda *_: None)
            other.setattr(cluster_log, "entry_of", lambda line: entry_of(line.replace(b"truth", b"troth")))
            async with start("b") as b:
                await until(lambda: bool("lab" in b.gateway.logs.logs and b.gateway.logs.logs["lab"].broken))
                assert "others than those here" in b.gateway.logs.logs["lab"].broken
                assert 'moot_log_signed{space="lab"} 0' in b.gateway.metrics()
        await alice.ask("chat", {"text": "more"})
        await wait_signed(a)


async def test_a_checkpoint_replaces_the_one_that_was_seen_and_no_other(
    start: StartGateway,
) -> None:
    async with start("a") as a, start("b") as b:
        exchanges = [each.gateway.logs.exchange for each in (a, b)]
        first, second = [each for each in exchanges if isinstance(each, LogExchange)]
        assert await first.replace("x", "checkpoint", "one", None)
        assert not await second.replace("x", "checkpoint", "two", None)
        seen = await second.read("x", "checkpoint")
        assert seen is not None
        assert (seen.by, seen.raw) == ("a", b"one")
        assert await second.replace("x", "checkpoint", "two", seen)
        assert not await first.replace("x", "checkpoint", "three", seen)


async def test_a_key_that_was_rotated_at_one_gateway_is_the_cluster_s(start: StartGateway) -> None:
    async with start("a") as a:
        async with start("b") as b:
            await (await a.join("alice")).ask("chat", {"text": "old key"})
            await wait_signed(a, b)
        rotated = rotate_key(b.gateway.config.data)
        async with start("b") as b:
            await (await b.join("bob")).ask("chat", {"text": "new key"})
            await wait_signed(a, b)
            keys = read_keys(b.gateway.config.data)
            assert keys is not None
            assert keys.private == rotated.private


@pytest.mark.parametrize("kept", [True, False])
async def test_a_set_back_checkpoint_of_nats_is_passed_over(start: StartGateway, kept: bool) -> None:
    """What gateways have on their disks is not signed another time otherwise."""
    async with start("a") as a:
        alice = await a.join("alice")
        await alice.ask("chat", {"text": "one"})
        before = await wait_signed(a)
        exchange = a.gateway.logs.exchange
        assert exchange is not None
        log = log_of(a)
        early = await exchange.read(log, "checkpoint")
        assert early is not None
        await alice.ask("chat", {"text": "two"})
        later = await wait_signed(a)
        seen = await exchange.read(log, "checkpoint")
        if kept:
            assert await exchange.replace(log, "checkpoint", early.raw.decode(), seen)
        else:
            await (await exchange._bucket.open()).delete(f"{key_of(log)}.checkpoint")
        await alice.ask("chat", {"text": "three"})
        after = await wait_signed(a)
        assert after.size > later.size > before.size
        path = reader_of(a).consistency(later.size, after.size)
        assert proves_consistency(later.size, later.root, after.size, after.root, path)


def test_entries_of_a_cluster_do_not_have_the_number_of_one_gateway() -> None:
    tail = b'"t":1,"in":"leave","c":7,"s":"%b"}\n' % (b"x" * 22)
    assert entry_of(b'{"n":1,' + tail) == entry_of(b'{"n":23,' + tail)
    assert shared_number(b'{"n":1,' + tail) == 7
    plain = b'{"n":1,"t":1,"in":"leave","raw":{"c":7},"s":"%b"}\n' % (b"x" * 22)
    assert shared_number(plain) == 0
    assert msgspec.json.decode(plain)["n"] == 1


def test_signers_are_killed_and_the_next_one_continues_the_tree() -> None:
    """Three gateways on three servers of NATS; `make soak` has fifty such rounds."""
    assert "2 signers killed" in run_log_failovers(2, seed=1)


def test_a_signer_that_is_killed_between_two_steps_leaves_one_tree_and_none_ahead_of_its_disk() -> None:
    """`make soak` has each step four times."""
    steps = [STEPS[1], STEPS[6], STEPS[10]]
    assert "3 signers killed" in kill_at(steps, seed=1)


async def test_a_space_of_an_earlier_cluster_begins_a_log_of_its_own(
    start: StartGateway, settings: dict[str, Json]
) -> None:
    """Its journal has records of both, which count from 1 each."""
    async with start("a") as a:
        await (await a.join("alice")).ask("chat", {"text": "in the first"})
        first = await wait_signed(a)
    again = {"name": f"{settings['name']}again"}
    async with start("a", cluster=again) as a:
        # Before anything is said: what it has of the first is no copy of this one.
        pass
    async with start("a", cluster=again) as a:
        await (await a.join("alice")).ask("chat", {"text": "in the second"})
        second = await wait_signed(a)
        assert second.origin != first.origin
        folder = reader_of(a).folder
        report = check_log(a.journal(), folder, [], None)
        assert not report.faults
        assert sorted(folder.parent.glob("log.*"))
        said = [each.envelope for each in read_records(a.journal()) if each.kind == "chat"]
        assert len(said) == 2
    async with start("a", cluster=again) as a:
        await (await a.join("alice")).ask("chat", {"text": "and on"})
        third = await wait_signed(a)
        assert third.origin == second.origin
        assert third.size > second.size


async def test_a_receipt_comes_from_any_gateway_and_a_stranger_verifies_it(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob, carol = await a.join("alice"), await b.join("bob"), await b.join("carol")
        proposal = await alice.say("mcp/proposal", CALL, to=["carol"])
        await bob.hear(lambda m: m["id"] == proposal)
        await bob.ask("mcp/request", CALL, to=["carol"], about=[proposal])
        await carol.fence()
        await wait_signed(a, b)
        keys = read_keys(a.gateway.config.data)
        assert keys is not None
        origin = reader_of(a).about.origin
        policy = parse_policy(f"log {keys.verifiers(origin)[0]}\nquorum none\n".encode())
        receipts = [receipt_of(each.journal(), proposal, ()).as_bytes() for each in (a, b)]
        for raw in receipts:
            verdict = verify_receipt(raw, policy)
            assert verdict.ok, verdict.problems
        bad = receipts[0].replace(b"read_file", b"read_fine")
        assert not verify_receipt(bad, policy).ok


async def test_what_witnesses_signed_is_known_at_every_gateway(start: StartGateway, tmp_path: Path) -> None:
    async with start("a") as a:
        await (await a.join("alice")).ask("chat", {"text": "so that there is a log"})
        await wait_signed(a)
        keys = read_keys(a.gateway.config.data)
        assert keys is not None
        log = keys.verifiers(reader_of(a).about.origin)[0]
    (tmp_path / "w" / "data").mkdir(parents=True, mode=0o700)
    witness = use_keys(tmp_path / "w" / "data").witness().verifier
    people = participants(alice=["*"])
    async with running_gateway(tmp_path / "w", people, journal={"witness_for": [str(log)]}) as other:
        policy = tmp_path / "policy"
        policy.write_text(f"log {log}\nwitness them {witness} {other.url}/witness\nquorum them\n")
        asking: dict[str, Json] = {"witnesses": str(policy)}
        async with start("a", journal=asking) as a, start("b", journal=asking) as b:
            await (await a.join("alice")).ask("chat", {"text": "witness this"})
            checkpoint = await wait_signed(a, b)
            for each in (a, b):
                await until(lambda each=each: cosigned_size(each) >= checkpoint.size)  # type: ignore[misc]
                found = reader_of(each).cosigned()
                assert found is not None
                assert set(signers(found[1], [log, witness])) == {log, witness}


def cosigned_size(gateway: LocalGateway) -> int:
    found = reader_of(gateway).cosigned()
    return 0 if found is None else found[0].size
