"""Under which name clients see an offer, and who owns that name (D-91).

A name is shown verbatim while it is free. Once it is bound to an owner it stays that owner's for as long as
the table exists, also while the owner is away: a newcomer must not get calls that were meant for somebody
else, or approvals that a person gave to a name. The same name of a later owner is shown as `owner__name`.

Several clients stop at 64 characters, and MCP allows only `[A-Za-z0-9_.-]`. A name that does not fit, or is
taken even so, is cut and gets a suffix: `_` and hex digits of a hash over owner and name (as D-68), so it is
the same every time.
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
# 24 bits are enough for one space; the longer ones are for collisions.
_SUFFIX_HEX: Final = (6, 12, 24)


class OwnedName(NamedTuple):
    """The owner behind a shown name, and the owner's own name for it."""

    owner: str
    name: str


class NameTable:
    """One namespace: tools, or prompts. Binding in the same order gives the same names."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.reserved = frozenset(reserved)
        self._bindings: dict[str, OwnedName] = {}
        self._shown: dict[OwnedName, str] = {}
        self._of_owner: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """All bindings as (shown, owner, name), in the order in which they were made."""
        for shown, (owner, name) in self._bindings.items():
            yield shown, owner, name

    def bind(self, owner: str, name: str) -> str | None:
        """The name under which this is shown from now on; None when there are too many to keep."""
        owned = OwnedName(owner, name)
        known = self._shown.get(owned)
        if known is not None:
            return known
        if self._of_owner.get(owner, 0) >= MAX_OF_OWNER or len(self._bindings) >= MAX_NAMES:
            return None
        for shown in _candidates(owned):
            if shown not in self._bindings and shown not in self.reserved:
                self._keep(shown, owned)
                return shown
        return None

    def restore(self, shown: str, owner: str, name: str) -> bool:
        """Restore a binding of an earlier run; False if it could not have been made here."""
        owned = OwnedName(owner, name)
        taken = shown in self._bindings or owned in self._shown or shown in self.reserved
        if taken or shown not in _candidates(owned) or len(self._bindings) >= MAX_NAMES:
            return False
        self._keep(shown, owned)
        return True

    def binding_of(self, shown: str) -> OwnedName | None:
        """What this name is bound to, whether or not its owner is present."""
        return self._bindings.get(shown)

    def _keep(self, shown: str, owned: OwnedName) -> None:
        self._bindings[shown] = owned
        self._shown[owned] = shown
        self._of_owner[owned.owner] = self._of_owner.get(owned.owner, 0) + 1


def _candidates(owned: OwnedName) -> list[str]:
    """The names under which an offer may be shown, best first."""
    names = []
    if _PLAIN.fullmatch(owned.name):
        names.append(owned.name)
    clean = _FOREIGN.sub("_", f"{owned.owner}{SEPARATOR}{owned.name}")
    if _PLAIN.fullmatch(f"{owned.owner}{SEPARATOR}{owned.name}"):
        names.append(clean)
    digest = sha256(f"{owned.owner}\0{owned.name}".encode("utf-8", "surrogatepass")).hexdigest()
    names += [f"{clean[: MAX_CHARS - 1 - length]}_{digest[:length]}" for length in _SUFFIX_HEX]
    return names
