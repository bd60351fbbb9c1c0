"""`xprotocol-adapter status`: shows the state of the running adapter (XP Appendix A, D-75)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.adapter.options import add_control, command, format_time, report
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

if TYPE_CHECKING:
    from moot.protocol.operation import Json

_EXAMPLES = """\
  xprotocol-adapter status                                  the adapter of this folder, or the default one
  xprotocol-adapter status --config acme.yml --json
  xprotocol-adapter status && echo running
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "status",
        run_status,
        help="show the status of the running adapter",
        description="Queries the running adapter over its control socket, which only you can open. Exit code "
        "0 when it is running, 1 when it is not.",
        examples=_EXAMPLES,
    )
    add_control(parser)
    add_json(parser)


def run_status(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.operations.control_socket import AdapterNotRunning, send_control_request

    control = chosen.control or control_of(chosen.config)
    try:
        status = run_errand(send_control_request(control, "status"))
    except AdapterNotRunning as fault:
        return report(chosen, {"running": False, "control": str(control)}, [f"stopped: {fault}"], code=1)
    return report(chosen, {"running": True, "control": str(control), **status}, _lines(status))


def control_of(config: Path | None) -> Path:
    """The control socket of the adapter with this configuration, even if the file has problems."""
    import os

    from moot.errors import UsageError
    from moot.xprotocol.adapter.config.adapter_settings import KEY_FILE
    from moot.xprotocol.adapter.config.config_loader import (
        control_path,
        find_config,
        read_settings,
        store_path,
    )

    path = config or find_config(Path())
    if path is None:
        return control_path(store_path(KEY_FILE.expanduser()))
    loaded = read_settings(path, environ=os.environ)
    if loaded.settings is None:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in loaded.problems))
    return loaded.settings.control


def _lines(status: dict[str, Json]) -> Iterator[str]:
    def row(name: str, value: object) -> str:
        return f"{name:<12}{value}"

    yield row(
        "running", f"{status.get('status')}, for {status.get('uptime_seconds')} s, pid {status.get('pid')}"
    )
    yield from (row("problem", problem) for problem in status.get("problems") or [])
    yield row("adapter", f"{status.get('display_name')}, {status.get('key')}")
    if status.get("chain"):
        yield row("parents", " → ".join(status["chain"][:-1]))
    yield row("relay", status.get("relay") or "no relay is reachable")
    yield row("catalog", f"{status.get('well_known')}/.well-known/xprotocol-endpoint")
    if status.get("mcp"):
        yield row("MCP", status["mcp"])
    for source in status.get("sources") or []:
        yield row("source", _source_summary(source, "namespace"))
        yield from stderr_lines(source)
    for source in status.get("xprotocol_sources") or []:
        yield row("endpoint", _source_summary(source, "endpoint"))
    announced = status.get("announced")
    yield row("announced", format_time(announced["at"]) if announced else "not yet")
    calls = status.get("calls") or {}
    yield row("calls", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in calls.items()))


def stderr_lines(source: dict[str, Json]) -> list[str]:
    """The end of a failed MCP server's stderr, escaped for a terminal."""
    from moot.operations.text.terminal_escape import printable

    return [f"  | {printable(line)}" for line in source.get("stderr") or ()]


def _source_summary(source: dict[str, Json], origin: str) -> str:
    """One source: name, state, number of tools, namespace or endpoint, problem."""
    facts = [f"{source.get('name')} {source.get('state')}", f"{source.get('tools')} tools"]
    facts += [str(source[key]) for key in (origin, "trouble", "fault") if source.get(key)]
    return ", ".join(facts)
