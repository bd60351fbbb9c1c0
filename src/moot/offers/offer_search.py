"""Finds offers by what they are for, from a query in plain words."""

from __future__ import annotations

from collections.abc import Callable

from moot.mcp.eras import OFFER_KINDS
from moot.offers.offer_table import Offer, OfferTable
from moot.offers.search_settings import SearchSettings
from moot.offers.vector_search import PROCESS_MODEL, SearchMode, VectorModel, VectorSearch, make_index
from moot.xprotocol.search import Document


class OfferSearch:
    """A search over an offer table; each search updates the index first."""

    def __init__(
        self,
        offers: OfferTable,
        settings: SearchSettings | None = None,
        *,
        model: VectorModel = PROCESS_MODEL,
    ) -> None:
        self._offers = offers
        self._index = make_index()
        self._indexed: dict[str, Offer] = {}
        self.vectors = VectorSearch(self._index, settings, model=model)

    @property
    def mode(self) -> SearchMode:
        """Whether the last search used word vectors."""
        return self.vectors.mode

    async def find(self, query: str, limit: int, only: Callable[[Offer], bool]) -> list[Offer]:
        """The best matches, best first. `only` says which may be shown; raises QueryTooLong.

        The first searches wait for word vectors as long as the settings allow.
        """
        self._update_index()
        if await self.vectors.prepare():
            # An offer that came meanwhile has no vector yet, and then this search uses words alone.
            self._update_index()
        hits = self._index.search(query, limit=limit, only=lambda key: only(self._indexed[key]))
        return [self._indexed[hit.key] for hit in hits]

    def _update_index(self) -> None:
        current = {
            f"{offer.kind} {offer.shown}": offer for kind in OFFER_KINDS for offer in self._offers.all(kind)
        }
        for key in self._indexed.keys() - current.keys():
            self._index.remove(key)
        for key, offer in current.items():
            if self._indexed.get(key) is not offer:
                self._index.add(Document.of_tool(key, offer.item, source=offer.owner))
        self._indexed = current
