"""The local copy of what the log of a cluster keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from moot.config.gateway_config import JournalConfig
from moot.gateway.cluster.cluster_space_factory import LogDurability
from moot.gateway.hosting.durability import PendingEffects
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.store.open_journal import open_journal
from tests.store.journals import folder_in, value_record
from tests.waiting import bounded, until


class Carrier:
    """Counts what is carried out."""

    def __init__(self) -> None:
        self.times = 0

    def carry_out(self, effects: list[Any], now: float) -> list[Any]:
        self.times += 1
        return []


async def test_plain_messages_wait_for_no_fsync_and_a_change_of_rights_brings_them_along(
    tmp_path: Path,
) -> None:
    journal = open_journal(folder_in(tmp_path), JournalConfig(log=False), sync_seconds=3600.0)
    carrier = Carrier()
    durability = LogDurability(cast("JournaledSpace", SimpleNamespace(journal=journal, delivery=carrier)))
    async with bounded():
        for number in range(3):
            durability.carry_out(PendingEffects(journal.append(value_record(number)), [], 0.0))
        assert (carrier.times, journal.durable) == (3, 0)
        durability.carry_out(PendingEffects(journal.append(value_record("kick")), [], 0.0, waits=True))
        # It is carried out at once all the same: NATS has it.
        assert carrier.times == 4
        await until(lambda: journal.durable == 4)
        await journal.close()
