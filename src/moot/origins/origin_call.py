"""A call whose values are looked up, and what was found of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from moot.origins.endorsement import Endorsement
from moot.origins.source_place import SourcePlace
from moot.origins.tool_traits import ToolTraits
from moot.protocol.operation import Json

OriginClass = Literal["person", "operator", "trusted", "untrusted", "nobody", "unknown"]
# Behind these stand people, or what people vouch for.
SAID: Final = ("person", "operator", "trusted")


class OriginCall(NamedTuple):
    """A call as a proposal or request asks for it.

    `schema` is how its definition describes the arguments; None: not known.
    """

    agent: str
    tool: str
    arguments: Mapping[str, Json]
    traits: ToolTraits
    schema: Json = None


@dataclass(frozen=True, slots=True)
class ArgumentOrigin:
    """Where one leaf of the arguments came from. `value` is the value, or the part of it that decided."""

    path: str
    value: str
    origin: OriginClass
    place: SourcePlace | None = None
    # Whether it decides what the call does, and to whom.
    steers: bool = True
    # By what a person endorsed it, if it is a person's only by that.
    endorsement: Endorsement | None = None
    # Whether a person rejected a call with it before they said it.
    rejected: bool = False


@dataclass(slots=True)
class PrivateText:
    """Text of a private source that would leave the space with a call."""

    place: SourcePlace
    characters: int
