"""Finds offers by what they are for, from a query in plain words.

The index is XProtocol's: this is the one place outside of it that uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moot.mcp.eras import OFFER_KINDS
from moot.offers.offer_table import Offer, OfferTable
from moot.xprotocol.search import Document, SearchIndex

# Documents that are indexed at a time, some 3 ms: between them everything else has its turn. The first search
# over 4,000 tools indexes for more than a second.
BATCH_DOCUMENTS: Final = 8


class OfferSearch:
    """A search over an offer table; each search updates the index first. Belongs to one loop."""

    def __init__(self, offers: OfferTable) -> None:
        self._offers = offers
        self._index = SearchIndex()
        self._indexed: dict[str, Offer] = {}
        # One search at a time updates the index; the others wait for it.
        self._updating = asyncio.Lock()

    async def find(self, query: str, limit: int, only: Callable[[Offer], bool]) -> list[Offer]:
        """The best matches, best first. `only` says which may be shown."""
        await self._update_index()
        hits = self._index.search(query, limit=limit, only=lambda key: only(self._indexed[key]))
        return [self._indexed[hit.key] for hit in hits]

    async def _update_index(self) -> None:
        """Index what is new, batch by batch. What comes meanwhile is found by the next search."""
        async with self._updating:
            current = self._remove_gone()
            fresh = [key for key, offer in current.items() if self._indexed.get(key) is not offer]
            for start in range(0, len(fresh), BATCH_DOCUMENTS):
                if start:
                    await asyncio.sleep(0)
                for key in fresh[start : start + BATCH_DOCUMENTS]:
                    offer = current[key]
                    self._index.add(Document.of_tool(key, offer.item, source=offer.owner))
                    self._indexed[key] = offer
            if len(fresh) > BATCH_DOCUMENTS:
                # What has gone meanwhile must not be shown.
                self._remove_gone()

    def _remove_gone(self) -> dict[str, Offer]:
        """Remove what is no longer offered, or is another offer now; what is offered."""
        current = {
            f"{offer.kind} {offer.shown}": offer for kind in OFFER_KINDS for offer in self._offers.all(kind)
        }
        for key in [key for key, offer in self._indexed.items() if current.get(key) is not offer]:
            self._index.remove(key)
            del self._indexed[key]
        return current
