"""Requests of members to sign in at the server behind a bridge, and what became of them.

How it works. Who may send `moot/sign-in-server` signs the bridge in for everybody; `moot/sign-in` is for a
credential of one's own. Both take two requests: the first returns a link, whose code comes back to the
member's own machine, and a key; the second brings the code, or a token, sealed with that key. The gateway
says who sends, so a sign-in can be finished only by whoever began it, and counts for nobody else. The space
sees both requests, and neither holds a secret that can be used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.oauth import oauth_settings
from moot.oauth.oauth_settings import REDIRECT_PATH, SignInFailed
from moot.oauth.one_time_key import OneTimeKey, seal_subject
from moot.oauth.pending_sign_in import PendingSignIn
from moot.oauth.provider_http import parts_of
from moot.oauth.server_credential import ServerCredential
from moot.protocol.rpc_codes import INVALID_PARAMS, INVALID_REQUEST

# Sign-ins that have begun and not ended.
MAX_PENDING_SIGN_INS: Final = 64

log = logging.getLogger(__name__)

OWN: Final = "moot/sign-in"
FOR_SERVER: Final = "moot/sign-in-server"
SIGN_IN_METHODS: Final = frozenset({OWN, FOR_SERVER})
# A token of any kind, or a code with its state.
_MAX_SEALED_CHARS: Final = 32 << 10

# The credential of a participant; of the server if it is None. Raises McpError.
CredentialOf = Callable[[str | None], ServerCredential]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A sign-in that a member began."""

    method: str
    credential: ServerCredential
    # None: the member brings a token.
    pending: PendingSignIn | None
    expires_at: float
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    key: OneTimeKey = field(default_factory=OneTimeKey, repr=False)


class SignInRequests:
    """The sign-ins that members have begun, one for each member and method."""

    def __init__(self, credential_of: CredentialOf, place: str) -> None:
        """`place` tells people how credentials are kept."""
        self._place = place
        self._credential_of = credential_of
        self._begun: dict[tuple[str, str], _Begun] = {}

    async def handle(self, method: str, params: Mapping[str, Any], person: str) -> JsonObject:
        """The result of one request by a participant; raises McpError."""
        credential = self._credential_of(person if method == OWN else None)
        try:
            if params.get("forget") is True:
                await credential.forget()
                return {"forgotten": True}
            if "id" in params:
                return await self._finish(method, params, person)
            return await self._begin(method, params, person, credential)
        except (SignInFailed, UsageError) as fault:
            raise McpError(INVALID_REQUEST, str(fault)) from None

    async def _begin(
        self, method: str, params: Mapping[str, Any], person: str, credential: ServerCredential
    ) -> JsonObject:
        now = _now()
        self._begun = {key: each for key, each in self._begun.items() if each.expires_at > now}
        is_new = (person, method) not in self._begun
        if is_new and len(self._begun) >= MAX_PENDING_SIGN_INS:
            raise McpError(INVALID_REQUEST, "too many sign-ins have begun; try again in some minutes")
        redirect = params.get("redirect_uri")
        pending = None
        if redirect is not None:
            pending = await credential.begin(_checked_redirect(redirect))
        begun = _Begun(method, credential, pending, now + oauth_settings.SIGN_IN_SECONDS)
        self._begun[person, method] = begun
        result: JsonObject = {"id": begun.id, "key": begun.key.public}
        if pending is not None:
            result |= {"link": pending.link, "issuer": pending.target.provider.issuer}
        return result

    async def _finish(self, method: str, params: Mapping[str, Any], person: str) -> JsonObject:
        begun = self._begun.get((person, method))
        if begun is None or begun.id != params["id"] or begun.expires_at <= _now():
            raise McpError(INVALID_PARAMS, "you have begun no such sign-in, or it took too long: begin again")
        # Whatever comes of it: a code and a key are for one attempt.
        del self._begun[person, method]
        sealed = params.get("sealed")
        if not isinstance(sealed, str) or len(sealed) > _MAX_SEALED_CHARS:
            raise McpError(INVALID_PARAMS, "params.sealed has to hold what came back, sealed with the key")
        opened = _opened(begun.key.open(sealed, seal_subject(begun.id, person)))
        if begun.pending is not None:
            await begun.credential.finish(begun.pending, opened)
        elif _is_token(token := opened.get("token", "")):
            await begun.credential.bring(token)
        else:
            raise SignInFailed("a token has visible ASCII characters and no spaces")
        log.info("signed in at an MCP server", extra={"participant": person, "method": method})
        return {"signed_in": True, "owner": begun.credential.owner, "kept": self._place}


def _checked_redirect(address: object) -> str:
    """Codes go to the machine of whoever signs in, and nowhere else."""
    parts = parts_of(address) if isinstance(address, str) else None
    if (
        parts is None
        or not isinstance(address, str)
        or parts.scheme != "http"
        or parts.hostname not in ("127.0.0.1", "localhost")
        or parts.port is None
        or urlsplit(address).path != REDIRECT_PATH
        or parts.query
    ):
        raise McpError(INVALID_PARAMS, f"redirect_uri has to be http://127.0.0.1:PORT{REDIRECT_PATH}")
    return address


def _opened(data: bytes) -> dict[str, str]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise SignInFailed("what was sealed is not what comes back from a sign-in")
    return found


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _now() -> float:
    return asyncio.get_running_loop().time()
