"""An MCP server for the files of one folder: `python3 -m moot.up.servers.files FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from moot.mcp.eras import JsonObject
from moot.up.servers.folder import Folder, PathDenied
from moot.up.servers.tool_server import ServerTool, ToolBackend, ToolError, run_over_stdio

A = TypeVar("A", bound=msgspec.Struct)

_READS: Final[JsonObject] = {"openWorldHint": False, "readOnlyHint": True}
_WRITES: Final[JsonObject] = {
    "destructiveHint": True,
    "idempotentHint": True,
    "openWorldHint": False,
    "readOnlyHint": False,
}
_PATH: Final[JsonObject] = {"title": "Path", "type": "string"}
_FOLDER: Final[JsonObject] = {"default": ".", "title": "Path", "type": "string"}
_LINES: Final[JsonObject] = {
    "anyOf": [{"type": "integer"}, {"type": "null"}],
    "default": None,
    "title": "Lines",
}


class ListArguments(msgspec.Struct):
    path: str = "."


class ReadArguments(msgspec.Struct):
    path: str
    first_line: int = 1
    lines: int | None = None


class SearchArguments(msgspec.Struct):
    text: str
    path: str = "."


class WriteArguments(msgspec.Struct):
    path: str
    text: str


class EditArguments(msgspec.Struct):
    path: str
    old: str
    new: str


def server_of(folder: Folder) -> ToolBackend:
    """The tools of a folder."""
    tools: list[ServerTool[Any]] = [
        _tool(
            "list_files",
            "List the files and folders in a folder; folders end with a slash.",
            {"path": _FOLDER},
            _READS,
            ListArguments,
            lambda given: "\n".join(folder.entries(given.path)) or "(empty)",
        ),
        _tool(
            "read_file",
            "Read a text file, or `lines` of it from `first_line` on.",
            {
                "path": _PATH,
                "first_line": {"default": 1, "title": "First Line", "type": "integer"},
                "lines": _LINES,
            },
            _READS,
            ReadArguments,
            lambda given: folder.read(given.path, given.first_line, given.lines),
        ),
        _tool(
            "search_files",
            "Find the lines that hold a text, in all files below a folder.",
            {"text": {"title": "Text", "type": "string"}, "path": _FOLDER},
            _READS,
            SearchArguments,
            lambda given: "\n".join(folder.search(given.text, given.path)) or "(no match)",
        ),
        _tool(
            "write_file",
            "Make a file with this text, or replace what is there.",
            {"path": _PATH, "text": {"title": "Text", "type": "string"}},
            _WRITES,
            WriteArguments,
            lambda given: folder.write(given.path, given.text),
        ),
        _tool(
            "edit_file",
            "Replace a passage that stands exactly once in a file.",
            {
                "path": _PATH,
                "old": {"title": "Old", "type": "string"},
                "new": {"title": "New", "type": "string"},
            },
            _WRITES,
            EditArguments,
            lambda given: folder.edit(given.path, given.old, given.new),
        ),
    ]
    return ToolBackend("moot-files", "Files of one shared folder. Paths are relative to it.", tools)


def _tool(
    name: str,
    description: str,
    properties: dict[str, JsonObject],
    annotations: JsonObject,
    arguments: type[A],
    act: Callable[[A], str],
) -> ServerTool[A]:
    """A tool of the folder; a denied path is told to the caller.

    Definitions are pinned in the data of spaces, with titles and order: another word suspends rules and
    withholds the tool.
    """
    required = [each for each, form in properties.items() if "default" not in form]
    schema: JsonObject = {
        "type": "object",
        "properties": {**properties},
        **({"required": [*required]} if required else {}),
        "title": f"{name}Arguments",
    }

    async def run(given: A) -> str:
        try:
            # Disks are slow, and a search reads thousands of files.
            return await asyncio.to_thread(act, given)
        except PathDenied as denied:
            raise ToolError(str(denied)) from None

    definition: JsonObject = {
        "annotations": annotations,
        "description": description,
        "inputSchema": schema,
        "name": name,
    }
    return ServerTool(definition, arguments, run)


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python3 -m moot.up.servers.files FOLDER\n")
        return 2
    root = Path(sys.argv[1]).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = Folder(root)
    except (OSError, PathDenied) as fault:
        sys.stderr.write(f"{root}: {fault}\n")
        return 1
    run_over_stdio(server_of(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
