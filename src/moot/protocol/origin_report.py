"""What `moot/origins` says of a proposal: for each argument where its value came from, in words for people.

Whoever finds it out (the approver) sends it once and everybody shows the same words. It comes from another
member, so it is bounded here, and what does not fit is no report.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal

import msgspec

from moot.protocol.operation import Json

ORIGINS_KIND: Final = "moot/origins"
ENDORSE_KIND: Final = "moot/endorse"
# Behind it stands the task for which somebody elsewhere calls by A2A: the context of their proposals.
A2A_CONTEXT: Final = "a2a/"
# Some 64 times what the longest sentence about one argument needs.
MAX_REPORT_BYTES: Final = 256 * 1024
MAX_ARGUMENTS: Final = 64
# An endorsement counts no longer, whatever it says.
ENDORSE_SECONDS: Final = 12 * 3600.0

Origin = Literal["person", "operator", "trusted", "untrusted", "nobody", "unknown"]
# Those that a person can endorse.
UNCONFIRMED: Final[frozenset[Origin]] = frozenset({"untrusted", "nobody", "unknown"})
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_Word = Annotated[str, msgspec.Meta(max_length=256)]


class ArgumentReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument. `text` is for everybody, `text_to` for who said or endorsed it; neither names a time."""

    path: _Text
    origin: Origin
    text: _Text
    value: _Text = ""
    steers: bool = False
    text_to: Annotated[dict[_Word, _Text], msgspec.Meta(max_length=MAX_ARGUMENTS)] = {}
    # When it was said, in which message, where in it, and the words around it.
    at: Annotated[float, msgspec.Meta(ge=0, le=1e11)] | None = None
    envelope: _Word = ""
    place: _Text = ""
    excerpt: _Text = ""
    # Who confirmed it, and the message by which they did.
    endorsed_by: _Word = ""
    endorsement: _Word = ""

    def text_for(self, viewers: Collection[str]) -> str:
        """As this member reads it, by any of its names."""
        return next((text for name, text in self.text_to.items() if name in viewers), self.text)


class PrivateReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text of a private source that would leave the space by this call."""

    text: _Text
    characters: Annotated[int, msgspec.Meta(ge=0)] = 0
    envelope: _Word = ""


class AgainOffer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What it means to have this very call approved again: how often, how long, and both in words."""

    until: _Word
    text: _Text = ""
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None


class OriginReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`why` names the one value that matters; it is empty where nothing asks."""

    asks: bool
    why: _Text = ""
    arguments: Annotated[tuple[ArgumentReport, ...], msgspec.Meta(max_length=MAX_ARGUMENTS)] = ()
    private: Annotated[tuple[PrivateReport, ...], msgspec.Meta(max_length=MAX_ARGUMENTS)] = ()
    # What a person asked for, by which this was proposed.
    task: _Word = ""
    # Whether the agent also reads what the space does not see.
    outside: bool = False
    # How many arguments are not listed.
    more: Annotated[int, msgspec.Meta(ge=0)] = 0
    # None if nobody could remember it.
    again: AgainOffer | None = None

    def as_json(self) -> dict[str, Json]:
        """As it was sent."""
        found: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self))
        return found


def read_report(payload: Json) -> OriginReport:
    """Raises ValueError, with what is wrong."""
    try:
        return msgspec.convert(payload, OriginReport)
    except msgspec.ValidationError as fault:
        raise ValueError(str(fault)) from None
