"""What a configuration file comes to: the gateway's settings, and each space with who may come in and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from moot.config.box_config import BoxSetting
from moot.config.gateway_config import GatewayConfig, JournalMode
from moot.config.secrets.secret_config import SecretConfig
from moot.errors import UsageError
from moot.protocol.patterns import Capability
from moot.space.config import SpaceConfig

Access = Literal["private", "restricted", "public"]
Restart = Literal["on-failure", "always", "never"]
Transport = Literal["auto", "http", "sse"]


class TokenGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a token admits, and with which rights if not with all of that participant's (MEW 5.1)."""

    participant: str
    # None: the participant's own rights.
    capabilities: tuple[Capability, ...] | None = None
    profile: str | None = None


class McpSignInConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to sign in at an MCP server behind OAuth, where the server and its provider do not say it all."""

    # A client that was registered at the provider by hand, and its secret if it has one.
    client_id: str | None = None
    client_secret: str | None = None
    # The https address of a document about this client, for providers that read one.
    client_metadata_url: str | None = None
    grant: Literal["authorization_code", "client_credentials", "token_exchange"] = "authorization_code"
    # The only provider to sign in at.
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    # A provider in one's own network.
    allow_private_addresses: bool = False
    # Where codes come back to on this machine; 0: any port.
    redirect_port: int = 0

    def __repr__(self) -> str:
        return f"McpSignInConfig(client_id={self.client_id!r}, grant={self.grant!r}, issuer={self.issuer!r})"


class McpServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The MCP server behind a bridge: a command, or a URL."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    # A file of further variables, for its owner alone: what must not stand in the configuration.
    env_file: str | None = None
    cwd: str | None = None
    # What its process may reach; None or off: whatever our user may.
    box: BoxSetting | None = None
    # Values that calls, variables and headers name as {{secret:NAME}}.
    secrets: Mapping[str, SecretConfig] = msgspec.field(default_factory=dict)
    url: str | None = None
    # With a URL: sent with every request.
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    transport: Transport = "auto"
    # With a URL: how to sign in, if the server asks for it.
    oauth: McpSignInConfig | None = None
    # With a URL: whose account calls use.
    credentials: Literal["server", "requester", "approver"] = "server"
    # D-87: a tool whose definition changes is held back until somebody consents.
    pin: bool = True
    # Proposed calls are planned by the tools that the server names for it (decision 0277).
    plans: bool = False
    # The only era of MCP to use. Without it both over HTTP, and for a command the handshake where it has it.
    era: Literal["handshake", "stateless"] | None = None

    def __repr__(self) -> str:
        return _without_values(self)


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a participant. `${PORT}`, `${SPACE}` and `${TOKEN}` are kept as text for `moot up`."""

    type: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    auto_start: bool = False
    restart: Restart = "on-failure"
    auto_connect: bool | None = None
    default_to: tuple[str, ...] = ()
    mcp_server: McpServerConfig | None = None

    def __repr__(self) -> str:
        return _without_values(self)


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One space: its rules, and what stands around them."""

    config: SpaceConfig
    # What clients may call it besides: the id of a space.yaml, which is free text.
    other_name: str | None = None
    # SHA-256 of a token → whom it admits.
    tokens: Mapping[str, TokenGrant] = msgspec.field(default_factory=dict)
    # Where generated tokens stand, for those who have one.
    token_files: Mapping[str, Path] = msgspec.field(default_factory=dict)
    # Participants that are files: they are sent everything, one JSON line each.
    output_logs: Mapping[str, Path] = msgspec.field(default_factory=dict)
    # None: as the gateway has it.
    journal: JournalMode | None = None
    # `journal: {retain_days: 30}`. None: as the gateway has it.
    retain_days: int | None = None
    members: Mapping[str, MemberConfig] = msgspec.field(default_factory=dict)
    # Whom a person at a terminal joins as, if they do not say.
    default_participant: str | None = None
    title: str | None = None
    description: str | None = None


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a file, the environment and the command line say together."""

    gateway: GatewayConfig
    spaces: Mapping[str, SpaceSettings]
    # What was read but may not be what was meant; no secrets.
    notes: tuple[str, ...] = ()
    # The paths of tokens that stand in the file itself.
    tokens_in_file: tuple[str, ...] = ()
    # Where the tokens of administrators are that were generated.
    admin_token_files: Mapping[str, Path] = msgspec.field(default_factory=dict)

    @property
    def default_space(self) -> str | None:
        """D-22: where a client goes that names no space: the only one, or the one called `default`."""
        if len(self.spaces) == 1:
            return next(iter(self.spaces))
        return "default" if "default" in self.spaces else None

    @property
    def model_space(self) -> str | None:
        """D-22: the space after which others are made for whoever joins them; None: none are made."""
        named = self.gateway.auto_create_spaces
        if named is False:
            return None
        model = self.default_space if named is True else named
        if model not in self.spaces:
            known = ", ".join(self.spaces)
            raise UsageError(f"gateway.auto_create_spaces: names the space to make others after: {known}")
        return model


def _without_values(section: McpServerConfig | MemberConfig) -> str:
    # Arguments and variables may hold keys; how many there are and what they are called is enough.
    return (
        f"{type(section).__name__}(command={section.command!r}, args={len(section.args)}, "
        f"env={sorted(section.env)!r})"
    )
