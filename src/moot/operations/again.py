"""The same call again: offered with a proposal, and asked of the approver beside an approval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot.errors import MootError
from moot.protocol.operation import Json
from moot.protocol.origin_report import AgainOffer

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SeenProposal


def again_offer(space: JoinedSpace, seen: SeenProposal) -> AgainOffer | None:
    """What "again" would mean; None if the approver does not offer it, or we may not ask for it."""
    offer = None if seen.origins is None else seen.origins.again
    if offer is None or seen.proposer in (space.me, space.name) or seen.approvals_needed:
        return None
    return offer if space.may("trust/accept", payload_of(seen, offer)) else None


def payload_of(seen: SeenProposal, offer: AgainOffer | None) -> dict[str, Json]:
    """`trust/accept` by which exactly this call is approved again, as it was offered."""
    payload: dict[str, Json] = {"again": seen.id}
    if offer is not None:
        payload["until"] = offer.until
        if offer.count is not None:
            payload["count"] = offer.count
    return payload


async def remember_call(space: JoinedSpace, payload: dict[str, Json]) -> str:
    """Ask the approver to approve a call again; returns what it said. Raises MootError if it will not."""
    from moot.operations.approver_client import ApproverClient
    from moot.operations.trust_log import TrustLog

    approver = TrustLog().find_approver(space)
    if approver is None:
        raise MootError("not remembered: no approver is in this space; `moot rules run` starts one")
    _, answer = await ApproverClient(space, approver).tell("trust/accept", payload)
    return words_of(None if answer is None else answer.payload.get("rule"))


def words_of(rule: Json) -> str:
    """What was remembered, and how to take it back."""
    if not isinstance(rule, dict):
        return "the same call is approved again"
    limits = rule.get("limits")
    found = limits if isinstance(limits, dict) else {}
    often = f" up to {found['count']} times in {found.get('per')}" if "count" in found else ""
    until = f" until {str(found['expires_at'])[:10]}" if "expires_at" in found else ""
    gap = f", not twice within {found['every']}" if "every" in found else ""
    if rule.get("ask") is not None:
        gap += ", where after a clear or restart of its agent others' words have not led to it"
    ends = f"`moot rules remove {rule.get('name')}` ends that"
    return f"the same call is approved again{often}{until}{gap}; {ends}"
