"""`mcp_sources:` of a configuration file: MCP servers that become part of the endpoint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from moot.config.gateway_config import is_loopback
from moot.config.section_reader import at, mapping, read_plain
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_problems import ConfigProblems
from moot.xprotocol.adapter.config.server_credentials import ServerCredentials
from moot.xprotocol.adapter.config.source_settings import CertificateAuth, McpSource, RateLimit
from moot.xprotocol.adapter.config.value_readers import (
    read_existing,
    read_name,
    read_namespace,
    read_url,
    read_variables,
    resolve_path,
)
from moot.xprotocol.contracts.capabilities import expand_capability, required_capability
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.contracts.source_overrides import SchemaOverride, SemanticOverride

_SECRET_NAME: Final = re.compile(r"token|secret|passw|credential|api_?key", re.IGNORECASE)
_STDIO_KEYS: Final = ("command", "args", "env", "pass_env", "cwd")
_HTTP_KEYS: Final = ("url", "auth", "ca_file")


@dataclass(frozen=True, slots=True)
class SourceLoader:
    """Reads the entries of `mcp_sources`."""

    folder: Path
    environ: Mapping[str, str]
    findings: ConfigProblems
    # For sources without an interval of their own.
    refresh_seconds: float

    def load(self, value: Json) -> tuple[McpSource, ...]:
        """All valid sources; problems go to `findings`."""
        found = [
            self._mcp_source(entry, path)
            for entry, path in self.findings.read_entries(value, "mcp_sources", self.refresh_seconds)
        ]
        sources = tuple(source for source in found if source is not None)
        namespaces: dict[str, str] = {}
        for source in sources:
            other = namespaces.setdefault(source.namespace, source.name)
            if other != source.name:
                self.findings.add_note(
                    f"mcp_sources ({source.name})",
                    f"has the same namespace as {other}: of equal tool names, only the first is published",
                )
        return sources

    def _mcp_source(self, value: Json, path: str) -> McpSource | None:
        findings = self.findings
        faults = len(findings.problems)
        credentials = ServerCredentials(self.folder, self.environ, findings)
        readers = {
            "name": read_name,
            "xprotocol_namespace": read_namespace,
            "command": _words,
            "args": _arguments,
            "env": read_variables,
            "pass_env": credentials.read_pass_env,
            "cwd": self._folder,
            "url": read_url,
            "auth": credentials.read_auth,
            "ca_file": read_existing(self.folder),
            "rate_limit": lambda rate, place: (
                None if rate is None else findings.read_section(RateLimit, rate, place)
            ),
            "schema_overrides": self._overrides,
        }
        source = findings.read_section(McpSource, value, path, readers)
        if source is None:
            return None
        self._check_transport(source, mapping(value, path), path)
        with findings.catching(path):
            source = self._with_capabilities(source, path)
            self._check_named_tools(source, path)
        if len(findings.problems) > faults:
            return None
        for name in source.env:
            if _SECRET_NAME.search(name):
                findings.add_note(
                    at(f"{path}.env", name),
                    "looks like a secret: leave it in the environment, and use pass_env",
                )
        self._check_credentials(source, path)
        return source

    def _check_transport(self, source: McpSource, given: Mapping[str, Json], path: str) -> None:
        transport, is_process = source.transport, source.transport == "stdio"
        needed = "command" if is_process else "url"
        if given.get(needed) is None:
            self.findings.add_problem(f"{path}.{needed}", f"is missing: transport {transport} needs it")
        for key in _HTTP_KEYS if is_process else _STDIO_KEYS:
            if given.get(key) is not None:
                self.findings.add_problem(f"{path}.{key}", f"cannot be used with transport {transport}")

    def _with_capabilities(self, source: McpSource, path: str) -> McpSource:
        """The same with capabilities in full (D-60, D-61)."""
        findings, namespaces = self.findings, (source.namespace,)
        capabilities: list[str] = []
        for place, name in enumerate(source.capabilities):
            with findings.catching(f"{path}.capabilities[{place}]"):
                capabilities.append(expand_capability(name, namespaces))
        overrides: dict[str, SchemaOverride] = {}
        for tool, override in source.schema_overrides.items():
            where = f"{at(f'{path}.schema_overrides', tool)}.required_capability"
            with findings.catching(where):
                overrides[tool] = _expand_override(override, namespaces)
        full = tuple(dict.fromkeys(capabilities)) or source.capabilities
        return msgspec.structs.replace(source, capabilities=full, schema_overrides=overrides)

    def _check_named_tools(self, source: McpSource, path: str) -> None:
        """D-61: each tool that the file names needs a listed capability."""
        for tool in dict.fromkeys([*(source.tool_allowlist or ()), *source.schema_overrides]):
            if not source.allows(tool):
                self.findings.add_note(at(f"{path}.schema_overrides", tool), "is not in tool_allowlist")
            try:
                required_capability(tool, None, source)
            except ContractRefused as refusal:
                self.findings.add_problem(f"{path}.capabilities", refusal.message)
        for tool in sorted(set(source.tool_allowlist or ()) & set(source.tool_denylist)):
            self.findings.add_note(
                f"{path}.tool_denylist", f"{tool!r} is in tool_allowlist as well; it is not exposed"
            )

    def _check_credentials(self, source: McpSource, path: str) -> None:
        if source.url is None:
            return
        parts = urlsplit(source.url)
        encrypted = parts.scheme == "https"
        if source.auth is not None and not encrypted and not is_loopback(parts.hostname or ""):
            self.findings.add_note(f"{path}.url", "the credential is sent unencrypted; use https")
        if isinstance(source.auth, CertificateAuth) and not encrypted:
            self.findings.add_note(f"{path}.auth", "a client certificate needs https")
        if parts.query:
            self.findings.add_note(f"{path}.url", "has a query; put secrets into auth, with token_env")

    # Readers

    def _folder(self, value: Json, path: str) -> Path | None:
        if value is None:
            return None
        folder = resolve_path(value, self.folder, path)
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}")
        return folder

    def _overrides(self, value: Json, path: str) -> dict[str, SchemaOverride]:
        overrides: dict[str, SchemaOverride] = {}
        for tool, entry in mapping({} if value is None else value, path).items():
            place = at(path, tool)
            override = self.findings.read_section(SchemaOverride, entry, place, {"semantic": self._semantic})
            overrides[tool] = override or SchemaOverride()
        return overrides

    def _semantic(self, value: Json, path: str) -> SemanticOverride:
        return self.findings.read_section(SemanticOverride, value, path) or SemanticOverride()


def _words(value: Json, path: str) -> tuple[str, ...] | None:
    """D-72: a command line split like a shell does, without expansion."""
    if value is None:
        return None
    try:
        words = shlex.split(read_plain(str, value, path))
    except ValueError as fault:
        raise UsageError(f"{path}: cannot be split into words: {str(fault).lower()}") from None
    if not words:
        raise UsageError(f"{path}: is empty; name the program of the MCP server")
    return _without_nul(words, path)


def _arguments(value: Json, path: str) -> tuple[str, ...]:
    return _without_nul(read_plain(list[str], value, path), path)


def _without_nul(words: list[str], path: str) -> tuple[str, ...]:
    if any("\0" in word for word in words):
        raise UsageError(f"{path}: contains a NUL character")
    return tuple(words)


def _expand_override(override: SchemaOverride, namespaces: tuple[str, ...]) -> SchemaOverride:
    if override.required_capability is None:
        return override
    name = expand_capability(override.required_capability, namespaces)
    if name.endswith("*"):
        raise UsageError(f"name one capability, not {name}")
    return msgspec.structs.replace(override, required_capability=name)
