"""What members offer, as learned from the lists that they sent, and the names under which clients see it.

The table only records: lists that were answered, members that joined and left. The order does not depend on
who answered first: members by name, and the offers of each in its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moot.mcp.eras import OFFER_KEYS, OFFER_KINDS, OfferKind
from moot.offers.name_table import NameTable
from moot.offers.offer_check import fault_of
from moot.offers.uri_table import ResourceLocation, UriTable

Item = dict[str, Any]

# Of one kind by one member: more than any server has, fewer than would harm a client.
MAX_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer of one member: `item` is its definition, `shown` the name or URI that clients see."""

    owner: str
    kind: OfferKind
    key: str
    shown: str
    item: Item


class OfferTable:
    """All offers in a space. A name stays its owner's while the owner is away; its list does not."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.tool_names = NameTable(reserved)
        self.prompt_names = NameTable()
        self.uris = UriTable()
        self.dropped = 0
        self._lists: dict[tuple[str, OfferKind], list[Offer]] = {}
        self._shown: dict[OfferKind, dict[str, Offer]] = {kind: {} for kind in OFFER_KINDS}

    def learn(
        self,
        owner: str,
        kind: OfferKind,
        items: Iterable[object],
        *,
        more: bool = False,
        taken: Mapping[str, str] | None = None,
    ) -> bool:
        """Record the list of a member, or with `more` its next page; whether anything changed.

        `taken` has the owners of names (or URIs) in it that are another member's, here or not.
        """
        old = self._lists.get((owner, kind), [])
        new = list(old) if more else []
        seen = {offer.key for offer in new}
        for item in items:
            if len(new) >= MAX_ITEMS or fault_of(kind, item) is not None:
                self.dropped += 1
                continue
            assert isinstance(item, dict)  # noqa: S101  # fault_of has looked
            key = item[OFFER_KEYS[kind]]
            if taken and key in taken:
                self._bind(taken[key], kind, key)
            shown = self._bind(owner, kind, key)
            if shown is None or key in seen:
                self.dropped += 1
                continue
            seen.add(key)
            new.append(Offer(owner, kind, key, shown, item))
        if [offer.item for offer in old] == [offer.item for offer in new]:
            return False
        self._replace(owner, kind, new)
        return True

    def remove_owner(self, owner: str) -> set[OfferKind]:
        """Remove the offers of a member that left; which kinds changed."""
        changed: set[OfferKind] = set()
        for kind in OFFER_KINDS:
            if self._lists.get((owner, kind)):
                self._replace(owner, kind, [])
                changed.add(kind)
        self.uris.forget_absent(self.owners())
        return changed

    def owners(self) -> list[str]:
        """The members that offer anything."""
        return sorted({owner for owner, _ in self._lists})

    def offers_of(self, owner: str, kind: OfferKind) -> list[Offer]:
        return list(self._lists.get((owner, kind), ()))

    def all(self, kind: OfferKind) -> list[Offer]:
        """All offers of a kind, in the order in which they are shown."""
        return [offer for owner in self.owners() for offer in self._lists.get((owner, kind), ())]

    def find(self, kind: OfferKind, shown: str) -> Offer | None:
        """The offer that clients see under this name or URI, if its member is present."""
        return self._shown[kind].get(shown)

    def locate(self, uri: str) -> ResourceLocation | None:
        """Where to read a resource, listed or not."""
        templates = [ResourceLocation(offer.owner, offer.key) for offer in self.all("resourceTemplates")]
        holders = sorted({owner for owner, kind in self._lists if kind in ("resources", "resourceTemplates")})
        return self.uris.locate(uri, templates, holders)

    def _bind(self, owner: str, kind: OfferKind, key: str) -> str | None:
        if kind == "tools":
            return self.tool_names.bind(owner, key)
        if kind == "prompts":
            return self.prompt_names.bind(owner, key)
        return self.uris.bind(owner, key)

    def _replace(self, owner: str, kind: OfferKind, new: list[Offer]) -> None:
        shown = self._shown[kind]
        for offer in self._lists.pop((owner, kind), ()):
            shown.pop(offer.shown, None)
        if new:
            self._lists[owner, kind] = new
            shown.update((offer.shown, offer) for offer in new)
