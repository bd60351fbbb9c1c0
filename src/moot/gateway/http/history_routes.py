"""`GET /spaces/{space}/history`: what was said in a space, back to the beginning of its journal.

Members read it a page at a time, each within its rate, and one page at a time is read for the whole gateway:
whoever is connected has priority over whoever looks something up. Members take turns: whoever asks for many
pages at once waits for their own, and others wait for one of them at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import orjson
from starlette.requests import Request
from starlette.responses import Response

from moot.errors import InvalidEnvelope, InvalidRequest
from moot.gateway.access import AccessDenied, TokenIdentity
from moot.gateway.hosting import journal_history
from moot.gateway.hosting.journal_history import (
    HistoryPage,
    HistoryQuery,
    HistoryReader,
    read_page,
)
from moot.gateway.hosting.membership_start import membership_starts
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import RequestRefused, json_response
from moot.gateway.http.request_identity import RequestIdentity
from moot.gateway.past_pages import PastPages
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.resilience.rate_limits import token_buckets

# What somebody types into a search field.
_MAX_QUERY_CHARS: Final = 200
_MAX_TEXTS: Final = 8
# Participants whose rate is remembered.
_MAX_KEYS: Final = 10_000
# Pages of old messages that one participant may read, and two seconds' worth at once.
PAGES_PER_SECOND: Final = 10
_BURST_SECONDS: Final = 2
# Pages of one member that wait for the one that is read; of more, one is told to come again.
_MAX_WAITING: Final = 32
# Members that wait: each of them for about a page of all others.
_MAX_READERS: Final = 256
# Pages that other gateways are asked for at a time: they use up a small part of all questions.
_MAX_ELSEWHERE: Final = 8
# An fsync takes some milliseconds.
_SETTLE_SECONDS: Final = 0.5
_PARAMETERS: Final = frozenset({"before", "limit", "text", "kind", "from", "id", "dialect"})

# A space, and who reads there.
Reader = tuple[str, str]


class HistoryRoutes:
    """Reads pages of the journals of a gateway."""

    def __init__(
        self,
        identity: RequestIdentity,
        past: PastPages,
    ) -> None:
        self._identity = identity
        self._past = past
        self._rates = token_buckets(PAGES_PER_SECOND, PAGES_PER_SECOND * _BURST_SECONDS, max_keys=_MAX_KEYS)
        self._turn = asyncio.Lock()
        self._elsewhere = asyncio.Semaphore(_MAX_ELSEWHERE)
        # Whoever has one in hand or waits for it.
        self._readers: dict[Reader, _OwnTurn] = {}
        self._starts: WeakKeyDictionary[SpaceHost, dict[str, int]] = WeakKeyDictionary()

    async def page(self, request: Request) -> Response:
        """One page, oldest message first; `before` is where the next one ends."""
        identity = await self.identify(request)
        host = identity.host
        self.charge(identity)
        unknown = set(request.query_params) - _PARAMETERS
        if unknown:
            known = ", ".join(sorted(_PARAMETERS))
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))[:100]}; give some of {known}")
        before, wanted, dialect = before_of(request), _query_of(request), _dialect_of(request)
        limit = limit_of(request)
        async with self.turn_of((host.name, identity.name)):
            page, reader = await self._read(identity, before, wanted, dialect, limit)
        if page.end == "elsewhere" and before is not None and page.before == before:
            async with self.turn_of((host.name, identity.name), is_elsewhere=True):
                found = await self._past.read(host, before, wanted, reader, identity.name, limit)
            if found is None:
                async with self.turn_of((host.name, identity.name)):
                    page, _ = await self._read(identity, before, wanted, dialect, limit, over_gaps=True)
            page = found or page
        if page.end == "elsewhere":
            # Where some of it was found, the next page is looked for elsewhere.
            page = page._replace(before=None) if page.before == before else page._replace(end=None)
        # It may have taken a while: a token that is void by now gets nothing.
        await self.identify(request)
        messages = [orjson.Fragment(each) for each in page.messages]
        body: dict[str, Json] = {"messages": messages, "before": page.before, "end": page.end}
        if page.end == "elsewhere":
            # Clients that do not know this take no word that they know for the beginning.
            body |= {"end": "removed", "elsewhere": True}
        # While the disk fails, the newest messages are not on it yet.
        if page.has_gap or (before is None and not host.journal.writable):
            body["gap"] = True
        return json_response(200, body)

    def charge(self, identity: TokenIdentity) -> None:
        """Count a page of a member; raises RequestRefused when it reads too many."""
        wait_seconds = self._rates.take((identity.host.name, identity.name), time.monotonic())
        if wait_seconds:
            text = f"too many pages of the history at once: at most {PAGES_PER_SECOND} a second"
            raise RequestRefused(AccessDenied(429, text, retry_after=wait_seconds))

    @asynccontextmanager
    async def turn_of(self, reader: Reader, *, is_elsewhere: bool = False) -> AsyncIterator[None]:
        """Wait for this member's turn, to read here or to ask other gateways; raises RequestRefused when too
        many wait already."""
        own = self._readers.get(reader)
        if own is None:
            if len(self._readers) >= _MAX_READERS:
                text = "others are reading the history: try again"
                raise RequestRefused(AccessDenied(503, text, retry_after=1))
            own = self._readers[reader] = _OwnTurn()
        elif own.pages >= _MAX_WAITING:
            text = f"{_MAX_WAITING} pages that you asked for are still to be read: wait for them"
            raise RequestRefused(AccessDenied(429, text, retry_after=1))
        own.pages += 1
        try:
            # In this order: of each member, one page at most waits for those of others.
            async with own.lock, self._elsewhere if is_elsewhere else self._turn:
                yield
        finally:
            own.pages -= 1
            if not own.pages:
                del self._readers[reader]

    async def _read(
        self,
        identity: TokenIdentity,
        before: int | None,
        wanted: HistoryQuery,
        dialect: DialectName,
        limit: int,
        *,
        over_gaps: bool = False,
    ) -> tuple[HistoryPage, HistoryReader]:
        host = identity.host
        if not host.journal.is_written:
            return HistoryPage([], None, "not_kept"), HistoryReader(0, 0.0, dialect)
        if before is None:
            await settle(host)
        folder, config = host.journaled.folder, host.space.state.config
        first, since = await self.visible_from(identity)
        reader = HistoryReader(first, since, dialect, by_time=host.order.is_shared)
        page = await asyncio.to_thread(
            partial(read_page, reader=reader, config=config, limit=limit, over_gaps=over_gaps),
            folder,
            before,
            wanted,
        )
        return page, reader

    async def visible_from(self, identity: TokenIdentity) -> tuple[int, float]:
        """The first record that a member may see, and since when it may see any."""
        host = identity.host
        starts = self._starts.get(host)
        if starts is None:
            starts = await asyncio.to_thread(membership_starts, host.journaled.folder, host.opened_at_record)
            self._starts[host] = starts
        since = host.delivery.history.visible_since(identity.name)
        if since <= host.delivery.history.restored_until:
            # Of an earlier run; the journal knows it better than the few messages that were read then.
            since = 0.0
        # Who is in no record was here when this run began, or `since` tells when it came.
        return starts.get(identity.name, 0 if since else host.opened_at_record), since

    async def identify(self, request: Request) -> TokenIdentity:
        return await self._identity.reader(request)


class _OwnTurn:
    """The pages that one member waits for."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.pages = 0


async def settle(host: SpaceHost) -> None:
    """Wait a moment until what was said up to now can be read; a disk that fails is not waited for."""
    written = asyncio.Event()
    host.journal.when_durable(host.journal.next_number - 1, written.set)
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            await written.wait()


def before_of(request: Request) -> int | None:
    """Where a page is to end; raises InvalidRequest."""
    given = request.query_params.get("before")
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18 or int(given) < 1:
        raise InvalidRequest("before must be a positive whole number: what `before` was in an earlier answer")
    return int(given)


def limit_of(request: Request) -> int:
    """How much a page may hold; raises InvalidRequest."""
    given, most = request.query_params.get("limit"), journal_history.MAX_PAGE_MESSAGES
    if given is None:
        return most
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) < 1:
        raise InvalidRequest(f"limit is a whole number from 1 to {most}")
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
