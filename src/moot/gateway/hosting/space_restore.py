"""Bringing a space back to where it was: its latest snapshot, and the records after it.

A space comes back as it was or not at all: where a file is lost or damaged, the gateway refuses to start
(D-98).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable
from typing import Final, NamedTuple, TypeVar

from moot.errors import Refused, UsageError
from moot.gateway.hosting.journaled_space import HostOptions
from moot.gateway.hosting.rights_reduction import reduce_rights
from moot.gateway.hosting.space_records import SavedState, load_state, recorded_time, replay
from moot.gateway.hosting.stored_input import read_input
from moot.space.config import SpaceConfig
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal
from moot.store.journal_reader import JournalRecord, read_records
from moot.store.journal_segments import chain_start, repair_hint
from moot.store.open_journal import open_journal_in_thread
from moot.store.position_marker import MARKER_FILE, PositionMarker, join_markers, read_marker

log = logging.getLogger(__name__)

T = TypeVar("T")

# Some ten milliseconds of replay.
_REPLAY_SLICE: Final = 500


class RestoredSpace(NamedTuple):
    """A space as it was, and its journal; `is_new`: nothing of it was found."""

    space: Space
    journal: Journal
    generation: int  # of the snapshot that it came from
    journaled: bool  # whether all of it is in the journal
    replayed: int
    is_new: bool
    # The latest time that was recorded: the space's time continues from there at the earliest.
    latest: float


async def restore_space(options: HostOptions, config: SpaceConfig, database: Database) -> RestoredSpace:
    """The space as its snapshot and journal say; under `config` if there is no snapshot.

    Raises UsageError when what snapshots, journal and marker know does not fit together.
    """
    folder = options.folder
    noted = await _read_database(options, database.load_marker(options.name))
    marker = join_markers(read_marker(folder.parent), noted)
    covered = await _read_database(options, database.newest_position(options.name))
    known = max(covered, marker.record if marker is not None else 0)
    if (folder.parent / "journal.new").exists():
        raise UsageError(f"a repair of {folder} was interrupted. {repair_hint(folder)}")
    journal = await open_journal_in_thread(folder, options.journal, at_least=known)
    try:
        return await _replay_journal(options, config, database, journal, marker, covered)
    except BaseException:
        await journal.close()
        raise


async def _replay_journal(
    options: HostOptions,
    config: SpaceConfig,
    database: Database,
    journal: Journal,
    marker: PositionMarker | None,
    covered: int,
) -> RestoredSpace:
    snapshot = await _read_database(options, database.load_snapshot(options.name))
    saved = SavedState(Space(config)) if snapshot is None else load_state(snapshot.state)
    position = 0 if snapshot is None else snapshot.position
    check_base(options, position, saved, marker)
    space, replayed, latest = saved.space, 0, saved.time
    for record in read_records(options.folder, after=position):
        replay_record(options, space, record, config, covered)
        latest = max(latest, recorded_time(record.line))
        replayed += 1
        if not replayed % _REPLAY_SLICE:
            # Nobody is let in yet; probes are answered meanwhile.
            await asyncio.sleep(0)
    generation = max(saved.generation, marker.snapshot if marker is not None else 0)
    is_new = snapshot is None and not replayed
    return RestoredSpace(space, journal, generation, saved.journaled, replayed, is_new, latest)


async def _read_database(options: HostOptions, reading: Awaitable[T]) -> T:
    try:
        return await reading
    except sqlite3.Error as fault:
        path = options.folder.parent.parent.parent / "moot.sqlite"
        raise UsageError(f"{path} is damaged: {fault}. {repair_hint(options.folder)}") from None


def check_base(options: HostOptions, position: int, saved: SavedState, marker: PositionMarker | None) -> None:
    """Whether the journal goes on where this snapshot ends, and no newer one was all that knew something."""
    folder = options.folder
    begin, snapshots = chain_start(folder).number, folder.parent.parent.parent / "moot.sqlite"
    if begin - 1 > position:
        raise UsageError(
            f"the journal of {options.name} in {folder} begins with record {begin}, and no snapshot that "
            f"is whole "
            f"covers the records before it: the newest in {snapshots} ends with record {position}. "
            f"{repair_hint(folder)}"
        )
    if marker is not None and not marker.journaled and saved.generation < marker.snapshot:
        raise UsageError(
            f"the newest snapshot of {options.name} in {snapshots} is number {saved.generation}, but number "
            f"{marker.snapshot} had been stored, as {folder.parent / MARKER_FILE} tells, and the journal "
            f"was off. "
            f"{repair_hint(folder)}"
        )


def replay_record(
    options: HostOptions, space: Space, record: JournalRecord, config: SpaceConfig, covered: int
) -> None:
    """Replay one record. Of one that cannot be replayed, what it took away is applied; what it gave is not.

    Raises UsageError when it cannot be known what a record took away.
    """
    stored = read_input(record.line)
    if stored.input == "reload" and stored.config is None and record.number <= covered:
        # Of version 0.1: a later snapshot kept the configuration, and that one is damaged.
        raise UsageError(
            f"record {record.number} of the journal of {options.name} loaded a configuration that only a "
            f"damaged snapshot knew. {repair_hint(options.folder)}"
        )
    try:
        replay(space, record.line, config)
    except (Refused, UsageError) as fault:
        reduce_rights(space, stored)
        log.warning("not replayed", extra={"space": options.name, "record": record.number, "why": str(fault)})
