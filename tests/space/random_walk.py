"""A long random walk through a space: the moves of the state machine, without its shrinking, and fast."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from moot.space.config import SessionId
from moot.space.members.member import Options

from .inputs import Input
from .invariants import ALL, CHEAP, Check
from .random_moves import MOVES, T, populate
from .reference_model import ReferenceModel

# All checks, the slow ones too, after every so many steps.
ALL_EVERY = 25
# How many of the last inputs a failure shows.
SHOWN = 12
# Then the room is cleared and a new one opened: old rooms only ever meet their limits.
STEPS_PER_ROOM = 1_000


class RandomDraw:
    """Chance from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)


def run_space_walk(steps: int, seed: int) -> str:
    """Walk; raises AssertionError with the seed and the last inputs where an invariant breaks."""
    draw = RandomDraw(seed)
    names = list(MOVES)
    done: Counter[str] = Counter()
    model = ReferenceModel()
    populate(model, draw)
    for number in range(1, steps + 1):
        name = draw.one(names)
        try:
            MOVES[name](model, draw)
            _check(model, ALL if number % ALL_EVERY == 0 else CHEAP)
            if number % STEPS_PER_ROOM == 0 or number == steps:
                remove_everybody(model)
                model = ReferenceModel()
                populate(model, draw)
        except Exception as fault:
            shown = "\n".join(_shown(given) for given in model.journal[-SHOWN:])
            raise AssertionError(
                f"seed {seed}, step {number} ({name}): {fault!r}\nlast inputs:\n{shown}"
            ) from fault
        done[name] += 1
    return f"space walk: {steps} steps of {len(done)} kinds with seed {seed}, {len(ALL)} invariants held"


def remove_everybody(model: ReferenceModel) -> None:
    """Somebody with all rights removes everybody else and time passes: nothing may be left behind."""
    root = SessionId("clears-the-room")
    model.put("health", True)
    model.put("join", root, "root", "mew", Options())
    for member in list(model.space.state.roster):
        if member.name != "root" and not member.kicked:
            model.send(root, "space/kick", {"participant_id": member.name})
            _check(model, ALL)
    model.now += 1e6
    model.put("expire")
    _check(model, ALL)
    state = model.space.state
    left = state.window.pinned.keys() | state.window._more_pins.keys()
    # What was approved and never answered stays known: its host may come back and say what came of it.
    unanswered = {each.settled_by for each in state.ledger.unresolved()}
    assert left == state.ledger.proposals.keys() | unanswered, f"left pinned: {left}"
    assert not state.streams.open
    assert not state.grants.by_id
    assert not state.temporary_tokens.by_hash
    assert not any(member.open_requests for member in state.roster)
    assert all(proposal.state != "open" for proposal in state.ledger.proposals.values())
    assert model.space.next_deadline() is None


def _check(model: ReferenceModel, checks: Sequence[Check]) -> None:
    for check in checks:
        check(model)


def _shown(given: Input) -> str:
    text = ", ".join(
        argument.raw.decode() if hasattr(argument, "raw") else str(argument)[:200]
        for argument in given.arguments
    )
    return f"  {given.now - 1_760_000_000:>10} {given.what}({text})"
