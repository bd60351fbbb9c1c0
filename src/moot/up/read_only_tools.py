"""What the tools of a space's servers say that they do: each server is started once and asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from moot.box.boxed_child import boxed
from moot.bridges.server.call_secrets import CallSecrets
from moot.config.configuration import Configuration, McpServerConfig
from moot.config.secrets.secret import Secret
from moot.errors import MootError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import StdioServer, open_upstream
from moot.up.bridged_server import resolve_box, resolve_server
from moot.up.template_vars import TemplateVars

# As long as npx or uvx need to install one.
ANSWER_SECONDS: Final = 60.0


class ClaimedTools(NamedTuple):
    """The tools of each server that only read by their own word, and a note for each that did not tell.

    `traits` are what the words of the servers come to, by HOST/TOOL: that a tool only reads, which whoever
    asked for this believes, and that it destroys something, which is always believed.
    """

    reads: dict[str, list[str]]
    traits: dict[str, JsonObject]
    notes: list[str]


async def find_read_only_tools(
    configuration: Configuration, folder: Path, environ: Mapping[str, str]
) -> ClaimedTools:
    """Ask each server. A tool that also calls itself destructive does not only read."""
    found: dict[str, list[JsonObject]] = {}
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
                found[name] = await _list_tools(config, variables)
        except (MootError, TimeoutError) as fault:
            notes.append(
                f"{name}: its tools are not known, so all of them ask: {fault or 'no answer in time'}"
            )

    async with asyncio.TaskGroup() as group:
        for space, settings in configuration.spaces.items():
            for name, member in settings.members.items():
                if member.mcp_server is not None:
                    group.create_task(ask(space, name, member.mcp_server))
    reads = {name: [str(tool["name"]) for tool in found[name] if _only_reads(tool)] for name in sorted(found)}
    traits = {
        f"{name}/{tool['name']}": claimed
        for name in sorted(found)
        for tool in found[name]
        if (claimed := _claimed_traits(tool)) is not None
    }
    return ClaimedTools({name: names for name, names in reads.items() if names}, traits, sorted(notes))


async def _list_tools(config: McpServerConfig, variables: TemplateVars) -> list[JsonObject]:
    secrets = CallSecrets(config.secrets, variables.folder, variables.environ)
    server = await secrets.fill_server(resolve_server(config, variables, None))
    if isinstance(server, StdioServer):
        server = boxed(server, resolve_box(config, variables))
    async with open_upstream(server) as upstream:
        await upstream.wait_until_ready()
        return await upstream.list_all("tools/list")


def _claimed_traits(tool: JsonObject) -> JsonObject | None:
    hints = tool.get("annotations")
    if not isinstance(hints, dict) or not _has_plain_name(tool):
        return None
    if _only_reads(tool):
        return {"effect": "reads", "outside": hints.get("openWorldHint") is not False}
    return {"effect": "destroys"} if hints.get("destructiveHint") is True else None


def _only_reads(tool: JsonObject) -> bool:
    hints = tool.get("annotations")
    if not isinstance(hints, dict) or not _has_plain_name(tool):
        return False
    return hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True


def _has_plain_name(tool: JsonObject) -> bool:
    """In a name with other signs one could be that of a pattern, which would allow others."""
    name = tool.get("name")
    return isinstance(name, str) and name.replace("_", "").replace("-", "").isalnum()
