"""Whether a call asks because of where its values came from, and why, in sentences that every face shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.origins.argument_origins import OriginReader
from moot.origins.origin_call import ArgumentOrigin, OriginCall, PrivateText
from moot.origins.origin_memory import OriginMemory
from moot.origins.source_place import SourcePlace
from moot.origins.value_lookup import ValueLookup

# Fewer characters of a private source than this are names and single words.
MIN_PRIVATE_CHARS: Final = 6
_QUOTED_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class OriginVerdict:
    """`why` names the one thing that matters; `task` is the message with which a person asked for it."""

    asks: bool
    why: str
    arguments: tuple[ArgumentOrigin, ...]
    private: tuple[PrivateText, ...] = ()
    task: str = ""
    # Whether the agent also reads what the space does not see.
    outside: bool = False
    # Why others may have led the agent to this very call, if a person let it run again before; else empty.
    steered: str = ""
    # Whether nobody here has asked the agent for anything; what is not known any more may have.
    is_unasked: bool = False


def verdict_on(memory: OriginMemory, call: OriginCall, now: float) -> OriginVerdict:
    """Reads run, what destroys asks, and all else asks unless people or look-ups said what steers it."""
    look = ValueLookup(memory, call, now)
    arguments = tuple(OriginReader(look).arguments())
    private = tuple(each for each in look.private.values() if each.characters >= MIN_PRIVATE_CHARS)
    why, traits = _asking_value(look, arguments), call.traits
    if traits.effect == "reads" and not traits.outside:
        why = None
    elif traits.effect == "destroys":
        why = "it can destroy something"
    elif why is None:
        why = describe_private(private[0]) if private and traits.outside else _unsaid(look, arguments)
    steered = _asking_value(look, arguments, is_named=True) or _unsaid(look, arguments)
    context = look.context
    return OriginVerdict(
        why is not None,
        why or "",
        arguments,
        private,
        context.task,
        context.outside,
        steered or "",
        is_unasked=not context.task and context.since < 0 and memory.index.dropped < 0,
    )


def _asking_value(
    look: ValueLookup, arguments: tuple[ArgumentOrigin, ...], *, is_named: bool = False
) -> str | None:
    """The first value that steers the call and that nobody trusted said; `is_named`: in a call of which a
    person has named all values, an agent that has read nothing of others has them from there.
    """
    for origin in ("untrusted", "unknown", "nobody"):
        for each in arguments:
            is_fine = origin == "nobody" and look.clean and (is_named or _is_computed(each))
            if each.origin == origin and each.steers and not is_fine:
                return f"{each.path}: {describe_origin(each, agent=look.call.agent)}"
    return None


def _unsaid(look: ValueLookup, arguments: tuple[ArgumentOrigin, ...]) -> str | None:
    if look.clean or any(each.origin in ("person", "operator") for each in arguments):
        return None
    return "nothing in this call was said by a person, and the agent has read what others wrote"


def _is_computed(each: ArgumentOrigin) -> bool:
    """Numbers and days, which an agent computes from what people and look-ups say."""
    return not any(char.isalpha() for char in each.value)


def describe_origin(argument: ArgumentOrigin, *, agent: str, viewer: str = "") -> str:
    """One sentence without a full stop and without a time. `viewer` is who reads it: they are "you"."""
    place = argument.place
    match argument.origin:
        case "person" if argument.endorsement:
            who = "you" if argument.endorsement.by == viewer else argument.endorsement.by
            # That the agent had said it itself says nothing of where it came from.
            if place is None or place.source.by == agent:
                return f"{who} endorsed this"
            return f"{_from(place)}, which {who} endorsed"
        case "person" if place is not None:
            return f"{'you' if place.source.by == viewer else place.source.by} said this"
        case "operator":
            return "the operator configured this"
        case "trusted" if place is not None:
            return f"{_from(place)}, a trusted look-up"
        case "untrusted" if argument.rejected:
            return f"a person rejected a call with {_quoted(argument.value)}"
        case "untrusted" if place is not None:
            return f"{_quoted(argument.value)} is {_from(place)}, which nobody here has confirmed"
        case "unknown":
            return f"it is not known where {_quoted(argument.value)} came from"
    if not argument.steers:
        return f"{agent} wrote this"
    return f"nobody said {_quoted(argument.value)}"


def describe_private(private: PrivateText) -> str:
    count = private.characters
    return f"{count} character{'s' if count != 1 else ''} {_from(private.place)} would leave the space"


def shorten(text: str, most: int) -> str:
    """In one line, at most so many characters, and nothing that JSON cannot say."""
    line = " ".join(text[: 2 * most].encode("utf-8", "replace").decode().split())
    return line if len(line) <= most and len(text) <= 2 * most else line[: most - 1] + "…"


def _from(place: SourcePlace) -> str:
    if place.source.tool:
        return f"from {shorten(place.source.tool, _QUOTED_CHARS)} of {place.source.by}"
    return f"from a message of {place.source.by}"


def _quoted(value: str) -> str:
    return f"“{shorten(value, _QUOTED_CHARS)}”"
