"""Which gateway of a cluster with `serves: shared` serves a shard, and what one of them does about it.

Each gateway has a number for each shard, drawn from its name and that of the shard (rendezvous hashing), and
the highest serves. So a gateway that comes or goes moves only its own shards, and all who know the same
gateways say the same. Who left a shard did so for one with a higher number: two never leave it for each
other. Pure: what is told and the time come in, what to do comes out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from moot.net.address_order import score

# So long, without a break, another gateway has to say that it serves a shard before it is left to that one.
# Who comes and goes more often moves nothing.
STEADY_SECONDS: Final = 5.0


class Sharer(NamedTuple):
    """A gateway that has told a moment ago what it serves. All times are of one clock, the reader's."""

    # What its numbers are drawn from: the address by which members come, or its name.
    place: str
    told_at: float
    # Since when it has told so each time, by shard.
    serves: Mapping[int, float]
    # Shards that it leaves to others: an operator said so, or it could not begin with them.
    refuses: Container[int] = ()
    # It hands over what it has, and ends.
    is_leaving: bool = False
    # It begins with its share, and takes nobody in yet.
    is_coming: bool = False


class Moves(NamedTuple):
    """What a gateway shall do: shards to begin with, and those to leave, each to the gateway named."""

    begin: frozenset[int]
    leave: Mapping[int, str]


def server_of(shard: int, places: Mapping[str, str]) -> str | None:
    """The name of the gateway that serves a shard, of those with these names and places."""
    return max(places, key=lambda name: (score(shard, places[name]), name), default=None)


def chosen_of(shard: int, sharers: Mapping[str, Sharer]) -> str | None:
    """The same of those that have told: one that is there and does not refuse, or else one that is there."""
    staying = {name: each.place for name, each in sharers.items() if not (each.is_leaving or each.is_coming)}
    willing = {name: place for name, place in staying.items() if shard not in sharers[name].refuses}
    return server_of(shard, willing or staying)


def moves_of(
    own: str, sharers: Mapping[str, Sharer], shards: Iterable[int], began: Mapping[int, float]
) -> Moves:
    """What the gateway of this name shall do. `began`: since when it serves what it serves.

    Nothing if it is not among those that have told that they are there: then it does not reach the others.
    """
    if own not in sharers or sharers[own].is_coming:
        return Moves(frozenset(), {})
    begin, leave = set[int](), dict[int, str]()
    for shard in shards:
        chosen = chosen_of(shard, sharers)
        if chosen is None:
            continue
        if chosen == own:
            if shard not in began:
                begin.add(shard)
        elif shard in began and (since := sharers[chosen].serves.get(shard)) is not None:
            # What it told before we began may be the last that it said.
            seen_seconds = sharers[chosen].told_at - max(since, began[shard])
            gives_up = sharers[own].is_leaving or shard in sharers[own].refuses
            if seen_seconds >= (0 if gives_up else STEADY_SECONDS):
                leave[shard] = chosen
    return Moves(frozenset(begin), leave)
