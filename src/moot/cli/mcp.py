"""`moot mcp`: an MCP server that is a member of a space, for Claude Code, Cursor and other clients."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli import program
from moot.cli.program import RefuseToken
from moot.cli.tls_options import add_tls_options, tls_files_of, warn_without_tls
from moot.errors import MootError, UsageError

if TYPE_CHECKING:
    from moot.bridge.space_server.calls_file import CallsFile
    from moot.bridge.space_server.late_backend import LateBackend
    from moot.config.connect_settings import CliOverrides, ConnectSettings
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

It supports both MCP eras: 2024-11-05 to 2025-11-25 (initialize) and 2026-07-28 (stateless).
"""
_EXAMPLES: Final = """\
To paste into a client's configuration:
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token --print-config claude-code

By hand, over stdio (the client starts it) and over HTTP (for several clients):
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token
  moot mcp --gateway http://localhost:8080 --space lab --token-file me.token --http 127.0.0.1:8090

For your own assistant, to decide what agents may do:
  moot mcp --operator --gateway http://localhost:8080 --space lab --token-file you.token

--gateway, --space and --token-file default to MOOT_URL, MOOT_SPACE and MOOT_TOKEN_FILE; MOOT_TOKEN holds a
token itself. Over stdio only MCP is written to stdout; errors go to stderr.
"""
CLIENTS: Final = (
    "claude-code", "claude-desktop", "codex", "cursor", "gemini", "vscode", "windsurf", "zed", "generic",
)  # fmt: skip
# Anybody who can reach the port could act as this member, so the token must not be guessable.
_TOKEN_CHARS: Final = 16
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# `BackendSettings.max_listed_bytes`, which is not imported for `--help`; a test compares them.
_LISTED_BYTES: Final = 128 << 10
# How long the first request may wait for the gateway; later ones are told that it is waited for.
_FIRST_JOIN_SECONDS: Final = 3.0
# How long to wait for the client's first request, to answer it with the reason why we end.
_FIRST_REQUEST_SECONDS: Final = 2.0


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="let an MCP client (Claude Code, Cursor, …) take part in a space",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("--gateway", metavar="URL", help="the gateway, as http(s):// or ws(s)://")
    add("--space", metavar="NAME", help="the space (default: the only one there)")
    add("--token-file", type=Path, metavar="FILE", help="the file with this member's token")
    add("--token", action=RefuseToken)
    add("--as", dest="member", metavar="NAME", help="be this member of the space in the current folder")
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
        type=float,
        default=20.0,
        metavar="N",
        help="how long a call waits for a decision before it answers PENDING (default 20)",
    )
    add(
        "--person-token-file",
        type=Path,
        metavar="FILE",
        help="the token of the person at the client: its dialogs then offer to approve and reject as them",
    )
    add("--wait-for-others", action="store_true", help="after a rejection, wait for others to approve")
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
    add(
        "--max-listed-bytes",
        type=int,
        default=_LISTED_BYTES,
        metavar="N",
        help="more tools than this are not listed, but found with moot_find_tools (default 131072)",
    )
    add("--no-word-vectors", action="store_true", help="search tools by words alone (see moot[search])")
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
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="of the log on stderr",
    )
    add(
        "--print-config",
        choices=CLIENTS,
        metavar="CLIENT",
        help=f"print the configuration for one of: {', '.join(CLIENTS)}",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.decision_seconds <= 0:
        raise UsageError("--decision-seconds must be more than 0")
    if options.max_listed_bytes < 0:
        raise UsageError("--max-listed-bytes must not be less than 0")
    if options.operator:
        _check_operator(options)
    elif options.assistant or options.skip_confirmation:
        raise UsageError("--assistant and --skip-confirmation are for --operator")
    # Here and not above: `moot --help` should not wait for servers to be imported.
    from moot.config.connect_settings import CliOverrides, connect_settings

    overrides = CliOverrides(
        gateway=options.gateway, space=options.space, token_file=options.token_file, name=options.member
    )
    if options.print_config:
        return _print_config(options, overrides, os.environ)
    where = connect_settings(overrides, environ=os.environ, folder=Path.cwd())
    # Checked before joining: a typo should not be seen by a whole space.
    if options.http:
        _http_token(options, *_address(options.http))
    from moot.cli.interruption import run_service

    return run_service(_serve(options, where, os.environ))


def _check_operator(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --operator."""
    from moot.bridge.operator_server.operator_settings import parse_unconfirmed

    if options.http:
        raise UsageError("--operator is served over stdio only: whoever reaches a port could decide as you")
    if options.person_token_file is not None:
        raise UsageError("--operator already acts as the person: leave out --person-token-file")
    parse_unconfirmed(options.skip_confirmation)


async def _serve(options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]) -> int:
    from moot import logs
    from moot.bridge.space_server.late_backend import LateBackend
    from moot.mcp.downstream.limits import McpServerLimits
    from moot.mcp.downstream.mcp_server import McpServer

    logs.set_up(options.log_level, "text", None)
    late = LateBackend(where.url)
    join = _stay_joined
    if options.operator:
        from moot.bridge.operator_server.operator_tools import list_operator_tools
        from moot.cli.mcp_operator import stay_joined

        late, join = LateBackend(where.url, tools=list_operator_tools), stay_joined
    # In a task of its own: a client does not start us again because its gateway was started after it.
    joining = asyncio.ensure_future(join(options, where, environ, late))
    is_serving = False
    try:
        # Longer than an attempt takes to fail, or clients would be told the reason by chance.
        tried = asyncio.ensure_future(late.wait_tried())
        either: set[asyncio.Future[Any]] = {joining, tried}
        await asyncio.wait(either, timeout=3 * _FIRST_JOIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
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
            await _answer_with_error(str(fault))
        raise
    finally:
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)


async def _stay_joined(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str], late: LateBackend
) -> CloseReason:
    """Join as soon as the gateway is there, and stay; why that ended. Raises NotAdmitted."""
    from moot.bridge.space_server.call_text import console_address
    from moot.bridge.space_server.names_file import NamesFile
    from moot.bridge.space_server.own_tools import RESERVED_NAMES
    from moot.bridge.space_server.pending_calls import FOREVER_SECONDS
    from moot.bridge.space_server.person_decisions import PersonDecisions
    from moot.bridge.space_server.space_backend import BackendSettings, SpaceBackend
    from moot.errors import Unreachable
    from moot.offers.offer_table import OfferTable
    from moot.offers.search_settings import SearchSettings
    from moot.participant import ParticipantLimits, connect, token_from

    # Practically forever: a client does not restart us because the gateway was restarted.
    limits = ParticipantLimits(
        connect_seconds=_FIRST_JOIN_SECONDS,
        reconnect_seconds=FOREVER_SECONDS,
        proposal_seconds=FOREVER_SECONDS,
    )
    offers = OfferTable(RESERVED_NAMES)
    path = _names_path(options, where, environ)
    names = None if path is None else NamesFile(path, offers)
    if names is not None:
        names.load()
    settings = BackendSettings(
        wait_for_others=options.wait_for_others,
        console=console_address(where.url),
        max_listed_bytes=options.max_listed_bytes,
        search=SearchSettings(word_vectors=not options.no_word_vectors),
    )
    person = None
    if options.person_token_file is not None:
        person = PersonDecisions(where.url, where.space, token_from(options.person_token_file))
    while True:
        try:
            async with (
                # A call gets its response; an echo of the request would only wake us once more.
                connect(
                    where.url,
                    where.space,
                    where.token.reveal(),
                    name=where.name,
                    limits=limits,
                    echo="unanswered",
                ) as joined,
                SpaceBackend(
                    joined,
                    settings,
                    space_name=where.space,
                    offers=offers,
                    calls=_calls_file(options, where, environ, joined.me),
                    person=person,
                ) as backend,
            ):
                if names is not None:
                    backend.watch(lambda _change: names.save())
                late.attach(backend, joined.me)
                return await joined.stay()
        except Unreachable as fault:
            if not late.problem:
                print(f"moot: {fault}. Waiting for it.", file=sys.stderr, flush=True)
            late.report_problem(str(fault))


def _names_path(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]
) -> Path | None:
    from moot.bridge.space_server.names_file import names_path

    if options.names_file == "none":
        return None
    if options.names_file:
        return Path(options.names_file)
    return names_path(_state_folder(environ), where.url, where.space)


def _calls_file(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str], member: str
) -> CallsFile | None:
    from moot.bridge.space_server.calls_file import CallsFile, calls_path

    if options.calls_file == "none":
        return None
    if options.calls_file:
        return CallsFile(Path(options.calls_file))
    return CallsFile(calls_path(_state_folder(environ), where.url, where.space, member))


def _state_folder(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME")
    return Path(state) if state else Path.home() / ".local" / "state"


async def _serve_until_end(
    options: argparse.Namespace, server: McpServer, late: LateBackend, joining: asyncio.Future[CloseReason]
) -> int:
    """Serve until the client disconnects or the space ends our membership; cancelling ends both in order."""
    stop = asyncio.Event()
    serving = asyncio.ensure_future(_serve_client(options, server, late, stop))
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


async def _serve_client(
    options: argparse.Namespace, server: McpServer, late: LateBackend, stop: asyncio.Event
) -> None:
    if not options.http:
        from moot.mcp.downstream import stdio_server

        await stdio_server.serve(server, stop=stop)
        return
    from moot.mcp.downstream.http_access import HttpAccessPolicy
    from moot.mcp.downstream.http_server import McpHttpServer
    from moot.net.http_listener import bind_socket, serve_http
    from moot.net.server_tls import ServerTls

    host, port = _address(options.http)
    token = _http_token(options, host, port)
    files = tls_files_of(options)
    tls = None if files is None else ServerTls(files)
    if tls is None and host not in _LOOPBACK:
        warn_without_tls(f"--http {options.http}")
    with bind_socket(host, port) as listening:
        port = listening.getsockname()[1]
        hosts = [*options.allow_host, *([] if host in _LOOPBACK else [f"{host}:{port}"])]
        http = McpHttpServer(
            server, HttpAccessPolicy.of(port, hosts=hosts, origins=options.allow_origin, token=token)
        )
        try:
            async with serve_http(http, listening, tls=tls):
                shown = f"[{host}]" if ":" in host else host
                scheme = "http" if tls is None else "https"
                me = late.me or "moot mcp"
                print(f"{me}: MCP listening on {scheme}://{shown}:{port}/mcp", flush=True)
                await stop.wait()
                http.close()
        finally:
            http.close()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"--http needs HOST:PORT, as in 127.0.0.1:8090 or [::1]:8090, not {text!r}")
    return host, int(port)


def _http_token(options: argparse.Namespace, host: str, port: int) -> str | None:
    from moot.participant import token_from

    if options.http_token_file is None:
        if host not in _LOOPBACK:
            raise UsageError(
                f"anyone who can reach {host}:{port} could act as this member: add --http-token-file FILE"
            )
        return None
    token = token_from(options.http_token_file)
    if len(token) < _TOKEN_CHARS:
        raise UsageError(f"the token in {options.http_token_file} has fewer than {_TOKEN_CHARS} characters")
    return token


async def _answer_with_error(why: str) -> None:
    """Answer the client's first request with the reason, so that it shows more than a closed pipe."""
    import orjson

    from moot.mcp.downstream.rpc import InvalidRpcMessage, RpcRequest, parse_message

    loop = asyncio.get_running_loop()
    first: asyncio.Future[bytes] = loop.create_future()

    def read_first() -> None:
        # The loop may be closed by now: then there is nothing to do.
        with suppress(RuntimeError, OSError):
            loop.call_soon_threadsafe(_settle, first, _first_line(sys.stdin.fileno()))

    # A daemon thread: nothing can wake it while it waits for the client.
    threading.Thread(target=read_first, name="standard input", daemon=True).start()
    try:
        async with asyncio.timeout(_FIRST_REQUEST_SECONDS):
            line = await first
        message = parse_message(line)
    except (TimeoutError, InvalidRpcMessage, OSError):
        return
    if isinstance(message, RpcRequest):
        error = {"code": -32000, "message": f"moot mcp: {why}"}
        sys.stdout.buffer.write(orjson.dumps({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n")
        sys.stdout.buffer.flush()


def _first_line(handle: int) -> bytes:
    # Not sys.stdin: if a waiting thread holds its lock, the interpreter cannot exit.
    kept = b""
    while b"\n" not in kept and len(kept) < 1 << 20 and (data := os.read(handle, 1 << 16)):
        kept += data
    return kept.partition(b"\n")[0]


def _settle(first: asyncio.Future[bytes], line: bytes) -> None:
    if not first.done():
        first.set_result(line)


# Configurations of clients


def _print_config(options: argparse.Namespace, overrides: CliOverrides, environ: Mapping[str, str]) -> int:
    from moot.cli.client_config import HttpEntry, StdioEntry, format_config, where_to_put

    if options.http:
        host, port = _address(options.http)
        shown = f"[{host}]" if ":" in host else host
        # Read here only to find out that it is one: its text stands in no configuration.
        _http_token(options, host, port)
        token_file = options.http_token_file
        scheme = "http" if tls_files_of(options) is None else "https"
        entry: HttpEntry | StdioEntry = HttpEntry(f"{scheme}://{shown}:{port}/mcp", token_file)
    else:
        # An absolute path to this installation: clients start programs with their own PATH.
        program = Path(sys.executable).absolute().with_name("moot")
        command = [str(program)] if program.is_file() else [sys.executable, "-m", "moot.cli"]
        entry = StdioEntry((*command, *_arguments(options, overrides, environ)))
    print(format_config(options.print_config, entry))
    print(where_to_put(options.print_config, entry), file=sys.stderr)
    return 0


def _arguments(options: argparse.Namespace, overrides: CliOverrides, environ: Mapping[str, str]) -> list[str]:
    """The arguments with which the client starts us: independent of its folder and environment."""
    gateway, space, file = _find_settings(overrides, environ)
    made = ["mcp", "--gateway", gateway]
    if space:
        made += ["--space", space]
    made += ["--token-file", str(file.resolve())]
    if options.decision_seconds != 20.0:
        made += ["--decision-seconds", f"{options.decision_seconds:g}"]
    if options.person_token_file is not None:
        made += ["--person-token-file", str(options.person_token_file.resolve())]
    if options.wait_for_others:
        made += ["--wait-for-others"]
    if options.operator:
        made += ["--operator"]
        made += [part for name in options.assistant for part in ("--assistant", name)]
        made += [part for call in options.skip_confirmation for part in ("--skip-confirmation", call)]
    if options.names_file:
        made += ["--names-file", options.names_file]
    if options.calls_file:
        made += ["--calls-file", options.calls_file]
    if options.max_listed_bytes != _LISTED_BYTES:
        made += ["--max-listed-bytes", str(options.max_listed_bytes)]
    if options.no_word_vectors:
        made += ["--no-word-vectors"]
    return made


def _find_settings(overrides: CliOverrides, environ: Mapping[str, str]) -> tuple[str, str, Path]:
    """Gateway, space and token file: as given, or of the space in the current folder."""
    from moot.config import load
    from moot.config.connect_settings import connect_settings, find_config

    gateway, space = (
        overrides.gateway or environ.get("MOOT_URL"),
        overrides.space or environ.get("MOOT_SPACE", ""),
    )
    file = overrides.token_file or (
        Path(environ["MOOT_TOKEN_FILE"]) if environ.get("MOOT_TOKEN_FILE") else None
    )
    if gateway and file is not None and overrides.name is None:
        if not file.is_file():
            print(f"note: {file.resolve()} does not exist yet", file=sys.stderr)
        return gateway, space, file
    where = connect_settings(overrides, environ=environ, folder=Path.cwd())
    config = find_config(Path.cwd())
    if config is not None and where.participant is not None:
        files = load(config, environ=environ, dry=True).spaces[where.space].token_files
        if where.participant in files:
            return where.url, where.space, files[where.participant]
    raise UsageError("a client's configuration needs a token file: give --gateway URL and --token-file FILE")
