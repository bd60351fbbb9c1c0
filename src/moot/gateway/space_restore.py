"""Bringing a space back to where it was: its latest snapshot, and the records after it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final, NamedTuple

from moot.errors import Refused, UsageError
from moot.gateway.journaled_space import HostOptions
from moot.gateway.space_records import replay
from moot.space.config import SpaceConfig
from moot.space.config_json import load_config
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal
from moot.store.journal_reader import read_records

log = logging.getLogger(__name__)

# Some ten milliseconds of replay.
_REPLAY_SLICE: Final = 500


class RestoredSpace(NamedTuple):
    """A space as it was; `is_new`: nothing of it was found."""

    space: Space
    replayed: int
    is_new: bool


async def restore_space(
    options: HostOptions, config: SpaceConfig, journal: Journal, database: Database
) -> RestoredSpace:
    """The space as its snapshot and journal say; under `config` if there is no snapshot."""
    ends_at = journal.next_number - 1 if journal.is_written else None
    saved = await database.load_snapshot(options.name, at_most=ends_at)
    position = 0
    space = Space(config)
    if saved is not None:
        position = saved.position
        state = json.loads(saved.state)  # integers of any size
        # Under the rules of then: what they accepted, a kick above all, must come out the same.
        space = Space(load_config(state.pop("config")), saved=state)
    replayed = 0
    for record in read_records(options.folder, after=position):
        try:
            replay(space, record.line, config)
        except (Refused, UsageError) as fault:
            # Cannot happen under the same rules; a damaged record must not keep the gateway down.
            log.warning(
                "not replayed", extra={"space": options.name, "record": record.number, "why": str(fault)}
            )
        replayed += 1
        if not replayed % _REPLAY_SLICE:
            # Nobody is let in yet; probes are answered meanwhile.
            await asyncio.sleep(0)
    return RestoredSpace(space, replayed, is_new=saved is None and not replayed)
