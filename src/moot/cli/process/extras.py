"""The optional parts of an installation: the modules each extra brings, and the line said without them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from moot.errors import MootError

# Extra → the modules that it brings and a plain `pip install moot` does not.
# `cryptography` is no mark of XProtocol: the MCP SDK brings it too, in whatever version it likes.
EXTRAS: Final = {
    "a2a": ("a2a", "google", "httpx"),
    "cedar": ("cedarpy",),
    "cluster": ("nats",),
    "keyring": ("keyring",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter"),
    "rules": ("tree_sitter", "tree_sitter_bash"),
    "tui": ("rich", "textual"),
    "xprotocol": ("dns", "jsonschema_rs", "nacl"),
}


def check_installed(extra: str) -> None:
    """Raise MootError with the line to type unless everything that `extra` brings is there."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise MootError(
            f"this command needs the extra {extra!r}, and {', '.join(missing)} of it cannot be found. "
            f"Install it: pip install '.[{extra}]' in the clone of Moot (docs/install.md, Extras)"
        )
