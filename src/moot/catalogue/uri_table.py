"""Which member a resource's URI leads to, and under which URI it is shown.

A URI is shown verbatim while it is free and stays its owner's, as names do. The same URI of a later member is
shown as `moot://member/URI`: the original follows the slash unchanged, so that templates can be shown the
same way and a client can fill them in. Whatever is not in a list is looked for among the templates; if none
fits, it belongs to the only member that has resources, if there is only one, and otherwise to nobody: then it
can still be asked for in its long form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import re2

SCHEME: Final = "moot://"
# Bindings that are kept; the oldest of members that are away go first.
MAX_URIS: Final = 50_000
# A template is a line of text; longer ones are not matched.
MAX_TEMPLATE_CHARS: Final = 2_048

_EXPRESSION = re.compile(r"\{[^{}]*\}")


class ResourceLocation(NamedTuple):
    """Where a resource is: its member, and what that member calls it."""

    owner: str
    uri: str


def long_form(owner: str, uri: str) -> str:
    """The form that names the member: always understood, shown when the short one is somebody else's."""
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
        """Make room when it is needed: what belongs to members that are away is given up."""
        if len(self._owners) >= MAX_URIS:
            here = frozenset(present)
            self._owners = {uri: owner for uri, owner in self._owners.items() if owner in here}

    def place(
        self, shown: str, templates: Iterable[ResourceLocation], holders: Iterable[str]
    ) -> ResourceLocation | None:
        """Where a URI leads. `templates` are those of members that are here, `holders` all with resources."""
        long = from_long_form(shown)
        if long is not None:
            return long
        owner = self._owners.get(shown)
        if owner is not None:
            return ResourceLocation(owner, shown)
        fitting = [place for place in templates if fits(place.uri, shown)]
        if fitting:
            # The one that says most of it literally; among equals the first.
            best = max(fitting, key=lambda place: len(_EXPRESSION.sub("", place.uri)))
            return ResourceLocation(best.owner, shown)
        holding = list(holders)
        return ResourceLocation(holding[0], shown) if len(holding) == 1 else None


def fits(template: str, uri: str) -> bool:
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
