"""How to sign in at what protects an MCP server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.config.configuration import McpSignInConfig
from moot.config.secrets.sign_in_key import SignInKey
from moot.errors import MootError

# The path that codes come back to: part of what is registered at a provider.
REDIRECT_PATH: Final = "/callback"
# From the link to the code: a person types a password, and looks for a phone.
SIGN_IN_SECONDS: Final = 600.0


class SignInFailed(MootError):
    """Nobody could be signed in; the text says why, and holds no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How to sign in at one MCP server, and where what comes of it is kept."""

    # Without any of it, the server and its provider say everything.
    sign_in: McpSignInConfig = field(default_factory=McpSignInConfig)
    # Where credentials are kept; None: only while the program runs.
    folder: Path | None = None
    # With what they are encrypted there; None: not at all.
    key: SignInKey | None = None
