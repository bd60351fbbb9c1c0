"""`xprotocol-adapter start`: the adapter, until it is told to stop."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from moot.cli.adapter import Misused
from moot.cli.adapter.options import add_config, add_json, command, counted, loaded

if TYPE_CHECKING:
    from moot.adapter.config.adapter_settings import AdapterSettings

# Between two questions whether it is up yet.
_ASK_AGAIN_SECONDS: Final = 0.1
# Between two looks at servers that are not up: people wait for these lines, nothing else does.
_LOOK_AGAIN_SECONDS: Final = 1.0

_EXAMPLES = """\
  xprotocol-adapter start                                   xprotocol-mcp-adapter.yml in this folder
  xprotocol-adapter start --config acme.yml --port 9000     MCP clients over HTTP on port 9000
  kill -HUP PID                                             read the configuration again

For an MCP client that starts its servers (mcp_server.transport: stdio):
  {"mcpServers": {"xprotocol": {"command": "xprotocol-adapter", "args": ["start", "--config", "acme.yml"]}}}
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "start",
        run,
        help="start the adapter",
        description="Runs the adapter, both directions at once. Its key is made where there is none. "
        "Ctrl-C and SIGTERM stop it; SIGHUP has it read its configuration again.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help="where MCP clients connect, in place of mcp_server.sse_port; for transport sse and http",
    )
    add_json(parser, "when it is up, say how it does as one line of JSON")


def run(chosen: argparse.Namespace) -> int:
    import sys

    from moot.cli.interruption import run_service

    if chosen.port is not None and not 0 <= chosen.port <= 65_535:
        raise Misused(f"--port {chosen.port}: a port is a number from 0 to 65535")
    settings = loaded(chosen.config)
    for note in settings.notes:
        print(f"xprotocol-adapter: note: {note}", file=sys.stderr)
    if chosen.port is not None and (settings.mcp_server is None or not settings.mcp_server.over_http):
        # D-72: it stands for sse_port, which only those transports use.
        print("xprotocol-adapter: note: --port is not used: mcp_server.transport is not sse", file=sys.stderr)
    set_up_logging(settings)
    if settings.discovery.publish_dns:
        print_record(settings)
    return run_service(_run(settings, chosen.port, as_json=chosen.json))


def set_up_logging(settings: AdapterSettings) -> None:
    """XP 3.1 `logging`: to stdout, stderr or a file; never to an stdout that is an MCP client's (D-72)."""
    import logging
    import sys
    from pathlib import Path

    from moot import logs

    wanted = settings.logging
    file = None if wanted.output in ("stdout", "stderr") else Path(wanted.output)
    handler = logs.set_up(wanted.severity, wanted.format, file)
    if wanted.output == "stdout" and not settings.uses_stdout and isinstance(handler, logging.StreamHandler):
        handler.setStream(sys.stdout)
    # uvicorn tells of its own starting and stopping; ours say it better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def print_record(settings: AdapterSettings) -> None:
    """XP 3.1 `publish_dns`: the record to publish, on stderr: stdout may be an MCP client's."""
    import sys

    from moot.adapter.inbound.dns_record import record_of, zone_line
    from moot.identity import keyfile

    identity = keyfile.load_or_create(settings.identity.key_file)
    print("publish this DNS record:", file=sys.stderr)
    print(zone_line(settings.discovery.domain, record_of(settings, identity)), file=sys.stderr)


async def _run(settings: AdapterSettings, port: int | None, *, as_json: bool) -> int:
    import asyncio
    import signal

    from moot.adapter.adapter import run_adapter

    asked = {asyncio.ensure_future(_tell_when_up(settings, as_json=as_json))}

    def reload() -> None:
        asking = asyncio.ensure_future(_reload(settings))
        asked.add(asking)
        asking.add_done_callback(asked.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    try:
        await run_adapter(settings, port=port)
    finally:
        for asking in asked:
            asking.cancel()
    return 0


async def _tell_when_up(settings: AdapterSettings, *, as_json: bool) -> None:
    """Say once that it runs, and where: to people on stderr, as JSON on stdout unless that is a client's."""
    import asyncio
    import json
    import sys

    from moot.adapter.operations.control_socket import ask
    from moot.errors import MootError

    while True:
        try:
            status = await ask(settings.control, "status")
            break
        except MootError:
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
    tools = sum(each["tools"] for each in status["sources"])
    if as_json:
        told = {"running": True, "control": str(settings.control), **status}
        print(json.dumps(told), file=sys.stderr if settings.uses_stdout else sys.stdout, flush=True)
        await _tell_of_failures(settings)
        return
    words = [
        f"running: key {status['key']}",
        f"{counted(len(status['sources']), 'MCP source')} with {counted(tools, 'tool')}, "
        f"{counted(len(status['xprotocol_sources']), 'XProtocol source')}",
        f"catalog at {status['well_known']}/.well-known/xprotocol-endpoint",
    ]
    if status["mcp"]:
        words.append(f"MCP clients connect to {status['mcp']}")
    for line in words:
        print(f"xprotocol-adapter: {line}", file=sys.stderr, flush=True)
    await _tell_of_failures(settings)


async def _tell_of_failures(settings: AdapterSettings) -> None:
    """Say on stderr which MCP servers did not come up, and the last that each wrote, until all have.

    One may take its time to fail. Once they were all up, the log tells of what happens to them.
    """
    import asyncio
    import sys

    from moot.adapter.operations.control_socket import ask
    from moot.cli.adapter.status import stderr_lines
    from moot.cli.escape_output import printable
    from moot.errors import MootError

    # Why, and whether it had written anything by then: its end may be noticed first.
    told: dict[str, tuple[str, bool]] = {}
    while True:
        try:
            sources = (await ask(settings.control, "status"))["sources"]
        except MootError:
            return
        for source in sources:
            name, trouble, written = source["name"], source["trouble"], stderr_lines(source)
            if source["state"] == "down" and told.get(name) != (trouble, bool(written)):
                told[name] = (trouble, bool(written))
                for line in (f"source {name} is down: {printable(trouble)}", *written):
                    print(f"xprotocol-adapter: {line}", file=sys.stderr, flush=True)
        if all(source["state"] == "up" for source in sources):
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def _reload(settings: AdapterSettings) -> None:
    """SIGHUP: have the adapter read its file again, the same way as anybody else would ask for it."""
    import logging

    from moot.adapter.operations.control_socket import ask
    from moot.errors import MootError

    try:
        await ask(settings.control, "reload", within=settings.limits.upstream_start_seconds)
    except MootError as fault:
        logging.getLogger(__name__).error("configuration not reloaded", extra={"reason": str(fault)})
