"""Which tools of the servers of a space say that they only read: each server is started once and asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moot.config.configuration import Configuration, McpServerConfig
from moot.config.gateway_config import Secret
from moot.errors import MootError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import open_upstream
from moot.up.bridged_server import resolve_server
from moot.up.template_vars import TemplateVars

# As long as npx or uvx need to install one.
ANSWER_SECONDS: Final = 60.0


async def find_read_only_tools(
    configuration: Configuration, folder: Path, environ: Mapping[str, str]
) -> tuple[dict[str, list[str]], list[str]]:
    """The tools of each server that have `readOnlyHint`, and a note for each server that did not tell.

    It is the server's own word, so a tool that also calls itself destructive is left out.
    """
    found: dict[str, list[str]] = {}
    notes: list[str] = []

    async def ask(space: str, name: str, config: McpServerConfig) -> None:
        variables = TemplateVars(
            gateway="",
            port=0,
            space=space,
            name=name,
            folder=folder,
            token=Secret(""),
            token_file=None,
            environ=environ,
        )
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found[name] = await _read_only_tools(config, variables)
        except (MootError, TimeoutError) as fault:
            notes.append(
                f"{name}: its tools are not known, so all of them ask: {fault or 'no answer in time'}"
            )

    async with asyncio.TaskGroup() as group:
        for space, settings in configuration.spaces.items():
            for name, member in settings.members.items():
                if member.mcp_server is not None:
                    group.create_task(ask(space, name, member.mcp_server))
    return {name: found[name] for name in sorted(found) if found[name]}, sorted(notes)


async def _read_only_tools(config: McpServerConfig, variables: TemplateVars) -> list[str]:
    async with open_upstream(resolve_server(config, variables, None)) as upstream:
        await upstream.wait_until_ready()
        tools = await upstream.list_all("tools/list")
    return [str(tool["name"]) for tool in tools if _only_reads(tool)]


def _only_reads(tool: JsonObject) -> bool:
    hints, name = tool.get("annotations"), tool.get("name")
    if not isinstance(hints, dict) or not isinstance(name, str):
        return False
    # In a name with other signs one could be that of a pattern, which would allow others.
    is_plain = name.replace("_", "").replace("-", "").isalnum()
    return is_plain and hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True
