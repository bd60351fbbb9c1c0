"""What members offer, as learned from the lists that they sent, and how a face shows it.

The catalogue only keeps what it is told: lists that were answered, members that came and went. Order does not
depend on who answered first: members by name, each one's things in its own order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from moot.catalogue.definition_check import KEY, WHATS, What, fault_of
from moot.catalogue.name_table import NameTable
from moot.catalogue.uri_table import ResourceLocation, UriTable

Item = dict[str, Any]

# Of one kind by one member: more than any server has, less than hurts a client.
MAX_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One thing of one member: `item` is its own description, `shown` the name or URI that clients see."""

    owner: str
    what: What
    key: str
    shown: str
    item: Item


class OfferTable:
    """All that is offered. Names outlive their owners' absence, lists do not."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.tool_names = NameTable(reserved)
        self.prompt_names = NameTable()
        self.uris = UriTable()
        self.left_out = 0
        self._lists: dict[tuple[str, What], list[CatalogueEntry]] = {}
        self._shown: dict[What, dict[str, CatalogueEntry]] = {what: {} for what in WHATS}

    def learn(self, owner: str, what: What, items: Iterable[object], *, more: bool = False) -> bool:
        """A member's list, or with `more` its next page; whether anything is different from before."""
        old = self._lists.get((owner, what), [])
        new = list(old) if more else []
        seen = {offer.key for offer in new}
        for item in items:
            if len(new) >= MAX_ITEMS or fault_of(what, item) is not None:
                self.left_out += 1
                continue
            assert isinstance(item, dict)  # noqa: S101  # fault_of has looked
            key = item[KEY[what]]
            shown = self._bind(owner, what, key)
            if shown is None or key in seen:
                self.left_out += 1
                continue
            seen.add(key)
            new.append(CatalogueEntry(owner, what, key, shown, item))
        if [offer.item for offer in old] == [offer.item for offer in new]:
            return False
        self._replace(owner, what, new)
        return True

    def gone(self, owner: str) -> set[What]:
        """A member left; which lists are different without it."""
        changed: set[What] = set()
        for what in WHATS:
            if self._lists.get((owner, what)):
                self._replace(owner, what, [])
                changed.add(what)
        self.uris.forget_absent(self.owners())
        return changed

    def owners(self) -> list[str]:
        """Who offers anything."""
        return sorted({owner for owner, _ in self._lists})

    def of(self, owner: str, what: What) -> list[CatalogueEntry]:
        return list(self._lists.get((owner, what), ()))

    def all(self, what: What) -> list[CatalogueEntry]:
        """In the order in which they are shown."""
        return [offer for owner in self.owners() for offer in self._lists.get((owner, what), ())]

    def find(self, what: What, shown: str) -> CatalogueEntry | None:
        """The offer that clients see under this name or URI, if its member is here."""
        return self._shown[what].get(shown)

    def place(self, uri: str) -> ResourceLocation | None:
        """Where a resource is read, listed or not."""
        templates = [ResourceLocation(offer.owner, offer.key) for offer in self.all("resourceTemplates")]
        holders = sorted({owner for owner, what in self._lists if what in ("resources", "resourceTemplates")})
        return self.uris.place(uri, templates, holders)

    def _bind(self, owner: str, what: What, key: str) -> str | None:
        if what == "tools":
            return self.tool_names.bind(owner, key)
        if what == "prompts":
            return self.prompt_names.bind(owner, key)
        return self.uris.bind(owner, key)

    def _replace(self, owner: str, what: What, new: list[CatalogueEntry]) -> None:
        shown = self._shown[what]
        for offer in self._lists.pop((owner, what), ()):
            shown.pop(offer.shown, None)
        if new:
            self._lists[owner, what] = new
            shown.update((offer.shown, offer) for offer in new)
