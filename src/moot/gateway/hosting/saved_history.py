"""The message history of a space beside its state: whoever goes on from a snapshot is polled as the gateway
before it would be, messages to one member included.

Only what somebody polls is kept, so that others pay nothing. What was not kept is not forgotten in silence:
`known_since` says from when on everything is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import orjson

from moot.gateway.hosting.delivery import HistoryEntry, MessageHistory, id_of
from moot.gateway.hosting.space_records import recorded_time
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json, Operation
from moot.protocol.patterns import Capability
from moot.protocol.payloads import GatewayNotice
from moot.space.members.member import load_capabilities, save_capability
from moot.store.journal_backwards import records_before
from moot.store.record_chain import is_erased

# 1 MiB of messages, of all spaces of a snapshot: 2 µs for each of the 2,500 inputs after which one is taken.
MAX_BYTES: Final = 1 << 20
# 25 hours: who comes by once a day finds what came since.
POLLED_SECONDS: Final = 90_000.0
# 4 MiB of the own journal, some tens of ms: what was erased behind that is not looked for.
MAX_CHECKED_BYTES: Final = 4 << 20

# Where a notice has a right: members and indexes that lead there.
_Place = list[str | int]


class _SavedNotice(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    id: str
    ts: str
    payload: dict[str, Json]
    to: list[str]
    correlation_id: list[str]
    # Each dialect shows them otherwise.
    capabilities: list[tuple[_Place, list[Json]]]


class _SavedEntry(msgspec.Struct, frozen=True, array_like=True):
    at: float
    size: int
    # An envelope as it was sent, byte for byte, or a notice.
    message: msgspec.Raw
    is_notice: bool
    members: frozenset[str] | None
    dialect: DialectName
    operation: Operation | None
    proposer: str | None
    hidden_from: str | None


class SavedHistory(msgspec.Struct, frozen=True):
    """What the history of one space is where a snapshot is taken."""

    known_since: float
    polled_at: float = 0.0
    hidden_before: dict[str, float] = {}
    entries: list[_SavedEntry] = []


def save_histories(histories: Mapping[str, MessageHistory], now: float) -> dict[str, SavedHistory]:
    """All of them, within `MAX_BYTES`: a small one whole, and of large ones an equal share, the newest."""
    ordered = sorted(histories.items(), key=lambda each: each[1].bytes)
    polled = [name for name, each in ordered if each.polled_at and now - each.polled_at < POLLED_SECONDS]
    left, saved = MAX_BYTES, {name: _save(each, 0) for name, each in ordered if name not in polled}
    for count, name in zip(range(len(polled), 0, -1), polled, strict=True):
        saved[name] = one = _save(histories[name], left // count)
        left -= sum(entry.size for entry in one.entries)
    return saved


def _save(history: MessageHistory, max_bytes: int) -> SavedHistory:
    """The newest entries that have room."""
    entries: list[_SavedEntry] = []
    kept, known_since = history.entries, history.known_since
    for entry in reversed(kept):
        max_bytes -= entry.size
        if max_bytes < 0:
            known_since = entry.at
            break
        entries.append(_save_entry(entry))
    hidden = {name: at for name, at in history.hidden_before.items() if at >= known_since}
    return SavedHistory(known_since, history.polled_at, hidden, entries[::-1])


def _save_entry(entry: HistoryEntry) -> _SavedEntry:
    message = entry.message
    is_notice = isinstance(message, GatewayNotice)
    raw = _save_notice(message) if isinstance(message, GatewayNotice) else message
    return _SavedEntry(
        entry.at,
        entry.size,
        msgspec.Raw(raw),
        is_notice,
        entry.members,
        entry.dialect,
        entry.operation,
        entry.proposer,
        entry.hidden_from,
    )


def _save_notice(notice: GatewayNotice) -> bytes:
    rights: list[tuple[_Place, list[Json]]] = []
    payload = _take_rights(notice.payload, [], rights)
    to, about = list(notice.to), list(notice.correlation_id)
    return msgspec.json.encode(_SavedNotice(notice.kind, notice.id, notice.ts, payload, to, about, rights))


def _take_rights(value: Json, place: _Place, found: list[tuple[_Place, list[Json]]]) -> Json:
    """The same value without its rights, and where they were."""
    if isinstance(value, Capability):
        found.append((place, save_capability(value)))
        return None
    if isinstance(value, Mapping):
        return {name: _take_rights(each, [*place, name], found) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_take_rights(each, [*place, index], found) for index, each in enumerate(value)]
    return value


def restore_history(history: MessageHistory, saved: SavedHistory, journal: Path, now: float) -> None:
    """Fill the history of a space that goes on from a snapshot of that time. Reads of its journal as much as
    is about these messages."""
    history.known_since, history.polled_at = saved.known_since, saved.polled_at
    # When members came stands in journals too, which the pages of the history go by.
    history.restored_until = now
    for name, at in saved.hidden_before.items():
        history.hide_before(name, at)
    entries = list(map(_load_entry, saved.entries))
    if entries:
        erased, checked_since = _erased_since(journal, entries[0].at, now)
        history.known_since = max(history.known_since, checked_since)
        entries = [
            each for each in entries if each.at > checked_since and not (erased and id_of(each) in erased)
        ]
    history.stored.extend(entries)
    history.trim(sum(each.size for each in entries))


def _erased_since(journal: Path, moment: float, now: float) -> tuple[set[str], float]:
    """Of messages from then on, the ids of those that were erased here, which a snapshot may still have; and
    up to when nobody has looked, for that would take too long."""
    found: set[str] = set()
    size, at = 0, now
    for record in records_before(journal):
        if is_erased(record.line):
            # Of a vote, the requests that were made by it.
            found |= {str(orjson.loads(each)["id"]) for each in record.made} or {record.text("id")}
        else:
            at = recorded_time(record.line) or at
        size += len(record.line)
        if at < moment:
            break
        if size > MAX_CHECKED_BYTES:
            return found, min(at, now)
    return found, 0.0


def _load_entry(saved: _SavedEntry) -> HistoryEntry:
    raw = bytes(saved.message)
    return HistoryEntry(
        saved.at,
        _load_notice(raw) if saved.is_notice else raw,
        saved.members,
        saved.size,
        saved.dialect,
        saved.operation,
        saved.proposer,
        saved.hidden_from,
    )


def _load_notice(raw: bytes) -> GatewayNotice:
    saved = msgspec.json.decode(raw, type=_SavedNotice)
    for place, right in saved.capabilities:
        within: Json = saved.payload
        for step in place[:-1]:
            within = within[step]
        within[place[-1]] = load_capabilities([right])[0]
    return GatewayNotice(saved.kind, saved.id, saved.ts, saved.payload, saved.to, saved.correlation_id)
