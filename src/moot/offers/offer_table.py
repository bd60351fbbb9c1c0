"""What members offer, as learned from the lists that they sent, and the names under which clients see it.

The table only records: lists that were answered, members that joined and left. The order does not depend on
who answered first: members by name, and the offers of each in its own order.

Only what is described as MCP requires is kept. Clients accept a whole list or none of it: one invalid tool
would hide all others. So invalid offers are dropped when a list is learned, and counted. Fields that MCP does
not know are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from moot.mcp.eras import OFFER_KEYS, OFFER_KINDS, OfferKind
from moot.offers.name_table import NameTable, ResourceLocation, UriTable

Text = str | None
Object = dict[str, Any] | None


class _Icon(msgspec.Struct):
    src: str
    mimeType: Text = None
    sizes: list[str] | None = None
    theme: Text = None


class _Described(msgspec.Struct, kw_only=True):
    title: Text = None
    description: Text = None
    icons: list[_Icon] | None = None
    meta: Object = msgspec.field(name="_meta", default=None)


class _Hints(msgspec.Struct):
    title: Text = None
    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class _Audience(msgspec.Struct):
    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    lastModified: Text = None


class _Tool(_Described, kw_only=True):
    name: str
    inputSchema: dict[str, Any]
    outputSchema: Object = None
    annotations: _Hints | None = None
    execution: Object = None


class _Resource(_Described, kw_only=True):
    uri: str
    name: str
    mimeType: Text = None
    size: int | float | None = None
    annotations: _Audience | None = None


class _Template(_Described, kw_only=True):
    uriTemplate: str
    name: str
    mimeType: Text = None
    annotations: _Audience | None = None


class _Argument(msgspec.Struct):
    name: str
    title: Text = None
    description: Text = None
    required: bool | None = None


class _Prompt(_Described, kw_only=True):
    name: str
    arguments: list[_Argument] | None = None


_SHAPES: Final[dict[OfferKind, type[msgspec.Struct]]] = {
    "tools": _Tool,
    "resources": _Resource,
    "resourceTemplates": _Template,
    "prompts": _Prompt,
}


def fault_of(kind: OfferKind, item: object) -> str | None:
    """What is wrong with the definition of an offer; None if nothing is."""
    if not isinstance(item, dict):
        return "not an object"
    try:
        msgspec.convert(item, _SHAPES[kind])
    except msgspec.ValidationError as fault:
        return str(fault)
    if not item[OFFER_KEYS[kind]]:
        return f"{OFFER_KEYS[kind]} is empty"
    return None


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
