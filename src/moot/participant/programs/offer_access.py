"""Whether we may request what others offer, only propose it, or neither.

A right may depend on the arguments of a call (`path` under `/docs`), which are not known before the call. A
tool is shown if some call of it could be allowed; the call itself is checked when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from moot.errors import InvalidPattern
from moot.mcp.eras import OfferKind
from moot.offers.offer_table import Offer
from moot.participant.joined_space import JoinedSpace
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, overlaps, read_capability

Access = Literal["request", "propose", "none"]

# How an offer is used: the method, and the field of params that names it.
_USES: Final[dict[OfferKind, tuple[str, str]]] = {
    "tools": ("tools/call", "name"),
    "resources": ("resources/read", "uri"),
    "resourceTemplates": ("resources/read", "uri"),
    "prompts": ("prompts/get", "name"),
}


class OfferAccess:
    """Our access to each offer, cached until our rights change."""

    def __init__(self, space: JoinedSpace, more: Sequence[Capability] = ()) -> None:
        """`more` are rights that we do not have, but could have if we asked for them."""
        self._space = space
        self._more = tuple(more)
        self._rights: object = None
        self._cached: dict[tuple[str, OfferKind, str], Access] = {}

    def of(self, offer: Offer) -> Access:
        rights = self._space.rights
        if rights is not self._rights:
            self._rights = rights
            self._cached.clear()
        key = (offer.owner, offer.kind, offer.key)
        known = self._cached.get(key)
        if known is None:
            known = self._cached[key] = self._compute(offer)
        return known

    def _compute(self, offer: Offer) -> Access:
        method, field = _USES[offer.kind]
        params: dict[str, Json] = {field: offer.key}
        if offer.kind == "resourceTemplates":
            # The client chooses the URI, so only its literal start is known.
            params = {field: offer.key.partition("{")[0] + "*"}
        elif self._space.may_request(offer.owner, method, params):
            return "request"
        if self._is_possible("mcp/request", offer.owner, method, params):
            return "request"
        return "propose" if self._is_possible("mcp/proposal", offer.owner, method, params) else "none"

    def _is_possible(self, kind: str, owner: str, method: str, params: dict[str, Json]) -> bool:
        every_call = _every_call(kind, owner, method, params)
        rights = (*self._space.rights.capabilities, *self._more)
        return any(every_call is None or overlaps(right, every_call) for right in rights)


def _every_call(kind: str, owner: str, method: str, params: dict[str, Json]) -> Capability | None:
    """All calls of this offer, as a capability; None if its name cannot be part of one."""
    try:
        return read_capability({"kind": kind, "to": [owner], "payload": {"method": method, "params": params}})
    except InvalidPattern:
        return None
