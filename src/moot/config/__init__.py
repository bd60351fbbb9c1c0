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
    from moot.config.configuration import Configuration
    from moot.config.loader import load
    from moot.config.secrets.secret import Secret
    from moot.config.secrets.token_source import hash_token

_HOMES: Final = {
    "Configuration": "moot.config.configuration",
    "Secret": "moot.config.secrets.secret",
    "check": "moot.config.config_check",
    "hash_token": "moot.config.secrets.token_source",
    "load": "moot.config.loader",
}

__all__ = ["Configuration", "Secret", "check", "hash_token", "load"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
