"""Finding an offer by what it is for, in somebody's own words."""

from __future__ import annotations

from collections.abc import Callable

from moot.catalogue.definition_check import WHATS
from moot.catalogue.offer_table import CatalogueEntry, OfferTable
from moot.catalogue.search_settings import SearchSettings
from moot.catalogue.vector_search import PROCESS_MODEL, SearchMode, VectorModel, VectorSearch, make_index
from moot.xprotocol.search import Document


class OfferSearch:
    """A search over a catalogue; it catches up with what has changed when it is asked."""

    def __init__(
        self,
        offers: OfferTable,
        settings: SearchSettings | None = None,
        *,
        model: VectorModel = PROCESS_MODEL,
    ) -> None:
        self._offers = offers
        self._index = make_index()
        self._indexed: dict[str, CatalogueEntry] = {}
        self.vectors = VectorSearch(self._index, settings, model=model)

    @property
    def mode(self) -> SearchMode:
        """By what the last search went."""
        return self.vectors.mode

    async def find(
        self, query: str, limit: int, only: Callable[[CatalogueEntry], bool]
    ) -> list[CatalogueEntry]:
        """The offers that fit best, best first. `only` says which may be shown; raises QueryTooLong.

        The first searches wait for word vectors as long as the settings allow.
        """
        self._catch_up()
        if await self.vectors.prepare():
            # What came while we waited has no vector yet, and then this search goes by words alone.
            self._catch_up()
        hits = self._index.search(query, limit=limit, only=lambda key: only(self._indexed[key]))
        return [self._indexed[hit.key] for hit in hits]

    def _catch_up(self) -> None:
        current = {f"{offer.what} {offer.shown}": offer for what in WHATS for offer in self._offers.all(what)}
        for key in self._indexed.keys() - current.keys():
            self._index.remove(key)
        for key, offer in current.items():
            if self._indexed.get(key) is not offer:
                self._index.add(Document.of_tool(key, offer.item, source=offer.owner))
        self._indexed = current
