"""`moot mcp --print-config`: what to paste into a client's configuration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from moot.cli.mcp.client_config import HttpEntry, StdioEntry, format_config, where_to_put
from moot.cli.mcp.defaults import DECISION_SECONDS
from moot.cli.mcp.http_service import http_token, url_of
from moot.cli.options.member_options import member_environ, member_overrides, overrides_of
from moot.errors import UsageError


def print_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the entry for one client, and on stderr where it belongs."""
    if options.http:
        # Read here only to find out that it is one: its text stands in no configuration.
        http_token(options)
        entry: HttpEntry | StdioEntry = HttpEntry(url_of(options), options.http_token_file)
    else:
        # An absolute path to this installation: clients start programs with their own PATH.
        program = Path(sys.executable).absolute().with_name("moot")
        command = [str(program)] if program.is_file() else [sys.executable, "-m", "moot.cli"]
        entry = StdioEntry((*command, *_arguments(options, environ)))
    print(format_config(options.print_config, entry))
    print(where_to_put(options.print_config, entry), file=sys.stderr)
    return 0


def _arguments(options: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
    """The arguments with which the client starts us: independent of its folder and environment."""
    gateway, space, file = _find_settings(options, environ)
    made = ["mcp", "--gateway", gateway]
    if space:
        made += ["--space", space]
    made += ["--token-file", str(file.resolve())]
    if options.decision_seconds != DECISION_SECONDS:
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
    return made


def _find_settings(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, str, Path]:
    """Gateway, space and token file: as given, or of the space in the current folder.

    Of a person only with --operator: else the client would do everything in their name.
    """
    from moot.config import load
    from moot.config.connect_settings import connect_settings, find_config

    if options.operator:
        overrides = overrides_of(options)
    else:
        overrides, environ = member_overrides(options), member_environ(environ)
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
    if file is not None and overrides.name is None:
        return where.url, where.space, file
    config = overrides.config or find_config(Path.cwd())
    if config is not None and where.participant is not None:
        files = load(config, environ=environ, dry=True, unset={}).spaces[where.space].token_files
        if where.participant in files:
            return where.url, where.space, files[where.participant]
    raise UsageError("a client's configuration needs a token file: give --gateway URL and --token-file FILE")
