"""`xprotocol_sources:` of a configuration file: endpoints that become MCP tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.config.section_reader import checked
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_problems import ConfigProblems
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.config.value_readers import read_existing, read_key, read_name, read_relay
from moot.xprotocol.endpoint.discovery import parse_endpoint

# Allowed in a tool's name by MCP clients; 32 leave as much for the name itself (D-68: 64 in all).
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EndpointLoader:
    """Reads the entries of `xprotocol_sources`."""

    folder: Path
    findings: ConfigProblems
    # For endpoints without an interval of their own.
    refresh_seconds: float

    def load(self, value: Json) -> tuple[XProtocolSource, ...]:
        """All valid sources; problems go to `findings`."""
        found = [
            self._endpoint(entry, path)
            for entry, path in self.findings.read_entries(value, "xprotocol_sources", self.refresh_seconds)
        ]
        return tuple(source for source in found if source is not None)

    def _endpoint(self, value: Json, path: str) -> XProtocolSource | None:
        findings = self.findings
        faults = len(findings.problems)
        readers = {
            "name": read_name,
            "endpoint": _xp_address,
            "key": lambda key, place: None if key is None else read_key(key, place),
            "relay": lambda url, place: None if url is None else read_relay(url, place),
            "mcp_tool_prefix": _tool_prefix,
            "delegation_event": read_existing(self.folder),
            "proofs": self._proofs,
        }
        source = findings.read_section(XProtocolSource, value, path, readers)
        given = value if isinstance(value, dict) else {}
        directly = [key for key in ("key", "relay") if given.get(key) is not None]
        if given.get("endpoint") is not None and directly:
            findings.add_problem(path, "has endpoint and key: give endpoint, or key and relay, not both")
        elif given.get("endpoint") is None and len(directly) < 2 and isinstance(value, dict):
            findings.add_problem(
                path, "give endpoint: xp://host, or key: ed25519:… together with relay: wss://…"
            )
        return source if len(findings.problems) == faults else None

    def _proofs(self, value: Json, path: str) -> tuple[Path, ...]:
        read = read_existing(self.folder)
        files = checked(value, list, "a list of files", path)
        return tuple(read(file, f"{path}[{place}]") for place, file in enumerate(files))


def _xp_address(value: Json, path: str) -> str | None:
    if value is None:
        return None
    text: str = checked(value, str, "an address such as xp://weather.example.com", path)
    try:
        return str(parse_endpoint(text))
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None


def _tool_prefix(value: Json, path: str) -> str:
    prefix: str = checked("" if value is None else value, str, "text", path)
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"{path}: at most 32 letters, digits, _ and -: a prefix for the names of MCP tools")
    return prefix
