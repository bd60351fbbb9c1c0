"""What the gateway tells about one proposal: in its list, in `moot/votes`, and over HTTP (D-96)."""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal

import msgspec

from moot.protocol.operation import Json

# What came of a fulfilment.
Execution = Literal["pending", "done", "failed", "unknown"]
# Whether what a call does can be taken back: by itself, by another call, or not at all.
Undo = Literal["reversible", "compensable", "final"]


class BudgetNote(msgspec.Struct, frozen=True):
    """What a pending call would take of a budget of its space, in the gateway's words."""

    budget: str
    text: str
    # `asks`: a person has to approve it; `refused`: it would pass the limit, so nobody can.
    verdict: Literal["free", "asks", "refused"]
    used: str = ""
    per: str = ""
    resets_at: str = ""
    # None: it cannot be told.
    amount: str | None = None
    ask_at: str | None = None
    at_most: str | None = None
    holder: str | None = None


class EarlierCall(msgspec.Struct, frozen=True):
    """The call that brought an effect about, or may have."""

    request_id: str
    by: str
    at: str
    outcome: Literal["done", "unknown"]
    until: str = ""
    approved_by: str | None = None
    # The call that tells what came of it, and how, as the operator named it.
    reconcile: dict[str, Json] | None = None


class EffectNote(msgspec.Struct, frozen=True):
    """What a pending call would bring about, in the gateway's words."""

    effect: str
    text: str
    # `asks`: it was done before or may have been, so a person confirms it.
    verdict: Literal["free", "asks"]
    key: str = ""
    undo: Undo | None = None
    earlier: EarlierCall | None = None


class CompensatingCall(msgspec.Struct, frozen=True):
    """The call that makes another one good; its arguments have `{places}` of that one's and of its result."""

    tool: str
    to: str = ""
    arguments: dict[str, Json] = {}


class EffectRule(msgspec.Struct, frozen=True):
    """What the operator said of certain calls: `calls` is a capability that matches them."""

    effect: str
    calls: Json
    key: str = ""
    undo: Undo | None = None
    compensate: CompensatingCall | None = None


class BudgetUse(msgspec.Struct, frozen=True):
    """One budget of a space and what is used of it; amounts are decimals, as text."""

    budget: str
    used: str
    text: str
    # What the budget says, in words.
    about: str = ""
    per: str = ""
    resets_at: str = ""
    ask_at: str | None = None
    at_most: str | None = None
    # Whose, where each member has its own.
    holder: str | None = None


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """One member decides in another's place, until a time."""

    delegation_id: str
    giver: str = msgspec.field(name="from")
    delegate: str = msgspec.field(name="to")
    until: str
    reason: str | None = None


def read_effect_notes(told: Json) -> list[EffectNote]:
    """As `moot/votes` tells them; none of what cannot be read."""
    try:
        return msgspec.convert(told or [], list[EffectNote])
    except msgspec.ValidationError:
        return []


def read_budget_notes(told: Json) -> list[BudgetNote]:
    """As `moot/votes` tells them; none of what cannot be read."""
    try:
        return msgspec.convert(told or [], list[BudgetNote])
    except msgspec.ValidationError:
        return []


class GatewayProposal(msgspec.Struct):
    """One proposal as the gateway tells it (D-96)."""

    proposal_id: str
    state: Literal["open", "fulfilled", "withdrawn", "expired"]
    proposer: str = ""
    proposed_at: str = ""
    # None: it proposes no call, which a gateway relays all the same.
    method: str | None = None
    name: str | None = None
    expires_at: str = ""
    approvals_needed: int = 0
    approvals_missing: int = 0
    passkey: bool = False
    exempt: list[str] = []
    # The proposals that it is a changed version of; and of a fulfilled one, the one that ran in its place.
    counters: list[str] = []
    changed_by: str | None = None
    assigned_to: list[str] = []
    assigned_by: str | None = None
    approved_by: list[str] = []
    budgets: list[BudgetNote] = []
    effects: list[EffectNote] = []
    rejected_by: list[str] = []
    # In the same order; of a gateway that does not tell it, empty.
    reject_reasons: list[str] = []
    settled_by: str | None = None
    fulfilled_by: str | None = None
    # In whose place whoever approved it did so; giver → delegate, of votes that were given so.
    fulfilled_for: str | None = None
    delegated_votes: dict[str, str] = {}
    asked: list[str] = []
    # None: of a gateway that does not tell it.
    waiting_for: list[str] | None = None
    outcome: Execution | None = None
    reason: str | None = None
    wants_input: bool = False
    # One of several hosts has failed; the others have not answered.
    failed: bool = False
    assessed_by: str | None = None
    note: str | None = None
    envelope: msgspec.Raw = msgspec.Raw()
    # In place of an envelope that is too large for the list.
    envelope_bytes: int = 0

    @property
    def rejections(self) -> list[tuple[str, str]]:
        """Who said no, and why."""
        return list(
            zip_longest(self.rejected_by, self.reject_reasons[: len(self.rejected_by)], fillvalue="other")
        )
