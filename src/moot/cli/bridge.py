"""`moot bridge`: an MCP server joins a space."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli import program
from moot.cli.escape_output import printable
from moot.cli.interruption import run_service
from moot.cli.program import RefuseToken
from moot.errors import MootError, UsageError

if TYPE_CHECKING:
    from moot.bridge.bridge_settings import BridgeSettings
    from moot.mcp.upstream import Server, Upstream

# A server that is installed answers within a second or two; one that npx fetches first takes longer.
_SILENCE_SECONDS: Final = 4.0
_SILENCE_AGAIN_SECONDS: Final = 10.0
_STDERR_LINES: Final = 5

_ABOUT: Final = """\
Lets an MCP server take part in a space: its tools, resources and prompts are there for every member whose
capabilities allow it, and for others to propose. The server is started as a child process and spoken to over
stdio, or reached by --url over Streamable HTTP or SSE; it may speak any version of MCP from 2024-11-05 on.

The member acts only when it is named in `to`; lists are also answered when everybody is asked. A server that
dies or hangs is started again; its callers are told what happened, and the member stays in the space.
Ctrl-C and SIGTERM end both within seconds, also while the server has not answered yet; a second one at once.

The child gets no shell, and of the environment only PATH, HOME and a few more harmless variables: whatever
else it needs is listed with --env. What it writes to stderr is kept in a file beside the pins.

Tool definitions are pinned by their hash when they are first seen. A tool that changes later is shown in the
log and in the space, and withheld until you have looked at it and say --accept-changes (or --no-pin).
"""

_EXAMPLES: Final = """\
  moot bridge --gateway http://localhost:8080 --space lab --token-file files.token \\
      -- npx -y @modelcontextprotocol/server-filesystem /srv/shared
  moot bridge --gateway http://localhost:8080 --space lab --token-file git.token \\
      --env GIT_AUTHOR_NAME=lab -- mcp-server-git --repository .
  moot bridge --gateway http://localhost:8080 --space lab --token-file docs.token \\
      --url https://mcp.example.org/mcp --bearer-file docs.key

The token is one of a participant of the space. What that participant needs: nothing to answer requests that
name it; `mcp/request` of `notifications/*` to tell of changes, and `mcp/response` to answer lists that
everybody is asked for.
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let an MCP server take part in a space",
        usage="moot bridge --gateway URL --token-file FILE [options] (--url URL | -- COMMAND ARGS)",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("--gateway", required=True, metavar="URL", help="where the space is, such as http://localhost:8080")
    add("--space", default="", metavar="NAME", help="the space (default: the one the gateway chooses)")
    add("--token-file", required=True, type=Path, metavar="FILE", help="holds the token of the member")
    add("--token", action=RefuseToken)
    add("--dialect", choices=("mew", "mcpx", "m3p"), default="mew", help="what to speak (default: mew)")
    add("--url", help="an MCP server that runs already; instead of a command")
    add("--transport", choices=("auto", "http", "sse"), default="auto", help="with --url (default: auto)")
    add("--bearer-file", type=Path, metavar="FILE", help="with --url: holds the bearer token of the server")
    handed = "a variable for the command; NAME alone hands our own value on"
    add("--env", action="append", default=[], metavar="NAME=VALUE", help=handed)
    add("--cwd", type=Path, metavar="DIR", help="the folder that the command runs in")
    add("--root", action="append", default=[], metavar="URI", help="a root that the server may be told of")
    add("--start-seconds", type=float, metavar="N", help="longest wait for its first answer (default: 60)")
    add("--call-seconds", type=float, metavar="N", help="longest call without progress (default: 300)")
    add("--pins", type=Path, metavar="FILE", help="where definitions are pinned (default: .moot/pins.json)")
    add("--no-pin", action="store_true", help="offer tools whose definition changed; changes are still shown")
    add("--accept-changes", action="store_true", help="consent to all changes since the last run")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(default: info)")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ARGS", help="how to start the MCP server")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = _settings(options)
    return run_service(_bridge(settings, options.log_level))


async def _bridge(settings: BridgeSettings, log_level: Any) -> int:
    import asyncio

    from moot import logs
    from moot.bridge.bridge_runner import bridged
    from moot.mcp.upstream import StartFailed
    from moot.protocol.close_codes import SHUT_DOWN

    logs.set_up(log_level, "text", None)
    opened: asyncio.Future[Upstream] = asyncio.get_running_loop().create_future()
    reporting = asyncio.create_task(_report_silence(opened))
    try:
        async with bridged(settings, on_opened=opened.set_result) as member:
            reporting.cancel()
            print(
                f"{settings.server.label} is {member.space.me} in {settings.space or 'the space'}", flush=True
            )
            ending = await member.space.stay()
            print(f"the space ended it: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
            # Being told to shut down is no failure; being kicked is.
            return 0 if ending.code == SHUT_DOWN else 1
    except StartFailed as failed:
        said = _quoted(failed.stderr_lines)
        raise MootError(f"{failed}" + (f"\nits last words:{said}" if said else "")) from None
    finally:
        reporting.cancel()


async def _report_silence(opened: Awaitable[Upstream]) -> None:
    """Tell whoever waits why nothing happens: how long it has been, and what the server says on stderr."""
    import asyncio

    loop = asyncio.get_running_loop()
    upstream = await opened
    begun, shown = loop.time(), 0
    pause = _SILENCE_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = _SILENCE_AGAIN_SECONDS
        if upstream.server_info is not None:
            waited_for = "the gateway to let it in"
        else:
            waited_for = f"{upstream.server.label} to answer initialize"
        waited = loop.time() - begun
        lines = upstream.stderr.last_lines()
        fresh, shown = lines[-_STDERR_LINES:] if len(lines) != shown else [], len(lines)
        said = f"; it says:{_quoted(fresh)}" if fresh else ""
        told = f"still waiting for {waited_for} ({waited:.0f} s); Ctrl-C to stop{said}"
        print(told, file=sys.stderr, flush=True)


def _quoted(lines: list[str]) -> str:
    return "".join(f"\n  | {printable(line)}" for line in lines)


def _settings(options: argparse.Namespace) -> BridgeSettings:
    from dataclasses import replace

    from moot.bridge.bridge_settings import BridgeSettings
    from moot.mcp.upstream import UpstreamLimits, UpstreamOptions
    from moot.participant import token_from

    limits = UpstreamLimits()
    for name in ("start_seconds", "call_seconds"):
        value = getattr(options, name)
        if value is None:
            continue
        if not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} is a number above 0")
        limits = replace(limits, **{name: value})
    return BridgeSettings(
        server=_server(options),
        gateway=options.gateway,
        space=options.space,
        token=token_from(options.token_file),
        dialect=options.dialect,
        pin=not options.no_pin,
        pins_file=options.pins or Path(".moot/pins.json"),
        accept_changes=options.accept_changes,
        must_start=True,
        upstream=UpstreamOptions(limits=limits, roots=tuple({"uri": uri} for uri in options.root)),
    )


def _server(options: argparse.Namespace) -> Server:
    from moot.mcp.stdio_child import Command
    from moot.mcp.upstream import HttpServer, StdioServer
    from moot.participant import token_from

    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    if (options.url is None) == (not argv):
        raise UsageError("give either --url URL or, after --, the command that starts the MCP server")
    if options.url is not None:
        headers = (
            {"Authorization": f"Bearer {token_from(options.bearer_file)}"} if options.bearer_file else {}
        )
        return HttpServer(url=options.url, headers=headers, transport=options.transport)
    if options.bearer_file is not None:
        raise UsageError("--bearer-file goes with --url")
    command = Command(
        argv=tuple(argv),
        env=_environment(options.env),
        cwd=None if options.cwd is None else str(options.cwd),
    )
    server = StdioServer(command=command, inherited=os.environ)
    folder = (options.pins or Path(".moot/pins.json")).parent
    return StdioServer(
        command=command, inherited=os.environ, stderr_file=folder / "stderr" / f"{server.label}.log"
    )


def _environment(listed: list[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for each in listed:
        name, equals, value = each.partition("=")
        if not name:
            raise UsageError(f"--env {each!r}: write NAME=VALUE, or NAME to hand our own value on")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: there is no such variable to hand on")
        made[name] = value if equals else os.environ[name]
    return made
