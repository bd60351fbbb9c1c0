"""The file server's folder: nothing outside of it can be reached, whatever the path or the links."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import ModuleType

import pytest

from moot.errors import McpError
from moot.mcp.downstream.backend import BackendCall
from moot.protocol.operation import Json
from moot.up.servers import commands, files
from moot.up.servers.folder import MAX_ENTRIES, MAX_MATCHES, READ_BYTES, WRITE_BYTES, Folder, PathDenied
from moot.up.servers.tool_server import ToolBackend


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("outside")
    root = tmp_path / "shared"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "sub" / "b.txt").write_text("two, too\n")
    (root / ".moot" / "tokens").mkdir(parents=True)
    (root / ".moot" / "tokens" / "you.token").write_text("the-token")
    (root / "moot.yaml").write_text("tokens: [the-token]")
    (root / "ana.token").write_text("the-token")
    return root


def test_files_are_listed_read_written_edited_and_searched(root: Path) -> None:
    folder = Folder(root)
    assert folder.entries() == ["a.txt", "sub/"]
    assert folder.entries("sub/") == ["b.txt"]
    assert folder.read("a.txt") == "one\ntwo\nthree\n"
    assert folder.read("./sub//b.txt") == "two, too\n"
    assert folder.read("a.txt", 2, 1) == "two"
    assert folder.search("two") == ["a.txt:2: two", "sub/b.txt:1: two, too"]
    assert folder.search("two", "sub") == ["sub/b.txt:1: two, too"]
    assert folder.write("new/deep/c.txt", "text") == "created new/deep/c.txt: 4 bytes"
    assert (root / "new/deep/c.txt").read_text() == "text"
    assert folder.write("a.txt", "é") == "replaced a.txt: 2 bytes"
    assert folder.edit("sub/b.txt", "two,", "three,") == "replaced sub/b.txt: 11 bytes"
    assert (root / "sub/b.txt").read_text() == "three, too\n"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "sub/../../secret.txt", "/etc/passwd", "~/x", "sub/..", "..", "a\0b", "..\\secret",
        ".moot/tokens/you.token", "sub/.hidden", "moot.yaml", "./moot.yaml", "space.yaml", "ana.token",
    ],
)  # fmt: skip
def test_no_path_leads_out_or_to_what_is_not_shared(root: Path, path: str) -> None:
    folder = Folder(root)
    for act in (
        lambda: folder.read(path),
        lambda: folder.write(path, "x"),
        lambda: folder.edit(path, "o", "x"),
        lambda: folder.entries(path),
        lambda: folder.search("o", path),
    ):
        with pytest.raises(PathDenied):
            act()
    assert (root.parent / "secret.txt").read_text() == "outside"
    assert (root / ".moot/tokens/you.token").read_text() == "the-token"


def test_links_are_neither_shown_nor_followed(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "secret.txt")
    (root / "way-out").symlink_to(root.parent)
    (root / "inner").symlink_to("a.txt")
    folder = Folder(root)
    assert folder.entries() == ["a.txt", "sub/"]
    for path in ("link", "way-out/secret.txt", "inner"):
        with pytest.raises(PathDenied, match="symbolic link"):
            folder.read(path)
        with pytest.raises(PathDenied, match="symbolic link"):
            folder.write(path, "overwritten")
    with pytest.raises(PathDenied):
        folder.entries("way-out")
    with pytest.raises(PathDenied):
        folder.write("way-out/new/file.txt", "x")
    assert folder.search("outside") == []
    assert (root.parent / "secret.txt").read_text() == "outside"
    assert sorted(os.listdir(root.parent)) == ["secret.txt", "shared"]


def test_a_link_that_appears_between_two_steps_is_not_followed(root: Path) -> None:
    """The folder was checked, then swapped: each step is opened by itself, so it does not matter."""
    folder = Folder(root)
    assert folder.read("sub/b.txt")
    (root / "sub" / "b.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(root.parent)
    with pytest.raises(PathDenied):
        folder.read("sub/secret.txt")


def test_devices_folders_and_pipes_are_no_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    folder = Folder(root)
    for path in ("pipe", "sub"):
        with pytest.raises(PathDenied):
            folder.read(path)
        with pytest.raises(PathDenied):
            folder.write(path, "x")
    with pytest.raises(PathDenied):
        folder.read("none.txt")


def test_everything_has_a_bound(root: Path) -> None:
    folder = Folder(root)
    (root / "long.txt").write_text("x" * (READ_BYTES + 1))
    with pytest.raises(PathDenied, match="read some of its lines"):
        folder.read("long.txt")
    with pytest.raises(PathDenied, match="ask for fewer"):
        folder.read("long.txt", 1, 1)
    with pytest.raises(PathDenied, match=f"at most {WRITE_BYTES} bytes"):
        folder.write("more.txt", "x" * (WRITE_BYTES + 1))
    (root / "binary").write_bytes(b"\0\1")
    (root / "latin").write_bytes(b"caf\xe9")
    for path in ("binary", "latin"):
        with pytest.raises(PathDenied, match="not text"):
            folder.read(path)
    (root / "many.txt").write_text("needle\n" * (MAX_MATCHES + 5))
    assert len(folder.search("needle")) == MAX_MATCHES + 1
    (root / "crowd").mkdir()
    for number in range(MAX_ENTRIES + 3):
        (root / "crowd" / str(number)).touch()
    assert folder.entries("crowd")[-1] == "… and 3 more"


def test_a_passage_is_edited_only_where_it_is_clear_which(root: Path) -> None:
    folder = Folder(root)
    (root / "t").write_text("a a")
    for old, words in (("a", "occurs 2 times"), ("b", "does not occur"), ("", "is empty")):
        with pytest.raises(PathDenied, match=words):
            folder.edit("t", old, "c")
    assert (root / "t").read_text() == "a a"


def test_a_file_is_replaced_whole_and_keeps_its_mode(root: Path) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o750)
    Folder(root).write("run.sh", "new")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750
    assert [name for name in os.listdir(root) if name.endswith(".new")] == []


def test_what_is_no_folder_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(PathDenied):
        Folder(tmp_path / "none")


async def test_the_server_tells_its_tools_and_what_is_denied(root: Path) -> None:
    """As MCP: what changes something is marked, and a denial is an answer of the tool."""
    server = files.server_of(Folder(root))
    tools = await server.offers("tools")
    assert [tool["name"] for tool in tools] == [
        "list_files", "read_file", "search_files", "write_file", "edit_file",
    ]  # fmt: skip
    assert tools == [server.tool(str(tool["name"])) for tool in tools]
    changing = [tool["name"] for tool in tools if not tool["annotations"]["readOnlyHint"]]
    assert changing == ["write_file", "edit_file"]
    assert await said(server, "list_files") == "a.txt\nsub/"
    assert await said(server, "read_file", path="a.txt", first_line="2", lines=1) == "two"
    assert await said(server, "write_file", path="c.txt", text="x") == "created c.txt: 1 bytes"
    assert await said(server, "edit_file", path="c.txt", old="x", new="y") == "replaced c.txt: 1 bytes"
    assert await said(server, "search_files", text="y", path=".") == "c.txt:1: y"
    assert await said(server, "search_files", text="nowhere") == "(no match)"
    for denied, words in (
        ({"path": "../secret.txt"}, "error: ../secret.txt leads outside of the shared folder"),
        ({}, "error: Object missing required field `path`"),
        ({"path": "a.txt", "first_line": 1.5}, "error: Expected `int`, got `float` - at `$.first_line`"),
    ):
        assert await said(server, "read_file", **denied) == words
    for method in ("resources/read", "prompts/get"):
        with pytest.raises(McpError, match=f"Method not found: {method}") as refused:
            await server.perform(BackendCall(method, {"uri": "file:///a.txt"}))
        assert refused.value.code == -32601
    with pytest.raises(McpError, match="Unknown tool: remove"):
        await said(server, "remove", path="a.txt")


async def test_the_server_of_commands_refuses_what_is_no_command(tmp_path: Path) -> None:
    server = commands.server_of(tmp_path)
    assert await said(server, "run", command=["echo", "x"]) == "ended with exit code 0\nx\n"
    refused: list[dict[str, Json]] = [
        {}, {"command": []}, {"command": "ls"}, {"command": ["ls", 1]}, {"command": ["l\0s"]},
        {"command": ["true"], "seconds": 0}, {"command": ["true"], "seconds": commands.MAX_SECONDS + 1},
    ]  # fmt: skip
    for given in refused:
        assert (await said(server, "run", **given)).startswith("error: "), given


async def said(server: ToolBackend, name: str, **arguments: Json) -> str:
    """What a tool answers, marked if it is an error."""
    result = await server.perform(BackendCall("tools/call", {"name": name, "arguments": {**arguments}}))
    [content] = result["content"]
    return f"error: {content['text']}" if result.get("isError") else str(content["text"])


@pytest.mark.parametrize("module", [files, commands])
def test_a_server_without_a_folder_says_how_it_is_called(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["server"])
    assert module.main() == 2
    assert "usage: python3 -m moot.up.servers." in capsys.readouterr().err
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["server", str(tmp_path / "file" / "x")])
    assert module.main() in (1, 2)
