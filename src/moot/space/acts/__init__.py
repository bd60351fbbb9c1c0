"""What the gateway itself executes, one file per subject.

Most kinds have a `prepare` function: it checks the shape of the payload and who may do this (ladder step 11)
and hands back an `Act`, whose limits are checked next (step 13) and which is executed last (step 14).
Nothing changes before `execute`. The commonest kinds have a `PlainAct`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json, JsonValue
from moot.space.effects import Effect, Mint
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.proposals.budgets import Charge
from moot.space.proposals.effect_keys import EffectUse
from moot.space.state import State


class Act(msgspec.Struct, frozen=True):
    """A checked act, ready to be carried out. `record` is what the window keeps of its envelope."""

    execute: Callable[[SeenEnvelope, float, Mint], list[Effect]]
    # Most have no limit of their own.
    check_limits: Callable[[], None] | None = None
    # What it takes of the space's budgets, and whether a person has approved it.
    charges: tuple[Charge, ...] = ()
    is_approved: bool = False
    # What it brings about that has a key, and whether whoever sends it may confirm that it is done again.
    uses: tuple[EffectUse, ...] = ()
    may_confirm: bool = False


class PlainAct(msgspec.Struct, frozen=True):
    """What needs nothing prepared: the same for all envelopes of a kind, for none is made for each."""

    execute: Callable[[State, Session, Envelope, SeenEnvelope, float, Mint], list[Effect]]
    check_limits: Callable[[State, Session, Envelope], None] | None = None


# None: there is nothing to do but the kind's `PlainAct`, if it has one, and to relay the envelope.
Prepare = Callable[[State, Session, Envelope], Act | None]


def without_none(fields: dict[str, Json]) -> dict[str, Json]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def read_texts(value: JsonValue) -> list[str] | None:
    """A list of texts and of nothing else; None for any other value."""
    texts = [each for each in value if isinstance(each, str)] if isinstance(value, list) else None
    return texts if texts == value else None
