"""`xprotocol-adapter start`: runs the adapter."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from moot.cli.adapter import Misused
from moot.cli.adapter.options import add_config, command, format_count, load_config
from moot.cli.options.shared_options import add_json

if TYPE_CHECKING:
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings

# Between two checks whether it is up yet.
_STARTUP_POLL_SECONDS: Final = 0.1
# Between two checks of servers that are not up.
_SOURCE_POLL_SECONDS: Final = 1.0

_EXAMPLES = """\
  xprotocol-adapter start                                   xprotocol-mcp-adapter.yml in this folder
  xprotocol-adapter start --config acme.yml --port 9000     MCP clients over HTTP on port 9000
  kill -HUP PID                                             reload the configuration

For an MCP client that starts its servers (mcp_server.transport: stdio):
  {"mcpServers": {"xprotocol": {"command": "xprotocol-adapter", "args": ["start", "--config", "acme.yml"]}}}
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "start",
        run_start,
        help="start the adapter",
        description="Runs the adapter in both directions. Creates its key if there is none. Ctrl-C and "
        "SIGTERM stop it; SIGHUP reloads the configuration.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help="port for MCP clients, overrides mcp_server.sse_port; for transport sse and http",
    )
    add_json(parser)


def run_start(chosen: argparse.Namespace) -> int:
    from moot.cli.process.own_children import own_children

    if chosen.port is not None and not 0 <= chosen.port <= 65_535:
        raise Misused(f"--port {chosen.port}: a port is a number from 0 to 65535")
    with own_children():
        return _start(chosen)


def _start(chosen: argparse.Namespace) -> int:
    import sys

    from moot.cli.process.interruption import run_service

    settings = load_config(chosen.config)
    for note in settings.notes:
        print(f"xprotocol-adapter: note: {note}", file=sys.stderr)
    if chosen.port is not None and (settings.mcp_server is None or not settings.mcp_server.over_http):
        # D-72: it overrides sse_port, which only those transports use.
        print("xprotocol-adapter: note: --port is not used: mcp_server.transport is not sse", file=sys.stderr)
    set_up_logging(settings)
    if settings.discovery.publish_dns:
        print_record(settings)
    return run_service(_serve_adapter(settings, chosen.port, as_json=chosen.json))


def set_up_logging(settings: AdapterSettings) -> None:
    """XP 3.1 `logging`: to stdout, stderr or a file; never to stdout when an MCP client uses it (D-72)."""
    import logging
    import sys
    from pathlib import Path

    from moot import logs

    config = settings.logging
    file = None if config.output in ("stdout", "stderr") else Path(config.output)
    handler = logs.set_up(config.severity, config.format, file)
    if config.output == "stdout" and not settings.uses_stdout and isinstance(handler, logging.StreamHandler):
        handler.setStream(sys.stdout)


def print_record(settings: AdapterSettings) -> None:
    """XP 3.1 `publish_dns`: print the record to publish; on stderr, since stdout may be for MCP."""
    import sys

    from moot.xprotocol.adapter.discovery.dns_record import record_of, zone_line
    from moot.xprotocol.identity import keyfile

    identity = keyfile.load_or_create(settings.identity.key_file)
    print("publish this DNS record:", file=sys.stderr)
    print(zone_line(settings.discovery.domain, record_of(settings, identity)), file=sys.stderr)


async def _serve_adapter(settings: AdapterSettings, port: int | None, *, as_json: bool) -> int:
    import asyncio
    import signal

    from moot.xprotocol.adapter.adapter import run_adapter

    tasks = {asyncio.ensure_future(_report_start(settings, as_json=as_json))}

    def reload() -> None:
        task = asyncio.ensure_future(_reload(settings))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    try:
        await run_adapter(settings, port=port)
    finally:
        for task in tasks:
            task.cancel()
    return 0


async def _report_start(settings: AdapterSettings, *, as_json: bool) -> None:
    """Print once that it is running: for people on stderr, as JSON on stdout unless that is for MCP."""
    import asyncio
    import json
    import sys

    from moot.errors import MootError
    from moot.xprotocol.adapter.operations.control_socket import send_control_request

    while True:
        try:
            status = await send_control_request(settings.control, "status")
            break
        except MootError:
            await asyncio.sleep(_STARTUP_POLL_SECONDS)
    tools = sum(each["tools"] for each in status["sources"])
    if as_json:
        report = {"running": True, "control": str(settings.control), **status}
        print(json.dumps(report), file=sys.stderr if settings.uses_stdout else sys.stdout, flush=True)
        await _report_failures(settings)
        return
    lines = [
        f"running: key {status['key']}",
        f"{format_count(len(status['sources']), 'MCP source')} with {format_count(tools, 'tool')}, "
        f"{format_count(len(status['xprotocol_sources']), 'XProtocol source')}",
        f"catalog at {status['well_known']}/.well-known/xprotocol-endpoint",
    ]
    if status["mcp"]:
        lines.append(f"MCP clients connect to {status['mcp']}")
    for line in lines:
        print(f"xprotocol-adapter: {line}", file=sys.stderr, flush=True)
    await _report_failures(settings)


async def _report_failures(settings: AdapterSettings) -> None:
    """Print on stderr which MCP servers failed to start, with the end of their stderr, until all are up.

    After that the log reports changes.
    """
    import asyncio
    import sys

    from moot.cli.adapter.status import stderr_lines
    from moot.errors import MootError
    from moot.operations.text.terminal_escape import printable
    from moot.xprotocol.adapter.operations.control_socket import send_control_request

    # The reason, and whether there was output: it may arrive later.
    reported: dict[str, tuple[str, bool]] = {}
    while True:
        try:
            sources = (await send_control_request(settings.control, "status"))["sources"]
        except MootError:
            return
        for source in sources:
            name, trouble, written = source["name"], source["trouble"], stderr_lines(source)
            if source["state"] == "down" and reported.get(name) != (trouble, bool(written)):
                reported[name] = (trouble, bool(written))
                for line in (f"source {name} is down: {printable(trouble)}", *written):
                    print(f"xprotocol-adapter: {line}", file=sys.stderr, flush=True)
        if all(source["state"] == "up" for source in sources):
            return
        await asyncio.sleep(_SOURCE_POLL_SECONDS)


async def _reload(settings: AdapterSettings) -> None:
    """SIGHUP: reload through the control socket, like the `reload` command."""
    import logging

    from moot.errors import MootError
    from moot.xprotocol.adapter.operations.control_socket import send_control_request

    try:
        await send_control_request(
            settings.control, "reload", timeout_seconds=settings.limits.upstream_start_seconds
        )
    except MootError as fault:
        logging.getLogger(__name__).error("configuration not reloaded", extra={"reason": str(fault)})
