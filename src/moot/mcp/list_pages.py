"""A list of MCP that comes in pages: tools, resources, resource templates, prompts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from moot.errors import McpError
from moot.mcp.eras import LISTS, OFFER_KEYS, TIMED_OUT, UNREACHABLE, JsonObject
from moot.protocol.answer_marks import says_unknown

log = logging.getLogger(__name__)


async def list_pages(
    request: Callable[[JsonObject], Awaitable[JsonObject]], method: str, *, max_pages: int, source: str
) -> list[JsonObject]:
    """Every page of a list, nothing twice; `request` gets the params of a page. Raises what `request` does.

    Some servers answer their last page with the cursor that led to it, or with an empty one: a cursor that
    comes again ends the list, and so does a later page that is refused, or the page after `max_pages`. What
    was found until then counts. `source` is whose list it is, for the log.
    """
    kind = LISTS[method]
    key = OFFER_KEYS[kind]
    found: list[JsonObject] = []
    named: dict[str, JsonObject] = {}
    cursors: set[str] = set()
    params: JsonObject = {}
    facts = {"source": source, "method": method}
    for page in range(max_pages):
        try:
            result = await request(params)
        except McpError as fault:
            # Somebody who is gone has refused nothing: what is missing may be there when it is back.
            lost = fault.code in (UNREACHABLE, TIMED_OUT) or says_unknown({"data": fault.data})
            if not page or lost:
                raise
            log.warning("a later page of a list was refused", extra=facts | {"page": page + 1})
            return found
        items = result.get(kind)
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict):
                continue
            name = item.get(key)
            # Another one of that name is no repetition: whoever reads the list has to see it.
            if isinstance(name, str) and named.setdefault(name, item) is not item and named[name] == item:
                continue
            found.append(item)
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or cursor in cursors:
            return found
        cursors.add(cursor)
        params = {"cursor": cursor}
    log.warning("a list has more pages than are read", extra=facts | {"max_pages": max_pages})
    return found
