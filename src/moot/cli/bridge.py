"""`moot bridge`: an MCP server joins a space."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.options.box_option import add_box_option, box_of
from moot.cli.options.member_options import MEMBER_HELP, add_log_level, add_member_options, member_settings_of
from moot.cli.options.shared_options import add_process_options
from moot.cli.process import program
from moot.cli.process.interruption import run_service
from moot.cli.process.own_children import own_children
from moot.errors import MootError, UsageError
from moot.operations.text.terminal_escape import printable
from moot.resilience.durations import parse_duration

if TYPE_CHECKING:
    from moot.box.boxed_child import Box
    from moot.bridges.server.bridge_settings import BridgeSettings
    from moot.mcp.upstream import Server, Upstream
    from moot.oauth.oauth_settings import OAuthSettings

# A server that is installed answers within a second or two; one that npx fetches first takes longer.
_FIRST_REPORT_SECONDS: Final = 4.0
_REPORT_SECONDS: Final = 10.0
_STDERR_LINES: Final = 5

_ABOUT: Final = """\
Lets an MCP server take part in a space: its tools, resources and prompts are there for every member whose
capabilities allow it, and for others to propose. The server is started as a child process over stdio, or
reached by --url over Streamable HTTP or SSE; any version of MCP from 2024-11-05 on works.

The member acts only on requests that name it in `to`; it also answers lists requested from everybody.
A server that dies or hangs is restarted; its callers get an error, and the member stays in the space. One
that is exclusive and was replaced by a newer process stands by, and returns when that one is gone.
Ctrl-C and SIGTERM end both within seconds, even before the server has answered; a second one at once. What
the server has started ends with it, daemons included (on Linux).

A remote server that asks for a sign-in (OAuth) gets one: the space is told, and whoever may runs
`moot sign-in NAME --server`, or opens the page that is named there. Until then the member stays, and callers
read what it waits for. What was signed in is kept in files for you alone, and renewed.

With --box the command is confined (Linux, with bubblewrap): it sees its own program and what you list, has
no network but the hosts that you list, and a home of its own. Where that is not possible, it is not started.

The child runs without a shell and inherits only PATH, HOME and a few harmless variables: list whatever else
it needs with --env. Its stderr is kept in a file next to the pins.

Tool definitions are pinned by their hash when they are first seen. If a tool changes later, the change is
shown in the log and in the space, and the tool is withheld until you use --accept-changes (or --no-pin).
"""

_EXAMPLES: Final = f"""\
  moot bridge --as files -- npx -y @modelcontextprotocol/server-filesystem /srv/shared
  moot bridge --as files --box write=/srv/shared --box network=registry.npmjs.org \\
      -- npx -y @modelcontextprotocol/server-filesystem /srv/shared
  moot bridge --as git --env GIT_AUTHOR_NAME=lab -- mcp-server-git --repository .
  moot bridge --gateway http://localhost:8080 --space lab --token-file docs.token \\
      --url https://mcp.example.org/mcp --bearer-file docs.key

{MEMBER_HELP}
The participant needs no capability to answer requests that name it,
`mcp/request` of `notifications/*` to report changes, and `mcp/response` to answer lists that are requested
from everybody.
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let an MCP server take part in a space",
        usage="moot bridge (--as NAME | --gateway URL --token-file FILE) [options] (--url URL | -- COMMAND)",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add_member_options(parser)
    add = parser.add_argument
    add("--dialect", choices=("mew", "mcpx", "m3p"), default="mew", help="the dialect to use (default: mew)")
    add("--url", help="a running MCP server, instead of a command")
    add("--transport", choices=("auto", "http", "sse"), default="auto", help="with --url (default: auto)")
    add(
        "--bearer-file", type=Path, metavar="FILE", help="with --url: the file with the server's bearer token"
    )
    header_help = "with --url: a header; its value is taken from file:PATH or env:NAME"
    add("--header", action="append", default=[], metavar="NAME=FROM", help=header_help)
    add("--client-id", metavar="ID", help="sign in with a client that was registered by hand")
    add("--client-secret-file", type=Path, metavar="FILE", help="the secret of that client")
    add("--client-metadata-url", metavar="URL", help="sign in with a document about this client")
    grants = ("authorization_code", "client_credentials", "token_exchange")
    add("--grant", choices=grants, default=grants[0], help="how to sign in (default: a person does)")
    add("--issuer", metavar="URL", help="the only provider to sign in at")
    add("--scope", action="append", default=[], metavar="SCOPE", help="ask for this scope when signing in")
    private_help = "let the provider be in your own network"
    add("--allow-private-addresses", action="store_true", help=private_help)
    add(
        "--redirect-port", type=int, default=0, metavar="PORT", help="where codes come back to (default: any)"
    )
    whose = ("server", "requester", "approver")
    whose_help = "whose account calls use: this bridge's, or that of who wanted or of who sent the call"
    add("--credentials", choices=whose, default=whose[0], help=whose_help)
    add("--sign-ins", type=Path, metavar="DIR", help="where sign-ins are kept (default: .moot/sign-ins)")
    add_process_options(parser)
    add_box_option(add)
    add("--root", action="append", default=[], metavar="URI", help="a root to give to the server")
    era_help = (
        "the only era of MCP to use (default: both over HTTP; for a command, the handshake where it has it)"
    )
    add("--era", choices=("handshake", "stateless"), help=era_help)
    add(
        "--start-seconds",
        type=parse_duration,
        metavar="TIME",
        help="longest wait for its first response (default: 60)",
    )
    add(
        "--call-seconds",
        type=parse_duration,
        metavar="TIME",
        help="longest call without progress (default: 300)",
    )
    add("--pins", type=Path, metavar="FILE", help="where definitions are pinned (default: .moot/pins.json)")
    add("--no-pin", action="store_true", help="offer tools whose definition changed; changes are still shown")
    plans_help = "show what the server plans for a proposed call, and call only while it plans the same"
    add("--plans", action="store_true", help=plans_help)
    add("--accept-changes", action="store_true", help="accept all changes since the last run")
    add_log_level(parser)
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ARGS", help="how to start the MCP server")
    parser.set_defaults(run=run_bridge)


def run_bridge(options: argparse.Namespace) -> int:
    with own_children():
        settings = _settings(options)
        return run_service(_bridge(settings, options.log_level))


async def _bridge(settings: BridgeSettings, log_level: Any) -> int:
    from moot import logs
    from moot.bridges.server.standby import wait_for_turn
    from moot.protocol.close_codes import REPLACED, SHUT_DOWN

    logs.set_up(log_level, "text", None)
    while True:
        code = await _bridge_once(settings)
        if code != REPLACED:
            # A shutdown is no failure; being removed is.
            return 0 if code == SHUT_DOWN else 1
        print("standing by: this one returns when the newer process is gone", flush=True)
        await wait_for_turn(settings)


async def _bridge_once(settings: BridgeSettings) -> int:
    """One time in the space; the close code with which it ended."""
    import asyncio

    from moot.bridges.server.bridge_runner import bridged
    from moot.mcp.upstream import StartFailed

    opened: asyncio.Future[Upstream] = asyncio.get_running_loop().create_future()
    reporting = asyncio.create_task(_report_waiting(opened))
    try:
        async with bridged(settings, on_opened=opened.set_result) as member:
            reporting.cancel()
            print(
                f"{settings.server.label} is {member.space.me} in {settings.space or 'the space'}", flush=True
            )
            ending = await member.space.stay()
            print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
            return ending.code
    except StartFailed as failed:
        stderr = _quoted(failed.stderr_lines)
        raise MootError(f"{failed}" + (f"\nend of its stderr:{stderr}" if stderr else "")) from None
    finally:
        reporting.cancel()


async def _report_waiting(opened: Awaitable[Upstream]) -> None:
    """Print why nothing happens yet: for how long, and what the server writes to stderr."""
    import asyncio

    loop = asyncio.get_running_loop()
    upstream = await opened
    started_at, shown = loop.time(), 0
    pause = _FIRST_REPORT_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = _REPORT_SECONDS
        if upstream.server_info is not None:
            waited_for = "the gateway to admit it"
        else:
            waited_for = f"{upstream.server.label} to answer initialize"
        waited = loop.time() - started_at
        lines = upstream.stderr.last_lines()
        fresh, shown = lines[-_STDERR_LINES:] if len(lines) != shown else [], len(lines)
        stderr = f"; its stderr:{_quoted(fresh)}" if fresh else ""
        text = f"still waiting for {waited_for} ({waited:.0f} s); Ctrl-C to stop{stderr}"
        print(text, file=sys.stderr, flush=True)


def _quoted(lines: list[str]) -> str:
    return "".join(f"\n  | {printable(line)}" for line in lines)


def _settings(options: argparse.Namespace) -> BridgeSettings:
    from dataclasses import replace

    from moot.bridges.server.bridge_settings import BridgeSettings
    from moot.config.configuration import McpServerConfig
    from moot.mcp.upstream import UpstreamLimits, UpstreamOptions

    limits = UpstreamLimits()
    for name in ("start_seconds", "call_seconds"):
        value = getattr(options, name)
        if value is None:
            continue
        if not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be more than 0")
        limits = replace(limits, **{name: value})
    where = member_settings_of(options)
    return BridgeSettings(
        server=_server(options),
        box=_box(options),
        gateway=where.url,
        space=where.space,
        token=where.token_source,
        name=where.name,
        dialect=options.dialect,
        config=McpServerConfig(pin=not options.no_pin, plans=options.plans, credentials=options.credentials),
        pins_file=options.pins or Path(".moot/pins.json"),
        accept_changes=options.accept_changes,
        must_start=True,
        oauth=_oauth(options),
        upstream=UpstreamOptions(
            limits=limits, roots=tuple({"uri": uri} for uri in options.root), era=options.era
        ),
    )


def _server(options: argparse.Namespace) -> Server:
    from moot.mcp.stdio_child import Command
    from moot.mcp.upstream import HttpServer, StdioServer
    from moot.participant import token_from

    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    if (options.url is None) == (not argv):
        raise UsageError("give either --url URL or, after --, the command that starts the MCP server")
    if options.url is not None:
        headers = headers_of(options.header)
        if options.bearer_file:
            headers["Authorization"] = f"Bearer {token_from(options.bearer_file)}"
        return HttpServer(url=options.url, headers=headers, transport=options.transport)
    for name in ("bearer_file", "header", "client_id", "client_metadata_url"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} goes with --url")
    if options.credentials != "server":
        raise UsageError("--credentials goes with --url")
    command = Command(
        argv=tuple(argv),
        env=environment_of(options.env),
        cwd=None if options.cwd is None else str(options.cwd),
    )
    server = StdioServer(command=command, inherited=os.environ)
    folder = (options.pins or Path(".moot/pins.json")).parent
    return StdioServer(
        command=command, inherited=os.environ, stderr_file=folder / "stderr" / f"{server.label}.log"
    )


def _box(options: argparse.Namespace) -> Box | None:
    """What confines the command; raises UsageError."""
    from moot.box.boxed_child import Box

    box = box_of(options.box)
    if options.box and options.url is not None:
        raise UsageError("--box goes with a command: what runs elsewhere cannot be confined here")
    if box is None:
        return None
    state = (options.pins or Path(".moot/pins.json")).parent.absolute()
    name = options.participant or _server(options).label
    hidden = (state, *(() if options.token_file is None else (options.token_file.absolute(),)))
    return Box(config=box, folder=Path.cwd(), hidden=hidden, home=state / "boxes" / name)


def _oauth(options: argparse.Namespace) -> OAuthSettings | None:
    """How to sign in; None for a server without URL, or with a credential of its own."""
    from moot.config.configuration import McpSignInConfig
    from moot.config.secrets.sign_in_key import find_sign_in_key
    from moot.oauth.oauth_settings import OAuthSettings
    from moot.participant import token_from

    has_own = options.bearer_file or any(each.lower().startswith("authorization=") for each in options.header)
    if options.url is None or (has_own and options.credentials == "server"):
        if options.client_id or options.client_metadata_url:
            raise UsageError("a server with a token of its own needs no client to sign in with")
        return None
    secret = options.client_secret_file
    if options.grant == "client_credentials" and (options.client_id is None or secret is None):
        raise UsageError("--grant client_credentials needs --client-id and --client-secret-file")
    return OAuthSettings(
        sign_in=McpSignInConfig(
            client_id=options.client_id,
            client_secret=None if secret is None else token_from(secret),
            client_metadata_url=options.client_metadata_url,
            grant=options.grant,
            issuer=options.issuer,
            scopes=tuple(options.scope),
            allow_private_addresses=options.allow_private_addresses,
            redirect_port=options.redirect_port,
        ),
        folder=options.sign_ins or Path(".moot/sign-ins"),
        key=find_sign_in_key(os.environ),
    )


def headers_of(listed: list[str]) -> dict[str, str]:
    """The headers of `--header`, whose values come from files or variables; raises UsageError."""
    from moot.participant import token_from

    made: dict[str, str] = {}
    for each in listed:
        name, _, source = each.partition("=")
        where, _, what = source.partition(":")
        if not name or where not in ("file", "env") or not what:
            # Not repeated: it may hold a secret.
            raise UsageError("--header: write NAME=file:PATH or NAME=env:VARIABLE, so that no secret is seen")
        if where == "env" and what not in os.environ:
            raise UsageError(f"--header {name}: there is no variable {what}")
        made[name] = token_from(Path(what)) if where == "file" else os.environ[what]
    return made


def environment_of(listed: list[str]) -> dict[str, str]:
    """The variables of `--env`; raises UsageError."""
    made: dict[str, str] = {}
    for each in listed:
        name, equals, value = each.partition("=")
        if not name:
            raise UsageError(f"--env {each!r}: write NAME=VALUE, or NAME to pass on our own value")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: there is no such variable to pass on")
        made[name] = value if equals else os.environ[name]
    return made
