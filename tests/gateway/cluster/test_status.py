"""What operators are told of a cluster, by any of its gateways."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from nats.js.api import StreamInfo

from moot import __version__
from moot.cli import main
from moot.cli.client import gateway_request
from moot.config import load
from moot.errors import Refused
from moot.gateway.cluster import cluster_status
from moot.gateway.cluster.cluster_metrics import CLUSTER_METRICS
from moot.gateway.cluster.cluster_status import stream_problems
from moot.gateway.cluster.nats import log_reader
from moot.gateway.cluster.nats.stream_health import StreamHealth, read_stream_info
from moot.gateway.gateway_metrics import GATEWAY_METRICS
from moot.protocol.operation import Json
from tests.gateway.cluster import shifted_log
from tests.gateway.cluster.conftest import PATIENT, PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import ROOT, LocalGateway, participants, running_gateway, write_config
from tests.gateway.served import served
from tests.gateway.test_figures import families, value
from tests.waiting import HANG_SECONDS, until, until_told


async def report(gateway: LocalGateway, **params: str) -> dict[str, Any]:
    answer = await gateway.admin("GET", "cluster", **params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def reported_gateway(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in status["gateways"] if each["name"] == name)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which everybody lives: they are waited for, on a busy machine, too."""
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(cluster_status, "_COMPARE_SECONDS", HANG_SECONDS)


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "root.token"
    file.write_text(ROOT)
    file.chmod(0o600)
    return str(file)


async def until_serving(asked: LocalGateway, name: str) -> None:
    """On a busy machine a gateway may not answer within the second that another one waits for it."""

    async def is_serving() -> bool:
        gateways = (await report(asked))["gateways"]
        return any((each["name"], each["state"]) == (name, "serving") for each in gateways)

    await until_told(is_serving)


@pytest.mark.usefixtures("patient")
async def test_any_gateway_tells_of_all_and_only_to_administrators(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice = await a.join("alice")
        await alice.ask("chat", {"text": "a word that is said"})
        for gateway in (a, b):
            status = await report(gateway)
            assert status["problems"] == []
            assert status["answered_by"] == ("a" if gateway is a else "b")
            assert [each["name"] for each in status["gateways"]] == ["a", "b"]
            assert re.fullmatch(r"2\.\d+\.\d+", status["nats"]["version"])
            (stream,) = status["nats"]["streams"]
            assert (stream["answers"], stream["copies"], stream["current_copies"]) == (True, 1, 1)
            for each in status["gateways"]:
                assert (each["state"], each["version"], each["epoch"]) == ("serving", __version__, 1)
                assert 0 <= each["heartbeat_age_seconds"] < HANG_SECONDS
                (shard,) = each["shards"]
                assert shard["position"] + shard["lag"] >= stream["last"] > 0
            told = json.dumps(status)
            assert not [word for word in ("t-alice", ROOT, "a word", "alice") if word in told]
        for headers in ({}, {"Authorization": "Bearer t-alice"}):
            assert (await a.http.get("/admin/cluster", headers=headers)).status_code == 403
        assert (await a.admin("GET", "cluster", compare="perhaps")).status_code == 400


@pytest.mark.usefixtures("patient")
async def test_states_are_compared_at_one_message_and_a_difference_is_named(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        assert reported_gateway(await report(a), "b")["shards"][0]["hashed_at"] == 0
        same = await report(b, compare="true")
        assert same["problems"] == []
        hashed = [(each["hashed_at"], each["hashes"]) for g in same["gateways"] for each in g["shards"]]
        assert hashed[0] == hashed[1]
        assert hashed[0][0] > 0
        assert hashed[0][1].keys() == {"lab"}
        b.gateway.directory.hosts["lab"].space.state.sessions_joined += 1
        for gateway in (a, b):
            (problem,) = (await report(gateway, compare="true"))["problems"]
            assert problem.startswith("the state of lab differs behind message ")
        # It only tells; a snapshot is what decides.
        assert b.gateway.node is not None
        assert not b.gateway.node.failed.done()


async def test_who_does_not_answer_is_not_called_gone_and_who_stopped_is_no_problem(
    start: StartGateway, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    async with start("a") as a:
        async with start("c"):
            await until_serving(a, "c")
        config = yaml.safe_load((tmp_path / "a" / "moot.yaml").read_text())
        config["gateway"]["cluster"]["gateway"] = "b"
        (folder / "moot.yaml").write_text(json.dumps(config))
        (folder / "moot.yaml").chmod(0o600)
        async with served(folder / "moot.yaml") as b:
            await until_serving(a, "b")
            await b.end(signal.SIGKILL)
        status = await report(a)
        assert reported_gateway(status, "c")["state"] == "gone"
        silent = reported_gateway(status, "b")
        assert (silent["state"], silent["version"], silent["shards"]) == ("no answer", __version__, [])
        assert status["problems"] == ["gateway b writes to the log, and did not answer within 1 s"]


async def test_without_nats_a_gateway_tells_what_it_knows_and_no_password(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    folder.mkdir()
    servers = NatsServers(folder, extra="authorization { user: moot, password: hush-hush }")
    cluster: dict[str, Json] = {
        "servers": [servers.addresses[0].replace("//", "//moot:hush-hush@")],
        "replicas": 1,
        "shards": 2,
        "gateway": "a",
        "heartbeat_seconds": 0.1,
    } | PATIENT
    try:
        async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
            before = await report(a)
            assert before["problems"] == []
            assert before["nats"]["server"] == servers.addresses[0].removeprefix("nats://")
            assert "hush" not in json.dumps(before)
            assert await value(a, "moot_cluster_serving") == 1
            servers.kill(0)
            set_bounds(a, unavailable_seconds=0.3, stale_seconds=0.6)

            async def is_cut_off() -> dict[str, Any] | None:
                status = await report(a, compare="true")
                return status if reported_gateway(status, "a")["state"] == "cut off" else None

            status = await until_told(is_cut_off)
            assert status is not None
            assert status["nats"]["connected"] is False
            assert status["nats"]["server"] is None
            assert [each["answers"] for each in status["nats"]["streams"]] == [False, False]
            assert [each["lag"] for each in reported_gateway(status, "a")["shards"]] == [None, None]
            told = "\n".join(status["problems"])
            assert "gateway a is not connected to NATS" in told
            assert "gateway a is cut off: its heartbeat has not come back for" in told
            assert "the states could not be compared: " in told
            assert "hush" not in json.dumps(status)
            assert await value(a, "moot_cluster_serving") == 0
            assert await value(a, "moot_cluster_nats_connected") == 0
            assert await value(a, "moot_cluster_log_age_seconds", shard="1") > 0.6
    finally:
        servers.close()


async def test_metrics_tell_how_old_and_long_the_log_is_how_nats_answers_and_whose_clock_is_wrong(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_place_of", log_reader._place_of)
    shifts = tmp_path / "shifts"
    shifts.touch()
    shifted_log.shift_log(shifts)
    cluster: Json = {"heartbeat_seconds": 0.1, "snapshot_inputs": 40}
    async with start("a", cluster=cluster) as a:
        node = a.gateway.node
        assert node is not None
        shard = node.shards[0]
        began = await value(a, "moot_cluster_snapshot_age_seconds", shard="0")
        assert 0 <= began < HANG_SECONDS
        assert await value(a, "moot_cluster_log_messages", shard="0") <= shard.log.position
        await until(lambda: shard.stored.position > 0)
        assert await value(a, "moot_cluster_snapshot_age_seconds", shard="0") < HANG_SECONDS
        position, stored = shard.log.position, shard.stored.position
        since = await value(a, "moot_cluster_log_messages", shard="0")
        assert position - shard.stored.position <= since <= shard.log.position - stored
        assert await value(a, "moot_cluster_publish_seconds_count", shard="0") > 0
        assert abs(await value(a, "moot_cluster_clock_offset_seconds", shard="0")) < HANG_SECONDS
        shifts.write_text(f"{time.time():.6f} 3600\n", "ascii")
        await until(lambda: shard.log.clock_offset_seconds > 3600 - HANG_SECONDS)
        assert await value(a, "moot_cluster_clock_offset_seconds", shard="0") < 3600 + HANG_SECONDS


def test_copies_that_are_not_current_are_named_by_their_server() -> None:
    def info(*late: str) -> StreamHealth:
        peers = [{"name": each, "current": each not in late, "active": 1} for each in ("n1", "n2")]
        info = StreamInfo.from_response(
            {
                "config": {"name": "moot-log-0"},
                "state": {"messages": 1, "bytes": 1, "first_seq": 1, "last_seq": 1, "consumer_count": 0},
                "cluster": {"name": "c", "leader": "n0", "replicas": peers},
            }
        )
        return read_stream_info(info)

    assert info("n1").current_copies == 2
    assert list(stream_problems({0: info(), 1: info()})) == []
    assert list(stream_problems({0: info("n2"), 1: None, 2: info("n1", "n2")})) == [
        "JetStream does not answer for shard 1: it elects a leader, or too few NATS servers run",
        "NATS server n1 is away or behind (shard 2)",
        "NATS server n2 is away or behind (shard 0, 2)",
    ]


@pytest.mark.usefixtures("patient")
async def test_what_differs_between_configurations_is_named_until_a_reload(
    start: StartGateway, tmp_path: Path
) -> None:
    other = participants(alice=["chat"], eve=["*"])
    async with start("a") as a, start("b", other, cluster={"unavailable_seconds": 7}) as b:
        assert (await report(a))["problems"] == [
            "gateway b started with another configuration: space lab: participants",
            "gateway.cluster.unavailable_seconds differs: a: 300; b: 7",
        ]
        assert await value(b, "moot_cluster_configuration_differences") == 1
        settings = yaml.safe_load((tmp_path / "a" / "moot.yaml").read_text())
        settings["spaces"]["lab"]["participants"] = other
        a.gateway.reload(load(write_config(tmp_path / "a", settings), environ={}))

        async def is_settled() -> bool:
            return not reported_gateway(await report(a), "b")["differences"]

        await until_told(is_settled)
        assert await value(b, "moot_cluster_configuration_differences") == 0


@pytest.mark.usefixtures("patient")
async def test_a_gateway_of_a_cluster_has_the_metrics_that_are_described(start: StartGateway) -> None:
    async with start("a", cluster={"shards": 2}) as a, start("b", cluster={"shards": 2}):
        found = await families(a)
        described = {each.name: each for each in (*GATEWAY_METRICS, *CLUSTER_METRICS)}
        assert {each for each in found if each.startswith("moot_cluster_")} == {
            each.name for each in CLUSTER_METRICS
        }
        assert found.keys() <= described.keys()
        assert await value(a, "moot_cluster_gateways") == 2
        assert await value(a, "moot_cluster_nats_connected") == 1
        for shard in ("0", "1"):
            assert await value(a, "moot_cluster_log_position", shard=shard) > 0
            assert await value(a, "moot_cluster_reader_starts_total", shard=shard) == 1


@pytest.mark.usefixtures("patient")
async def test_the_command_shows_it_to_people_and_to_programs(
    start: StartGateway, token_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start("a") as a, start("b", cluster={"stale_seconds": 700}) as b:
        # The first does not answer: nobody listens there.
        urls = f"http://127.0.0.1:9,{b.url}"
        command = ["cluster", "status", "--gateway", urls, "--admin-token-file", token_file, "--compare"]
        # Something is wrong, which a script finds out by the exit code.
        assert await asyncio.to_thread(main, [*command, "--json"]) == 1
        status = json.loads(capsys.readouterr().out)
        assert (status["answered_by"], len(status["gateways"])) == ("b", 2)
        assert await asyncio.to_thread(main, command) == 1
        shown = capsys.readouterr().out
        assert "asked gateway b" in shown
        for name in ("a", "b"):
            row = next(line.split() for line in shown.splitlines() if line.startswith(f"{name} "))
            assert row[1:3] == ["serving", __version__]
        assert "READ BY a" in shown
        assert next(line for line in shown.splitlines() if line.startswith("lab ")).endswith("a, b")
        assert "problem: gateway.cluster.stale_seconds differs: a: 600; b: 700" in shown
        assert a.url != b.url
    async with start("a") as a:
        command[3] = a.url
        assert await asyncio.to_thread(main, command[:-1]) == 0
        shown = capsys.readouterr().out
        assert "gone" in shown
        assert "--compare hashes all of them now" in shown
        assert shown.endswith("no problem found\n")


async def test_the_command_says_what_to_do_when_it_cannot(
    tmp_path: Path, token_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOOT_URL", "MOOT_ADMIN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir("/")

    async def said(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["cluster", "status", *words])
        return code, capsys.readouterr().err

    async with running_gateway(tmp_path, PEOPLE) as alone:
        code, words = await said()
        assert (code, "--gateway URL is missing" in words) == (2, True)
        code, words = await said("--gateway", alone.url)
        assert (code, "--admin-token-file FILE is missing" in words) == (2, True)
        code, words = await said("--gateway", alone.url, "--admin-token-file", token_file)
        assert (code, "gateway.cluster is not configured" in words) == (3, True)
        Path(token_file).write_text("t-alice")
        code, words = await said("--gateway", alone.url, "--admin-token-file", token_file)
        assert (code, "an administrator's token is needed" in words) == (3, True)
        code, words = await said("--gateway", "http://127.0.0.1:9", "--admin-token-file", token_file)
        assert (code, "http://127.0.0.1:9 cannot be reached: connection refused" in words) == (5, True)


def test_a_token_of_the_environment_goes_to_no_host_that_a_file_names(
    tmp_path: Path, token_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def answer(_method: str, url: str, _path: str, token: str, **_more: object) -> dict[str, Any]:
        asked.append((url, token))
        raise Refused("enough")

    monkeypatch.setattr(gateway_request, "request_json", answer)
    monkeypatch.setenv("MOOT_ADMIN_TOKEN_FILE", token_file)
    monkeypatch.delenv("MOOT_URL", raising=False)
    folder = tmp_path / "cloned"
    folder.mkdir()
    text = "gateway: {host: elsewhere.example, port: 80}\nspaces: {lab: {participants: {you: ['*']}}}\n"
    (folder / "moot.yaml").write_text(text)
    monkeypatch.chdir(folder)
    assert main(["cluster", "status"]) == 2
    assert "--admin-token-file FILE is missing" in capsys.readouterr().err
    assert asked == []
    # What is said outright goes there, and that of the environment where the environment says.
    assert main(["cluster", "status", "--admin-token-file", token_file]) == 3
    monkeypatch.setenv("MOOT_URL", "https://prod.example")
    assert main(["cluster", "status"]) == 3
    assert asked == [("http://elsewhere.example:80", ROOT), ("https://prod.example", ROOT)]
