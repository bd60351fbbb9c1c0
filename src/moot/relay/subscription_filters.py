"""Which events a subscription wants, and which subscriptions want an event; pure.

Everything that a filter names must hold, of several values any one may, and of several filters one is
enough. A filter without `recipients` only ever matches public events: who writes to whom is nobody else's
business, so events with a recipient go to whoever has proven that key and asks for it by name.

The index finds candidates by the recipient of a directed event, or the kind of a public one, so that an event
costs what its own readers cost and not what all subscriptions do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from moot.store.event_query import EventQuery
from moot.xprotocol.canonical import LARGEST_INTEGER
from moot.xprotocol.events import MAX_CORRELATION_CHARS, MAX_KIND_CHARS, PUBLIC_KINDS, Event

S = TypeVar("S")

_HEX_64 = re.compile("[0-9a-f]{64}", re.ASCII)
_KEY = re.compile("ed25519:[A-Za-z0-9_-]{43}", re.ASCII)
# One filter is one statement of SQL; its values all together.
_MOST_VALUES_IN_ALL: Final = 600


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One filter of a REQ, as it is on the wire. `limit` takes the newest of what is stored."""

    ids: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    senders: tuple[str, ...] | None = None
    recipients: tuple[str, ...] | None = None
    correlation_ids: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None

    def fault(self, most_values: int) -> str | None:
        """What is wrong with it, if anything."""
        lists = {
            "ids": self.ids,
            "kinds": self.kinds,
            "senders": self.senders,
            "recipients": self.recipients,
            "correlation_ids": self.correlation_ids,
        }
        for name, values in lists.items():
            if values is not None and not 0 < len(values) <= most_values:
                return f"{name}: 1 to {most_values} values (limits.filter_values), or leave it out"
        if sum(len(values) for values in lists.values() if values) > _MOST_VALUES_IN_ALL:
            return f"more than {_MOST_VALUES_IN_ALL} values in one filter: use several"
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
        """Whether an event that comes now is wanted; `limit` is about stored ones."""
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

    def query(self, now: float) -> EventQuery:
        """The same question to the store."""
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
    """Subscriptions by what they could want. A subscription is any hashable thing with a `wants(event)`."""

    def __init__(self) -> None:
        self._by_recipient: dict[str, dict[S, None]] = {}
        self._by_kind: dict[str, dict[S, None]] = {}

    def add(self, subscription: S, filters: Iterable[EventFilter]) -> None:
        for table, key in _places(filters):
            self._table(table).setdefault(key, {})[subscription] = None

    def remove(self, subscription: S, filters: Iterable[EventFilter]) -> None:
        for name, key in _places(filters):
            table = self._table(name)
            found = table.get(key)
            if found is not None:
                found.pop(subscription, None)
                if not found:
                    del table[key]

    def candidates(self, event: Event) -> Iterable[S]:
        """Each once; whether one really wants the event is for its filters to say."""
        if event.recipient is not None:
            return self._by_recipient.get(event.recipient, ())
        return self._by_kind.get(event.kind, ())

    def _table(self, name: str) -> dict[str, dict[S, None]]:
        return self._by_recipient if name == "recipient" else self._by_kind


def _places(filters: Iterable[EventFilter]) -> set[tuple[str, str]]:
    places: set[tuple[str, str]] = set()
    for one in filters:
        if one.recipients is not None:
            places.update(("recipient", key) for key in one.recipients)
        else:
            # Other kinds are never public, and a stranger's words must not fill the table.
            places.update(("kind", kind) for kind in PUBLIC_KINDS.intersection(one.kinds or PUBLIC_KINDS))
    return places
