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

from moot.adapter.config.config_problems import ConfigProblems
from moot.adapter.config.server_credentials import ServerCredentials
from moot.adapter.config.source_settings import Auth, CertificateAuth, Interval, McpSource, SourceTransport
from moot.adapter.config.value_readers import (
    placed,
    read_existing,
    read_name,
    read_namespace,
    read_url,
    read_variables,
)
from moot.config.gateway_config import Positive, is_loopback
from moot.config.section_reader import at, mapping
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.capabilities import expand_capability, required_capability
from moot.xprotocol.contracts import ContractRefused
from moot.xprotocol.source_overrides import (
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
_OF_A_PROCESS: Final = ("command", "args", "env", "pass_env", "cwd")
_OF_A_URL: Final = ("url", "auth", "ca_file")


class _RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_minute: Positive


class _McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `mcp_sources` as it is written."""

    name: str
    transport: SourceTransport
    # What the kinds of its tools begin with, such as com.acme.files.
    xprotocol_namespace: str
    # For stdio: the program, with arguments if one likes; split as a shell would, but run by none (D-72).
    command: str | None = None
    # Further arguments, taken as they are.
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # *Addition*: variables of the adapter's own environment that the process gets: secrets, by name.
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
    # Tools that are exposed; without it, all are.
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
    """What reading a source needs besides the source."""

    folder: Path
    environ: Mapping[str, str]
    findings: ConfigProblems
    # What holds for sources that do not say it themselves.
    refresh_seconds: float

    def mcp_sources(self, value: Json) -> tuple[McpSource, ...]:
        """All that can be read; what cannot is among the findings."""
        found = [self._mcp_source(entry, path) for entry, path in self.findings.entries(value, "mcp_sources")]
        sources = tuple(source for source in found if source is not None)
        namespaces: dict[str, str] = {}
        for source in sources:
            other = namespaces.setdefault(source.namespace, source.name)
            if other != source.name:
                self.findings.note(
                    f"mcp_sources ({source.name})",
                    f"has the namespace of {other}: of two tools of one name, only the first is published",
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
            "pass_env": credentials.passed,
            "cwd": self._folder,
            "url": read_url,
            "auth": credentials.auth,
            "ca_file": read_existing(self.folder),
            "rate_limit": lambda rate, here: (
                None if rate is None else findings.section(_RateLimit, rate, here)
            ),
            "schema_overrides": self._overrides,
        }
        entry = findings.section(_McpEntry, value, path, readers)
        if entry is None:
            return None
        argv = self._argv(entry, path)
        self._check_way(entry, mapping(value, path), path)
        translation = self._translation(entry, path)
        if translation is None or len(findings.problems) > faults:
            return None
        for name in entry.env:
            if _SECRET_NAME.search(name):
                findings.note(
                    at(f"{path}.env", name), "a secret? Leave it in the environment, and use pass_env"
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
            schema_refresh_interval_seconds=self.refresh_seconds if every is None else every,
            pin=entry.pin,
        )

    def _argv(self, entry: _McpEntry, path: str) -> tuple[str, ...]:
        """D-72: a command line split as a shell would, but no shell: nothing in it is expanded or run."""
        if entry.command is None:
            return ()
        try:
            words = shlex.split(entry.command)
        except ValueError as fault:
            self.findings.problem(f"{path}.command", f"cannot be split into words: {str(fault).lower()}")
            return ()
        if not words:
            self.findings.problem(f"{path}.command", "is empty; name the program that is the MCP server")
        elif any("\0" in word for word in (*words, *entry.args)):
            self.findings.problem(f"{path}.command", "holds a character that no program can be given")
        return (*words, *entry.args)

    def _check_way(self, entry: _McpEntry, given: Mapping[str, Json], path: str) -> None:
        is_process = entry.transport == "stdio"
        needed = "command" if is_process else "url"
        if given.get(needed) is None:
            self.findings.problem(f"{path}.{needed}", f"is missing: transport {entry.transport} needs it")
        for key in _OF_A_URL if is_process else _OF_A_PROCESS:
            if given.get(key) is not None:
                self.findings.problem(f"{path}.{key}", f"does not go with transport {entry.transport}")

    def _translation(self, entry: _McpEntry, path: str) -> SourceSettings | None:
        """What translation needs, capabilities in full (D-60, D-61)."""
        findings, namespaces = self.findings, (entry.xprotocol_namespace,)
        capabilities: list[str] = []
        for place, name in enumerate(entry.capabilities):
            with findings.caught(f"{path}.capabilities[{place}]"):
                capabilities.append(expand_capability(name, namespaces))
        overrides: dict[str, SchemaOverride] = {}
        for tool, override in entry.schema_overrides.items():
            here = f"{at(f'{path}.schema_overrides', tool)}.required_capability"
            with findings.caught(here):
                overrides[tool] = _in_full(override, namespaces)
        if entry.capability_inference == "explicit" and not entry.capabilities:
            findings.problem(f"{path}.capabilities", "is missing: capability_inference explicit needs it")
            return None
        with findings.caught(path):
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
        """D-61, as far as tools are named in the file: each needs a capability that is listed."""
        for tool in dict.fromkeys([*(entry.tool_allowlist or ()), *entry.schema_overrides]):
            if not settings.allows(tool):
                self.findings.note(at(f"{path}.schema_overrides", tool), "is not in tool_allowlist")
            try:
                required_capability(tool, None, settings)
            except ContractRefused as refusal:
                self.findings.problem(f"{path}.capabilities", refusal.message)
        for tool in sorted(set(entry.tool_allowlist or ()) & set(entry.tool_denylist)):
            self.findings.note(
                f"{path}.tool_denylist", f"{tool!r} is in tool_allowlist, too; it is not exposed"
            )

    def _check_credentials(self, entry: _McpEntry, path: str) -> None:
        if entry.url is None:
            return
        parts = urlsplit(entry.url)
        encrypted = parts.scheme == "https"
        if entry.auth is not None and not encrypted and not is_loopback(parts.hostname or ""):
            self.findings.note(f"{path}.url", "the credential travels unencrypted; use https")
        if isinstance(entry.auth, CertificateAuth) and not encrypted:
            self.findings.note(f"{path}.auth", "without https no certificate is asked for")
        if parts.query:
            self.findings.note(f"{path}.url", "has a query; a secret belongs into auth, by token_env")

    # Readers

    def _folder(self, value: Json, path: str) -> Path | None:
        if value is None:
            return None
        folder = placed(value, self.folder, path)
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}")
        return folder

    def _overrides(self, value: Json, path: str) -> dict[str, SchemaOverride]:
        overrides: dict[str, SchemaOverride] = {}
        for tool, entry in mapping({} if value is None else value, path).items():
            here = at(path, tool)
            override = self.findings.section(SchemaOverride, entry, here, {"semantic": self._semantic})
            overrides[tool] = override or SchemaOverride()
        return overrides

    def _semantic(self, value: Json, path: str) -> SemanticOverride:
        return self.findings.section(SemanticOverride, value, path) or SemanticOverride()


def _in_full(override: SchemaOverride, namespaces: tuple[str, ...]) -> SchemaOverride:
    if override.required_capability is None:
        return override
    name = expand_capability(override.required_capability, namespaces)
    if name.endswith("*"):
        raise UsageError(f"name one capability, not {name}")
    return msgspec.structs.replace(override, required_capability=name)
