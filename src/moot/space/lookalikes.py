"""Names that people take for others: `Alice`, `aIice` and `a1ice` beside `alice`.

Ids have ASCII letters, digits and `._:-` alone, so that the letters of other alphabets are no concern here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

# By lower case: what looks alike in common fonts, and what is easily passed over.
_ALIKE: Final = str.maketrans("01i", "oll", "._:-")


@lru_cache(maxsize=1 << 15)
def _skeleton(name: str) -> str:
    """The same for all names that look alike."""
    return name.lower().translate(_ALIKE).replace("rn", "m").replace("vv", "w")


def find_lookalike(name: str, others: Iterable[str]) -> str | None:
    """One of the others that people take this name for, if there is one."""
    wanted = _skeleton(name)
    return next((other for other in others if _skeleton(other) == wanted), None)
