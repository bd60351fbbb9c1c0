"""`xprotocol-adapter schemas`: lists the schemas of the configured MCP servers (XP Appendix A)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.adapter.options import add_config, command, config_file, report
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
    from moot.xprotocol.adapter.config.source_settings import McpSource
    from moot.xprotocol.contracts.contracts import Contract

_EXAMPLES = """\
  xprotocol-adapter schemas --config xprotocol-mcp-adapter.yml
  xprotocol-adapter schemas --source filesystem
  xprotocol-adapter schemas --json | jq '.[].kind'
"""


def inspected_sources(config: Path | None, name: str | None) -> tuple[AdapterSettings, tuple[McpSource, ...]]:
    """The settings and the selected sources; raises UsageError.

    Only problems of those sources count: a server can be tested before, say, a relay is configured.
    """
    from moot.xprotocol.adapter.config.config_loader import read_settings

    path = config_file(config)
    loaded = read_settings(path, environ=os.environ)
    settings = loaded.settings
    if settings is None:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in loaded.problems))
    sources = tuple(source for source in settings.mcp_sources if name in (None, source.name))
    if name is not None and sources:
        return settings, sources
    wrong = [problem for problem in loaded.problems if problem.path.startswith("mcp_sources")]
    if wrong:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in wrong))
    if name is not None:
        known = ", ".join(source.name for source in settings.mcp_sources) or "none"
        raise UsageError(f"{path}: no MCP source is named {name}; known sources: {known}")
    return settings, sources


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "schemas",
        run_schemas,
        help="list the wrapped schemas",
        description="Starts the configured MCP servers, translates what they offer, and prints every "
        "schema that would be published: its kind and version, the capability that a call "
        "needs, the quality of its description (0.00 to 1.00), and its description. Tools that "
        "are not published are listed with the reason. Exit code 1 when a server did not answer.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    parser.add_argument("--source", metavar="NAME", help="only this MCP source")
    add_json(parser)


def run_schemas(chosen: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable
    from moot.xprotocol.adapter.operations.source_inspection import inspect_sources
    from moot.xprotocol.contracts.contracts import contract_json

    settings, sources = inspected_sources(chosen.config, chosen.source)
    found = run_errand(
        inspect_sources(sources, limits=settings.limits, environ=os.environ, store=settings.store)
    )
    published = [each.publication for each in found if each.publication is not None]
    contracts = sorted((c for each in published for c in each.contracts), key=lambda c: c.kind)
    for inspection in found:
        name = inspection.source.name
        if inspection.fault is not None:
            print(f"xprotocol-adapter: {name}: {printable(inspection.fault)}", file=sys.stderr)
        elif inspection.publication is not None:
            for refused in inspection.publication.refused:
                reason = printable(f"{refused.name}: not published: {refused.message}")
                print(f"{name}: {reason}", file=sys.stderr)
            for notice in inspection.publication.warnings:
                print(f"{name}: {printable(f'{notice.about}: {notice.message}')}", file=sys.stderr)
    value = [contract_json(contract) for contract in contracts]
    code = 1 if any(each.fault is not None for each in found) else 0
    return report(chosen, value, _lines(contracts), code=code)


def _lines(contracts: Iterable[Contract]) -> Iterator[str]:
    for contract in contracts:
        score = contract.semantic.description_quality_score if contract.semantic is not None else 0.0
        needs = contract.auth.required_capability if contract.auth is not None else "nothing"
        yield f"{contract.kind}  {contract.version}  needs {needs}  quality {score:.2f}"
        text = " ".join((contract.description or "").split())
        if text:
            yield f"    {text[:100]}{'…' if len(text) > 100 else ''}"
