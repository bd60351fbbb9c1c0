"""Under which name a thing is shown, and whose name that is (D-91).

A name is shown verbatim while it is free. Once it is bound to an owner it stays that owner's for as long as
these names live, also while the owner is away: a newcomer must not get calls that were meant for somebody
else, or approvals that a person gave to a name. What comes later is shown as `owner__name`.

Several clients stop at 64 characters, and MCP knows only `[A-Za-z0-9_.-]`. What does not fit, or is taken
even so, is cut and gets a suffix: `_` and hex digits of a hash over owner and name (as D-68), so it is the
same every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

MAX_CHARS: Final = 64
SEPARATOR: Final = "__"
# Names of one owner: a server with hundreds of tools is large, thousands are an attack on the list.
MAX_OF_OWNER: Final = 2_000
MAX_NAMES: Final = 50_000

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
# 24 bits tell apart what one space holds; longer ones are for the day when they do not.
_SUFFIX_HEX: Final = (6, 12, 24)


class NameOwner(NamedTuple):
    """What a shown name stands for."""

    owner: str
    name: str


class NameTable:
    """One namespace: tools, or prompts. Binding in the same order gives the same names."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.reserved = frozenset(reserved)
        self._meant: dict[str, NameOwner] = {}
        self._shown: dict[NameOwner, str] = {}
        self._of_owner: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._meant)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """All bindings as (shown, owner, name), in the order in which they were made."""
        for shown, (owner, name) in self._meant.items():
            yield shown, owner, name

    def bind(self, owner: str, name: str) -> str | None:
        """The name under which this is shown from now on; None when there are too many to keep."""
        what = NameOwner(owner, name)
        known = self._shown.get(what)
        if known is not None:
            return known
        if self._of_owner.get(owner, 0) >= MAX_OF_OWNER or len(self._meant) >= MAX_NAMES:
            return None
        for shown in _candidates(what):
            if shown not in self._meant and shown not in self.reserved:
                self._keep(shown, what)
                return shown
        return None

    def restore(self, shown: str, owner: str, name: str) -> bool:
        """Take over a binding of an earlier life; False if it is not one that could have been made here."""
        what = NameOwner(owner, name)
        taken = shown in self._meant or what in self._shown or shown in self.reserved
        if taken or shown not in _candidates(what) or len(self._meant) >= MAX_NAMES:
            return False
        self._keep(shown, what)
        return True

    def meant(self, shown: str) -> NameOwner | None:
        """What is called so, whether or not its owner is here."""
        return self._meant.get(shown)

    def shown(self, owner: str, name: str) -> str | None:
        return self._shown.get(NameOwner(owner, name))

    def _keep(self, shown: str, what: NameOwner) -> None:
        self._meant[shown] = what
        self._shown[what] = shown
        self._of_owner[what.owner] = self._of_owner.get(what.owner, 0) + 1


def _candidates(what: NameOwner) -> list[str]:
    """The names that a thing may be shown under, best first."""
    names = []
    if _PLAIN.fullmatch(what.name):
        names.append(what.name)
    clean = _FOREIGN.sub("_", f"{what.owner}{SEPARATOR}{what.name}")
    if _PLAIN.fullmatch(f"{what.owner}{SEPARATOR}{what.name}"):
        names.append(clean)
    digest = sha256(f"{what.owner}\0{what.name}".encode("utf-8", "surrogatepass")).hexdigest()
    names += [f"{clean[: MAX_CHARS - 1 - length]}_{digest[:length]}" for length in _SUFFIX_HEX]
    return names
