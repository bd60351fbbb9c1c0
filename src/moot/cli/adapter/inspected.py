"""Selects the MCP sources for `schemas` and `test-mcp`: all, or the named one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from moot.cli.adapter.options import config_file
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
    from moot.xprotocol.adapter.config.source_settings import McpSource


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
