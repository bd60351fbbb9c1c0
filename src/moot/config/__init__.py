"""Settings from YAML into the typed values that each room takes. Mistakes name the path of the bad key.

`load` reads a whole configuration, `check` says what it comes to. Only this room reads the environment, which
it is handed as a mapping. Tokens go in and hashes come out.
"""

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
    Secret,
    SmtpConfig,
)
from moot.config.loader import load
from moot.config.profiles import BUILT_IN
from moot.config.token_source import hash_token

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
