"""Reads `AdapterSettings` from a YAML file and the environment (XP 3), reporting every mistake.

`read_settings` returns settings and problems; `load_settings` raises if there is any problem. Only the given
environment is read, and only the variables that the file names.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from moot.config import former_settings
from moot.config.former_settings import without_former
from moot.config.gateway_config import is_loopback, is_wildcard
from moot.config.section_reader import Reader, at, checked, mapping, optional, read_plain, strings
from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.adapter_settings import (
    CONFIG_NAMES,
    KEY_FILE,
    AdapterLimits,
    AdapterSettings,
    AuditSettings,
    DiscoverySettings,
    IdentitySettings,
    LoggingSettings,
    McpServerSettings,
    RelaySection,
)
from moot.xprotocol.adapter.config.config_problems import REFRESH_KEY, ConfigProblem, ConfigProblems
from moot.xprotocol.adapter.config.endpoint_loader import EndpointLoader
from moot.xprotocol.adapter.config.server_credentials import ServerCredentials
from moot.xprotocol.adapter.config.source_loader import SourceLoader
from moot.xprotocol.adapter.config.source_settings import REFRESH_SECONDS, Interval, McpSource
from moot.xprotocol.adapter.config.value_readers import (
    read_existing,
    read_key,
    read_path,
    read_relay,
    read_url,
    resolve_path,
)
from moot.xprotocol.contracts.capabilities import Scopes, expand_capability

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

# A socket path has at most 107 bytes; a few are left for a temporary name.
MAX_SOCKET_PATH_BYTES: Final = 100
# A hundred sources with overrides are some 200 KiB.
MAX_FILE_BYTES: Final = 4 << 20

_DOMAIN: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII)
_KEYS: Final = (
    "identity", "relay", "mcp_sources", "xprotocol_sources", "mcp_server", "discovery", "logging",
    "schema_refresh_interval_seconds", "access", "trust", "revoked", "audit", "store", "control", "limits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The result of reading a file."""

    # None: the file cannot be read at all. Whatever has a problem is left out, or at its default.
    settings: AdapterSettings | None
    problems: tuple[ConfigProblem, ...]


def find_config(folder: Path) -> Path | None:
    """The adapter's configuration file in a folder."""
    return next((folder / name for name in CONFIG_NAMES if (folder / name).is_file()), None)


def load_settings(
    path: Path, *, environ: Mapping[str, str], replaced: Mapping[str, Json] | None = None
) -> AdapterSettings:
    """The settings in a file; raises UsageError with every problem, one a line.

    `replaced` are whole sections that override the file's, for callers with their own relay or key.
    """
    loaded = read_settings(path, environ=environ, replaced=replaced)
    if loaded.problems or loaded.settings is None:
        lines = [f"{path}: {problem}" for problem in loaded.problems]
        raise UsageError("\n".join(lines))
    return loaded.settings


def read_settings(
    path: Path, *, environ: Mapping[str, str], replaced: Mapping[str, Json] | None = None
) -> LoadedConfig:
    """The settings in a file and all its problems; raises nothing."""
    try:
        document = {**mapping(_document(path), ""), **(replaced or {})}
    except UsageError as fault:
        return _unreadable(fault)
    return settings_from(document, folder=path.absolute().parent, environ=environ, file=path)


def settings_from(
    document: Json, *, folder: Path, environ: Mapping[str, str], file: Path | None = None
) -> LoadedConfig:
    """The same from the content of a file. Relative paths start in `folder`."""
    try:
        sections, notes = without_former(mapping(document, ""), former_settings.ADAPTER)
    except UsageError as fault:
        return _unreadable(fault)
    return _Sections(sections, folder, environ, ConfigProblems(notes=notes)).read(file)


def control_path(store: Path) -> Path:
    """The default path of the control socket for this data folder."""
    path = store / "control.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    # Too long for a socket: use a short hash of it.
    digest = hashlib.sha256(os.fsencode(store)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"xprotocol-{os.getuid()}" / f"{digest}.sock"


def store_path(key_file: Path) -> Path:
    """The default data folder for this key."""
    return key_file.with_suffix(".data")


def _unreadable(fault: UsageError) -> LoadedConfig:
    findings = ConfigProblems()
    findings.add_error(fault)
    return LoadedConfig(None, tuple(findings.problems))


def _document(path: Path) -> Json:
    try:
        with path.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise UsageError(f"is larger than {MAX_FILE_BYTES} bytes")
    try:
        document = read_yaml(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text") from None
    if document is None:
        raise UsageError("is empty; it needs at least identity:, relay: and one of mcp_sources:")
    return document


@dataclass(frozen=True, slots=True)
class _Sections:
    """Reads the sections of one file."""

    document: Mapping[str, Json]
    folder: Path
    environ: Mapping[str, str]
    findings: ConfigProblems

    def read(self, file: Path | None) -> LoadedConfig:
        document, findings = self.document, self.findings
        findings.check_keys(document, dict.fromkeys(_KEYS), "")
        identity, relay, refresh = self._identity(), self._relay(), self._refresh()
        sources = SourceLoader(self.folder, self.environ, findings, refresh).load(document.get("mcp_sources"))
        endpoints = EndpointLoader(self.folder, findings, refresh).load(document.get("xprotocol_sources"))
        if not document.get("mcp_sources") and not document.get("xprotocol_sources"):
            findings.add_note(
                "mcp_sources", "is empty, and so is xprotocol_sources: there is nothing to bridge"
            )
        store = self._path("store") or store_path(identity.key_file)
        settings = AdapterSettings(
            identity=identity,
            relay=relay or RelaySection(urls=()),
            mcp_sources=sources,
            xprotocol_sources=endpoints,
            mcp_server=self._listener(),
            discovery=self._discovery(),
            logging=self._logging(),
            schema_refresh_interval_seconds=refresh,
            access=self._access(sources),
            trust=self._keys("trust"),
            revoked=self._keys("revoked"),
            audit=self._section(AuditSettings, "audit", {"file": read_path(self.folder)}) or AuditSettings(),
            store=store,
            control=self._control(store),
            limits=self._section(AdapterLimits, "limits") or AdapterLimits(),
            file=file,
        )
        settings = msgspec.structs.replace(settings, notes=tuple(findings.notes))
        return LoadedConfig(settings, tuple(findings.problems))

    def _section(
        self, kind: type[_Struct], key: str, readers: Mapping[str, Reader] | None = None
    ) -> _Struct | None:
        return self.findings.read_section(kind, self.document.get(key), key, readers)

    def _identity(self) -> IdentitySettings:
        readers = {
            # Unlike the others, it is never None.
            "key_file": lambda value, path: resolve_path(value, self.folder, path),
            "parent_key": _optional_key,
            "parent_delegation_event": read_existing(self.folder),
        }
        identity = self._section(IdentitySettings, "identity", readers) or IdentitySettings()
        if identity.key_file == KEY_FILE:
            identity = msgspec.structs.replace(identity, key_file=KEY_FILE.expanduser())
        return identity

    def _relay(self) -> RelaySection | None:
        if self.document.get("relay") is None:
            self.findings.add_problem(
                "relay.urls", "is missing; name at least one relay, such as wss://relay.example"
            )
            return None
        relay = self._section(RelaySection, "relay", {"urls": self._relay_urls})
        for url in relay.urls if relay is not None else ():
            parts = urlsplit(url)
            if parts.scheme == "ws" and not is_loopback(parts.hostname or ""):
                self.findings.add_note(
                    "relay.urls", f"{url} is not encrypted: others can see who calls whom; use wss"
                )
        return relay

    def _relay_urls(self, value: Json, path: str) -> tuple[str, ...]:
        entries = checked(value, list, "a list of addresses such as wss://relay.example", path)
        if not entries:
            raise UsageError(f"{path}: is empty; name at least one relay, such as wss://relay.example")
        urls: list[str] = []
        for place, entry in enumerate(entries):
            with self.findings.catching(f"{path}[{place}]"):
                urls.append(read_relay(entry, f"{path}[{place}]"))
        return tuple(dict.fromkeys(urls))

    def _refresh(self) -> float:
        key = REFRESH_KEY
        if self.document.get(key) is not None:
            with self.findings.catching(key):
                seconds: float = read_plain(Interval, self.document[key], key)
                return seconds
        return REFRESH_SECONDS

    def _listener(self) -> McpServerSettings | None:
        given = self.document.get("mcp_server")
        readers = {"token": _reject_secret}
        listener = self._section(McpServerSettings, "mcp_server", readers) or McpServerSettings()
        if listener.token_env is not None:
            credentials = ServerCredentials(self.folder, self.environ, self.findings)
            with self.findings.catching("mcp_server.token_env"):
                token = credentials.read_secret(listener.token_env, "mcp_server.token_env")
                listener = msgspec.structs.replace(listener, token=token)
        if listener.transport == "none" or (given is None and not self.document.get("xprotocol_sources")):
            return None
        if listener.over_http and not is_loopback(listener.sse_host) and listener.token is None:
            self.findings.add_note(
                "mcp_server.sse_host",
                "not only loopback: anyone who reaches it calls with this adapter's rights; "
                "set mcp_server.token_env",
            )
        elif listener.over_http and not is_loopback(listener.sse_host):
            self.findings.add_note(
                "mcp_server.sse_host", "not only loopback, and no TLS: the token can be read on the way"
            )
        return listener

    def _discovery(self) -> DiscoverySettings:
        readers = {"public_url": _optional_url, "domain": _optional_domain}
        discovery = self._section(DiscoverySettings, "discovery", readers) or DiscoverySettings()
        if discovery.publish_dns and discovery.domain is None:
            self.findings.add_note("discovery.publish_dns", "needs discovery.domain")
        if is_wildcard(discovery.well_known_host):
            self.findings.add_note(
                "discovery.well_known_host", "listens on every address of this machine, unencrypted"
            )
        return discovery

    def _logging(self) -> LoggingSettings:
        settings = self._section(LoggingSettings, "logging") or LoggingSettings()
        if settings.output in ("stdout", "stderr"):
            return settings
        with self.findings.catching("logging.output"):
            file = resolve_path(settings.output, self.folder, "logging.output")
            return msgspec.structs.replace(settings, output=str(file))
        return settings

    def _access(self, sources: tuple[McpSource, ...]) -> dict[str, Scopes]:
        namespaces = tuple(dict.fromkeys(source.namespace for source in sources))
        access: dict[str, Scopes] = {}
        with self.findings.catching("access"):
            for key, names in optional(self.document.get("access"), "access").items():
                place = at("access", key)
                with self.findings.catching(place):
                    access[read_key(key, place)] = self._capabilities(names, place, namespaces)
        return access

    def _capabilities(self, value: Json, path: str, namespaces: tuple[str, ...]) -> Scopes:
        if self._has_source_problems(namespaces):
            # Short names cannot be expanded until those are fixed.
            return frozenset(strings(value, path))
        found: set[str] = set()
        for place, name in enumerate(strings(value, path)):
            with self.findings.catching(f"{path}[{place}]"):
                found.add(granted_capability(name, namespaces))
        return frozenset(found)

    def _has_source_problems(self, namespaces: tuple[str, ...]) -> bool:
        listed = self.document.get("mcp_sources")
        return any(problem.path.startswith("mcp_sources") for problem in self.findings.problems) or (
            bool(listed) and not namespaces
        )

    def _keys(self, section: str) -> frozenset[str]:
        value = self.document.get(section)
        keys: set[str] = set()
        with self.findings.catching(section):
            for place, key in enumerate(
                () if value is None else checked(value, list, "a list of keys", section)
            ):
                with self.findings.catching(f"{section}[{place}]"):
                    keys.add(read_key(key, f"{section}[{place}]"))
        return frozenset(keys)

    def _path(self, key: str) -> Path | None:
        with self.findings.catching(key):
            path: Path | None = read_path(self.folder)(self.document.get(key), key)
            return path
        return None

    def _control(self, store: Path) -> Path:
        control = self._path("control") or control_path(store)
        if len(os.fsencode(control)) > MAX_SOCKET_PATH_BYTES:
            self.findings.add_problem(
                "control", f"is longer than {MAX_SOCKET_PATH_BYTES} bytes, the limit for a socket path"
            )
        return control


def granted_capability(name: str, namespaces: tuple[str, ...]) -> str:
    """D-60: an `access:` capability in full; `com.acme.*` may span several namespaces. Raises UsageError."""
    prefix = name[:-1]
    if name.endswith(".*") and any(f"{namespace}.".startswith(prefix) for namespace in namespaces):
        return name
    return expand_capability(name, namespaces)


def _reject_secret(_value: Json, path: str) -> None:
    raise UsageError(
        f"{path}: secrets are not allowed in the file; put it into an environment variable "
        "and name the variable with token_env"
    )


def _optional_key(value: Json, path: str) -> str | None:
    return None if value is None else read_key(value, path)


def _optional_url(value: Json, path: str) -> str | None:
    return None if value is None else read_url(value, path)


def _optional_domain(value: Json, path: str) -> str | None:
    if value is None:
        return None
    domain: str = checked(value, str, "a host name such as weather.example.com", path)
    if not _DOMAIN.fullmatch(domain):
        raise UsageError(f"{path}: must be a host name such as weather.example.com")
    return domain.lower().rstrip(".")
