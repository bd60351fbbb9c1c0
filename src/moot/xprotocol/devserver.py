"""The DevServer (XP 10): adapter, relay, store and an MCP server in one process, for one machine.

    MCP client ──▶ client adapter ──sealed event──▶ relay ──▶ adapter ──▶ wrapped MCP server
                    (its own key)                 (SQLite)   (its own key)

Both keys are created on first use. The client adapter has the other adapter as its endpoint, so that calls of
an MCP client go through the relay as they would between organisations. Only its key may call everything
(D-59). All data is in one folder, which may be deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from moot.config.section_reader import mapping
from moot.config.strict_yaml import read_yaml
from moot.errors import MootError, UsageError
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.resilience.task_set import end_tasks
from moot.xprotocol.adapter.adapter import Adapter
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.config.config_changes import file_changes
from moot.xprotocol.adapter.config.config_loader import control_path, settings_from
from moot.xprotocol.contracts.capabilities import Scopes
from moot.xprotocol.events.events import Signed
from moot.xprotocol.identity import keyfile
from moot.xprotocol.relay.relay_server import RelayServer, open_relay
from moot.xprotocol.relay.relay_settings import RelaySettings

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
# D-72: 8765 is the relay's port here, so MCP over HTTP has another one.
RELAY_PORT: Final = 8765
PAGES_PORT: Final = 8766
MCP_PORT: Final = 8767
# The client adapter's name for the other adapter.
ENDPOINT_NAME: Final = "devserver"
# A local relay is back at once.
_RECONNECT_SECONDS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedServer:
    """An MCP server named on the command line."""

    command: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevServerSettings:
    """Settings of a DevServer; with `config` or `wrapped`."""

    data: Path
    config: Path | None = None
    wrapped: tuple[WrappedServer, ...] = ()
    host: str = HOST
    relay_port: int = RELAY_PORT
    pages_port: int = PAGES_PORT
    mcp_port: int = MCP_PORT
    # Serve MCP over stdio instead of HTTP.
    stdio: bool = False

    @property
    def control(self) -> Path:
        """The control socket of a running DevServer with this folder."""
        return control_path(self.data / "adapter")

    def document(self) -> dict[str, Json]:
        """The adapter's configuration as written; raises UsageError."""
        if self.config is None:
            return {"mcp_sources": [_entry(each, self.wrapped) for each in self.wrapped]}
        try:
            text = self.config.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
            raise UsageError(f"{self.config} cannot be read: {why}") from None
        return dict(mapping(read_yaml(text), ""))


def adapter_settings(settings: DevServerSettings, relay: str, client_key: str) -> AdapterSettings:
    """Settings of the adapter that wraps servers: the file's, with our relay, key and data folder.

    Raises UsageError with every problem of the file.
    """
    document = settings.document()
    identity = document.get("identity")
    name = identity.get("display_name") if isinstance(identity, dict) else None
    replaced: dict[str, Json] = {
        "identity": {"key_file": str(settings.data / "adapter.key"), "display_name": name or "DevServer"},
        "relay": {"urls": [relay], "reconnect_interval_seconds": _RECONNECT_SECONDS},
        # The client adapter has these.
        "mcp_server": {"transport": "none"},
        "xprotocol_sources": [],
        "discovery": {"well_known_host": settings.host, "well_known_port": settings.pages_port},
        "store": str(settings.data / "adapter"),
    }
    kept = {key: value for key, value in document.items() if key not in ("control", "logging")}
    loaded = _load({**kept, **replaced}, settings.config)
    access = {**loaded.access, client_key: _all_capabilities(loaded)}
    return msgspec.structs.replace(loaded, access=access)


def client_settings(
    settings: DevServerSettings, relay: str, key: str, *, store: Path | None = None
) -> AdapterSettings:
    """Settings of the client adapter: its endpoints are the other adapter and those in the file."""
    document = {} if settings.config is None else settings.document()
    others = document.get("xprotocol_sources")
    endpoint: dict[str, Json] = {
        "name": ENDPOINT_NAME,
        "key": key,
        "relay": relay,
        "allow_private_addresses": True,
    }
    transport: dict[str, Json] = {"transport": "stdio"}
    if not settings.stdio:
        transport = {"transport": "sse", "sse_host": settings.host, "sse_port": settings.mcp_port}
    return _load(
        {
            "identity": {"key_file": str(settings.data / "client.key"), "display_name": "DevServer's client"},
            "relay": {"urls": [relay], "reconnect_interval_seconds": _RECONNECT_SECONDS},
            "xprotocol_sources": [endpoint, *(others if isinstance(others, list) else [])],
            "mcp_server": transport,
            "discovery": {"well_known_host": settings.host, "well_known_port": 0, "metrics": False},
            "store": str(store or settings.data / "client"),
        },
        settings.config,
    )


class DevServer:
    """Within `async with`. `on_event` gets every event that the relay has stored."""

    def __init__(
        self, settings: DevServerSettings, *, on_event: Callable[[Signed], None] | None = None
    ) -> None:
        self.settings = settings
        self._on_event = on_event
        self._stack = AsyncExitStack()
        self.relay: RelayServer
        self.adapter: Adapter
        self.client: Adapter

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings, enter = self.settings, self._stack.enter_async_context
        use_folder(settings.data)
        client_key = keyfile.load_or_create(settings.data / "client.key").key.text
        # Before a port is opened: report mistakes in the file at once.
        adapter_settings(settings, f"ws://{HOST}:{RELAY_PORT}", client_key)
        self.relay = await enter(open_relay(_relay_settings(settings)))
        if self._on_event is not None:
            self.relay.relay.watchers.append(self._on_event)
        self.adapter = await enter(
            self._make_adapter(lambda: adapter_settings(settings, self.relay.url, client_key))
        )
        self.client = await enter(
            self._make_adapter(lambda: client_settings(settings, self.relay.url, self.adapter.key))
        )

    def _make_adapter(self, load: Callable[[], AdapterSettings]) -> Adapter:
        return Adapter(load(), load=load)

    @property
    def names(self) -> dict[str, str]:
        """Names of our keys, for people."""
        return {self.adapter.key: "adapter", self.client.key: "client"}

    async def reload(self) -> None:
        """Reload the file; raises UsageError, and changes nothing, when it is wrong."""
        for adapter in (self.adapter, self.client):
            await adapter.reload_file()

    async def run(self) -> None:
        """Reload when the file changes; until cancelled, or until the client over stdio has gone."""
        watching = asyncio.create_task(self._watch())
        try:
            await self.client.wait_ended()
        finally:
            await end_tasks([watching])

    async def _watch(self) -> None:
        if self.settings.config is None:
            return
        async for _ in file_changes(self.settings.config):
            try:
                await self.reload()
            except MootError as fault:
                log.error("configuration not reloaded", extra={"reason": str(fault)})


def _entry(wrapped: WrappedServer, all_wrapped: tuple[WrappedServer, ...]) -> dict[str, Json]:
    last = wrapped.namespace.rpartition(".")[2]
    alike = [each for each in all_wrapped if each.namespace.rpartition(".")[2] == last]
    name = last if len(alike) == 1 else wrapped.namespace.replace(".", "-")
    return {
        "name": name,
        "transport": "stdio",
        "command": wrapped.command,
        "xprotocol_namespace": wrapped.namespace,
    }


def _all_capabilities(settings: AdapterSettings) -> Scopes:
    """All capabilities that a contract could require; names outside the namespaces come from the file."""
    found = {f"{namespace}.*" for namespace in settings.namespaces}
    for source in settings.mcp_sources:
        found |= set(source.capabilities)
        overrides = source.schema_overrides.values()
        found |= {each.required_capability for each in overrides if each.required_capability is not None}
    return frozenset(found)


def _load(document: dict[str, Json], file: Path | None) -> AdapterSettings:
    folder = Path.cwd() if file is None else file.absolute().parent
    loaded = settings_from(document, folder=folder, environ=os.environ, file=file)
    if loaded.problems or loaded.settings is None:
        named = "" if file is None else f"{file}: "
        raise UsageError("\n".join(f"{named}{problem}" for problem in loaded.problems))
    return loaded.settings


def _relay_settings(settings: DevServerSettings) -> RelaySettings:
    return RelaySettings(
        data=settings.data / "relay", host=settings.host, port=settings.relay_port, has_rate_limits=False
    )
