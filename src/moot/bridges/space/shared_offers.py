"""What a space offers, learned once for all members that one process serves.

Every member could ask everybody for lists, as `moot mcp` does. With a thousand people in one process that
would be a thousand times the same question, and each answer heard a thousand times. So the MCP server's own
member asks, and the people use what it learned; what they may use of it goes by their own rights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from moot.bridges.space.own_tools import RESERVED_NAMES
from moot.bridges.space.room_view import RoomView
from moot.mcp.eras import OfferKind
from moot.offers.offer_table import OfferTable
from moot.participant import JoinedSpace
from moot.participant.programs.offer_discovery import OfferDiscovery

if TYPE_CHECKING:
    from moot.offers.offer_search import OfferSearch

Listener = Callable[[set[OfferKind]], None]


class SharedOffers:
    """The offers of one space as one member learns them, within `async with`."""

    def __init__(self, space: JoinedSpace, *, table: OfferTable | None = None) -> None:
        # Tells whether a member, by its id, is asked for its lists at all.
        self.asks: Callable[[str], bool] = lambda _id: True
        self.table = OfferTable(RESERVED_NAMES) if table is None else table
        self.discovery = OfferDiscovery(space, self.table, self._on_changed, asks=lambda who: self.asks(who))
        self.room = RoomView(space)
        self._search: OfferSearch | None = None
        self._listeners: list[Listener] = []

    async def __aenter__(self) -> Self:
        await self.discovery.__aenter__()
        return self

    async def __aexit__(self, *_fault: object) -> None:
        await self.discovery.__aexit__()

    @property
    def search(self) -> OfferSearch:
        if self._search is None:
            # Imported at the first search: it takes longer than everything else.
            from moot.offers.offer_search import OfferSearch

            self._search = OfferSearch(self.table)
        return self._search

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the lists that changed until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _on_changed(self, kinds: set[OfferKind]) -> None:
        for listener in tuple(self._listeners):
            listener(kinds)
