"""A relay whose disk is full, fails or forgets: an OK is a promise, and everything else is told (D-97)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from moot.xprotocol.event_store.event_tables import FILE_NAME
from tests.gateway.fault_shim import FaultShim
from tests.waiting import bounded
from tests.xprotocol.relay.crash import check, started
from tests.xprotocol.relay.raw_client import RawRelayClient, event

FAULTS = {
    "full": {"write_room": 5_000},
    "EIO at a write": {"write_room": 1_000, "write_fault": errno.EIO},
    "EIO at an fsync": {"sync_fault": errno.EIO, "sync_passes": 2},
}


async def test_what_a_failing_disk_does_not_take_is_told_and_what_was_confirmed_is_there(
    tmp_path: Path,
) -> None:
    """Fault after fault under one relay, which recovers each time; then it is killed."""
    shim = FaultShim(tmp_path)
    shim.aim(FILE_NAME)
    shim.set(forgets=1)
    child, url = await started(tmp_path / "data", environ=shim.environ)
    confirmed: dict[str, bytes] = {}
    try:
        async with bounded(), connect(url) as socket:
            client = RawRelayClient(socket, url)
            await client.hear()

            async def publish(raw: bytes, id: str) -> str:
                said = await client.publish(raw)
                assert said[:2] == ["OK", id]
                if said[2]:
                    confirmed[id] = raw
                return str(said[3])

            for fault in FAULTS.values():
                shim.set(**fault)
                for _ in range(200):
                    one = event()
                    if why := await publish(one.raw, one.event.id):
                        break
                else:
                    pytest.fail(f"{fault}: nobody was told")
                assert why == "error: the event could not be written; try again later"
                # Others are refused as well, and no connection is lost by it.
                two = event()
                assert "could not be written" in await publish(two.raw, two.event.id)
                shim.heal()
                for again in (one, two):
                    await publish(again.raw, again.event.id)
                    assert again.event.id in confirmed
    finally:
        child.kill()
        await child.wait()
    assert check(tmp_path / "data", confirmed) == len(confirmed)
