"""An MCP server for the files of one folder: `python3 -m moot.up.servers.files FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from moot import __version__
from moot.up.servers.folder import Folder, PathDenied

P = ParamSpec("P")
T = TypeVar("T")

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)


def server_of(folder: Folder) -> MCPServer:
    """The tools of a folder.

    Their descriptions are pinned in the data of spaces: another word suspends rules and withholds the tool.
    """
    server = MCPServer(
        "moot-files",
        version=__version__,
        instructions="Files of one shared folder. Paths are relative to it.",
        log_level="WARNING",
    )

    @server.tool(annotations=_READS, structured_output=False)
    @_report_denied
    def list_files(path: str = ".") -> str:
        """List the files and folders in a folder; folders end with a slash."""
        return "\n".join(folder.entries(path)) or "(empty)"

    @server.tool(annotations=_READS, structured_output=False)
    @_report_denied
    def read_file(path: str, first_line: int = 1, lines: int | None = None) -> str:
        """Read a text file, or `lines` of it from `first_line` on."""
        return folder.read(path, first_line, lines)

    @server.tool(annotations=_READS, structured_output=False)
    @_report_denied
    def search_files(text: str, path: str = ".") -> str:
        """Find the lines that hold a text, in all files below a folder."""
        return "\n".join(folder.search(text, path)) or "(no match)"

    @server.tool(annotations=_WRITES, structured_output=False)
    @_report_denied
    def write_file(path: str, text: str) -> str:
        """Make a file with this text, or replace what is there."""
        return folder.write(path, text)

    @server.tool(annotations=_WRITES, structured_output=False)
    @_report_denied
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a passage that stands exactly once in a file."""
        return folder.edit(path, old, new)

    return server


def _report_denied(function: Callable[P, T]) -> Callable[P, T]:
    """Report a denied path to the caller as a tool error."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except PathDenied as denied:
            raise ToolError(str(denied)) from None

    return call


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
    server_of(folder).run("stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
