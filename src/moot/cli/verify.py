"""`moot verify`: what OWASP's list for agents and MCP says about a configuration."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

from moot.cli.options.shared_options import add_json
from moot.cli.process import program
from moot.cli.process.exit_codes import EXIT_FAILED, EXIT_OK
from moot.cli.process.table_output import print_table
from moot.config import load
from moot.operations.aisvs.deployment import Deployment
from moot.operations.aisvs.rows import as_json, verify
from moot.operations.text.text_table import TextTable
from moot.trust.rules.rule_yaml import read_rules

_ABOUT: Final = """\
Asks the rows of OWASP AISVS 1.0 about agents (C9) and MCP (C10) of a configuration: each is met, with the
evidence; not met, with a counterexample and what to change; not applicable, which does not count as met; or
not checked here, with the reason. Nothing is started, connected or changed. It also says who may call tools
without anybody, and whose tokens are old. What Moot as such cannot meet: docs/how-to/verify-a-setup.md.

It exits with 1 if a row of the wanted level is not met.
"""
_EXAMPLES: Final = """\
  moot verify                             the moot.yaml of this folder
  moot verify deploy/moot.yaml --level 1  only rows that everybody should meet
  moot verify --rules rules.yaml --json
"""
_WORDS: Final = {
    "met": "met",
    "not_met": "NOT MET",
    "not_applicable": "does not apply",
    "not_checked": "not checked",
}


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="ask OWASP's rows about agents and MCP of a configuration",
        about=_ABOUT,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        default=Path("moot.yaml"),
        metavar="FILE",
        help="a moot.yaml (default: here)",
    )
    parser.add_argument(
        "--rules",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="rules of an approver; repeat it",
    )
    parser.add_argument(
        "--level", type=int, choices=(1, 2, 3), default=3, help="rows up to this level (default: 3)"
    )
    add_json(parser)
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    configuration = load(options.config, environ=os.environ, dry=True)
    rules = [rule for file in options.rules for rule in read_rules(file.read_text("utf-8"))]
    deployment = Deployment(configuration, options.config, rules)
    found = [(row, verdict) for row, verdict in verify(deployment) if row.level <= options.level]
    missed = any(verdict.status == "not_met" for _, verdict in found)
    if options.json:
        print(json.dumps(as_json(found, deployment), indent=2))
        return EXIT_FAILED if missed else EXIT_OK
    rows = []
    for row, verdict in found:
        advice = f" To change: {verdict.change}." if verdict.change else ""
        rows.append((row.id, str(row.level), _WORDS[verdict.status], f"{row.words}: {verdict.why}.{advice}"))
    print_table(TextTable(("ROW", "LEVEL", "", ""), rows))
    counts: Counter[str] = Counter(verdict.status for _, verdict in found)
    print(", ".join(f"{counts[status]} {words}" for status, words in _WORDS.items()))
    for space in configuration.spaces:
        print(f"{space}: may do everything: {', '.join(deployment.overseers(space)) or 'nobody'}")
    for line in [*deployment.free_callers(), *deployment.old_tokens()]:
        print(line)
    return EXIT_FAILED if missed else EXIT_OK
