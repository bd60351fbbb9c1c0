"""Binding a chat account over HTTP: `POST` and `DELETE /chat-bindings`, for the member that runs `moot chat`.

A person asks for a code (`POST /sign-in-links` with `"for": "chat"`) and says it to the chat program. That
brings it here, with a token of its own and the right to `moot/bind`, and gets a token of that person:
listed and revoked by itself, with what deciding needs of the person's rights and no more. So a code
that somebody reads in the chat is used up. Whoever says it first is bound: it is shown to its person alone.
The token ends itself when its account is unbound.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import CapabilityViolation
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import check_json, denied, json_response, object_of
from moot.gateway.http.request_identity import RequestIdentity
from moot.gateway.sign_in.short_lived_tokens import mint_token
from moot.gateway.sign_in.sign_in_links import SignInLinks
from moot.protocol.patterns import Capability, covered_by, read_capabilities
from moot.resilience.rate_limits import token_buckets

_MAX_BODY_BYTES: Final = 1_024
# A quarter of a year: then the person binds again.
BINDING_SECONDS: Final = 90 * 86_400.0
# Of one chat program: a team that binds together. Codes cannot be guessed; this bounds the work.
BINDINGS_PER_MINUTE: Final = 30
_MAX_KEYS: Final = 1_000
# What deciding in a chat needs: approve, vote, reject, comment, and know what is open.
DECIDING: Final = read_capabilities(
    [{"kind": each} for each in ("mcp/request", "moot/approve", "mcp/reject", "chat", "moot/list-proposals")]
)


class ChatRoutes:
    """The request of chat programs."""

    def __init__(self, directory: SpaceDirectory, identity: RequestIdentity, links: SignInLinks) -> None:
        self._directory = directory
        self._identity = identity
        self._links = links
        self._rates = token_buckets(BINDINGS_PER_MINUTE / 60.0, BINDINGS_PER_MINUTE, max_keys=_MAX_KEYS)

    async def bind(self, request: Request) -> Response:
        """A token of the person who asked for the code, for deciding in a chat; the code is used up."""
        caller = (await self._callers(request))[0]
        wait = self._rates.take((caller.host.name, caller.name), time.monotonic())
        if wait:
            text = f"more bindings than {BINDINGS_PER_MINUTE} a minute"
            return denied(AccessDenied(429, text, retry_after=wait))
        check_json(request)
        code = (await object_of(request, _MAX_BODY_BYTES)).get("code")
        token = await self._links.read(code, "chat ") if isinstance(code, str) else None
        # Again: an earlier look is a while ago.
        callers = {each.host.name: each for each in await self._callers(request)}
        found = [] if token is None else await self._opened_by(request, token)
        holder = next((each for each in found if each.host.name in callers), None)
        # Last: what fails before that leaves it valid.
        if holder is None or await self._links.redeem(str(code), "chat ") is None:
            # Not counted as a wrong token: strangers in a chat would lock the chat program out.
            return denied(AccessDenied(403, "this code was used already, or is too old: ask for a new one"))
        return json_response(
            201, {"space": holder.host.name, **await _mint(holder, callers[holder.host.name])}
        )

    async def _callers(self, request: Request) -> list[TokenIdentity]:
        """Who may bind; raises Refused or RequestRefused if nobody who calls may."""
        callers = [each for each in await self._called_by(request) if _may_bind(each)]
        if not callers:
            raise CapabilityViolation("only a member with the capability moot/bind binds chat accounts")
        return callers

    async def _called_by(self, request: Request) -> list[TokenIdentity]:
        """Who calls: in the one space that the query names, which another gateway may serve, or in all."""
        if request.query_params.get("space"):
            return [await self._identity.in_space(request)]
        return await self._identity.everywhere(request)

    async def _opened_by(self, request: Request, token: str) -> list[TokenIdentity]:
        """Who asked for a code, likewise. Raises Unavailable."""
        if space := request.query_params.get("space"):
            identity = await self._directory.identify_current(space, token)
            return [identity] if isinstance(identity, TokenIdentity) else []
        return (await self._directory.identify_everywhere_current(token))[0]

    async def unbind(self, request: Request) -> Response:
        """The token that asks ends, with its connections, if a gateway made it."""
        made = [
            (each, each.token)
            for each in await self._called_by(request)
            if each.token is not None and _is_minted(each.host, each.token)
        ]
        if not made:
            raise CapabilityViolation("this token was not made by a binding: whoever gave it ends it")
        for each, token in made:
            await each.host.rights.sign_out(
                (), each.name, issued_before=0.0, keep_seconds=0.0, tokens=[token]
            )
        return json_response(200, {"status": "revoked"})


def _is_minted(host: SpaceHost, token: str) -> bool:
    found = host.space.state.temporary_tokens.get(token)
    return found is not None and found.source == "minted"


def _may_bind(caller: TokenIdentity) -> bool:
    state = caller.host.space.state
    limit = None if caller.token is None else state.token_limit(caller.token)
    member = state.roster.find(caller.name)
    return not caller.guest and limit is None and member.rights.allow_some("moot/bind")


async def _mint(holder: TokenIdentity, caller: TokenIdentity) -> dict[str, object]:
    state, now = holder.host.space.state, holder.host.journaled.clock()
    limit = None if holder.token is None else state.token_limit(holder.token)
    held = state.roster.find(holder.name).rights.capabilities if limit is None else limit
    only = _deciding_part(held)
    if not any(covered_by(each, DECIDING[:3]) for each in only):
        raise CapabilityViolation(f"{holder.name} may decide on no proposals, so there is nothing to bind")
    parent = None if holder.token is None else state.temporary_tokens.get(holder.token)
    seconds = BINDING_SECONDS if parent is None else min(BINDING_SECONDS, parent.expires_at - now)
    made = await mint_token(
        holder.host,
        holder.name,
        caller.name,
        seconds=seconds,
        only=only,
        max_seconds=BINDING_SECONDS,
        own_token=holder.token,
    )
    return dict(made)


def _deciding_part(held: Sequence[Capability]) -> list[Capability]:
    """As much of what deciding needs as these rights cover."""
    whole = [each for each in DECIDING if covered_by(each, held)]
    return [*whole, *(each for each in held if covered_by(each, DECIDING) and not covered_by(each, whole))]
