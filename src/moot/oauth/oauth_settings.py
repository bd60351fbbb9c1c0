"""How to sign in at what protects an MCP server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from moot.config.secret import Secret
from moot.config.sign_in_key import SignInKey
from moot.errors import MootError

GrantName = Literal["authorization_code", "client_credentials", "token_exchange"]
# The path that codes come back to: part of what is registered at a provider.
REDIRECT_PATH: Final = "/callback"
# From the link to the code: a person types a password, and looks for a phone.
SIGN_IN_SECONDS: Final = 600.0


class SignInFailed(MootError):
    """Nobody could be signed in; the text says why, and holds no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How to sign in at one MCP server. Without any of it, the server and its provider say everything."""

    # A client that was registered at the provider by hand.
    client_id: str | None = None
    client_secret: Secret | None = None
    # The https address of a document about us, for providers that read one (CIMD).
    client_metadata_url: str | None = None
    # `token_exchange` is for accounts of members: one sign-in at `issuer` is for all its servers.
    grant: GrantName = "authorization_code"
    # The one provider to use, whatever else the server names.
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    # Providers in our own network. Those of a server on this machine may be on this machine.
    allow_private_addresses: bool = False
    # The port that a code comes back to, for providers that take no other; 0: any.
    redirect_port: int = 0
    # Where credentials are kept; None: only while the program runs.
    folder: Path | None = None
    # With what they are encrypted there; None: not at all.
    key: SignInKey | None = None
