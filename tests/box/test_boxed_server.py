"""A bridged server in a box: what it reaches, what callers are told, and what happens where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from moot.box.box_support import NotConfined, why_not_confined
from moot.box.boxed_child import Box
from moot.config.box_config import BoxConfig, read_box
from moot.errors import McpError, UsageError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.up.imported_boxes import box_for, box_variables
from moot.up.scaffold import TemplateValues, make, template_named
from tests.bridges.bridged_space import bridged_space, call
from tests.mcp.upstreams import text_of
from tests.rows import for_each_row
from tests.waiting import until

_SERVER = Path(__file__).with_name("reaching_server.py")
boxes = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


@boxes
async def test_callers_read_what_a_boxed_server_reached_and_the_space_what_was_refused(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    box = Box(config=BoxConfig(read=("shared",), network=("192.0.2.1:9",)), folder=tmp_path)
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        heard: list[str] = []

        @alice.on("chat")
        async def on_chat(envelope: Envelope) -> None:
            heard.append(str(envelope.payload["text"]))

        command = Command(argv=(sys.executable, str(_SERVER)), env={"GIVEN": "x"})
        await space.bridge(StdioServer(command=command, inherited={"NOT_GIVEN": "x"}), box=box)
        inside = await call(alice, "reach", {"where": str(shared / "a.txt")})
        assert text_of(inside).startswith("inside")
        assert "'GIVEN'" in text_of(inside)
        assert "NOT_GIVEN" not in text_of(inside)
        for outside in (str(tmp_path / "b.txt"), "/srv/notes/b.txt"):
            assert (await call(alice, "reach", {"where": outside}))["isError"] is True
        refused = await call(alice, "reach", {"where": "api.example.org:443"})
        assert "403 Forbidden" in text_of(refused)
        told = {"host": "api.example.org", "port": 443, "refused": True}
        assert refused["_meta"]["moot/connections"] == [told]
        with pytest.raises(McpError) as failed:
            await call(alice, "reach", {"where": "other.example.org:80", "fail": True})
        assert failed.value.data == {
            "of": "it",
            "moot/connections": [told | {"host": "other.example.org", "port": 80}],
        }
        await until(lambda: len(heard) == 3, lambda: str(heard))
        assert "/srv/notes/b.txt, which is outside of its box" in heard[0]
        assert "wanted to connect to api.example.org:443. Its box refused" in heard[1]
    # With the answer of the call that was running, for whoever reads the journal.
    journal = b"".join(each.read_bytes() for each in tmp_path.rglob("*.jsonl"))
    assert b'"moot/connections":[{"host":"api.example.org"' in journal


async def test_a_server_is_not_started_where_no_box_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    box = Box(config=BoxConfig(), folder=tmp_path)
    made = tmp_path / "made"
    with pytest.raises(NotConfined, match=r"not confined here: .*`box: off`"):
        await box.start(["/bin/touch", str(made)], environment={}, cwd=tmp_path, on_stdout=lambda _data: None)
    assert not made.exists()


def test_a_template_says_where_its_servers_are_not_confined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works on the first day, and does not claim more than is there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    make(template_named("filesystem"), tmp_path / "space", TemplateValues(space="lab"))
    text = (tmp_path / "space" / "moot.yaml").read_text()
    assert "        box: off  # not confined here: " in text
    assert "box: {" not in text


def test_a_link_that_the_server_made_does_not_widen_its_next_box(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "sub").mkdir(parents=True)
    box = Box(config=BoxConfig(write=("shared",), read=("shared/sub",)), folder=tmp_path)
    assert shared / "sub" in box.plan(["/bin/true"], {}, tmp_path).read
    (shared / "sub").rmdir()
    (shared / "sub").symlink_to("/etc")
    with pytest.raises(UsageError, match="leads to /etc, out of"):
        box.plan(["/bin/true"], {}, tmp_path)


def test_the_folder_of_a_space_cannot_be_moved_out_of_the_way(tmp_path: Path) -> None:
    """Another one in its place would bring a configuration and tokens of its own."""
    space = tmp_path / "work" / "spaces" / "lab"
    (space / ".moot").mkdir(parents=True)
    (space / "moot.yaml").touch()
    box = Box(config=BoxConfig(write=(str(tmp_path),)), folder=space, hidden=(space / ".moot",))
    plan = box.plan(["/bin/true"], {}, tmp_path)
    assert {tmp_path / "work", tmp_path / "work" / "spaces", space} < set(plan.write)
    assert space / "moot.yaml" in plan.read


def test_a_home_folder_is_never_shown_because_a_program_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text("#!/usr/bin/env sh\n")
    shown = Box(config=BoxConfig(), folder=tmp_path).plan([str(program)], dict(os.environ), tmp_path).read
    assert program in shown
    assert not {tmp_path, tmp_path / "bin", tmp_path / "lib"} & set(shown)


@for_each_row(
    "given, words",
    [
        (7, "is off, on, or"),
        ({"reads": []}, "box.reads"),
        ({"network": ["http://a.test"]}, "is no host"),
        ({"network": ["a.test"] * 65}, "more than 64 hosts"),
        ({"memory_bytes": "many"}, "such as 512MiB"),
        ({"memory_bytes": "1MiB"}, "at least"),
        ({"write": [""]}, "a path is missing"),
    ],
)
def test_a_wrong_box_is_refused_with_what_to_write(given: Json, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_box(given, "box")


def test_a_box_is_read_as_it_is_written() -> None:
    assert read_box(False, "box") == read_box("off", "box") == "off"
    assert read_box(True, "box") == read_box({"network": "none"}, "box") == BoxConfig()
    made = read_box({"write": "shared", "network": "API.test", "memory_bytes": "1GiB"}, "box")
    assert made == BoxConfig(write=("shared",), network=("api.test",), memory_bytes=1 << 30)


_NPM, _PYPI = "registry.npmjs.org", ["pypi.org", "files.pythonhosted.org"]


def test_an_imported_script_sees_its_project(tmp_path: Path) -> None:
    script = tmp_path / "project" / "build" / "index.js"
    script.parent.mkdir(parents=True)
    script.touch()
    settings: dict[str, Json] = {"command": "node", "args": [str(script)]}
    for project in (script.parent, tmp_path / "project"):
        box, _ = box_for(settings, tmp_path, missing=None, environ={})
        assert box == {"read": [str(project)], "network": ["*"]}
        (tmp_path / "project" / "package.json").touch()


def test_a_server_that_writes_beside_its_program_is_told_where_it_may() -> None:
    given: dict[str, Json] = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}
    assert box_variables(given) == {"MEMORY_FILE_PATH": "/home/box/memory.jsonl"}
    own: dict[str, Json] = {"MEMORY_FILE_PATH": "/srv/memory.jsonl"}
    assert box_variables({**given, "env": own}) == own
    assert box_variables({"command": "mcp-server-time"}) == {}


@for_each_row(
    "command, args, expected",
    [
        ("npx", ["-y", "@modelcontextprotocol/server-memory@1.0"], {"network": [_NPM]}),
        (
            "npx",
            ["-y", "@modelcontextprotocol/server-filesystem", "/usr"],
            {"write": ["/usr"], "network": [_NPM]},
        ),
        ("npx", ["@modelcontextprotocol/server-github"], {"network": [_NPM, "api.github.com"]}),
        ("uvx", ["mcp-server-git", "--repository=/usr"], {"write": ["/usr"], "network": _PYPI}),
        ("mcp-server-time", [], "on"),
        ("/opt/own/server", ["--fast"], {"network": ["*"]}),
        ("docker", ["run", "-i", "mcp/git"], "off"),
        ("npx", ["@playwright/mcp"], "off"),
        ("npx", ["server-postgres", "postgresql://localhost/db"], "off"),
    ],
)
def test_imported_servers_get_the_box_that_they_need(command: str, args: list[Json], expected: Json) -> None:
    settings: dict[str, Json] = {"command": command, "args": args}
    box, note = box_for(settings, Path("/srv"), missing=None, environ={})
    assert box == expected
    assert (note is not None) is (expected == "off")
    # Nothing is confined here that cannot be, and it is said.
    assert box_for(settings, Path("/srv"), missing="no boxes", environ={}) == (
        "off",
        "not confined here: no boxes",
    )
