"""`moot mcp` as a client starts it: a process on stdio or HTTP; the gateway may go and come back."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp import Client, StdioServerParameters
from moot.bridges.space.names_file import NamesFile, names_path
from moot.bridges.space.own_tools import OWN_NAMES
from moot.cli import main
from moot.cli.command_table import make_parser
from moot.cli.mcp import _client_settings_of
from moot.config import load
from moot.offers.offer_table import OfferTable
from moot.participant import connect
from tests.bridges.served_space import HOST, ServedSpace, offer_files, served_space, text_of
from tests.gateway.running_gateway import participants
from tests.gateway.served import command, started
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until, until_told

ERAS = ["legacy", "2026-07-28"]


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as held:
        yield held


def token_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.token"
    file.write_text(f"t-{name}\n")
    file.chmod(0o600)
    return file


def arguments(url: str, folder: Path, name: str = "bob", *more: str) -> list[str]:
    file = token_file(folder, name)
    fixed = ["-m", "moot.cli", "mcp", "--gateway", url, "--space", "lab", "--token-file", str(file)]
    return [*fixed, "--names-file", str(folder / "names.json"), *more]


def stdio(url: str, folder: Path, *more: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=arguments(url, folder, "bob", *more))


@asynccontextmanager
async def process(args: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    one = await asyncio.create_subprocess_exec(sys.executable, *args, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield one
    finally:
        if one.returncode is None:
            one.kill()
        await one.wait()


async def room_with_files(served: ServedSpace) -> None:
    offer_files(await served.join("files"))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_starts_it_and_uses_the_space(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path) as served:
        await room_with_files(served)
        async with Client(stdio(served.gateway.url, tmp_path), mode=mode) as client:
            assert client.instructions is None or "'lab' as 'bob'" in client.instructions
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [*OWN_NAMES, "read_file", "write_file"]
            assert text_of(await client.call_tool("read_file", {"path": "a.txt"})) == "hello"


async def test_over_http_it_says_where_it_listens_and_serves_several_clients(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        await room_with_files(served)
        args = arguments(served.gateway.url, tmp_path, "bob", "--http", "127.0.0.1:0")
        async with process(args) as one:
            assert one.stdout is not None
            async with bounded():
                line = (await one.stdout.readline()).decode()
            url = line.split()[-1]
            assert line.startswith("bob: MCP listening on http://127.0.0.1:")
            async with Client(url, mode="legacy") as old, Client(url, mode="2026-07-28") as new:
                for client in (old, new):
                    assert text_of(await client.call_tool("read_file", {"path": "a.txt"})) == "hello"
            one.send_signal(signal.SIGINT)
            async with bounded():
                output, errors = await one.communicate()
            assert (output, errors, one.returncode) == (b"", b"", 0)


async def test_a_gateway_that_is_started_later_is_waited_for(tmp_path: Path, port: int) -> None:
    """A client starts its servers once: it must not lose this one because the gateway came after it."""
    file = tmp_path / "moot.yaml"
    file.write_text(
        yaml.safe_dump({"spaces": {"lab": {"participants": participants(bob=["*"], files=HOST)}}})
    )
    file.chmod(0o600)
    url = f"http://127.0.0.1:{port}"
    async with Client(stdio(url, tmp_path), mode="legacy") as client:
        assert f"The gateway {url} cannot be reached yet" in (client.instructions or "")
        assert "connection refused" in (client.instructions or "")
        assert [tool.name for tool in (await client.list_tools()).tools] == list(OWN_NAMES)
        answer = await client.call_tool("read_file", {"path": "a.txt"})
        assert (answer.is_error, "Nothing was sent: call again soon" in text_of(answer)) == (True, True)
        gateway = await started(file, "--port", str(port))
        try:
            async with connect(gateway.url, "lab", "t-files") as files:
                offer_files(files)

                async def is_there() -> bool:
                    tools = (await client.list_tools()).tools
                    return [tool.name for tool in tools] == [*OWN_NAMES, "read_file", "write_file"]

                await until_told(is_there)
                assert text_of(await client.call_tool("read_file", {"path": "a.txt"})) == "hello"
        finally:
            await gateway.close()
            await gateway.end()


async def test_a_person_reads_what_it_waits_for_and_the_end_of_input_ends_the_wait(tmp_path: Path) -> None:
    async with process(arguments("http://127.0.0.1:9", tmp_path)) as one:
        assert one.stderr is not None
        async with bounded():
            line = (await one.stderr.readline()).decode()
            assert line.startswith("moot: http://127.0.0.1:9 cannot be reached")
            assert line.endswith("Waiting for it.\n")
            output, errors = await one.communicate(b"")
        assert (output, errors, one.returncode) == (b"", b"", 0)


async def test_a_token_that_a_late_gateway_does_not_know_ends_it(tmp_path: Path, port: int) -> None:
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump({"spaces": {"lab": {"participants": participants(files=HOST)}}}))
    file.chmod(0o600)
    async with process(arguments(f"http://127.0.0.1:{port}", tmp_path, "nobody")) as one:
        assert one.stderr is not None
        async with bounded():
            assert "Waiting for it." in (await one.stderr.readline()).decode()
        gateway = await started(file, "--port", str(port))
        try:
            async with bounded():
                assert await one.wait() == 5
            assert "does not know the token in" in (await one.stderr.read()).decode()
        finally:
            await gateway.close()
            await gateway.end()


async def test_a_wrong_token_is_told_of_and_not_shown(tmp_path: Path) -> None:
    async with (
        served_space(tmp_path) as served,
        process(arguments(served.gateway.url, tmp_path, "nobody")) as one,
    ):
        async with bounded():
            output, errors = await one.communicate(b"")
        assert (output, one.returncode) == (b"", 5)
        assert "t-nobody" not in errors.decode()
        assert "token" in errors.decode()


async def test_the_end_of_input_ends_it_and_its_member_leaves(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        alice = await served.join("alice")
        async with process(arguments(served.gateway.url, tmp_path)) as one:
            await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
            async with bounded():
                output, errors = await one.communicate(b"")
            assert (output, errors, one.returncode) == (b"", b"", 0)
        await until(lambda: "bob" not in alice.roster)


async def test_a_member_that_is_removed_ends_with_the_reason(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        alice = await served.join("alice")
        async with process(arguments(served.gateway.url, tmp_path)) as one:
            await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
            await alice.admin.kick("bob", "enough")
            async with bounded():
                assert await one.wait() == 1
            assert one.stderr is not None
            assert "left the space" in (await one.stderr.read()).decode()


async def test_a_gateway_that_is_restarted_is_found_again_and_the_client_goes_on(tmp_path: Path) -> None:
    everybody = participants(bob=["*"], files=HOST)
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump({"spaces": {"lab": {"participants": everybody}}}))
    file.chmod(0o600)
    gateway = await started(file, "--port", "0")
    try:
        port = gateway.url.rpartition(":")[2]
        async with connect(gateway.url, "lab", "t-files") as files:
            offer_files(files)
            async with Client(stdio(gateway.url, tmp_path), mode="legacy") as client:
                assert text_of(await client.call_tool("read_file", {"path": "a.txt"})) == "hello"
                await gateway.close()
                await gateway.end()
                away = await client.call_tool("read_file", {"path": "a.txt"})
                assert away.is_error
                assert "The gateway cannot be reached, so read_file was not sent" in text_of(away)
                gateway = await started(file, "--port", port)

                async def is_back() -> bool:
                    result = await client.call_tool("read_file", {"path": "a.txt"})
                    return not result.is_error and text_of(result) == "hello"

                await until_told(is_back)
    finally:
        await gateway.close()
        await gateway.end()


# Names outlive the process


async def test_names_are_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    """A newcomer does not come by a name that a person has allowed for good."""
    async with served_space(tmp_path, {"aaa": ["*"]}) as served:
        files = await served.join("files")
        files.tool(name="pay")(lambda: "files")
        async with Client(stdio(served.gateway.url, tmp_path), mode="legacy") as client:
            assert [tool.name for tool in (await client.list_tools()).tools][-1] == "pay"
        await files.close()
        newcomer = await served.join("aaa")
        newcomer.tool(name="pay")(lambda: "aaa")
        async with Client(stdio(served.gateway.url, tmp_path), mode="legacy") as client:
            assert [tool.name for tool in (await client.list_tools()).tools][-1] == "aaa__pay"
            assert (await client.call_tool("pay", {})).is_error


def test_several_processes_share_a_file_and_the_first_to_write_keeps_the_name(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "names.json"
    one, two = OfferTable(), OfferTable()
    first, second = NamesFile(path, one), NamesFile(path, two)
    assert (first.load(), second.load()) == (0, 0)
    one.tool_names.bind("a", "x")
    two.tool_names.bind("b", "x")
    two.tool_names.bind("b", "y")
    first.save()
    second.save()
    third = OfferTable()
    assert NamesFile(path, third).load() == 2
    assert list(third.tool_names) == [("x", "a", "x"), ("y", "b", "y")]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        b"[]",
        b'{"tools":7}',
        b'{"tools":[["x"],["x","a","y"],[1,2,3],["moot_chat","a","moot_chat"]]}',
    ],
)
def test_a_file_that_makes_no_sense_is_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "names.json"
    path.write_bytes(content)
    offers = OfferTable(OWN_NAMES)
    names = NamesFile(path, offers)
    assert names.load() == 0
    offers.tool_names.bind("a", "x")
    names.save()
    again = OfferTable(OWN_NAMES)
    assert NamesFile(path, again).load() == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    offers = OfferTable()
    names = NamesFile(tmp_path / "file" / "names.json", offers)
    assert names.load() == 0
    offers.tool_names.bind("a", "x")
    names.save()
    assert "names are not kept" in caplog.text


def test_every_space_has_its_own_file() -> None:
    state = Path("/state")
    places = {names_path(state, url, space) for url in ("http://a", "http://b") for space in ("x", "y")}
    assert len(places) == 4
    assert names_path(state, "http://a/", "x") == names_path(state, "http://a", "x")


# Configurations and mistakes, in this process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, without an environment that helps."""
    monkeypatch.chdir(tmp_path)
    for name in ("MOOT_URL", "MOOT_SPACE", "MOOT_TOKEN", "MOOT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    token_file(tmp_path, "bob")
    return tmp_path


TOLD = ["--gateway", "http://localhost:8080", "--space", "lab", "--token-file", "bob.token"]


@pytest.mark.parametrize(
    ("client", "path", "kind"),
    [
        ("claude-code", ["mcpServers", "moot"], {"type": "stdio"}),
        ("claude-desktop", ["mcpServers", "moot"], {}),
        ("cursor", ["mcpServers", "moot"], {}),
        ("vscode", ["servers", "moot"], {"type": "stdio"}),
        ("generic", [], {}),
    ],
)
def test_a_printed_configuration_says_all_that_is_needed(
    folder: Path, capsys: pytest.CaptureFixture[str], client: str, path: list[str], kind: dict[str, str]
) -> None:
    more = ["--decision-seconds", "5", "--wait-for-others", "--names-file", "none"]
    assert main(["mcp", *TOLD, *more, "--print-config", client]) == 0
    output = capsys.readouterr()
    entry = json.loads(output.out)
    for name in path:
        entry = entry[name]
    assert Path(entry.pop("command")).is_absolute()
    arguments = entry.pop("args")
    assert entry == kind
    absolute = [*TOLD[:-1], str(folder / "bob.token")]
    assert arguments[arguments.index("mcp") :] == ["mcp", *absolute, *more]
    assert output.err


async def test_a_printed_configuration_works_from_anywhere(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        await room_with_files(served)
        token_file(tmp_path, "bob")
        options = [
            "--gateway",
            served.gateway.url,
            "--space",
            "lab",
            "--token-file",
            str(tmp_path / "bob.token"),
        ]
        code, output = await command(
            "mcp", *options, "--names-file", "none", "--print-config", "generic", cwd=tmp_path
        )
        assert code == 0
        entry, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
        server = StdioServerParameters(command=entry["command"], args=entry["args"], cwd="/")
        async with Client(server, mode="legacy") as one:
            assert text_of(await one.call_tool("read_file", {"path": "a.txt"})) == "hello"


def test_in_the_folder_of_a_space_a_name_is_enough(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"participants": {"me": {"capabilities": [{"kind": "*"}]}}}
    (folder / "moot.yaml").write_text(yaml.safe_dump({"spaces": {"lab": space}}))
    (folder / "moot.yaml").chmod(0o600)
    assert main(["mcp", "--as", "me", "--print-config", "cursor"]) == 2
    assert 'No token for "me" yet' in capsys.readouterr().err
    load(folder / "moot.yaml", environ={})
    assert main(["mcp", "--as", "me", "--print-config", "cursor"]) == 0
    arguments = json.loads(capsys.readouterr().out)["mcpServers"]["moot"]["args"]
    fixed = arguments[arguments.index("mcp") :]
    assert fixed[:5] == ["mcp", "--gateway", "http://127.0.0.1:8080", "--space", "lab"]
    assert Path(fixed[6]).is_file()


@pytest.mark.parametrize("more", [[], ["--print-config", "claude-code"]])
def test_a_client_never_gets_the_rights_of_a_person_because_a_name_was_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    """Its calls would run without approval."""
    space = {"default_participant": "you", "participants": {"you": ["*"], "agent": ["mcp/proposal"]}}
    (folder / "moot.yaml").write_text(yaml.safe_dump({"spaces": {"lab": space}}))
    (folder / "moot.yaml").chmod(0o600)
    load(folder / "moot.yaml", environ={})
    assert main(["mcp", *more]) == 2
    assert "say as whom it joins: --as NAME" in capsys.readouterr().err
    # What a person's shell has is theirs as well: it goes into no file.
    monkeypatch.setenv("MOOT_URL", "http://127.0.0.1:9")
    if more:
        monkeypatch.setenv("MOOT_TOKEN_FILE", str(folder / ".moot/tokens/you.token"))
    assert main(["mcp", *more]) == 2
    output = capsys.readouterr()
    assert "say as whom it joins: --as NAME" in output.err
    assert output.out == ""


@pytest.mark.parametrize("options", [[], ["--people", "--http", "127.0.0.1:0"]])
def test_the_environment_of_a_client_says_whose_token_it_is(
    monkeypatch: pytest.MonkeyPatch, folder: Path, options: list[str]
) -> None:
    """So do the members of `moot up`."""
    names = {"MOOT_URL": "http://127.0.0.1:9", "MOOT_SPACE": "lab", "MOOT_TOKEN": "t-agent"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    where = _client_settings_of(make_parser(["mcp"]).parse_args(["mcp", *options]))
    assert [where.url, where.space, where.token.reveal()] == list(names.values())


def test_an_assistant_that_decides_for_a_person_may_use_what_is_theirs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"default_participant": "you", "participants": {"you": ["*"], "agent": ["mcp/proposal"]}}
    (folder / "moot.yaml").write_text(yaml.safe_dump({"spaces": {"lab": space}}))
    (folder / "moot.yaml").chmod(0o600)
    load(folder / "moot.yaml", environ={})
    for options, name in ((["--operator"], "you"), (["--as", "agent"], "agent")):
        assert main(["mcp", *options, "--print-config", "generic"]) == 0
        arguments = json.loads(capsys.readouterr().out)["args"]
        assert arguments[arguments.index("--token-file") + 1] == str(folder / f".moot/tokens/{name}.token")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "say as whom it joins"),
        (["--as", "bob"], "no space here"),
        (["--token-file", "bob.token"], "no space here"),
        (["--operator"], "no space here"),
        (["--gateway", "http://localhost:1"], "say as whom it joins"),
        (["--gateway", "http://localhost:1", "--as", "bob"], "leave --gateway out"),
        (["--people", "--http", "127.0.0.1:0"], "say as whom it joins"),
        (["--gateway", "http://localhost:1", "--token-file", "missing"], "missing"),
        ([*TOLD, "--decision-seconds", "0"], "more than 0"),
        ([*TOLD, "--http", "8090"], "HOST:PORT"),
        ([*TOLD, "--http", "127.0.0.1:x"], "HOST:PORT"),
        ([*TOLD, "--http", "0.0.0.0:0"], "--http-token-file"),
        ([*TOLD, "--http", "127.0.0.1:0", "--http-token-file", "bob.token"], "fewer than 16"),
        (["--print-config", "cursor", "--gateway", "http://x"], "--token-file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_missing_or_wrong_is_named_before_anything_is_joined(
    capsys: pytest.CaptureFixture[str], told: list[str], words: str
) -> None:
    assert main(["mcp", *told]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
