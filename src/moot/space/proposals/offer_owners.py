"""Who owns a name that several members offer: a tool, a prompt, or the URI of a resource (D-91).

Members announce what they offer by answering lists, and every answer passes through the space. A name is
bound when a client asks for the first time whose it is, which is before it shows the name to anybody. It goes
to whoever is known to the space longest among those that had announced it by then (for participants of a
configuration: in its order), and stays there, whoever answers faster or comes back later. So every client
gives the same name to the same member, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from moot.protocol.operation import Json, JsonValue
from moot.space.config import Name

# By method: which names a list announces, the field of the result, and the field of each entry.
_LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "tools/list": ("tools", "tools", "name"),
    "prompts/list": ("prompts", "prompts", "name"),
    "resources/list": ("uris", "resources", "uri"),
    "resources/templates/list": ("uris", "resourceTemplates", "uriTemplate"),
}
LIST_METHODS: Final = frozenset(_LISTS)
# What a name costs beside its own bytes, roughly: the entry, and its owner's name.
_ENTRY_BYTES: Final = 32

# The namespace, and the name or URI.
OfferName = tuple[str, str]
# Names of tools and prompts and URIs of resources that one member announced, whose owner is kept: some
# 1,500 tools. Also one page of the answer to `moot/list-owners`.
MAX_MEMBER_BYTES: Final = 128 << 10
# The same for all members of the space together.
MAX_BYTES: Final = 4 << 20


class _Claim(msgspec.Struct):
    """Who has announced a name; `owner` is None until somebody asked."""

    members: list[Name] = msgspec.field(default_factory=list)
    owner: Name | None = None


class OfferOwners:
    """The names that members announced, within bounds: what is beyond them has no owner here."""

    def __init__(self) -> None:
        self._claims: dict[OfferName, _Claim] = {}
        self._of_member: dict[Name, list[OfferName]] = {}
        self._bytes_of_member: dict[Name, int] = {}
        self.bytes = 0

    def announce(self, member: Name, method: str, result: JsonValue) -> None:
        """A member answered a list."""
        namespace, list_field, key_field = _LISTS[method]
        items = result.get(list_field) if isinstance(result, dict) else None
        for item in items if isinstance(items, list) else ():
            key = item.get(key_field) if isinstance(item, dict) else None
            if isinstance(key, str) and key:
                self._add(member, (namespace, key))

    def _add(self, member: Name, name: OfferName) -> None:
        claim = self._claims.get(name)
        if claim is not None and member in claim.members:
            return
        size = _size_of(name)
        used = self._bytes_of_member.get(member, 0)
        if used + size > MAX_MEMBER_BYTES or self.bytes + size > MAX_BYTES:
            return
        self._claims.setdefault(name, _Claim()).members.append(member)
        self._of_member.setdefault(member, []).append(name)
        self._bytes_of_member[member] = used + size
        self.bytes += size

    def bind(self, member: Name, order: Mapping[Name, int]) -> dict[str, dict[str, Json]]:
        """Bind the names of a member; those that are another's, by namespace, with their owners.

        `order` has the place of every member of the space.
        """
        taken: dict[str, dict[str, Json]] = {}
        for name in self._of_member.get(member, ()):
            claim = self._claims[name]
            if claim.owner is None:
                claim.owner = min(claim.members, key=lambda each: order.get(each, len(order)))
            if claim.owner != member:
                taken.setdefault(name[0], {})[name[1]] = claim.owner
        return taken

    def forget(self, member: Name) -> None:
        """A member belongs to the space no more: its names are free."""
        for name in self._of_member.pop(member, ()):
            claim = self._claims[name]
            claim.members.remove(member)
            if claim.owner == member:
                claim.owner = None
            if not claim.members:
                del self._claims[name]
        self.bytes -= self._bytes_of_member.pop(member, 0)

    def save(self) -> list[Json]:
        return [[*name, claim.owner, list(claim.members)] for name, claim in self._claims.items()]

    @classmethod
    def load(cls, saved: Iterable[Any]) -> OfferOwners:
        owners = cls()
        for namespace, key, owner, members in saved:
            name = (namespace, key)
            owners._claims[name] = _Claim([Name(each) for each in members], owner)
            for each in owners._claims[name].members:
                owners._of_member.setdefault(each, []).append(name)
                owners._bytes_of_member[each] = owners._bytes_of_member.get(each, 0) + _size_of(name)
                owners.bytes += _size_of(name)
        return owners


def _size_of(name: OfferName) -> int:
    return len(name[1].encode("utf-8", "surrogatepass")) + _ENTRY_BYTES
