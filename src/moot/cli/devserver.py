"""The `xprotocol-devserver` command (XP 10): XProtocol on one machine, in one process."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot import __version__
from moot.cli.options.member_options import add_log_level, state_folder
from moot.cli.process.extras import check_installed
from moot.cli.process.program import Parser, run_program
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.xprotocol.devserver import DevServer, DevServerSettings

_ABOUT = """\
Starts everything that XProtocol needs in one process: the MCP adapter, a relay, an event store, and generated
keys. For development, demos and tests; not for production.
"""

_EXAMPLES = """\
examples:
  xprotocol-devserver --mcp-command "npx @modelcontextprotocol/server-filesystem /tmp" \\
                      --namespace com.demo.filesystem
  xprotocol-devserver --config ./xprotocol-mcp-adapter.yml      reloads the file when it changes
  xprotocol-devserver --config ./xprotocol-mcp-adapter.yml --payloads
                                                                shows the payloads of sealed events
  xprotocol-devserver --mcp-proxy                               for MCP clients that start their servers

An MCP client's call is sent as it would be between organisations: signed and sealed with one key, through the
relay, opened and answered with another. The events are in .moot/devserver/relay/events.sqlite.
Ctrl-C and SIGTERM stop it; --fresh removes all keys and events of earlier runs.
"""

DATA: Final = Path(".moot/devserver")
# Between two checks of servers that are still starting.
_POLL_SECONDS: Final = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; returns the exit code: 0 success, 1 failure, 2 wrong usage."""
    return run_program("xprotocol-devserver", _parser, arguments)


def _parser(_: Sequence[str]) -> Parser:
    parser = Parser(
        prog="xprotocol-devserver",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"xprotocol-devserver {__version__} (profile xp1)")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="an adapter's configuration; its relay and key are replaced",
    )
    add(
        "--mcp-command",
        action="append",
        default=[],
        metavar="COMMAND",
        help="wrap this MCP server, started without a shell; may be given several times",
    )
    add(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace of the preceding --mcp-command",
    )
    add(
        "--mcp-proxy",
        action="store_true",
        help="serve MCP over stdio: for the running DevServer, or for a new one",
    )
    add("--data", type=Path, metavar="DIR", help=f"keys, events and versions (default {DATA})")
    add("--fresh", action="store_true", help="remove keys, events and versions of earlier runs first")
    add("--relay-port", type=int, default=8765, metavar="PORT", help="0 takes a free one (default 8765)")
    add(
        "--port",
        type=int,
        default=8766,
        metavar="PORT",
        help="for the discovery document and catalog; 0 takes a free one (default 8766)",
    )
    add(
        "--mcp-port",
        type=int,
        default=8767,
        metavar="PORT",
        help="for MCP clients over HTTP, at /mcp and /sse; 0 takes a free one (default 8767)",
    )
    add("--host", default="127.0.0.1", help="address to listen on; anything but loopback needs --i-know")
    add(
        "--i-know",
        action="store_true",
        help="allow other machines to connect, although it is not made for that",
    )
    add(
        "--payloads", action="store_true", help="show the payloads of events, as far as they can be decrypted"
    )
    add("--quiet", action="store_true", help="do not print events")
    add_log_level(parser, "warning")
    parser.set_defaults(run=lambda chosen: _check_and_run(parser, chosen))
    return parser


def _check_and_run(parser: Parser, chosen: argparse.Namespace) -> int:
    if len(chosen.mcp_command) != len(chosen.namespace):
        parser.error("every --mcp-command needs its --namespace, such as com.demo.filesystem")
    if chosen.config is not None and chosen.mcp_command:
        parser.error("--config and --mcp-command exclude each other: put the server into the file")
    check_installed("xprotocol")
    return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    from moot import logs
    from moot.cli.process.interruption import run_service
    from moot.cli.process.own_children import own_children
    from moot.config.gateway_config import is_loopback

    if not is_loopback(chosen.host) and not chosen.i_know:
        raise UsageError(
            f"--host {chosen.host}: the DevServer is for this machine only. Use xprotocol-adapter and "
            "moot xp relay for anything else, or add --i-know"
        )
    logs.set_up(chosen.log_level, "text")
    with own_children():
        return run_service(_serve_proxy(chosen) if chosen.mcp_proxy else _serve(chosen, _settings(chosen)))


def _settings(chosen: argparse.Namespace, *, stdio: bool = False) -> DevServerSettings:
    from moot.xprotocol.adapter.config.config_loader import find_config
    from moot.xprotocol.devserver import DevServerSettings, WrappedServer

    wrapped = tuple(
        WrappedServer(command=command, namespace=namespace)
        for command, namespace in zip(chosen.mcp_command, chosen.namespace, strict=True)
    )
    config = chosen.config or (None if wrapped else find_config(Path()))
    if config is None and not wrapped:
        raise UsageError(
            "nothing to wrap: give --config FILE, or --mcp-command and --namespace, for example\n"
            '  xprotocol-devserver --mcp-command "npx @modelcontextprotocol/server-filesystem /tmp" '
            "--namespace com.demo.filesystem"
        )
    data = (chosen.data or DATA).absolute()
    if chosen.fresh and data.exists():
        _check_data_folder(data)
        shutil.rmtree(data)
    return DevServerSettings(
        data=data,
        config=None if config is None else config.absolute(),
        wrapped=wrapped,
        host=chosen.host,
        relay_port=chosen.relay_port,
        pages_port=chosen.port,
        mcp_port=chosen.mcp_port,
        stdio=stdio,
    )


def _check_data_folder(data: Path) -> None:
    """--fresh removes a whole folder: only one that a DevServer has created."""
    if not (data / "client.key").exists():
        raise UsageError(f"--fresh: {data} does not look like a DevServer's folder; nothing was removed")


async def _serve(chosen: argparse.Namespace, settings: DevServerSettings) -> int:
    """Run a DevServer until it is stopped; over stdio, until its client goes."""
    import asyncio

    from moot.xprotocol.adapter.telemetry.event_log import EventLog
    from moot.xprotocol.devserver import DevServer

    # stdout is for the MCP client.
    out = sys.stderr if settings.stdio else sys.stdout

    def write(line: str) -> None:
        print(line, file=out, flush=True)

    event_log = EventLog(write, colour=out.isatty() and "NO_COLOR" not in os.environ)
    async with DevServer(settings, on_event=None if chosen.quiet else event_log.log_event) as server:
        if chosen.payloads:
            adapters = (server.adapter, server.client)
            event_log.decryption_keys = {each.key: each.identity for each in adapters}
        _save_run(settings)
        for line in _banner(server):
            write(line)
        event_log.start(server.names)
        reporting = asyncio.create_task(_report_late_servers(server, write))
        try:
            await server.run()
        finally:
            reporting.cancel()
    return 0


def _banner(server: DevServer) -> list[str]:
    """XP 10: what runs where, and what to paste."""
    adapter, host = server.adapter, "localhost"
    lines = [
        "✓ XProtocol DevServer started",
        f"✓ Adapter key: {adapter.key}",
        f"✓ Local relay: ws://{host}:{server.relay.port}",
    ]
    for source in adapter.status()["sources"]:
        lines += _source_lines(source)
    pages = adapter.address.rpartition(":")[2]
    lines.append(f"✓ Schema catalog: http://{host}:{pages}/.well-known/xprotocol-endpoint")
    if server.client.listener.url is not None:
        lines.append(f"✓ MCP over HTTP: {server.client.listener.url}")
    lines += ["! For development only: do not use it in production.", ""]
    if server.client.listener.url is not None:
        lines += ["Paste into Claude Code MCP config:", json.dumps(_client_config(server.settings)), ""]
    return lines


def _source_lines(source: dict[str, Any]) -> list[str]:
    """The state of a wrapped server; of a failed one, also the end of its stderr."""
    from moot.cli.adapter.status import stderr_lines
    from moot.operations.text.terminal_escape import printable

    name = source["namespace"]
    if source["state"] == "up" and source["kinds"]:
        return [f"✓ Wrapped MCP server: {name} ({_tool_count(source['tools'])})"]
    if source["state"] in ("starting", "up"):
        return [f"… Wrapped MCP server: {name} is still starting"]
    why = printable(source["trouble"]) or "see the log"
    return [f"✗ Wrapped MCP server: {name} is {source['state']}: {why}", *stderr_lines(source)]


async def _report_late_servers(server: DevServer, write: Callable[[str], None]) -> None:
    """Report servers that start late, such as one that npx has to download first."""
    import asyncio

    # The first line and whether there are others: those grow with every restart of a failing server.
    reported: dict[str, tuple[str, bool]] = {}
    for source in server.adapter.status()["sources"]:
        first, *others = _source_lines(source)
        reported[source["name"]] = (first, bool(others))
    while any(not line.startswith("✓") for line, _ in reported.values()):
        await asyncio.sleep(_POLL_SECONDS)
        for source in server.adapter.status()["sources"]:
            first, *others = _source_lines(source)
            if reported.get(source["name"]) != (first, bool(others)):
                reported[source["name"]] = (first, bool(others))
                for line in (first, *others):
                    write(line)


def _tool_count(tools: int) -> str:
    return "1 tool" if tools == 1 else f"{tools} tools"


def _client_config(settings: DevServerSettings) -> dict[str, Any]:
    arguments = ["--mcp-proxy"]
    if settings.data != DATA.absolute():
        arguments += ["--data", str(settings.data)]
    return {"mcpServers": {"xprotocol": {"command": "xprotocol-devserver", "args": arguments}}}


# The proxy


async def _serve_proxy(chosen: argparse.Namespace) -> int:
    """Serve MCP over stdio: for the running DevServer, or with a new one (D-79)."""
    from moot.xprotocol.adapter.operations.control_socket import (
        AdapterNotRunning,
        ControlRequestFailed,
        send_control_request,
    )
    from moot.xprotocol.devserver import DevServerSettings

    last_run = _last_run()
    folders = [(chosen.data or DATA).absolute()]
    if chosen.data is None and isinstance(known := last_run.get("data"), str):
        folders.append(Path(known))
    for data in dict.fromkeys(folders):
        running = DevServerSettings(data=data, stdio=True)
        try:
            status = await send_control_request(running.control, "status")
        except (AdapterNotRunning, ControlRequestFailed):
            continue
        await _attach(running, status)
        return 0
    if not chosen.config and not chosen.mcp_command and chosen.data is None:
        _restore_arguments(chosen, last_run)
    return await _serve(chosen, _settings(chosen, stdio=True))


async def _attach(settings: DevServerSettings, status: dict[str, Any]) -> None:
    """Run another client adapter, with the key of the running one, on its relay."""
    import tempfile

    from moot.xprotocol.adapter.adapter import run_adapter
    from moot.xprotocol.devserver import client_settings

    with tempfile.TemporaryDirectory(prefix="xprotocol-proxy-") as folder:
        settings_of_client = client_settings(
            settings, str(status["relay"]), str(status["key"]), store=Path(folder)
        )
        await run_adapter(settings_of_client)


def _state_file() -> Path:
    return state_folder(os.environ) / "moot" / "devserver.json"


def _save_run(settings: DevServerSettings) -> None:
    """Save the arguments, so that a proxy that an MCP client starts finds the last DevServer."""
    file = _state_file()
    state = {
        "data": str(settings.data),
        "config": None if settings.config is None else str(settings.config),
        "wrapped": [[each.command, each.namespace] for each in settings.wrapped],
        "folder": str(Path.cwd()),
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The command line may contain secrets.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            json.dump(state, opened)
    except OSError as fault:
        print(f"xprotocol-devserver: note: {file} cannot be written: {fault.strerror}", file=sys.stderr)


def _last_run() -> dict[str, Any]:
    try:
        state = json.loads(_state_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _restore_arguments(chosen: argparse.Namespace, remembered: dict[str, Any]) -> None:
    """Start what ran last, from the same folder."""
    if not remembered.get("data"):
        return
    os.chdir(remembered.get("folder") or ".")
    chosen.data = Path(remembered["data"])
    if remembered.get("config"):
        chosen.config = Path(remembered["config"])
    for command, namespace in remembered.get("wrapped") or ():
        chosen.mcp_command.append(command)
        chosen.namespace.append(namespace)
