"""`moot mcp --permission-tool`: decisions of a space for Claude Code's permission prompt."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping

from moot.agents.hook.hook_gate import HookMember
from moot.agents.hook.permission_tool import PermissionBackend
from moot.cli.options.member_options import digest_of, state_folder
from moot.config.connect_settings import ConnectSettings
from moot.errors import UsageError
from moot.mcp.downstream import stdio_server
from moot.mcp.downstream.mcp_server import McpServer
from moot.private_files import use_folder

# As for a hook: longer than people take for lunch, shorter than an hour.
_WAIT_SECONDS = 3_500.0


def check_permission_tool(options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go with --permission-tool."""
    if options.http or options.operator or options.people or options.print_config:
        raise UsageError(
            "--permission-tool is served over stdio, to the agent that starts it: leave out --http, "
            "--operator, --people and --print-config"
        )
    # A person's token in the environment would allow everything that the person may do.
    if options.participant is None and options.token_file is None:
        raise UsageError("--permission-tool needs --token-file FILE or --as NAME: the member of the agent")


async def serve_permission_tool(
    options: argparse.Namespace, where: ConnectSettings, environ: Mapping[str, str]
) -> int:
    """Serve until the agent ends. Nothing is joined before it asks."""
    from moot import logs

    logs.set_up(options.log_level, "text", None)
    of = str(options.participant if options.token_file is None else options.token_file.resolve())
    state = state_folder(environ) / "moot" / "hook" / f"permission-{digest_of(where.url, where.space, of)}"
    use_folder(state, what="the state folder", option="XDG_STATE_HOME")
    member = HookMember(
        gateway=where.url,
        space=where.space,
        token=where.token.reveal(),
        name=where.name,
        state_folder=state,
    )
    async with McpServer(PermissionBackend(member, os.getcwd(), _WAIT_SECONDS)) as server:
        await stdio_server.serve(server, stop=asyncio.Event())
    return 0
