"""What a member reads from its gateway over HTTP: messages that it missed, a large proposal, the journal.

The list of open proposals over the socket tells of one that is too large for it how large it is
(`envelope_bytes`), and not what it says.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from moot.errors import MootError, Refused
from moot.participant.connection.connect_options import ConnectOptions
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import GatewayProposal

# A gateway that says to come again is asked again, but not for ever.
_MAX_TRIES: Final = 5
# The only space of a gateway, or else the one of this name, is joined by who names none.
_DEFAULT_SPACE: Final = "default"
# The history that is fetched after a reconnect: from how long before the loss, as clocks differ, and how
# much.
HISTORY_MARGIN_SECONDS: Final = 60.0
MAX_HISTORY_BYTES: Final = 16 << 20
# Of the journal. A gateway gives 500 messages a page.
MAX_PAGES: Final = 50

log = logging.getLogger(__name__)


class _HistoryPage(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Gone(msgspec.Struct):
    next: str


async def fetch_history(options: ConnectOptions, url: str, me: str, since: float) -> list[Envelope] | None:
    """What the gateway at `url` sent us since then (seconds since 1970), oldest first; None without any."""
    if options.token is None:
        return None
    try:
        client = options.http_client(
            timeout_seconds=options.limits.answer_seconds, max_bytes=MAX_HISTORY_BYTES
        )
        status, body = await client.get(options.history_url(url, me, since))
        if status == HTTPStatus.GONE:
            # The space has moved, and this gateway has what came later.
            since = float(msgspec.json.decode(body, type=_Gone).next)
            status, body = await client.get(options.history_url(url, me, since))
        if status != 200:
            log.debug("no history", extra={"status": status})
            return None
        messages = msgspec.json.decode(body, type=_HistoryPage).messages
    except (MootError, ValueError) as fault:
        log.debug("no history", extra={"why": str(fault)})
        return None
    decoded = [options.decode(bytes(raw)) for raw in messages]
    return [envelope for envelope in decoded if envelope is not None]


class _OwnSpace(msgspec.Struct):
    name: str


class _OwnSpaces(msgspec.Struct):
    spaces: list[_OwnSpace]


class _Later(msgspec.Struct):
    retry_after: float = 1.0


async def fetch_proposal(options: ConnectOptions, url: str, id: str) -> GatewayProposal | None:
    """What the gateway at `url` says about a proposal, with its envelope; None if it remembers none.

    Raises MootError when it does not tell.
    """
    if options.token is None:
        raise Refused("a proposal that is too large for the list is told only to who has a token")
    try:
        space = options.space or await find_space(options, url)
        status, body = await get_when_allowed(options, options.proposal_url(url, space, id))
        if status == 404:
            return None
        if status != 200:
            raise Refused(f"the gateway did not tell the whole of a large proposal (HTTP {status})")
        return msgspec.json.decode(body, type=GatewayProposal)
    except msgspec.DecodeError as fault:
        raise Refused(f"a large proposal cannot be read: {fault}") from None


async def find_space(options: ConnectOptions, url: str) -> str:
    """The space that a token without the name of one is for; raises MootError."""
    status, body = await get_when_allowed(options, options.http_url(url, "/spaces"))
    if status != 200:
        raise Refused(f"the gateway did not tell which space this is (HTTP {status})")
    names = [each.name for each in msgspec.json.decode(body, type=_OwnSpaces).spaces]
    return _DEFAULT_SPACE if _DEFAULT_SPACE in names else names[0]


async def get_when_allowed(options: ConnectOptions, address: str) -> tuple[int, bytes]:
    for _ in range(_MAX_TRIES):
        client = options.http_client(
            timeout_seconds=options.limits.answer_seconds, max_bytes=MAX_HISTORY_BYTES
        )
        status, body = await client.get(address)
        if status != 429:
            return status, body
        await asyncio.sleep(
            min(msgspec.json.decode(body, type=_Later).retry_after, options.limits.answer_seconds)
        )
    raise MootError("the gateway says again and again to come later")


class JournalPast(NamedTuple):
    """Messages, oldest first. `is_whole`: nothing was said before them; None if nobody knows."""

    messages: list[Envelope]
    is_whole: bool | None = None


class _Page(msgspec.Struct):
    messages: list[msgspec.Raw]
    before: int | None = None
    # Also a word that this version does not know: then it is not the beginning.
    end: str | None = None
    gap: bool = False


async def fetch_journal(options: ConnectOptions, url: str, max_messages: int) -> JournalPast:
    """The latest messages of the journal that we may read, as many as that or some more."""
    found: list[Envelope] = []
    before: int | None = None
    has_gap = False
    try:
        space = options.space or await find_space(options, url)
        for _ in range(MAX_PAGES):
            status, body = await get_when_allowed(options, options.journal_url(url, space, before))
            if status != 200:
                log.debug("no journal", extra={"status": status})
                break
            page = msgspec.json.decode(body, type=_Page)
            decoded = [options.decode(bytes(raw)) for raw in page.messages]
            found[:0] = [each for each in decoded if each is not None]
            has_gap = has_gap or page.gap or None in decoded
            if page.end == "not_kept":
                break
            if page.end is not None or page.before is None:
                return JournalPast(found, page.end == "beginning" and not has_gap)
            if len(found) >= max_messages:
                return JournalPast(found, is_whole=False)
            before = page.before
    except (MootError, msgspec.DecodeError) as fault:
        log.debug("no journal", extra={"why": str(fault)})
    return JournalPast(found)
