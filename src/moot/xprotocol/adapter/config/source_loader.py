"""`mcp_sources:` of a configuration file: MCP servers that become part of the endpoint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from moot.config.gateway_config import Positive, is_loopback
from moot.config.section_reader import at, mapping
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_problems import ConfigProblems
from moot.xprotocol.adapter.config.server_credentials import ServerCredentials
from moot.xprotocol.adapter.config.source_settings import (
    Auth,
    CertificateAuth,
    Interval,
    McpSource,
    SourceTransport,
)
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
from moot.xprotocol.contracts.source_overrides import (
    QUALITY_FLOOR,
    QUALITY_THRESHOLD,
    Exposed,
    Inference,
    SchemaOverride,
    SemanticOverride,
    SourceSettings,
)

Quality = Annotated[float, msgspec.Meta(ge=0, le=1)]

_SECRET_NAME: Final = re.compile(r"token|secret|passw|credential|api_?key", re.IGNORECASE)
_STDIO_KEYS: Final = ("command", "args", "env", "pass_env", "cwd")
_HTTP_KEYS: Final = ("url", "auth", "ca_file")


class _RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_minute: Positive


class _McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `mcp_sources` as written."""

    name: str
    transport: SourceTransport
    # What the kinds of its tools begin with, such as com.acme.files.
    xprotocol_namespace: str
    # For stdio: the program and arguments; split like a shell command, but no shell runs it (D-72).
    command: str | None = None
    # Further arguments, not split.
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # *Addition*: names of variables that the process gets from the adapter's environment, such as secrets.
    pass_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: Path | None = None
    url: str | None = None
    # `{type: bearer | api_key | client_certificate, …}` (XP 8.2); secrets by `token_env` alone.
    auth: Auth | None = None
    ca_file: Path | None = None
    # `auto` takes a tool's class from its name, `strict` the stricter of name and annotations, `explicit`
    # only what `capabilities` lists (D-61, D-64).
    capability_inference: Inference = "auto"
    # For `explicit`; short names are written out.
    capabilities: tuple[str, ...] = ()
    # Tools that are exposed; the default is all.
    tool_allowlist: tuple[str, ...] | None = None
    tool_denylist: tuple[str, ...] = ()
    # By tool: description, required_capability, semantic.
    schema_overrides: Mapping[str, SchemaOverride] = msgspec.field(default_factory=dict)
    # Below it a schema is flagged in the announce.
    description_quality_threshold: Quality = QUALITY_THRESHOLD
    # Below it a schema is not published (D-62).
    description_quality_floor: Quality = QUALITY_FLOOR
    # D-78.
    expose: tuple[Exposed, ...] = ("tools", "resources", "prompts")
    # `{requests_per_minute: N}` for each key that calls (XP 8.4).
    rate_limit: _RateLimit | None = None
    schema_refresh_interval_seconds: Interval | None = None
    pin: bool = False


@dataclass(frozen=True, slots=True)
class SourceLoader:
    """Reads the entries of `mcp_sources`."""

    folder: Path
    environ: Mapping[str, str]
    findings: ConfigProblems
    # For sources without an interval of their own.
    default_refresh_seconds: float

    def load(self, value: Json) -> tuple[McpSource, ...]:
        """All valid sources; problems go to `findings`."""
        found = [
            self._mcp_source(entry, path) for entry, path in self.findings.read_entries(value, "mcp_sources")
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
            "env": read_variables,
            "pass_env": credentials.read_pass_env,
            "cwd": self._folder,
            "url": read_url,
            "auth": credentials.read_auth,
            "ca_file": read_existing(self.folder),
            "rate_limit": lambda rate, place: (
                None if rate is None else findings.read_section(_RateLimit, rate, place)
            ),
            "schema_overrides": self._overrides,
        }
        entry = findings.read_section(_McpEntry, value, path, readers)
        if entry is None:
            return None
        argv = self._argv(entry, path)
        self._check_transport(entry, mapping(value, path), path)
        translation = self._translation(entry, path)
        if translation is None or len(findings.problems) > faults:
            return None
        for name in entry.env:
            if _SECRET_NAME.search(name):
                findings.add_note(
                    at(f"{path}.env", name),
                    "looks like a secret: leave it in the environment, and use pass_env",
                )
        self._check_credentials(entry, path)
        every = entry.schema_refresh_interval_seconds
        return McpSource(
            name=entry.name,
            transport=entry.transport,
            translation=translation,
            argv=argv,
            env={**entry.env, **entry.pass_env},
            cwd=entry.cwd,
            url=entry.url,
            auth=entry.auth,
            ca_file=entry.ca_file,
            tool_denylist=frozenset(entry.tool_denylist),
            requests_per_minute=entry.rate_limit.requests_per_minute if entry.rate_limit else None,
            schema_refresh_interval_seconds=self.default_refresh_seconds if every is None else every,
            pin=entry.pin,
        )

    def _argv(self, entry: _McpEntry, path: str) -> tuple[str, ...]:
        """D-72: the command line split like a shell does, without expansion."""
        if entry.command is None:
            return ()
        try:
            words = shlex.split(entry.command)
        except ValueError as fault:
            self.findings.add_problem(f"{path}.command", f"cannot be split into words: {str(fault).lower()}")
            return ()
        if not words:
            self.findings.add_problem(f"{path}.command", "is empty; name the program of the MCP server")
        elif any("\0" in word for word in (*words, *entry.args)):
            self.findings.add_problem(f"{path}.command", "contains a NUL character")
        return (*words, *entry.args)

    def _check_transport(self, entry: _McpEntry, given: Mapping[str, Json], path: str) -> None:
        is_process = entry.transport == "stdio"
        needed = "command" if is_process else "url"
        if given.get(needed) is None:
            self.findings.add_problem(f"{path}.{needed}", f"is missing: transport {entry.transport} needs it")
        for key in _HTTP_KEYS if is_process else _STDIO_KEYS:
            if given.get(key) is not None:
                self.findings.add_problem(f"{path}.{key}", f"cannot be used with transport {entry.transport}")

    def _translation(self, entry: _McpEntry, path: str) -> SourceSettings | None:
        """The settings for translation, with capabilities in full (D-60, D-61)."""
        findings, namespaces = self.findings, (entry.xprotocol_namespace,)
        capabilities: list[str] = []
        for place, name in enumerate(entry.capabilities):
            with findings.catching(f"{path}.capabilities[{place}]"):
                capabilities.append(expand_capability(name, namespaces))
        overrides: dict[str, SchemaOverride] = {}
        for tool, override in entry.schema_overrides.items():
            where = f"{at(f'{path}.schema_overrides', tool)}.required_capability"
            with findings.catching(where):
                overrides[tool] = _expand_override(override, namespaces)
        if entry.capability_inference == "explicit" and not entry.capabilities:
            findings.add_problem(f"{path}.capabilities", "is missing: capability_inference explicit needs it")
            return None
        with findings.catching(path):
            settings = SourceSettings(
                name=entry.name,
                xprotocol_namespace=entry.xprotocol_namespace,
                capability_inference=entry.capability_inference,
                capabilities=tuple(dict.fromkeys(capabilities)),
                tool_allowlist=entry.tool_allowlist,
                schema_overrides=overrides,
                description_quality_threshold=entry.description_quality_threshold,
                description_quality_floor=entry.description_quality_floor,
                expose=entry.expose,
            )
            self._check_named_tools(settings, entry, path)
            return settings
        return None

    def _check_named_tools(self, settings: SourceSettings, entry: _McpEntry, path: str) -> None:
        """D-61: each tool that the file names needs a listed capability."""
        for tool in dict.fromkeys([*(entry.tool_allowlist or ()), *entry.schema_overrides]):
            if not settings.allows(tool):
                self.findings.add_note(at(f"{path}.schema_overrides", tool), "is not in tool_allowlist")
            try:
                required_capability(tool, None, settings)
            except ContractRefused as refusal:
                self.findings.add_problem(f"{path}.capabilities", refusal.message)
        for tool in sorted(set(entry.tool_allowlist or ()) & set(entry.tool_denylist)):
            self.findings.add_note(
                f"{path}.tool_denylist", f"{tool!r} is in tool_allowlist as well; it is not exposed"
            )

    def _check_credentials(self, entry: _McpEntry, path: str) -> None:
        if entry.url is None:
            return
        parts = urlsplit(entry.url)
        encrypted = parts.scheme == "https"
        if entry.auth is not None and not encrypted and not is_loopback(parts.hostname or ""):
            self.findings.add_note(f"{path}.url", "the credential is sent unencrypted; use https")
        if isinstance(entry.auth, CertificateAuth) and not encrypted:
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


def _expand_override(override: SchemaOverride, namespaces: tuple[str, ...]) -> SchemaOverride:
    if override.required_capability is None:
        return override
    name = expand_capability(override.required_capability, namespaces)
    if name.endswith("*"):
        raise UsageError(f"name one capability, not {name}")
    return msgspec.structs.replace(override, required_capability=name)
