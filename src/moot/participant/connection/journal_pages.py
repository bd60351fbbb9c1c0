"""What was said in a space before the gateway's history begins, from its journal, a page at a time."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

import msgspec

from moot.errors import MootError
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.whole_proposal import find_space, get_when_allowed
from moot.protocol.envelope import Envelope

# A gateway gives 500 messages a page.
MAX_PAGES: Final = 50

log = logging.getLogger(__name__)


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


_page_decoder = msgspec.json.Decoder(_Page)


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
            page = _page_decoder.decode(body)
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
