"""The capability language: what a member may send (MEW 4.1, MCPx 4.1, D-10 to D-18).

`read_capability` reads one right in any notation, `Rights` answers for all of a member's, `covers`
and `overlaps` compare rights with each other. Pure: nothing here opens, logs or looks at a clock.
"""

from moot.protocol.patterns.capability import Capability, read_capabilities, read_capability
from moot.protocol.patterns.covers import covered_by, covers, overlaps
from moot.protocol.patterns.notation import Notation
from moot.protocol.patterns.pattern import Pattern
from moot.protocol.patterns.rights import Rights

__all__ = [
    "Capability",
    "Notation",
    "Pattern",
    "Rights",
    "covered_by",
    "covers",
    "overlaps",
    "read_capabilities",
    "read_capability",
]
