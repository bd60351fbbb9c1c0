"""What a tool does, as far as origins need it: whose words it returns, what it reads, and whom it reaches.

An operator says it in these words. MCP's annotations say some of it, and count once a person has accepted
them. Whatever nobody said is taken at its worst: others write what it returns, it reads private things, it
has an effect, and it reaches the outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from moot.protocol.operation import Json

# others: results contain what others write. trusted: a look-up that this organisation keeps itself.
Returns = Literal["others", "trusted"]
# destroys: what it does cannot be undone, so people decide whatever its values are.
Effect = Literal["reads", "writes", "destroys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTraits:
    """`returns` and `private` are about results, `effect` and `outside` about calls."""

    returns: Returns = "others"
    private: bool = True
    effect: Effect = "writes"
    outside: bool = True


UNKNOWN_TOOL: Final = ToolTraits()


def traits_of_annotations(annotations: Mapping[str, Json]) -> ToolTraits:
    """What MCP's hints say, with the defaults of MCP: destructive and open unless they say otherwise.

    No hint says that results can be trusted: only an operator or a person does.
    """
    if annotations.get("readOnlyHint") is True:
        return ToolTraits(effect="reads", outside=annotations.get("openWorldHint") is not False)
    destroys = annotations.get("destructiveHint") is not False
    return ToolTraits(
        effect="destroys" if destroys else "writes", outside=annotations.get("openWorldHint") is not False
    )
