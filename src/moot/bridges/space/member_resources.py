"""Resources of members as an MCP client names them: where a URI leads, and who watches what is there."""

from __future__ import annotations

import logging

from moot.bridges.space.error_text import failure_result
from moot.errors import McpError, MootError
from moot.mcp.eras import JsonObject
from moot.offers.offer_table import OfferTable
from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)


class MemberResources:
    """Resources of the members of a space. Several clients share one subscription at the host."""

    def __init__(self, space: JoinedSpace, table: OfferTable) -> None:
        self._space = space
        self._table = table
        self._subscribed: dict[tuple[str, str], int] = {}

    def locate(self, uri: str) -> tuple[str, str]:
        """Whose it is, and what its owner calls it; raises McpError."""
        location = self._table.locate(uri)
        if location is None or location.owner not in self._space.roster:
            hint = "resources/list shows what there is; moot://MEMBER/URI names a member outright"
            raise McpError(INVALID_PARAMS, f"Resource not found: {hint}", {"uri": uri})
        return location.owner, location.uri

    async def subscribe(self, uri: str) -> None:
        owner, theirs = key = self.locate(uri)
        if not self._subscribed.get(key):
            await self._request(owner, "resources/subscribe", theirs)
        self._subscribed[key] = self._subscribed.get(key, 0) + 1

    async def unsubscribe(self, uri: str) -> None:
        try:
            owner, theirs = key = self.locate(uri)
        except McpError:
            return
        left = self._subscribed.pop(key, 0) - 1
        if left > 0:
            self._subscribed[key] = left
        elif left == 0:
            try:
                await self._request(owner, "resources/unsubscribe", theirs)
            except McpError as fault:
                log.debug("not unsubscribed", extra={"participant": owner, "why": fault.message})

    async def _request(self, owner: str, method: str, uri: str) -> None:
        try:
            await self._space.request(owner, method, {"uri": uri})
        except MootError as fault:
            failure_result(fault, method=method, what=method, host=owner)


def with_uri(result: JsonObject, uri: str, shown: str) -> JsonObject:
    """Contents under the URI that the client used, where it is not the host's own."""
    contents: Json = result.get("contents")
    if uri == shown or not isinstance(contents, list):
        return result
    renamed = [
        {**each, "uri": shown} if isinstance(each, dict) and each.get("uri") == uri else each
        for each in contents
    ]
    return result | {"contents": renamed}
