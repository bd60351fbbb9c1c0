"""Which member a resource URI belongs to, and under which URI clients see it.

A URI is shown verbatim while it is free and stays its owner's, as names do. The same URI of a later member is
shown as `moot://member/URI`: the original follows the slash unchanged, so that templates can be shown the
same way and a client can fill them in. A URI that is in no list is matched against the templates; if none
matches, it belongs to the only member with resources, if there is just one, and otherwise to nobody: then a
client can still use its long form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import re2

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
