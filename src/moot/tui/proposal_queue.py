"""Which pending proposals wait for us, and which only others can still decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SeenProposal


def split_by_decider(
    space: JoinedSpace, proposals: Iterable[SeenProposal]
) -> tuple[list[SeenProposal], list[SeenProposal]]:
    """Those that wait for us, and those that only others can still decide: our own, what we rejected or
    voted for."""
    mine: list[SeenProposal] = []
    others: list[SeenProposal] = []
    for seen in proposals:
        (others if others_note(space, seen) else mine).append(seen)
    return mine, others


def others_note(space: JoinedSpace, seen: SeenProposal) -> str:
    """Why a proposal does not wait for us; empty if it does."""
    us = (space.me, space.name)
    if seen.proposer in us:
        return "your own: others decide"
    if any(each.by in us for each in seen.rejections):
        return "rejected by you: others can still decide"
    if seen.approvals_missing and space.me in seen.votes:
        return "you voted: others vote, too"
    return ""
