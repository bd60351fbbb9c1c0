"""A long random walk through a space: the moves of the state machine, without its shrinking, and fast."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from moot.space.config import SessionId
from moot.space.roster import Options

from .inputs import Input
from .invariants import ALL, CHEAP, Check
from .moves import MOVES, T, populate
from .world import World

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
    world = World()
    populate(world, draw)
    for number in range(1, steps + 1):
        name = draw.one(names)
        try:
            MOVES[name](world, draw)
            _check(world, ALL if number % ALL_EVERY == 0 else CHEAP)
            if number % STEPS_PER_ROOM == 0 or number == steps:
                clear_the_room(world)
                world = World()
                populate(world, draw)
        except Exception as fault:
            shown = "\n".join(_shown(given) for given in world.journal[-SHOWN:])
            raise AssertionError(
                f"seed {seed}, step {number} ({name}): {fault!r}\nlast inputs:\n{shown}"
            ) from fault
        done[name] += 1
    return f"space walk: {steps} steps of {len(done)} kinds with seed {seed}, {len(ALL)} invariants held"


def clear_the_room(world: World) -> None:
    """Somebody with all rights removes everybody else and time passes: nothing may be left behind."""
    root = SessionId("clears-the-room")
    world.put("health", True)
    world.put("join", root, "root", "mew", Options())
    for member in list(world.space.state.roster):
        if member.name != "root" and not member.kicked:
            world.send(root, "space/kick", {"participant_id": member.name})
            _check(world, ALL)
    world.now += 1e6
    world.put("expire")
    _check(world, ALL)
    state = world.space.state
    left = state.window.pinned.keys() | state.window._pins.keys()
    assert left == state.ledger.proposals.keys(), f"left pinned: {left}"
    assert not state.streams.open
    assert not state.grants.by_id
    assert not any(member.open_requests for member in state.roster)
    assert all(proposal.state != "open" for proposal in state.ledger.proposals.values())
    assert world.space.next_deadline() is None


def _check(world: World, checks: Sequence[Check]) -> None:
    for check in checks:
        check(world)


def _shown(given: Input) -> str:
    text = ", ".join(
        argument.raw.decode() if hasattr(argument, "raw") else str(argument)[:200]
        for argument in given.arguments
    )
    return f"  {given.now - 1_760_000_000:>10} {given.what}({text})"
