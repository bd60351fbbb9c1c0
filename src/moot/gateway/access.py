"""Access control: whose token this is in which space (D-20, D-21)."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from moot.config import hash_token
from moot.errors import Unavailable
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import OtherSpaces
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.members.lookalikes import find_taken
from moot.space.tokens.temporary_tokens import SignIn

T = TypeVar("T")

# In an answer to somebody who named none.
_MAX_NAMED_SPACES: Final = 20


class AccessDenied(msgspec.Struct, frozen=True):
    """Why somebody is not let in: an HTTP status, and what to do; never what was wrong with a secret."""

    status: int
    message: str
    # Seconds after which another try makes sense.
    retry_after: float | None = None
    # In a cluster: whether what is in the log, and not read yet, will change the answer.
    is_pending: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says in its headers."""
        if self.retry_after is None:
            return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}


NOT_SERVED: Final = AccessDenied(
    503, "this gateway does not serve that space now: try again, or another one", retry_after=1
)
# In a cluster: who may make a space is asked of the gateway that serves the one after which it is made.
_MODEL_ELSEWHERE: Final = AccessDenied(
    503, "the space is being made: try again in a moment", retry_after=1, is_pending=True
)


class TokenIdentity(msgspec.Struct, frozen=True):
    """Whom a token identifies in a space. A `guest` has no token and the rights of anonymous visitors."""

    host: SpaceHost
    name: str
    guest: bool = False
    # SHA-256 of the token.
    token: str | None = None
    # Somebody whom a provider of identities knows, and whom the space does not know yet by this token.
    sign_in: SignIn | None = None

    def admit(self) -> None:
        """Let the space know whom it lets in, before whatever comes next; raises Refused."""
        if self.sign_in is not None:
            self.host.rights.sign_in(self.sign_in)

    async def wait_admitted(self) -> None:
        """`admit`, done when the space knows them; raises Refused."""
        if self.sign_in is not None:
            await self.host.rights.sign_in_applied(self.sign_in)


# Who somebody is, why not, or why nobody knows.
KnownIdentity = TokenIdentity | AccessDenied | Unavailable


class SignedInAccount(msgspec.Struct, frozen=True):
    """Who holds a token of a provider: by what a sign-out names them, and since when."""

    keys: tuple[str, ...]
    issued_at: float


class ProviderClaims(msgspec.Struct, frozen=True):
    """What a provider says of whoever holds a token: all of the token but what proves it."""

    issuer: str
    claims: dict[str, Json]
    expires: float
    issued: float
    key_id: str | None = None


class TokenQuestion(msgspec.Struct, frozen=True):
    """Whose token this is: asked of other gateways too, so it is no token."""

    # Its SHA-256.
    hash: str
    # Of a token of a provider, which is verified where it came in.
    signed_in: ProviderClaims | None = None
    # What else is asked about.
    more: Json = None


class SignInProvider(Protocol):
    """What knows the tokens that others issue."""

    def takes(self, token: str) -> bool: ...

    def identify(
        self, host: SpaceHost, token: str, token_hash: str, *, is_listing: bool = False
    ) -> TokenIdentity | AccessDenied: ...

    def claims_of(self, token: str, token_hash: str) -> ProviderClaims | AccessDenied: ...

    def identify_claims(
        self, host: SpaceHost, claims: ProviderClaims, token_hash: str
    ) -> TokenIdentity | AccessDenied: ...

    def administrator(self, token: str, token_hash: str, space: str | None) -> str | None: ...

    def administers(self, claims: ProviderClaims, space: str) -> bool: ...

    def account_of(self, token: str, token_hash: str) -> SignedInAccount | None: ...

    def watch(self, token: str, token_hash: str) -> None: ...


class SpaceDirectory:
    """The spaces of a gateway, and who may enter which."""

    def __init__(self) -> None:
        self.hosts: dict[str, SpaceHost] = {}
        # Free-text ids of spaces, by which clients may call them too.
        self.other_names: dict[str, str] = {}
        self.admin_tokens: Mapping[str, str] = {}
        # D-22: the space after which others are made for whoever may join it, and who makes them.
        self.model: str | None = None
        self.create: Callable[[str], SpaceHost | AccessDenied] | None = None
        # In a cluster, where another gateway serves that one: asks it whether the holder of a token (its
        # hash) may make a space, makes that, and calls back, with why not if so.
        self.create_asked: Callable[[str, str, Callable[[AccessDenied | Unavailable | None], None]], None]
        self.sign_in: SignInProvider | None = None
        # SHA-256 of a token → space and name, for members that live in the gateway's own process. In memory
        # alone, and void with it.
        self.own_tokens: dict[str, tuple[str, str]] = {}
        self._guests = 0
        # In a cluster: what tells the guests of this gateway from those of others.
        self.guest_prefix = ""
        # In a cluster: calls back when what is in the log by now is known here, or with why that cannot be.
        self.when_current: Callable[[Callable[[Unavailable | None], None]], None] | None = None
        # Whether an address came with so many wrong tokens that the log is not asked for one more.
        self.has_guessed: Callable[[str], bool] = lambda _address: False
        # In a cluster: whether this gateway knows the space of that name, if there is one, and whether it
        # knows all that there are. What it does not know it never answers for.
        self.serves: Callable[[str], bool] = lambda _space: True
        self.serves_all: Callable[[], bool] = lambda: True
        # In a cluster of several shards: the number of a space's.
        self.shard_of: Callable[[str], int | None] = lambda _space: None
        self.others = OtherSpaces()

    def check_serves(self, name: str) -> None:
        """Raises Unavailable where another gateway answers for the space of that name."""
        if not self.serves(name):
            raise Unavailable(NOT_SERVED.message)

    def space(self, name: str | None) -> SpaceHost | AccessDenied:
        """The space of that name; without one the only space, or the one called `default` (D-22)."""
        is_whole = self.serves_all()
        if not name and len(self.hosts) == 1 and is_whole:
            return next(iter(self.hosts.values()))
        wanted = self.other_names.get(name or "default", name or "default")
        host = self.hosts.get(wanted)
        if host is not None:
            return host
        if not self.serves(wanted) or not (name or is_whole):
            return NOT_SERVED
        return AccessDenied(404, f"no space {(name or wanted)[:64]!r} on this gateway")

    def _next_guest(self, host: SpaceHost) -> str:
        """The next name of its kind that is nobody's, and looks like nobody's."""
        while True:
            self._guests += 1
            name = f"guest-{self.guest_prefix}{self._guests}"
            if find_taken(host.space.state.roster, name) is None:
                return name

    def identify(self, space: str | None, token: str | None) -> TokenIdentity | AccessDenied:
        """Whose token this is in that space; 401 for a token nobody has, 403 for one of another space."""
        host = self.space(space)
        if isinstance(host, AccessDenied) and host is not NOT_SERVED:
            host = self._create_for(space, token) or host
        if isinstance(host, AccessDenied):
            is_open = space or token is None or host is NOT_SERVED
            return host if is_open else self._ask_for_space(token or "") or host
        if token is None:
            if host.space.state.config.access != "public":
                return AccessDenied(401, "a token is needed: send Authorization: Bearer …")
            return TokenIdentity(host, self._next_guest(host), guest=True)
        hashed = hash_token(token)
        identity = self._identify_in(host, token, hashed)
        if identity is not None:
            return identity
        if any(other.space.find_token_owner(hashed) for other in self.hosts.values()):
            return AccessDenied(403, "this token is for another space")
        if not self.serves_all():
            # Perhaps of a space that is not known here; counted as a wrong one all the same.
            return AccessDenied(403, "this token does not open this space", is_pending=True)
        return AccessDenied(401, "unknown token")

    async def identify_current(
        self, space: str | None, token: str | None, address: str = ""
    ) -> TokenIdentity | AccessDenied:
        """`identify`, for whoever reads: raises Unavailable where what is known here may be old."""
        identity = self.identify(space, token)
        if self.may_become_known(identity, token, address):
            found = await _called_back(partial(self.when_known, space, token or ""))
            if isinstance(found, Unavailable):
                raise found
            identity = found
        if isinstance(identity, TokenIdentity):
            identity.host.order.check_current()
        return identity

    def may_become_known(
        self, identity: TokenIdentity | AccessDenied, token: str | None, address: str
    ) -> bool:
        """Whether a token that nobody has here may be in what is not read yet of the cluster's log."""
        return (
            self.when_current is not None
            and isinstance(identity, AccessDenied)
            and (identity.status == 401 or identity.is_pending)
            and bool(token)
            and not self.is_of_provider(token or "")
            and not self.has_guessed(address)
        )

    def when_known(self, space: str | None, token: str, call: Callable[[KnownIdentity], None]) -> None:
        """Call back with `identify` when what is in the log by now is known here, and the space is made, if
        this token may make it; or with what keeps us from it."""

        def passed(refusal: Unavailable | None) -> None:
            found = refusal or self.identify(space, token)
            if found is _MODEL_ELSEWHERE:
                self.create_asked(
                    space or "", hash_token(token), lambda why: call(why or self.identify(space, token))
                )
            else:
                call(found)

        assert self.when_current is not None  # noqa: S101  # in a cluster
        self.when_current(passed)

    async def wait_current(self) -> None:
        """Wait until what is in the log by now is known here. Raises Unavailable."""
        assert self.when_current is not None  # noqa: S101  # in a cluster
        if (refusal := await _called_back(self.when_current)) is not None:
            raise refusal

    def _ask_for_space(self, token: str) -> AccessDenied | None:
        """What whoever named no space is told: the spaces that its own token opens, and no others."""
        names = [each.host.name for each in self.identify_everywhere(token)[0]][:_MAX_NAMED_SPACES]
        return AccessDenied(404, f"name a space: this token opens {', '.join(names)}") if names else None

    def identify_everywhere(self, token: str) -> tuple[list[TokenIdentity], AccessDenied]:
        """Whom a token identifies in which spaces; and what to answer if that is nobody.

        One look at each space: a stranger's wrong token costs no more where there are many.
        """
        hashed = hash_token(token)
        found: list[TokenIdentity] = []
        refusal = AccessDenied(401, "unknown token")
        for host in self.hosts.values():
            identity = self._identify_in(host, token, hashed, is_listing=True)
            if isinstance(identity, TokenIdentity):
                found.append(identity)
            elif identity is not None and self.is_of_provider(token):
                # What is wrong with it, or with the account, or that its key is looked for.
                refusal = identity
                if identity.status != 403:
                    # Of the token itself, so the same everywhere: its signature is checked once.
                    break
        return found, refusal

    def identify_hashed(
        self, host: SpaceHost, question: TokenQuestion
    ) -> TokenIdentity | AccessDenied | None:
        """Whom a token that was looked at before, or by another gateway, identifies in one space."""
        found = self._find_owner(host, question.hash)
        if found is None and self.sign_in is not None and question.signed_in is not None:
            found = self.sign_in.identify_claims(host, question.signed_in, question.hash)
        return found

    def _identify_in(
        self, host: SpaceHost, token: str, hashed: str, *, is_listing: bool = False
    ) -> TokenIdentity | AccessDenied | None:
        """Whose token this is in one space; None if it is nobody's there."""
        found = self._find_owner(host, hashed)
        if self.sign_in is None or not self.is_of_provider(token):
            return found
        if found is None:
            return self.sign_in.identify(host, token, hashed, is_listing=is_listing)
        if isinstance(found, TokenIdentity):
            self.sign_in.watch(token, hashed)
        return found

    def _find_owner(self, host: SpaceHost, hashed: str) -> TokenIdentity | AccessDenied | None:
        """Whose token this is by what the space knows of tokens."""
        own = self.own_tokens.get(hashed)
        if own is not None and own[0] == host.name:
            member = host.space.state.roster.members.get(Name(own[1]))
            is_there = member is not None and not member.kicked
            return TokenIdentity(host, own[1]) if is_there else AccessDenied(403, f"{own[1]} was removed")
        name = host.find_token_owner(hashed)
        if name is not None:
            if self._is_excluded(host, name):
                return AccessDenied(403, "this space admits only the participants that it lists")
            return TokenIdentity(host, name, token=hashed)
        return None

    def is_of_provider(self, token: str) -> bool:
        return self.sign_in is not None and self.sign_in.takes(token)

    def holder_of(self, space: str, token_hash: str) -> str | None:
        """Whose token this is in that space, if it lets anybody in."""
        host = self.hosts.get(space)
        name = None if host is None else host.find_token_owner(token_hash)
        return None if host is None or name is None or self._is_excluded(host, name) else name

    def _create_for(self, name: str | None, token: str | None) -> SpaceHost | AccessDenied | None:
        """A new space of that name, for a member of the one that it is made after; never for a guest."""
        if self.create is None or not name or not token or self.is_of_provider(token):
            # Whoever signs in enters the spaces that the rules name.
            return None
        if not self.serves(self.model or ""):
            return _MODEL_ELSEWHERE
        return self.create(name) if self.may_create(self.model or "", hash_token(token)) else None

    def may_create(self, model: str, token_hash: str) -> bool:
        """Whether the holder of a token may make a space after this one: a member of it, and no guest."""
        host = self.hosts.get(model)
        identity = None if host is None else self._find_owner(host, token_hash)
        return isinstance(identity, TokenIdentity) and not self._signed_in(identity.host, identity.name)

    def _is_excluded(self, host: SpaceHost, name: str) -> bool:
        config = host.space.state.config
        if config.access != "restricted" or self._signed_in(host, name):
            return False
        member = host.space.state.roster.members.get(name)  # type: ignore[call-overload]  # a plain name is enough here
        listed = member is not None and member.configured is not None
        return not listed and name not in config.admit

    def end_excluded(self, host: SpaceHost) -> None:
        """End the connections of members whom a space does not admit any more."""
        for session in list(host.space.state.roster.sessions.values()):
            # Those of other gateways are ended there.
            if session.id in host.delivery.sessions and self._is_excluded(host, session.member.name):
                host.end_session(session.id, "this space admits only the participants that it lists")

    def _signed_in(self, host: SpaceHost, name: str) -> bool:
        """Whether the rules for signing in have let this member in, which list the spaces."""
        member = host.space.state.roster.members.get(Name(name))
        return member is not None and member.subject is not None

    def administrator(self, token: str | None, space: str | None) -> str | None:
        """Who administers that space with this token, or all that are served here, if anybody does."""
        if space is not None:
            # They may have been removed where this gateway does not look.
            self.check_serves(space)
        hashed = hash_token(token or "")
        found = self.operator(hashed) if token else None
        if found is None and self.sign_in is not None and self.sign_in.takes(token or ""):
            return self.sign_in.administrator(token or "", hashed, space)
        return found

    async def administrator_everywhere(self, token: str) -> str | None:
        """Who administers all of the gateway and its cluster. Raises Unavailable where that is not known."""
        hashed, found = hash_token(token), self.administrator(token, None)
        if found is None or self.sign_in is None or self.serves_all() or self.operator(hashed) is not None:
            return found
        claims = self.sign_in.claims_of(token, hashed)
        if isinstance(claims, AccessDenied):
            return None
        answers = await self.others.ask("administers_all", msgspec.to_builtins(claims))
        # After the others, as whatever may have changed meanwhile.
        return self.administrator(token, None) if all(answers) else None

    def operator(self, token_hash: str) -> str | None:
        """Whose token of `admin_tokens` this is."""
        found = None
        for name, expected in self.admin_tokens.items():
            # All of them are compared, so that time tells nothing.
            if hmac.compare_digest(token_hash, expected):
                found = name
        return found

    def account_of(self, token: str | None) -> SignedInAccount | None:
        """Who signed in with this token at a provider; None for every other token."""
        if self.sign_in is None or not self.sign_in.takes(token or ""):
            return None
        return self.sign_in.account_of(token or "", hash_token(token or ""))


async def _called_back(ask: Callable[[Callable[[T], None]], None]) -> T:
    """What a function calls back with; whoever waits may be gone by then."""
    told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    ask(lambda found: None if told.done() else told.set_result(found))
    return await told


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header; None when there is no header."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    # What HTTP calls white space (RFC 9110, 5.6.3): nothing else is no part of a token.
    return token.strip(" \t") if scheme.lower() == "bearer" else ""
