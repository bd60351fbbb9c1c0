"""The `moot/origins` message about a call: what was found of its values, in words that every face shows.

Bounded, so that a call with hostile arguments makes no large message: at most `MAX_ARGUMENTS` of them, those
because of which it asks first. The words have no time and no viewer in them: faces put the time behind from
`at`, and `text_to` has the sentence for who said or endorsed a value.
"""

from __future__ import annotations

from typing import Final

from moot.origins.origin_call import SAID, ArgumentOrigin
from moot.origins.origin_verdict import OriginVerdict, describe_origin, describe_private, shorten
from moot.protocol.operation import Json
from moot.protocol.origin_report import MAX_ARGUMENTS

MAX_PRIVATE: Final = 16
MAX_VALUE_CHARS: Final = 120
MAX_EXCERPT_CHARS: Final = 160
MAX_PATH_CHARS: Final = 256
MAX_WHY_CHARS: Final = 512


def payload_of(verdict: OriginVerdict, *, agent: str) -> dict[str, Json]:
    """The payload of `moot/origins`; `agent` is who proposed the call."""
    # Sorting keeps the order of arguments that are alike.
    ordered = sorted(verdict.arguments, key=lambda each: not (each.steers and each.origin not in SAID))
    payload: dict[str, Json] = {
        "asks": verdict.asks,
        "why": shorten(verdict.why, MAX_WHY_CHARS),
        "arguments": [_argument(each, agent, verdict) for each in ordered[:MAX_ARGUMENTS]],
    }
    if verdict.task:
        payload["task"] = verdict.task
    if verdict.private:
        payload["private"] = [
            {
                "text": describe_private(each),
                "characters": each.characters,
                "envelope": each.place.source.envelope,
            }
            for each in verdict.private[:MAX_PRIVATE]
        ]
    if verdict.outside:
        payload["outside"] = True
    if len(ordered) > MAX_ARGUMENTS:
        payload["more"] = len(ordered) - MAX_ARGUMENTS
    return payload


def _argument(argument: ArgumentOrigin, agent: str, verdict: OriginVerdict) -> dict[str, Json]:
    is_unasked = verdict.is_unasked and argument.origin == "unknown"
    asked = f"nobody here has asked {agent} for anything, so " if is_unasked else ""
    told: dict[str, Json] = {
        "path": shorten(argument.path, MAX_PATH_CHARS),
        "value": shorten(argument.value, MAX_VALUE_CHARS),
        "origin": argument.origin,
        "steers": argument.steers,
        "text": f"{asked}{describe_origin(argument, agent=agent)}",
    }
    place = argument.place
    endorsed = argument.endorsement
    who = endorsed.by if endorsed else place.source.by if place and argument.origin == "person" else ""
    if who:
        told["text_to"] = {who: describe_origin(argument, agent=agent, viewer=who)}
    if endorsed:
        told |= {"endorsed_by": endorsed.by, "endorsement": endorsed.id}
    # What the operator configured stands in no message, and what the agent said itself is no source.
    if place is not None and place.source.envelope and place.source.by != agent:
        told["at"] = place.source.at
        told["envelope"] = place.source.envelope
        told["place"] = shorten(place.path, MAX_PATH_CHARS)
        told["excerpt"] = shorten(place.excerpt, MAX_EXCERPT_CHARS)
    return told
