"""`GET /spaces/{space}/history`: what was said in a space, back to the beginning of its journal.

Members read it a page at a time, each within its rate, and one page at a time is read for the whole gateway:
whoever is connected has priority over whoever looks something up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

import orjson
from starlette.requests import Request
from starlette.responses import Response

from moot.errors import InvalidEnvelope, InvalidRequest
from moot.gateway.access import AccessDenied, SpaceDirectory, TokenIdentity, bearer
from moot.gateway.http_replies import RequestRefused, denied, json_response
from moot.gateway.journal_history import HistoryLimits, HistoryPage, HistoryQuery, HistoryReader, read_page
from moot.gateway.membership_start import membership_starts
from moot.gateway.space_host import SpaceHost
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.resilience.rate_limits import token_buckets

# What somebody types into a search field.
_MAX_QUERY_CHARS: Final = 200
_MAX_TEXTS: Final = 8
# Participants whose rate is remembered.
_MAX_KEYS: Final = 10_000
_BURST_SECONDS: Final = 2
# Pages that wait for the one that is read; of more, one is told to come again.
_MAX_WAITING: Final = 32
# An fsync takes some milliseconds.
_SETTLE_SECONDS: Final = 0.5
_PARAMETERS: Final = frozenset({"before", "limit", "text", "kind", "from", "id", "dialect"})

RefuseToken = Callable[[AccessDenied, Request], AccessDenied]


class HistoryRoutes:
    """Reads pages of the journals of a gateway."""

    def __init__(
        self,
        directory: SpaceDirectory,
        refuse_token: RefuseToken,
        *,
        limits: HistoryLimits,
        pages_per_second: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._refuse_token = refuse_token
        self._limits = limits
        self._clock = clock
        self._rates = token_buckets(pages_per_second, pages_per_second * _BURST_SECONDS, max_keys=_MAX_KEYS)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._starts: WeakKeyDictionary[SpaceHost, dict[str, int]] = WeakKeyDictionary()

    async def page(self, request: Request) -> Response:
        """One page, oldest message first; `before` is where the next one ends."""
        identity = self._identify(request)
        host = identity.host
        wait_seconds = self._rates.take((host.name, identity.name), self._clock())
        if wait_seconds:
            text = "too many pages of the history at once: gateway.history_pages_per_second"
            return denied(AccessDenied(429, text, retry_after=wait_seconds))
        unknown = set(request.query_params) - _PARAMETERS
        if unknown:
            known = ", ".join(sorted(_PARAMETERS))
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))[:100]}; give some of {known}")
        before, wanted, dialect = _before_of(request), _query_of(request), _dialect_of(request)
        limits = self._limits._replace(max_messages=_limit_of(request, self._limits.max_messages))
        if self._waiting >= _MAX_WAITING:
            return denied(AccessDenied(503, "others are reading the history: try again", retry_after=1))
        self._waiting += 1
        try:
            async with self._turn:
                page = await self._read(identity, before, wanted, dialect, limits)
        finally:
            self._waiting -= 1
        # It may have taken a while: a token that is void by now gets nothing.
        self._identify(request)
        messages = [orjson.Fragment(each) for each in page.messages]
        return json_response(200, {"messages": messages, "before": page.before, "end": page.end})

    async def _read(
        self,
        identity: TokenIdentity,
        before: int | None,
        wanted: HistoryQuery,
        dialect: DialectName,
        limits: HistoryLimits,
    ) -> HistoryPage:
        host = identity.host
        if not host.journal.is_written:
            return HistoryPage([], None, "not_kept")
        if before is None:
            await _settle(host)
        folder, config = host.journaled.folder, host.space.state.config
        starts = self._starts.get(host)
        if starts is None:
            starts = await asyncio.to_thread(membership_starts, folder, host.opened_at_record)
            self._starts[host] = starts
        since = host.delivery.history.visible_since(identity.name)
        if since <= host.delivery.history.restored_until:
            # Of an earlier run; the journal knows it better than the few messages that were read then.
            since = 0.0
        # Who is in no record was here when this run began, or `since` tells when it came.
        first = starts.get(identity.name, 0 if since else host.opened_at_record)
        reader = HistoryReader(first, since, dialect)
        return await asyncio.to_thread(
            read_page, folder, before, wanted, reader=reader, config=config, limits=limits
        )

    def _identify(self, request: Request) -> TokenIdentity:
        token = bearer(request.headers.get("authorization"))
        if not token:
            raise RequestRefused(AccessDenied(401, "a token is needed: send Authorization: Bearer …"))
        identity = self._directory.identify(request.path_params["space"], token)
        if isinstance(identity, AccessDenied):
            wrong = identity.status in (401, 403)
            raise RequestRefused(self._refuse_token(identity, request) if wrong else identity)
        # Whoever was removed reads nothing.
        identity.host.space.state.roster.find(identity.name)
        return identity


async def _settle(host: SpaceHost) -> None:
    """Wait a moment until what was said up to now can be read; a disk that fails is not waited for."""
    written = asyncio.Event()
    host.journal.when_durable(host.journal.next_number - 1, written.set)
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            await written.wait()


def _before_of(request: Request) -> int | None:
    given = request.query_params.get("before")
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18 or int(given) < 1:
        raise InvalidRequest("before is the number that `before` said on the page after it")
    return int(given)


def _limit_of(request: Request, most: int) -> int:
    given = request.query_params.get("limit")
    if given is None:
        return most
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) < 1:
        raise InvalidRequest(f"limit is a number of messages from 1 to {most}")
    return min(int(given), most)


def _query_of(request: Request) -> HistoryQuery:
    given = request.query_params
    texts = tuple(text for text in given.getlist("text") if text)
    query = HistoryQuery(texts, given.get("kind", ""), given.get("from", ""), given.get("id", ""))
    if len(texts) > _MAX_TEXTS or any(len(each) > _MAX_QUERY_CHARS for each in (*texts, *query[1:])):
        raise InvalidRequest(
            f"a search has at most {_MAX_TEXTS} texts, and each word at most {_MAX_QUERY_CHARS} characters"
        )
    return query


def _dialect_of(request: Request) -> DialectName:
    asked = request.query_params.get("dialect", "mew")
    if asked not in DIALECTS:
        raise InvalidEnvelope(f"unknown dialect: use one of {', '.join(DIALECTS)}")
    return DIALECTS[asked].name  # type: ignore[index]  # looked up just now
