"""Settings from YAML into the typed values that each room takes. Mistakes name the path of the bad key.

`load` reads a whole configuration, `check` says what it comes to. Only this room reads the environment, which
it is handed as a mapping. Tokens go in and hashes come out.

The names below are loaded when first used: who only connects with an address and a token reads no YAML.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moot.config.config_check import check
    from moot.config.configuration import (
        Access,
        Configuration,
        McpServerConfig,
        McpSignInConfig,
        MemberConfig,
        SpaceSettings,
        TokenGrant,
    )
    from moot.config.gateway_config import (
        GatewayConfig,
        HttpConfig,
        JournalConfig,
        JournalMode,
        LogConfig,
        SmtpConfig,
    )
    from moot.config.loader import load
    from moot.config.profiles import BUILT_IN
    from moot.config.secrets.secret import Secret
    from moot.config.secrets.token_source import hash_token

_HOMES: Final = {
    "Access": "moot.config.configuration",
    "BUILT_IN": "moot.config.profiles",
    "Configuration": "moot.config.configuration",
    "GatewayConfig": "moot.config.gateway_config",
    "HttpConfig": "moot.config.gateway_config",
    "JournalConfig": "moot.config.gateway_config",
    "JournalMode": "moot.config.gateway_config",
    "LogConfig": "moot.config.gateway_config",
    "McpServerConfig": "moot.config.configuration",
    "McpSignInConfig": "moot.config.configuration",
    "MemberConfig": "moot.config.configuration",
    "Secret": "moot.config.secrets.secret",
    "SmtpConfig": "moot.config.gateway_config",
    "SpaceSettings": "moot.config.configuration",
    "TokenGrant": "moot.config.configuration",
    "check": "moot.config.config_check",
    "hash_token": "moot.config.secrets.token_source",
    "load": "moot.config.loader",
}

__all__ = [
    "BUILT_IN",
    "Access",
    "Configuration",
    "GatewayConfig",
    "HttpConfig",
    "JournalConfig",
    "JournalMode",
    "LogConfig",
    "McpServerConfig",
    "McpSignInConfig",
    "MemberConfig",
    "Secret",
    "SmtpConfig",
    "SpaceSettings",
    "TokenGrant",
    "check",
    "hash_token",
    "load",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
