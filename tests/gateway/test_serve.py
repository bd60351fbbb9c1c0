"""`moot serve` as people run it: starting, signals, reloading, and refusing what cannot be."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from moot.gateway import app
from moot.gateway.cluster import cluster_space_factory
from moot.gateway.hosting import journaled_space
from moot.net import http_listener
from moot.protocol.operation import Json
from moot.store.journal import Journal
from tests.gateway.disk import everything_under, file_mode
from tests.gateway.raw import raw_client
from tests.gateway.running_gateway import (
    CALL,
    ROOT,
    gateway_settings,
    participants,
    refusal_in,
    space_settings,
    write_config,
)
from tests.gateway.served import Finished, command, served, started
from tests.waiting import bounded

PEOPLE = participants(alice=["*"], bob=["chat"], carol=["chat"])


def settings(people: Json | None = None, **gateway: Json) -> Json:
    return gateway_settings({"lab": space_settings(people or PEOPLE)}, **gateway)


def test_what_stopping_waits_for_comes_to_5_seconds_at_most() -> None:
    """Peers that do not answer, requests that do not end, a disk that hangs: each has its share of them."""
    peers = app._GOODBYE_SECONDS + http_listener._SHUTDOWN_SECONDS
    database = journaled_space._LAST_SNAPSHOT_SECONDS + app._DATABASE_SECONDS
    assert peers + Journal.close_seconds + database <= 5
    # In a cluster, a NATS that does not answer, too.
    assert peers < app._LOG_SECONDS
    assert app._LOG_SECONDS + cluster_space_factory._CLOSE_SECONDS + database <= 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_stopping_tells_members_and_exits_0(tmp_path: Path, number: int) -> None:
    """Also with a peer that answers nothing and one in the middle of a request."""
    gateway = await started(write_config(tmp_path, settings()))
    async with raw_client(gateway.port) as stubborn, raw_client(gateway.port) as unfinished:
        alice = await gateway.join("alice")
        await stubborn.upgraded(token="t-bob")
        unfinished.send(b"POST /participants/bob/messages HTTP/1.1\r\nContent-Length: 100\r\n")
        await alice.ask("chat", {"text": "last words"})
        code, _ = await gateway.end(number)
        assert code == 0, gateway.stderr()
        assert await alice.closed() == (1001, "the gateway is stopping")
        frames = await stubborn.frames_until(8)
        assert frames[-1].code == 1001
    await gateway.close()
    assert "Traceback" not in gateway.stderr()
    code, output = await command("journal", "verify", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert code == 0, output
    assert b"last words" in everything_under(tmp_path / "data" / "spaces" / "lab" / "journal")


async def test_where_tokens_were_made_is_said_and_what_a_reload_leaves_out_too(tmp_path: Path) -> None:
    people: Json = {"alice": {"capabilities": ["*"]}}
    file = write_config(tmp_path, settings(people, admin_tokens={"root": {}}))
    async with served(file) as gateway:
        data = tmp_path / "data"
        assert f"token of administrator root: {data / 'admin' / 'root.token'}" in gateway.lines
        assert any(line.startswith("token of alice in lab: ") for line in gateway.lines)
        write_config(tmp_path, settings(people, admin_tokens={"root": {}}, max_connections=3))
        assert await gateway.reload() == "reloaded"
        await gateway.wait_for_line("gateway.max_connections is another: restart to take it over")
        assert not any("gateway.admin_tokens" in line for line in gateway.lines)


async def test_a_reload_names_the_first_administrator_and_takes_the_last_one_away(tmp_path: Path) -> None:
    people: Json = {"alice": {"capabilities": ["*"]}}
    file = write_config(tmp_path, settings(people))
    async with served(file) as gateway:
        write_config(tmp_path, settings(people, admin_tokens={"root": {}}))
        assert await gateway.reload() == "reloaded"
        made = ("space", "create", "garden", "--gateway", gateway.url, "--admin-token-file")
        token = tmp_path / "data" / "admin" / "root.token"
        code, output = await command(*made, str(token), cwd=tmp_path)
        made_like_lab = "garden is made, with the participants and tokens that lab has in the file\n"
        assert (code, output) == (0, made_like_lab)
        write_config(tmp_path, settings(people))
        assert await gateway.reload() == "reloaded"
        code, output = await command(*made, str(token), cwd=tmp_path)
        assert (code, "an administrator's token is needed" in output) == (3, True)


async def test_commands_in_its_folder_find_a_gateway_that_was_started_with_another_port(
    tmp_path: Path,
) -> None:
    """Whatever listens on the port of the file is sent no token."""
    people: Json = {"alice": {"capabilities": ["*"]}}
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = write_config(
            tmp_path, settings(people, port=other.getsockname()[1], admin_tokens={"root": {}})
        )
        async with served(file, "--port", "0"):
            code, output = await command("members", "--as", "alice", cwd=tmp_path)
            assert (code, "alice" in output) == (0, True), output
            code, output = await command("space", "list", cwd=tmp_path)
            assert (code, "in the file" in output) == (0, True), output
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


async def test_a_reload_changes_rights_and_drops_nobody_else(tmp_path: Path) -> None:
    """SIGHUP: rights, newcomers and rotated tokens; who is no longer named is removed."""
    file = write_config(tmp_path, settings())
    async with served(file) as gateway:
        alice, bob, carol = [await gateway.join(name) for name in ("alice", "bob", "carol")]
        assert await bob.refused("mcp/proposal", CALL) == "capability_violation"
        people = participants(alice=["*"], bob=["chat", "mcp/proposal"], dora=["chat"])
        people["alice"]["tokens"] = ["t-alice-2"]
        write_config(tmp_path, settings(people))
        assert await gateway.reload() == "reloaded"
        welcome = await bob.hear("system/welcome")
        assert welcome["payload"]["you"]["capabilities"] == [{"kind": "chat"}, {"kind": "mcp/proposal"}]
        assert await bob.refused("mcp/proposal", CALL) is None
        assert (await carol.closed())[0] == 4003
        await gateway.join("dora")
        # Rotated: that means now, and the old token opens nothing any more.
        assert (await alice.closed())[0] == 4003
        assert await gateway.status("/ws?space=lab", token="t-alice") == 401
        assert await gateway.status("/ws?space=lab", token="t-alice-2") == 101
        assert await gateway.status("/ws?space=lab", token="t-carol") == 401


BROKEN = {
    "not YAML": "gateway: {port: [",
    "unknown key": "spaces: {lab: {participant: {}}}",
    "bad capability": 'spaces: {lab: {participants: {alice: {capabilities: [{kind: "/(/"}]}}}}',
    "empty": "",
    "no spaces": "gateway: {port: 0}",
}


async def test_a_broken_file_changes_nothing_and_says_where(tmp_path: Path) -> None:
    file = write_config(tmp_path, settings())
    async with served(file) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        for text in BROKEN.values():
            file.write_text(text, "utf-8")
            answer = await gateway.reload()
            assert answer.startswith("not reloaded: "), answer
            assert "moot.yaml" in answer
        file.unlink()
        assert (await gateway.reload()).startswith("not reloaded: ")
        assert await bob.refused("chat", {"text": "still here"}) is None
        assert await bob.refused("mcp/proposal", CALL) == "capability_violation"
        await alice.hear("chat")
        assert await gateway.status("/ws?space=lab", token="t-carol") == 101
        # And a good one works again.
        write_config(tmp_path, settings(participants(alice=["*"], bob=["*"])))
        assert await gateway.reload() == "reloaded"
        assert await bob.refused("mcp/proposal", CALL) is None


async def test_check_says_what_a_configuration_means_and_makes_nothing(tmp_path: Path) -> None:
    file = write_config(
        tmp_path, {"spaces": {"lab": {"participants": {"alice": {"capabilities": ["chat"]}}}}}
    )
    code, output = await command("serve", str(file), "--check", cwd=tmp_path)
    assert code == 0, output
    assert "alice" in output
    assert [path.name for path in tmp_path.iterdir()] == ["moot.yaml"]
    for name in ("not YAML", "unknown key"):
        file.write_text(BROKEN[name], "utf-8")
        code, output = await command("serve", str(file), "--check", cwd=tmp_path)
        assert code == 2
        assert output.startswith("moot: ")
        assert "Traceback" not in output


async def test_a_port_or_data_folder_in_use_is_a_clear_error(tmp_path: Path) -> None:
    file = write_config(tmp_path, settings())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(Finished) as ended:
            await started(file, "--port", port)
    assert ended.value.code == 1
    assert ended.value.stderr.startswith(f"moot: cannot listen on 127.0.0.1 port {port}")
    assert "Traceback" not in ended.value.stderr
    async with served(file) as first:
        with pytest.raises(Finished) as ended:
            await started(file)
        assert ended.value.code == 1
        assert "another process" in ended.value.stderr
        assert "Traceback" not in ended.value.stderr
        await first.join("alice")


async def test_generated_tokens_are_for_their_owner_alone_and_open_the_door(tmp_path: Path) -> None:
    """Only hashes are kept elsewhere."""
    people: Json = {
        "alice": {"capabilities": [{"kind": "*"}]},
        "bob": {"token_env": "BOB", "capabilities": []},
    }
    file = write_config(tmp_path, settings(people))
    async with served(file, environ={"BOB": "t-from-environment"}) as gateway:
        kept = tmp_path / "data" / "tokens" / "alice.token"
        assert file_mode(kept) == 0o600
        assert file_mode(tmp_path / "data") == 0o700
        token = kept.read_text("ascii").strip()
        assert len(token) >= 40
        assert await gateway.status("/ws?space=lab", token=token) == 101
        assert await gateway.status("/ws?space=lab", token="t-from-environment") == 101
        assert str(kept) in await gateway.wait_for_line("token of alice in lab")
        assert token not in "".join(gateway.lines)
    kept.unlink()
    rest = everything_under(tmp_path / "data") + gateway.errors.read_bytes()
    assert token.encode() not in rest
    assert b"t-from-environment" not in rest


async def test_environment_and_options_override_the_file(tmp_path: Path) -> None:
    file = write_config(tmp_path, settings(port=1))
    environ = {"MOOT_GATEWAY__PORT": "0", "MOOT_GATEWAY__LOG__FORMAT": "json"}
    async with served(file, "--data", str(tmp_path / "elsewhere"), environ=environ) as gateway:
        await gateway.join("alice")
        assert (tmp_path / "elsewhere" / "spaces" / "lab").is_dir()
    for line in gateway.stderr().splitlines():
        assert {"time", "level", "message"} <= json.loads(line).keys()


async def test_the_log_holds_ids_and_sizes_and_never_payloads_or_tokens(tmp_path: Path) -> None:
    """At its most talkative."""
    log: Json = {"level": "debug", "format": "json", "file": "gateway.log"}
    file = write_config(tmp_path, settings(log=log, allow_query_token=True))
    async with served(file) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await bob.ask("chat", {"text": "a payload that nobody logs"})
        assert await bob.refused("mcp/request", CALL) == "capability_violation"
        invited = await alice.ask(
            "space/invite", {"participant_id": "zoe", "reason": "a reason that nobody logs"}
        )
        secret = invited["payload"]["token"]
        assert await gateway.status(f"/ws?space=lab&token={secret}") == 101
        assert await gateway.status("/ws?space=lab&token=wrong-query-token") == 401
        join = await gateway.open("/")
        await join.send({"type": "join", "space": "lab", "token": "wrong-join-token"})
        await join.closed()
        await gateway.post(
            "bob", {"kind": "chat", "payload": {"text": "nobody logs"}}, token="wrong-post-token"
        )
        await bob.leave()
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
    text = (tmp_path / "gateway.log").read_text("utf-8") + gateway.stderr()
    for one in (
        secret,
        "t-alice",
        "t-bob",
        ROOT,
        "wrong-query-token",
        "wrong-join-token",
        "wrong-post-token",
    ):
        assert one not in text
    assert "nobody logs" not in text
    lines = [json.loads(line) for line in (tmp_path / "gateway.log").read_text("utf-8").splitlines()]
    for message in ("joined", "left", "refused"):
        assert any(line["message"] == message and line.get("participant") == "bob" for line in lines), message


async def test_memory_stays_bounded_while_readers_stall(tmp_path: Path) -> None:
    """80 MB go by; those who do not read are kept 1 MiB each at most."""
    people = participants(alice=["*"], **{f"slow-{number}": ["chat"] for number in range(6)})
    rules: Json = {"limits": {"messages_per_second": 0, "bytes_per_second": 0}}
    spaces = {"lab": space_settings(people, **rules)}
    async with served(write_config(tmp_path, gateway_settings(spaces, journal="off"))) as gateway:
        alice = await gateway.join("alice", "&echo=0")
        before = gateway.resident_bytes()
        largest = before
        async with bounded():
            links = [raw_client(gateway.port, receive_buffer=4096) for _ in range(6)]
            clients = [await link.__aenter__() for link in links]
            for number, client in enumerate(clients):
                await client.upgraded(token=f"t-slow-{number}")
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(160):
                await alice.say("chat", {"text": "x" * (500 << 10)})
                await alice.fence()
                largest = max(largest, gateway.resident_bytes())
            for link in links:
                await link.__aexit__(None, None, None)
        # Polling keeps 8 MiB, each line at most 1 MiB and the transport's 256 KiB.
        assert largest - before < 48 << 20
        assert not any(refusal_in(each) for each in await alice.fence())
