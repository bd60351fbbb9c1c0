"""MCP over HTTP for many people in one process: whose token it is decides who they are in the space.

    async with PeopleServer(settings, person, shared, exchange) as server:
        …  # an ASGI application; no lifespan

Each person has a member, rights, pending calls and sessions of their own, and nothing is shared but what the
space offers (`shared_offers`). A session id is looked for among those of the person who sends it, so a stolen
one is unknown. A token that was seen is remembered by its hash until it ends or its person leaves the space;
another one is brought to the gateway, and so is, now and then, one beside that which the person's connection
is under: it may be void by now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Final, Self
from urllib.parse import parse_qs

from moot.bridges.people.challenge import (
    challenge,
    insufficient_scope,
    metadata,
    metadata_paths,
    resource_path,
)
from moot.bridges.people.people_settings import (
    MAX_TOKEN_CHARS,
    GrantRefused,
    PersonGrant,
    PersonKey,
    TokenExchange,
)
from moot.bridges.people.person_server import SCOPES, KnownToken, PersonServer, PersonSettings
from moot.bridges.space.shared_offers import SharedOffers
from moot.mcp.downstream.http_access import HttpAccessDenied, HttpAccessPolicy
from moot.mcp.downstream.response_streams import JSON_TYPE, Receive, Scope, Send, respond
from moot.net.counted_address import network_of
from moot.protocol import strict_json
from moot.protocol.latest_dict import LatestDict
from moot.resilience.rate_limits import token_buckets
from moot.resilience.task_set import TaskSet, end_tasks

# Wrong tokens of one address that are told why; further ones get 429.
WRONG_TOKENS_PER_MINUTE: Final = 60.0
# A wrong token that comes again within this is not brought to the gateway again.
REFUSAL_SECONDS: Final = 5.0
# A token that the connection to the gateway is not under is brought there again after this.
RECHECK_SECONDS: Final = 15.0
# Whoever has sent nothing for so long leaves the space; their next request joins again.
IDLE_SECONDS: Final = 600.0

log = logging.getLogger(__name__)

_MAX_REFUSED: Final = 10_000
_MAX_ADDRESSES: Final = 10_000
_SECONDS_PER_MINUTE: Final = 60.0
# RFC 9728 is read by web pages, too; there is nothing in it that is not for everybody.
_FOR_ALL_PAGES: Final = (b"access-control-allow-origin", b"*")


class PeopleServer:
    """The application, within `async with`: leaving it ends everybody's connection."""

    def __init__(
        self,
        max_people: int,
        person: PersonSettings,
        shared: SharedOffers,
        exchange: TokenExchange,
        access: HttpAccessPolicy,
    ) -> None:
        self._max_people = max_people
        self._person = person
        self._shared = shared
        self._exchange = exchange
        self._access = access
        self._description = person.description
        self._path = resource_path(person.description)
        self._metadata_paths = metadata_paths(person.description)
        self.people: dict[PersonKey, PersonServer] = {}
        self._by_token: dict[str, PersonServer] = {}
        self._refused: LatestDict[str, tuple[float, GrantRefused]] = LatestDict(_MAX_REFUSED)
        self._asked: dict[str, asyncio.Task[PersonGrant | GrantRefused]] = {}
        per_second = WRONG_TOKENS_PER_MINUTE / _SECONDS_PER_MINUTE
        burst = WRONG_TOKENS_PER_MINUTE
        self._wrong_tokens = token_buckets(per_second, burst, max_keys=_MAX_ADDRESSES)
        self._tasks = TaskSet("people")

    @property
    def paths(self) -> set[str]:
        """All that is answered here."""
        return {self._path, *self._metadata_paths}

    async def __aenter__(self) -> Self:
        self._tasks.start(self._end_idle())
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await end_tasks(list(self._asked.values()))
        await self._tasks.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "MCP is served over HTTP"})
            return
        headers = {n.decode("latin-1"): v.decode("latin-1").strip(" \t") for n, v in scope["headers"]}
        try:
            self._access.check(headers)
            path = scope["path"].rstrip("/")
            if path in self._metadata_paths:
                await self._send_metadata(scope["method"], send)
                return
            if path != self._path.rstrip("/"):
                raise HttpAccessDenied(404, f"MCP is served at {self._path}")
            address = (scope.get("client") or ("",))[0]
            person, scopes = await self._person_of(headers, scope["query_string"], address)
        except HttpAccessDenied as refusal:
            await respond(send, refusal.status, refusal.body, refusal.headers)
            return
        person.open_requests += 1
        try:
            http = await person.http()
            if http is None:
                raise HttpAccessDenied(503, "the connection to the space has just ended: try again")
            await http({**scope, SCOPES: scopes}, receive, send)
        except HttpAccessDenied as refusal:
            await respond(send, refusal.status, refusal.body, refusal.headers)
        finally:
            person.open_requests -= 1
            person.used_at = asyncio.get_running_loop().time()

    async def _send_metadata(self, method: str, send: Send) -> None:
        if method not in ("GET", "HEAD"):
            raise HttpAccessDenied(405, "GET", (b"allow", b"GET"))
        body = strict_json.encode(metadata(self._description)) if method == "GET" else b""
        await respond(send, 200, body, (JSON_TYPE, _FOR_ALL_PAGES, (b"cache-control", b"max-age=300")))

    # Who it is

    async def _person_of(
        self, headers: Mapping[str, str], query: bytes, address: str
    ) -> tuple[PersonServer, frozenset[str]]:
        """Whose token this is, and its scopes; raises HttpAccessDenied. A token in the address is none."""
        description = self._description
        needed = [] if description.read_scope is None else [description.read_scope]
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if b"access_token" in parse_qs(query):
            why = "a token never stands in an address: send Authorization: Bearer …"
            raise HttpAccessDenied(401, why, challenge(description, needed, error="invalid_request", why=why))
        if scheme.lower() != "bearer" or not token:
            raise HttpAccessDenied(
                401, "sign in: send Authorization: Bearer …", challenge(description, needed)
            )
        hashed = sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        now = asyncio.get_running_loop().time()
        person = self._by_token.get(hashed)
        if person is not None and not person.is_ended:
            known = person.tokens[hashed]
            # The connection ends with the token that it is under; nobody tells when another one is void.
            is_fresh = person.is_under(token) or now < known.checked_at + RECHECK_SECONDS
            if is_fresh and now < known.expires_at:
                return person, known.scopes
        found = await self._exchange_once(hashed, token)
        if isinstance(found, GrantRefused):
            raise self._denied(found, needed, address)
        if description.read_scope is not None and description.read_scope not in found.scopes:
            raise insufficient_scope(description, needed)
        return self._take_in(found, hashed, token), found.scopes

    async def _exchange_once(self, hashed: str, token: str) -> PersonGrant | GrantRefused:
        """What the gateway says of a token; asked once by all requests that come with it together."""
        if len(token) > MAX_TOKEN_CHARS:
            return GrantRefused(401, "no token is as long as this one")
        now = asyncio.get_running_loop().time()
        until, refused = self._refused.get(hashed, (0.0, None))
        if refused is not None and now < until:
            return refused
        asked = self._asked.get(hashed)
        if asked is None:
            asked = self._asked[hashed] = asyncio.create_task(self._exchange.exchange(token))
            asked.add_done_callback(lambda _: self._asked.pop(hashed, None))
        # The others still want it if this client goes away.
        found = await asyncio.shield(asked)
        if isinstance(found, GrantRefused) and found.status < 500:
            self._refused[hashed] = (now + REFUSAL_SECONDS, found)
        return found

    def _denied(self, refused: GrantRefused, needed: list[str], address: str) -> HttpAccessDenied:
        if refused.status < 500:
            wait = self._wrong_tokens.take(network_of(address), asyncio.get_running_loop().time())
            if wait:
                after = (b"retry-after", str(max(1, round(wait))).encode())
                return HttpAccessDenied(429, "too many wrong tokens: try again later", after)
        if refused.status == 401:
            said = challenge(self._description, needed, error="invalid_token", why=refused.message)
            return HttpAccessDenied(401, refused.message, said)
        if refused.retry_after is not None:
            after = (b"retry-after", str(max(1, round(refused.retry_after))).encode())
            return HttpAccessDenied(refused.status, refused.message, after)
        return HttpAccessDenied(refused.status, refused.message)

    def _take_in(self, grant: PersonGrant, hashed: str, token: str) -> PersonServer:
        """The person's server, made where there is none; raises HttpAccessDenied when there are too many."""
        now = asyncio.get_running_loop().time()
        person = self.people.get(grant.key)
        if person is not None and not person.is_ended:
            person.renew(grant, token)
        else:
            if len(self.people) >= self._max_people:
                self._end_longest_idle()
            if len(self.people) >= self._max_people:
                raise HttpAccessDenied(
                    503,
                    f"{self._max_people} people are here: try again later",
                    (b"retry-after", b"60"),
                )
            person = PersonServer(self._person, self._shared, self._exchange, grant, token)
            self.people[grant.key] = person
            person.task = self._tasks.start(person.run())
            # Not at the end of `run`: a task that is ended before its first step never gets there.
            person.task.add_done_callback(partial(self._on_end, person))
        for other, known in tuple(person.tokens.items()):
            if known.expires_at <= now:
                self._forget_token(person, other)
        person.tokens[hashed] = KnownToken(now + grant.expires_in, grant.scopes, now)
        self._by_token[hashed] = person
        person.used_at = now
        return person

    def _on_end(self, person: PersonServer, _task: asyncio.Task[None]) -> None:
        self._drop(person)

    def _drop(self, person: PersonServer) -> None:
        person.set_ended()
        for hashed in tuple(person.tokens):
            self._forget_token(person, hashed)
        if self.people.get(person.grant.key) is person:
            del self.people[person.grant.key]

    def _forget_token(self, person: PersonServer, hashed: str) -> None:
        del person.tokens[hashed]
        if self._by_token.get(hashed) is person:
            del self._by_token[hashed]

    def is_person(self, name: str) -> bool:
        """Whether a member is one of the people here, who offer nothing."""
        return any(key[0] == name for key in self.people)

    # Who goes

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS / 4)
            oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
            for person in tuple(self.people.values()):
                if not person.open_requests and person.used_at <= oldest:
                    person.end()

    def _end_longest_idle(self) -> None:
        """Make room: whoever waits for nothing can come back at any time."""
        idle = [person for person in self.people.values() if not person.open_requests]
        if idle:
            person = min(idle, key=lambda each: each.used_at)
            person.end()
            self._drop(person)
