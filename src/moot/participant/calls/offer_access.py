"""What this member may do with what others offer: request it, only propose it, or neither.

A right may depend on a call's arguments (`path` under `/docs`), which nobody knows before the call. A tool is
shown when some call of it could be allowed; whether this very call is, is asked when it is made.
"""

from __future__ import annotations

from typing import Final, Literal

from moot.errors import InvalidPattern
from moot.mcp.eras import OfferKind
from moot.offers.offer_table import Offer
from moot.participant.joined_space import JoinedSpace
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, overlaps, read_capability

Access = Literal["request", "propose", "none"]

# What is done with a thing: the method, and the params that name it.
_USES: Final[dict[OfferKind, tuple[str, str]]] = {
    "tools": ("tools/call", "name"),
    "resources": ("resources/read", "uri"),
    "resourceTemplates": ("resources/read", "uri"),
    "prompts": ("prompts/get", "name"),
}


class OfferAccess:
    """Answers for one set of rights, remembered until the rights are others."""

    def __init__(self, space: JoinedSpace) -> None:
        self._space = space
        self._rights: object = None
        self._known: dict[tuple[str, OfferKind, str], Access] = {}

    def of(self, offer: Offer) -> Access:
        rights = self._space.rights
        if rights is not self._rights:
            self._rights = rights
            self._known.clear()
        key = (offer.owner, offer.kind, offer.key)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(offer)
        return known

    def _found(self, offer: Offer) -> Access:
        method, field = _USES[offer.kind]
        params: dict[str, Json] = {field: offer.key}
        if offer.kind == "resourceTemplates":
            # Which URI it will be is the client's choice, so only the literal start is certain.
            params = {field: offer.key.partition("{")[0] + "*"}
        elif self._space.may_request(offer.owner, method, params):
            return "request"
        if self._could("mcp/request", offer.owner, method, params):
            return "request"
        return "propose" if self._could("mcp/proposal", offer.owner, method, params) else "none"

    def _could(self, kind: str, owner: str, method: str, params: dict[str, Json]) -> bool:
        wanted = _wanted(kind, owner, method, params)
        return any(wanted is None or overlaps(right, wanted) for right in self._space.rights.capabilities)


def _wanted(kind: str, owner: str, method: str, params: dict[str, Json]) -> Capability | None:
    """Every call of this thing, as a capability; None if its name cannot stand in one."""
    try:
        return read_capability({"kind": kind, "to": [owner], "payload": {"method": method, "params": params}})
    except InvalidPattern:
        return None
