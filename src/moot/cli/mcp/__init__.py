"""`moot mcp`: an MCP server that is a member of a space, for Claude Code, Cursor and other clients."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.mcp.defaults import (
    DECISION_SECONDS,
    FIRST_JOIN_SECONDS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MAX_PEOPLE,
)
from moot.cli.options.member_options import add_log_level, add_member_options, member_overrides, overrides_of
from moot.cli.options.tls_options import add_tls_options
from moot.cli.process import program
from moot.errors import MootError, UsageError
from moot.operations.operation import add_wait_for_others
from moot.resilience.durations import parse_duration

if TYPE_CHECKING:
    from moot.bridges.space.late_backend import LateBackend
    from moot.config.connect_settings import ConnectSettings
    from moot.mcp.downstream.mcp_server import McpServer
    from moot.participant.connection.envelope_sender import CloseReason

_ABOUT: Final = """\
Joins a space and serves it to an MCP client: the tools, resources and prompts of all members, as far as you
may use them. A call that you may not make becomes a proposal; somebody in the space approves or rejects it,
and the client is notified in the best way it supports (tasks, a dialog, or a PENDING result and the tool
moot_status). It adds the tools moot_chat, moot_participants and moot_find_tools.

With --operator it serves decisions instead, to the assistant of a person who may decide: it lists and
explains what is pending, rejects, and stops everything. To approve, the person confirms each call in a dialog
of the client, or in the console; the assistant cannot. The token is the person's own.

With --people it serves many people in one process: each client signs its person in at the provider of
gateway.oidc, and acts as that person, with their rights and approvals. The token is that of the participant
that gateway.oidc.mcp names as server.

With --permission-tool it has one tool, permission_prompt, for Claude Code's --permission-prompt-tool: each
call for which Claude Code would ask is decided in the space. The token is that of the agent's member.

It supports both MCP eras: 2024-11-05 to 2025-11-25 (initialize) and 2026-07-28 (stateless).
"""
_EXAMPLES: Final = """\
To paste into a client's configuration:
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token --print-config claude-code

By hand, over stdio (the client starts it) and over HTTP (for several clients):
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token --http 127.0.0.1:8090

For everybody who signs in at the provider of gateway.oidc, in one process:
  moot mcp --people --gateway http://localhost:8080 --space lab --token-file mcp.token --http 127.0.0.1:8090

For your own assistant, to decide what agents may do:
  moot mcp --operator --gateway http://localhost:8080 --space lab --token-file you.token

In the folder of a moot.yaml or space.yaml, as a participant of the space there:
  moot mcp --as agent --print-config claude-code

--gateway, --space and --token-file default to MOOT_URL, MOOT_SPACE and MOOT_TOKEN_FILE, and MOOT_TOKEN holds
a token itself: a client's configuration can set them. For --print-config they count only with --operator, as
default_participant does always: they may be your own. Over stdio only MCP is written to stdout.
"""
CLIENTS: Final = (
    "claude-code", "claude-desktop", "codex", "cursor", "gemini", "vscode", "windsurf", "zed", "generic",
)  # fmt: skip


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let an MCP client (Claude Code, Cursor, …) take part in a space",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add_member_options(parser)
    add("--http", metavar="HOST:PORT", help="serve HTTP at /mcp (old clients: /sse) instead of stdio")
    add("--http-token-file", type=Path, metavar="FILE", help="clients must send this as a bearer token")
    add_tls_options(parser)
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="also accept this Host header",
    )
    add(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="also accept browser pages of this origin",
    )
    add(
        "--decision-seconds",
        type=parse_duration,
        default=DECISION_SECONDS,
        metavar="TIME",
        help="how long a call waits for a decision before it answers PENDING (default 20)",
    )
    add(
        "--person-token-file",
        type=Path,
        metavar="FILE",
        help="the token of the person at the client: its dialogs then offer to approve and reject as them",
    )
    add_wait_for_others(parser)
    add(
        "--names-file",
        metavar="FILE",
        help="keeps the owner of each tool name (default: below ~/.local/state; `none`: do not keep them)",
    )
    add(
        "--calls-file",
        metavar="FILE",
        help="keeps calls that wait for a decision (default: below ~/.local/state; `none`: do not keep them)",
    )
    add("--people", action="store_true", help="serve many people over HTTP, each by their own sign-in")
    add(
        "--max-people",
        type=int,
        default=MAX_PEOPLE,
        metavar="N",
        help="with --people: so many at the same time (default 1000)",
    )
    add(
        "--max-connections-per-address",
        type=int,
        default=MAX_CONNECTIONS_PER_ADDRESS,
        metavar="N",
        help="with --people: connections of one address (default 64); 0 lifts it, as a proxy in front needs",
    )
    add("--operator", action="store_true", help="serve decisions on proposals to your own assistant")
    add(
        "--assistant",
        action="append",
        default=[],
        metavar="NAME",
        help="with --operator: a member that the assistant acts as; what it proposes is not decided here",
    )
    add(
        "--skip-confirmation",
        action="append",
        default=[],
        metavar="PROPOSER:HOST:TOOL",
        help="with --operator: the assistant may approve this without you; exact names, at most 32 times",
    )
    add("--permission-tool", action="store_true", help="serve Claude Code's --permission-prompt-tool alone")
    add_log_level(parser, "warning")
    add(
        "--print-config",
        choices=CLIENTS,
        metavar="CLIENT",
        help=f"print the configuration for one of: {', '.join(CLIENTS)}",
    )
    parser.set_defaults(run=run_mcp)


def run_mcp(options: argparse.Namespace) -> int:
    if options.decision_seconds <= 0:
        raise UsageError("--decision-seconds must be more than 0")
    if options.operator:
        _check_operator(options)
    if options.permission_tool:
        from moot.cli.mcp.permission_service import check_permission_tool

        check_permission_tool(options)
    if options.people:
        from moot.cli.mcp.people_service import check_people

        check_people(options)
    if not options.operator and (options.assistant or options.skip_confirmation):
        raise UsageError("--assistant and --skip-confirmation are for --operator")
    # Here and not above: `moot --help` should not wait for servers to be imported.
    if options.print_config:
        from moot.cli.mcp.print_config import print_config

        return print_config(options, os.environ)
    where = _operator_settings_of(options) if options.operator else _client_settings_of(options)
    if options.people:
        from moot.cli.mcp.people_service import serve_people
        from moot.cli.process.interruption import run_service

        return run_service(serve_people(options, where, os.environ))
    if options.permission_tool:
        from moot.cli.mcp.permission_service import serve_permission_tool
        from moot.cli.process.interruption import run_service

        return run_service(serve_permission_tool(options, where, os.environ))
    # Checked before joining: a typo should not be seen by a whole space.
    if options.http:
        from moot.cli.mcp.http_service import http_token

        http_token(options)
    from moot.cli.process.interruption import run_service

    return run_service(_serve(options, where, os.environ))


def _client_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where a client joins, and as whom: that was said, it is never the person of the folder by default.

    The environment says so, too: it is where clients keep tokens, and where `moot up` puts its members'.
    """
    from moot.config.connect_settings import TOKEN, TOKEN_FILE, connect_settings

    if not (options.token_file or os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE)):
        member_overrides(options)
    return connect_settings(overrides_of(options), environ=os.environ, folder=Path())


def _operator_settings_of(options: argparse.Namespace) -> ConnectSettings:
    """Where a person decides: as for their own commands, with what the environment and the folder say."""
    from moot.config.connect_settings import connect_settings

    return connect_settings(overrides_of(options), environ=os.environ, folder=Path())


def _check_operator(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --operator."""
    from moot.bridges.operator.operator_settings import parse_unconfirmed

    if options.http:
        raise UsageError("--operator is served over stdio only: whoever reaches a port could decide as you")
    if options.person_token_file is not None:
        raise UsageError("--operator already acts as the person: leave out --person-token-file")
    parse_unconfirmed(options.skip_confirmation)


async def _serve(options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]) -> int:
    from moot import logs
    from moot.bridges.space.late_backend import LateBackend
    from moot.mcp.downstream.limits import McpServerLimits
    from moot.mcp.downstream.mcp_server import McpServer

    logs.set_up(options.log_level, "text", None)
    if options.operator:
        from moot.bridges.operator.operator_tools import list_operator_tools
        from moot.cli.mcp.operator_member import stay_joined

        late = LateBackend(where.url, tools=list_operator_tools)
    else:
        from moot.cli.mcp.space_member import stay_joined

        late = LateBackend(where.url)
    # In a task of its own: the client is answered before the gateway is there.
    joining = asyncio.ensure_future(stay_joined(options, where, environ, late))
    is_serving = False
    try:
        # Longer than an attempt takes to fail, or clients would be told the reason by chance.
        tried = asyncio.ensure_future(late.wait_tried())
        either: set[asyncio.Future[Any]] = {joining, tried}
        await asyncio.wait(either, timeout=3 * FIRST_JOIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        tried.cancel()
        if joining.done() and not late.me:
            joining.result()
        is_serving = True
        key = sha256(f"request states\0{where.token.reveal()}".encode()).hexdigest()[:16]
        limits = McpServerLimits(decision_seconds=options.decision_seconds)
        async with McpServer(late, limits, state_key=key) as server:
            return await _serve_until_end(options, server, late, joining)
    except MootError as fault:
        if not options.http and not is_serving:
            from moot.cli.mcp.start_error import answer_with_error

            await answer_with_error(str(fault))
        raise
    finally:
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)


async def _serve_until_end(
    options: argparse.Namespace, server: McpServer, late: LateBackend, joining: asyncio.Future[CloseReason]
) -> int:
    """Serve until the client disconnects or the space ends our membership; cancelling ends both in order."""
    stop = asyncio.Event()
    if options.http:
        from moot.cli.mcp.http_service import serve_over_http

        serving = asyncio.ensure_future(serve_over_http(options, server, late, stop))
    else:
        from moot.mcp.downstream import stdio_server

        serving = asyncio.ensure_future(stdio_server.serve(server, stop=stop))
    try:
        both: set[asyncio.Future[Any]] = {serving, joining}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            return 0
        end = joining.result()
        print(f"moot: left the space: {end.reason or end.code}", file=sys.stderr)
        return 1
    finally:
        stop.set()
        await asyncio.gather(serving, return_exceptions=True)
