"""`xprotocol-adapter test-mcp`: tests the connection to MCP servers (XP Appendix A)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moot.cli.adapter.options import add_config, command, report
from moot.cli.adapter.schemas import inspected_sources
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

if TYPE_CHECKING:
    from moot.protocol.operation import Json
    from moot.xprotocol.adapter.operations.source_inspection import SourceInspection

_EXAMPLES = """\
  xprotocol-adapter test-mcp --config xprotocol-mcp-adapter.yml --source filesystem
  xprotocol-adapter test-mcp                                every MCP source
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "test-mcp",
        run_mcp_test,
        help="test the connection to an MCP server",
        description="Starts or connects to an MCP server like the adapter does, with the same credentials "
        "and environment, lists what it offers, and stops it. Exit code 0 when it answered, 1 "
        "when it did not; then the end of its stderr is shown.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    parser.add_argument("--source", metavar="NAME", help="only this MCP source")
    add_json(parser)


def run_mcp_test(chosen: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable
    from moot.xprotocol.adapter.operations.source_inspection import inspect_sources

    settings, sources = inspected_sources(chosen.config, chosen.source)
    found = run_errand(inspect_sources(sources, limits=settings.limits, environ=os.environ))
    failed = [each for each in found if each.fault is not None]
    for each in () if chosen.json else failed:
        print(f"{each.source.name}: failed: {printable(each.fault or '')}", file=sys.stderr)
        for line in each.stderr_tail:
            print(f"    {printable(line)}", file=sys.stderr)
    lines = [line for each in found if each.fault is None for line in _lines(each)]
    return report(chosen, [_to_json(each) for each in found], lines, code=1 if failed else 0)


def _to_json(found: SourceInspection) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "name": found.source.name,
        "transport": found.source.transport,
        "ok": found.fault is None,
        "seconds": round(found.seconds, 3),
    }
    if found.fault is not None:
        return answer | {"error": found.fault, "stderr": list(found.stderr_tail)}
    if found.server_info is not None:
        answer["server"] = found.server_info.implementation
        answer["mcp_version"] = found.server_info.version
    offer, publication = found.offer, found.publication
    return answer | {
        "tools": len(offer.tools),
        "resources": len(offer.resources) + len(offer.resource_templates),
        "prompts": len(offer.prompts),
        "published": len(publication.contracts) if publication is not None else 0,
        "refused": [
            {"name": each.name, "reason": each.reason, "message": each.message}
            for each in (publication.refused if publication is not None else ())
        ],
    }


def _lines(found: SourceInspection) -> Iterator[str]:
    described = _to_json(found)
    server = described.get("server") or {}
    label = f"{server.get('name', 'unnamed')} {server.get('version', '')}".strip()
    yield (
        f"{found.source.name}: ok in {found.seconds:.1f} s: {label}, MCP {described.get('mcp_version')}: "
        f"{described['tools']} tools, {described['resources']} resources, {described['prompts']} prompts; "
        f"{described['published']} schemas published"
    )
    for refused in described["refused"]:
        yield f"    not published: {refused['name']}: {refused['message']}"
