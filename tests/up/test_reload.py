"""`moot reload`: what runs in the folder reads its file anew, and says what changed or why not."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gateway.served import served
from tests.up.moot_up import moot_up, run_moot, write_config

BEFORE = """
    spaces:
      lab:
        default_participant: you
        participants:
          you: {capabilities: [{kind: "*"}]}
          bob: {capabilities: [chat]}
          old: {capabilities: [chat], command: sleep, args: ["1000"]}
"""
AFTER = """
    gateway: {max_connections: 3}
    spaces:
      lab:
        default_participant: you
        separation_of_duties: true
        participants:
          you: {capabilities: [{kind: "*"}]}
          bob: {capabilities: [chat, mcp/proposal]}
          ana: {capabilities: [chat]}
"""
CHANGES = [
    "bob: capabilities changed",
    "old: removed",
    "ana: added",
    "separation_of_duties: changed",
    "gateway.max_connections is another: restart to take it over",
]


async def test_what_changed_is_said_and_holds(tmp_path: Path) -> None:
    write_config(tmp_path, BEFORE)
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("old", "running")
        assert await run_moot(tmp_path, "reload") == (0, "reloaded\nnothing changed\n")
        write_config(tmp_path, AFTER)
        code, output = await run_moot(tmp_path, "reload")
        assert (code, output.splitlines()) == (0, ["reloaded", *CHANGES])
        code, output = await run_moot(tmp_path, "send", "hello", "--as", "ana")
        assert code == 0, output
        write_config(tmp_path, AFTER.replace("mcp/proposal", "mcp/proposl"))
        code, output = await run_moot(tmp_path, "reload")
        assert output.splitlines()[1] == "bob: capabilities changed"
        assert "note: space lab: bob: no known kind" in output
        assert "did you mean mcp/proposal?" in output
        code, output = await run_moot(tmp_path, "reload", "--json")
        assert json.loads(output)["reloaded"] is True


async def test_a_file_with_an_error_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    write_config(tmp_path, BEFORE)
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("old", "running")
        write_config(tmp_path, BEFORE.replace("participants", "particpants"))
        code, output = await run_moot(tmp_path, "reload")
        assert code == 2
        assert "particpants: unknown key; did you mean participants?" in output
        assert not [change for change in up.changes if "reloaded" in str(change.get("note"))]
        assert up.now["old"]["state"] == "running"


async def test_without_a_gateway_it_says_so(tmp_path: Path) -> None:
    """Also after one has ended, whose file is still there."""
    write_config(tmp_path, BEFORE)
    for _ in range(2):
        code, output = await run_moot(tmp_path, "reload")
        assert (code, "no gateway runs on" in output, "`moot up` starts it" in output) == (2, True, True)
        async with moot_up(tmp_path):
            pass


async def test_moot_serve_is_found_as_well(tmp_path: Path) -> None:
    file = write_config(tmp_path, "gateway: {port: 0}\n" + "\n".join(line[4:] for line in BEFORE.split("\n")))
    async with served(file):
        assert await run_moot(tmp_path, "reload") == (0, "reloaded\nnothing changed\n")


async def test_a_token_file_that_the_gateway_has_not_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    """The reference implementation puts a token there whenever it starts a space."""
    space = "space: {id: lab}\nparticipants: {you: {capabilities: [{kind: '*'}]}}\n"
    write_config(tmp_path, space, "space.yaml")
    file = tmp_path / ".mew" / "tokens" / "you.token"
    async with moot_up(tmp_path, "space.yaml"):
        code, output = await run_moot(tmp_path, "send", "hello")
        assert code == 0, output
        file.parent.mkdir(parents=True)
        file.write_text("made-by-the-reference\n")
        file.chmod(0o600)
        # Over a socket, and over HTTP.
        for command in (["send", "hello"], ["member", "token", "--for", "1h"]):
            code, output = await run_moot(tmp_path, *command)
            assert code == 5, output
            assert f"the gateway does not know the token in {file}, which is newer" in output
            assert "`moot reload` makes it read that" in output
            assert "made-by-the-reference" not in output
        assert (await run_moot(tmp_path, "reload"))[0] == 0
        code, output = await run_moot(tmp_path, "send", "hello")
        assert code == 0, output
