"""Where a value came from, as a sentence for people: the same in every face."""

from __future__ import annotations

from moot.origins.argument_origins import ArgumentOrigin, PrivateText
from moot.origins.source_index import SourcePlace


def describe_origin(argument: ArgumentOrigin, *, now: float, agent: str, viewer: str = "") -> str:
    """One sentence without a full stop. `viewer` is who reads it: what they said is said by you."""
    place = argument.place
    match argument.origin:
        case "person" if argument.endorsed_by and place is not None:
            who = "you" if argument.endorsed_by == viewer else argument.endorsed_by
            return f"{_from(place)}, which {who} endorsed"
        case "person" if argument.endorsed_by:
            return f"{'you' if argument.endorsed_by == viewer else argument.endorsed_by} endorsed this"
        case "person" if place is not None:
            who = "you" if place.source.by == viewer else place.source.by
            return f"{who} said this {_ago(now - place.source.at)}"
        case "operator":
            return "the operator configured this"
        case "trusted" if place is not None:
            return f"{_from(place)}, a trusted look-up"
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


def _from(place: SourcePlace) -> str:
    if place.source.tool:
        return f"from {place.source.tool} of {place.source.by}"
    return f"from a message of {place.source.by}"


def _quoted(value: str) -> str:
    short = " ".join(value.split())
    return f"“{short if len(short) <= 40 else short[:39] + '…'}”"


def _ago(seconds: float) -> str:
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h ago"
    days = int(seconds // 86_400)
    return f"{days} day{'s' if days > 1 else ''} ago"
