"""Binding a chat account over HTTP: `POST` and `DELETE /chat-bindings`, for the member that runs `moot chat`.

A person asks for a code (`POST /sign-in-links` with `"for": "chat"`) and says it to the chat program. That
brings it here, with a token of its own and the right to `moot/bind`, and gets a token of that person:
listed and revoked by itself, with what deciding needs of the person's rights and no more. So a code
that somebody reads in the chat is used up. Whoever says it first is bound: it is shown to its person alone.
The token ends itself when its account is unbound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from moot.config import hash_token
from moot.errors import CapabilityViolation
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity, TokenQuestion
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import check_json, denied, json_response, object_of
from moot.gateway.http.request_identity import RequestIdentity, token_of
from moot.gateway.sign_in.short_lived_tokens import mint_token
from moot.gateway.sign_in.sign_in_links import SignInLinks
from moot.gateway.token_spaces import Describe
from moot.protocol.operation import Json
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


# A request that was read, and a space → what another gateway answers that serves it; None where it is ours.
RelayRead = Callable[[Request, str, Json], Response | None]


class ChatRoutes:
    """The request of chat programs."""

    def __init__(
        self, directory: SpaceDirectory, identity: RequestIdentity, links: SignInLinks, relayed: RelayRead
    ) -> None:
        self._directory = directory
        self._identity = identity
        self._links = links
        self._relayed = relayed
        self._rates = token_buckets(BINDINGS_PER_MINUTE / 60.0, BINDINGS_PER_MINUTE, max_keys=_MAX_KEYS)
        identity.spaces.answer("binder", _describe_binder)
        identity.spaces.answer("minted", _describe_minted)

    async def bind(self, request: Request) -> Response:
        """A token of the person who asked for the code, for deciding in a chat; the code is used up."""
        callers = await self._describe(request, "binder", _describe_binder)
        if not callers:
            raise CapabilityViolation("only a member with the capability moot/bind binds chat accounts")
        wait = self._rates.take(callers[0], time.monotonic())
        if wait:
            text = f"more bindings than {BINDINGS_PER_MINUTE} a minute"
            return denied(AccessDenied(429, text, retry_after=wait))
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        code = body.get("code")
        token = await self._links.read(code, "chat ") if isinstance(code, str) else None
        spaces = [space for space, _ in callers]
        if token is not None and not request.query_params.get("space"):
            opened, _ = await self._identity.spaces.describe("holder", token)
            spaces = [each for each in spaces if each in {space for space, _ in opened}]
        if token is not None and spaces:
            if (elsewhere := self._relayed(request, spaces[0], body)) is not None:
                return elsewhere
            # Again: an earlier look is a while ago.
            caller = await self._directory.identify_current(spaces[0], token_of(request))
            holder = await self._directory.identify_current(spaces[0], token)
            # Last: what fails before that leaves it valid.
            if (
                isinstance(caller, TokenIdentity)
                and isinstance(holder, TokenIdentity)
                and _may_bind(caller)
                and await self._links.redeem(str(code), "chat ") is not None
            ):
                return json_response(201, {"space": holder.host.name, **await _mint(holder, caller)})
        # Not counted as a wrong token: strangers in a chat would lock the chat program out.
        return denied(AccessDenied(403, "this code was used already, or is too old: ask for a new one"))

    async def unbind(self, request: Request) -> Response:
        """The token that asks ends, with its connections, if a gateway made it."""
        made = await self._describe(request, "minted", _describe_minted)
        if not made:
            raise CapabilityViolation("this token was not made by a binding: whoever gave it ends it")
        # A token is made for one space.
        (space, name), token = made[0], hash_token(token_of(request))
        if (elsewhere := self._relayed(request, space, None)) is not None:
            return elsewhere
        host = self._directory.space(space)
        if isinstance(host, AccessDenied):
            return denied(host)
        await host.rights.sign_out((), name, issued_before=0.0, keep_seconds=0.0, tokens=[token])
        return json_response(200, {"status": "revoked"})

    async def _describe(self, request: Request, about: str, describe: Describe) -> list[tuple[str, str]]:
        """Space and name of who calls: in the space that the query names, or in all. Raises Refused."""
        if request.query_params.get("space"):
            identity = await self._identity.in_space(request)
            rows = [await describe(identity, TokenQuestion(""))]
        else:
            rows = await self._identity.describe_everywhere(request, about)
        return [(row[0], row[1]) for row in rows if row is not None]


async def _describe_binder(who: TokenIdentity, _question: TokenQuestion) -> Json:
    return (who.host.name, who.name) if _may_bind(who) else None


async def _describe_minted(who: TokenIdentity, _question: TokenQuestion) -> Json:
    return (who.host.name, who.name) if who.token is not None and _is_minted(who.host, who.token) else None


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
