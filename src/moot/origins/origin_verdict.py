"""Whether a call asks because of where its values came from, and why, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.origins.argument_origins import OriginReader
from moot.origins.origin_call import ArgumentOrigin, OriginCall, PrivateText
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_words import describe_origin, describe_private
from moot.origins.value_lookup import ValueLookup

# Fewer characters of a private source than this are names and single words.
MIN_PRIVATE_CHARS: Final = 6


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


def verdict_on(memory: OriginMemory, call: OriginCall, now: float) -> OriginVerdict:
    """Reads run, what destroys asks, and all else asks unless people or look-ups said what steers it."""
    look = ValueLookup(memory, call, now)
    arguments = tuple(OriginReader(look).arguments())
    private = tuple(each for each in look.private.values() if each.characters >= MIN_PRIVATE_CHARS)
    why = _why(look, call, arguments, private)
    context = look.context
    return OriginVerdict(why is not None, why or "", arguments, private, context.task, context.outside)


def _why(
    look: ValueLookup,
    call: OriginCall,
    arguments: tuple[ArgumentOrigin, ...],
    private: tuple[PrivateText, ...],
) -> str | None:
    if call.traits.effect == "reads" and not call.traits.outside:
        return None
    if call.traits.effect == "destroys":
        return "it can destroy something"
    for origin in ("untrusted", "unknown", "nobody"):
        for each in arguments:
            if (
                each.origin == origin
                and each.steers
                and not (origin == "nobody" and _is_computed(look, each))
            ):
                return f"{each.path}: {describe_origin(each, agent=call.agent)}"
    if private and call.traits.outside:
        return describe_private(private[0])
    if not look.clean and not any(each.origin in ("person", "operator") for each in arguments):
        return "nothing in this call was said by a person, and the agent has read what others wrote"
    return None


def _is_computed(look: ValueLookup, each: ArgumentOrigin) -> bool:
    """Numbers and days that nobody said, by an agent that has read nothing but people and look-ups."""
    return look.clean and not any(char.isalpha() for char in each.value)
