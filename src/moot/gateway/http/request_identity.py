"""Who sends an HTTP request, by its token. Wrong tokens are counted by address, and soon answered late."""

from __future__ import annotations

from starlette.requests import Request

from moot.errors import Unauthorized
from moot.gateway.access import (
    NOT_SERVED,
    AccessDenied,
    SignedInAccount,
    SpaceDirectory,
    TokenIdentity,
    TokenQuestion,
    bearer,
)
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import (
    RequestRefused,
)
from moot.gateway.token_spaces import TokenSpaces
from moot.protocol.operation import Json


class RequestIdentity:
    """Finds members and administrators behind requests."""

    def __init__(
        self, directory: SpaceDirectory, access_limiter: AccessLimiter, *, may_administer: bool
    ) -> None:
        """`may_administer`: whether the configuration has endpoints for administrators at all."""
        self._directory = directory
        self._access_limiter = access_limiter
        self._may_administer = may_administer
        self.spaces, self.others = TokenSpaces(directory), directory.others

    @property
    def has_administrators(self) -> bool:
        """Asked each time: a reload names some, or takes the last one away."""
        named = bool(self._directory.admin_tokens) or self._directory.sign_in is not None
        return self._may_administer and named

    def shard_of(self, space: SpaceHost) -> int | None:
        """Of a cluster that has several: by it, members choose a gateway."""
        return self._directory.shard_of(space.name)

    async def member(self, request: Request) -> TokenIdentity:
        """The member that the path names, for whoever may join as it; raises RequestRefused."""
        space = request.query_params.get("space")
        identity = await self._directory.identify_current(space, token_of(request), address_of(request))
        if isinstance(identity, AccessDenied):
            # D-40: a token that is given but wrong is 403 here, as existing clients expect.
            wrong = AccessDenied(403, identity.message) if identity.status == 401 else identity
            raise RequestRefused(self.refuse_token(wrong, request, request.path_params["id"]))
        await identity.wait_admitted()
        member = identity.host.space.state.roster.resolve(request.path_params["id"])
        if member is None or member.name != identity.name:
            raise RequestRefused(AccessDenied(403, "this token is another participant's"))
        return identity

    async def in_space(self, request: Request) -> TokenIdentity:
        """Who calls, in the space that the path or the query names; raises RequestRefused."""
        space = request.path_params.get("space") or request.query_params.get("space")
        identity = await self._directory.identify_current(space, token_of(request), address_of(request))
        if isinstance(identity, AccessDenied):
            wrong = identity.status in (401, 403)
            raise RequestRefused(self.refuse_token(identity, request) if wrong else identity)
        await identity.wait_admitted()
        return identity

    async def reader(self, request: Request) -> TokenIdentity:
        """As `in_space`; raises Refused for whoever was removed, who reads nothing."""
        identity = await self.in_space(request)
        identity.host.space.state.roster.find(identity.name)
        return identity

    async def describe_everywhere(self, request: Request, about: str, *, more: Json = None) -> list[Json]:
        """What `spaces` describes of who calls, in each space of the cluster that the token opens.

        Raises RequestRefused if there is none, and Unavailable.
        """
        token, address = token_of(request), address_of(request)
        described, refusal = await self.spaces.describe(about, token, address, more=more)
        if not described:
            raise RequestRefused(self.refuse_token(refusal, request))
        return described

    def check_mint(self, host: SpaceHost, member: str, by: tuple[str, str]) -> None:
        """Raises RequestRefused when so many were asked for that this one has to wait."""
        wait = self._access_limiter.check_mint(host.name, member, by)
        if wait is not None:
            raise RequestRefused(wait)

    def administrator(self, request: Request, space: str) -> str | None:
        """Who administers that space with the token of this request.

        Raises RequestRefused after too many wrong ones.
        """
        if not self.has_administrators:
            return None
        token = bearer(request.headers.get("authorization"))
        return self._count(request, token, self._directory.administrator(token, space))

    async def administrator_everywhere(self, request: Request) -> str:
        """Who administers all of the gateway and its cluster. Raises RequestRefused, and Unavailable."""
        token, admin = bearer(request.headers.get("authorization")), None
        if self.has_administrators and token:
            admin = self._count(request, token, await self._directory.administrator_everywhere(token))
        if admin is None:
            raise RequestRefused(AccessDenied(403, "an administrator's token is needed"))
        return admin

    def _count(self, request: Request, token: str | None, admin: str | None) -> str | None:
        if admin is None and token:
            wrong = self.refuse_token(AccessDenied(403, ""), request)
            if wrong.retry_after is not None:
                raise RequestRefused(wrong)
        return admin

    def also_administers(self, question: TokenQuestion, host: SpaceHost) -> bool:
        """Whether the token of a member is that of an administrator of this space, too; counts nothing."""
        sign_in, claims = self._directory.sign_in, question.signed_in
        return self.has_administrators and (
            self._directory.operator(question.hash) is not None
            or (sign_in is not None and claims is not None and sign_in.administers(claims, host.name))
        )

    def check_current(self) -> None:
        """Raises Unavailable where what is known here of a space may be old."""
        for host in self._directory.hosts.values():
            host.order.check_current()

    def account_of(self, request: Request) -> SignedInAccount | None:
        """Whose sign-in what this request makes depends on, if it comes with a token of a provider."""
        return self._directory.account_of(bearer(request.headers.get("authorization")))

    def administered(self, request: Request) -> tuple[SpaceHost, str]:
        host = self._directory.space(request.query_params.get("space"))
        if host is NOT_SERVED:
            raise RequestRefused(NOT_SERVED)
        wanted = request.query_params.get("space", "") if isinstance(host, AccessDenied) else host.name
        admin = self.administrator(request, wanted)
        if admin is None:
            raise Unauthorized("an administrator's token is needed")
        if isinstance(host, AccessDenied):
            raise RequestRefused(host)
        host.order.check_current()
        return host, admin

    def refuse_token(self, wrong: AccessDenied, request: Request, name: str | None = None) -> AccessDenied:
        return self._access_limiter.refuse_token(wrong, address_of(request), name)


def token_of(request: Request) -> str:
    """The token of a request; raises RequestRefused without one."""
    token = bearer(request.headers.get("authorization"))
    if not token:
        raise RequestRefused(AccessDenied(401, "a token is needed: send Authorization: Bearer …"))
    return token


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
