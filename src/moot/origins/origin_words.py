"""Where a value came from, as a sentence for people: the same in every face."""

from __future__ import annotations

from moot.origins.origin_call import ArgumentOrigin, PrivateText
from moot.origins.source_place import SourcePlace

_QUOTED_CHARS = 40


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
