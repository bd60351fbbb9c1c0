"""Under which name clients see an offer, and who owns that name (D-91).

A name is shown verbatim while it is free. Once it is bound to an owner it stays that owner's for as long as
the table exists, also while the owner is away: a newcomer must not get calls that were meant for somebody
else, or approvals that a person gave to a name. The same name of a later owner is shown as `owner__name`.

Several clients stop at 64 characters, and MCP allows only `[A-Za-z0-9_.-]`. A name that does not fit, or is
taken even so, is cut and gets a suffix: `_` and hex digits of a hash over owner and name (as D-68), so it is
the same every time.

A URI is shown verbatim while it is free and stays its owner's, as names do. The same URI of a later member is
shown as `moot://member/URI`: the original follows the slash unchanged, so that templates can be shown the
same way and a client can fill them in. A URI that is in no list is matched against the templates; if none
matches, it belongs to the only member with resources, if there is just one, and otherwise to nobody: then a
client can still use its long form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import re2

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


SCHEME: Final = "moot://"
# Bindings that are kept; those of absent members go first.
MAX_URIS: Final = 50_000
# A template is a line of text; longer ones are not matched.
MAX_TEMPLATE_CHARS: Final = 2_048

_EXPRESSION = re.compile(r"\{[^{}]*\}")


class ResourceLocation(NamedTuple):
    """Where a resource is: its member, and the member's own URI."""

    owner: str
    uri: str


def long_form(owner: str, uri: str) -> str:
    """The form that names the member: always accepted, shown when the short one is another member's."""
    return f"{SCHEME}{quote(owner, safe='')}/{uri}"


def from_long_form(shown: str) -> ResourceLocation | None:
    if not shown.startswith(SCHEME):
        return None
    owner, slash, uri = shown.removeprefix(SCHEME).partition("/")
    return ResourceLocation(unquote(owner), uri) if owner and slash and uri else None


class UriTable:
    """Resources and templates of all members, by what clients see."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    def bind(self, owner: str, uri: str) -> str:
        """The URI (or template) under which this is shown."""
        holder = self._owners.get(uri)
        if holder is None and not uri.startswith(SCHEME):
            if len(self._owners) < MAX_URIS:
                self._owners[uri] = owner
                return uri
        elif holder == owner:
            return uri
        return long_form(owner, uri)

    def shown(self, owner: str, uri: str) -> str:
        """How this member's URI is shown, without binding it."""
        holder = self._owners.get(uri)
        return (
            uri
            if holder == owner or (holder is None and not uri.startswith(SCHEME))
            else long_form(owner, uri)
        )

    def forget_absent(self, present: Iterable[str]) -> None:
        """When the table is full, drop what belongs to absent members."""
        if len(self._owners) >= MAX_URIS:
            here = frozenset(present)
            self._owners = {uri: owner for uri, owner in self._owners.items() if owner in here}

    def locate(
        self, shown: str, templates: Iterable[ResourceLocation], holders: Iterable[str]
    ) -> ResourceLocation | None:
        """Where a URI is. `templates` are those of present members, `holders` all members with resources."""
        long = from_long_form(shown)
        if long is not None:
            return long
        owner = self._owners.get(shown)
        if owner is not None:
            return ResourceLocation(owner, shown)
        matching = [location for location in templates if matches_template(location.uri, shown)]
        if matching:
            # The one with the longest literal part; among equals the first.
            best = max(matching, key=lambda location: len(_EXPRESSION.sub("", location.uri)))
            return ResourceLocation(best.owner, shown)
        holding = list(holders)
        return ResourceLocation(holding[0], shown) if len(holding) == 1 else None


def matches_template(template: str, uri: str) -> bool:
    """Whether filling in the template can give this URI (RFC 6570, read generously)."""
    pattern = _compiled(template)
    return pattern is not None and pattern.fullmatch(uri) is not None


@lru_cache(maxsize=4_096)
def _compiled(template: str) -> Any:
    if len(template) > MAX_TEMPLATE_CHARS:
        return None
    parts = _EXPRESSION.split(template)
    # re2: templates come from members, and several gaps in a row make other engines slow.
    return re2.compile("(?s)" + ".*".join(re2.escape(part) for part in parts))
