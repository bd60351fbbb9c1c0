"""Filters of subscriptions, and an index from events to subscriptions; pure.

All members of a filter must match, of several values any one, and of several filters one is enough. A filter
without `recipients` only matches public events: events with a recipient are delivered only to a client that
has authenticated with that key and names it in its filter.

The index finds candidates by the recipient of a directed event, or the kind of a public one, so that the cost
of an event does not grow with the number of all subscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from moot.xprotocol.event_store.event_query import EventQuery
from moot.xprotocol.events.events import (
    LARGEST_INTEGER,
    MAX_CORRELATION_CHARS,
    MAX_KIND_CHARS,
    PUBLIC_KINDS,
    Event,
)

S = TypeVar("S")

_HEX_64 = re.compile("[0-9a-f]{64}", re.ASCII)
_KEY = re.compile("ed25519:[A-Za-z0-9_-]{43}", re.ASCII)
# All values of one filter together, since it becomes one SQL statement.
_MAX_VALUES: Final = 600


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One filter of a REQ. `limit` selects the newest stored events."""

    ids: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    senders: tuple[str, ...] | None = None
    recipients: tuple[str, ...] | None = None
    correlation_ids: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None

    def find_problem(self, max_values: int) -> str | None:
        """What is wrong with it; None: nothing."""
        lists = {
            "ids": self.ids,
            "kinds": self.kinds,
            "senders": self.senders,
            "recipients": self.recipients,
            "correlation_ids": self.correlation_ids,
        }
        for name, values in lists.items():
            if values is not None and not 0 < len(values) <= max_values:
                return f"{name}: 1 to {max_values} values, or leave it out"
        if sum(len(values) for values in lists.values() if values) > _MAX_VALUES:
            return f"more than {_MAX_VALUES} values in one filter: use several"
        if not all(_HEX_64.fullmatch(id) for id in self.ids or ()):
            return "ids: 64 hexadecimal digits in lower case"
        if not all(_KEY.fullmatch(key) for key in (*(self.senders or ()), *(self.recipients or ()))):
            return "senders, recipients: ed25519: and 43 characters of base64url"
        if not all(0 < len(kind) <= MAX_KIND_CHARS for kind in self.kinds or ()):
            return f"kinds: 1 to {MAX_KIND_CHARS} characters"
        if not all(0 < len(id) <= MAX_CORRELATION_CHARS for id in self.correlation_ids or ()):
            return f"correlation_ids: 1 to {MAX_CORRELATION_CHARS} characters"
        for number in (self.since, self.until, self.limit):
            if number is not None and not 0 <= number <= LARGEST_INTEGER:
                return "since, until: whole seconds since 1970; limit: a number, not below 0"
        return None

    def matches(self, event: Event) -> bool:
        """Whether a new event matches; `limit` is only for stored ones."""
        if self.recipients is None:
            if event.recipient is not None:
                return False
        elif event.recipient not in self.recipients:
            return False
        return (
            (self.kinds is None or event.kind in self.kinds)
            and (self.senders is None or event.sender in self.senders)
            and (self.ids is None or event.id in self.ids)
            and (self.correlation_ids is None or event.correlation_id in self.correlation_ids)
            and (self.since is None or event.timestamp >= self.since)
            and (self.until is None or event.timestamp <= self.until)
        )

    def to_query(self, now: float) -> EventQuery:
        """The filter as a query to the store."""
        return EventQuery(
            ids=self.ids or (),
            kinds=self.kinds or (),
            senders=self.senders or (),
            recipients=self.recipients or (),
            correlation_ids=self.correlation_ids or (),
            since=self.since,
            until=self.until,
            limit=self.limit,
            public_only=self.recipients is None,
            alive_at=int(now),
        )


class FilterIndex(Generic[S]):
    """Subscriptions by recipient and kind. A subscription is any hashable object."""

    def __init__(self) -> None:
        self._by_recipient: dict[str, dict[S, None]] = {}
        self._by_kind: dict[str, dict[S, None]] = {}

    def add(self, subscription: S, filters: Iterable[EventFilter]) -> None:
        for table, key in _index_keys(filters):
            self._table(table).setdefault(key, {})[subscription] = None

    def remove(self, subscription: S, filters: Iterable[EventFilter]) -> None:
        for name, key in _index_keys(filters):
            table = self._table(name)
            found = table.get(key)
            if found is not None:
                found.pop(subscription, None)
                if not found:
                    del table[key]

    def candidates(self, event: Event) -> Iterable[S]:
        """Possible subscriptions, each once; their filters decide."""
        if event.recipient is not None:
            return self._by_recipient.get(event.recipient, ())
        return self._by_kind.get(event.kind, ())

    def _table(self, name: str) -> dict[str, dict[S, None]]:
        return self._by_recipient if name == "recipient" else self._by_kind


def _index_keys(filters: Iterable[EventFilter]) -> set[tuple[str, str]]:
    keys: set[tuple[str, str]] = set()
    for one in filters:
        if one.recipients is not None:
            keys.update(("recipient", key) for key in one.recipients)
        else:
            # Other kinds are never public, and untrusted input must not fill the table.
            keys.update(("kind", kind) for kind in PUBLIC_KINDS.intersection(one.kinds or PUBLIC_KINDS))
    return keys
