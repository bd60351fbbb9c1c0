"""What goes wrong in the rounds of `cluster_soak`, one function each."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import websockets

from moot.protocol.operation import Json
from tests.gateway.cluster.cluster_rounds import NAMES, REVOCABLE, ClusterRounds
from tests.gateway.running_gateway import Client, Closed
from tests.waiting import until

HOUR = 3_600
# Room for a NATS server where a disk is to be full.
STORE_MEBIBYTES = 192

Fault = Callable[[ClusterRounds], Awaitable[None]]


async def kill_gateway(rounds: ClusterRounds) -> None:
    name = rounds.random.choice(NAMES)
    rounds.roaming.note_kill(rounds.urls[name])
    await rounds.gateways[name].end(signal.SIGKILL)
    await rounds.start(name)
    await rounds.roaming.forget_kill()


async def stop_gateway(rounds: ClusterRounds) -> None:
    """For a moment, or until the others have let its members go."""
    process = rounds.gateways[rounds.random.choice(NAMES)].process
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(rounds.random.choice((1.0, 14.0)))
    process.send_signal(signal.SIGCONT)


async def slow_gateway(rounds: ClusterRounds) -> None:
    """One does not read while the others take in large messages."""
    process = rounds.gateways[rounds.random.choice(NAMES)].process
    process.send_signal(signal.SIGSTOP)
    flood = asyncio.gather(
        *(rounds.talk(who, n, 20, "x" * 100_000) for n, who in enumerate(("bob", "carol")))
    )
    await asyncio.sleep(3)
    process.send_signal(signal.SIGCONT)
    await flood


async def kill_nats(rounds: ClusterRounds) -> None:
    index = rounds.random.randrange(len(NAMES))
    rounds.nats.kill(index)
    await asyncio.sleep(1)
    rounds.nats.start(index)


async def stop_nats(rounds: ClusterRounds) -> None:
    index = rounds.random.randrange(len(NAMES))
    rounds.nats.send(index, signal.SIGSTOP)
    await asyncio.sleep(3)
    rounds.nats.send(index, signal.SIGCONT)


async def set_clocks(rounds: ClusterRounds) -> None:
    """Those of NATS, which tell the time of the log, or that of one gateway."""
    seconds = rounds.random.choice((-1_000, -1, 1, 1_000)) * HOUR
    if rounds.random.random() < 0.5:
        rounds.shims[rounds.random.choice(NAMES)].set(clock_shift=seconds * 10**9)
    else:
        # Ahead of its time: all gateways have to read the same.
        with rounds.shifts.open("a", encoding="ascii") as file:
            file.write(f"{time.time() + 1:.6f} {seconds}\n")
    await asyncio.sleep(1.5)


async def partition(rounds: ClusterRounds) -> None:
    """Shorter than an election, longer than one, or so long that connections are closed."""
    assert rounds.machines is not None
    index = rounds.random.randrange(len(NAMES))
    rounds.machines.cut(index)
    await asyncio.sleep(rounds.random.choice((2.0, 9.0, 17.0)))
    rounds.machines.heal(index)


async def revoke_cut_off(rounds: ClusterRounds) -> None:
    """Somebody whose gateway is cut off talks on while the others remove them."""
    assert rounds.machines is not None
    index = rounds.random.randrange(len(NAMES))
    who = f"eve{len(rounds.revoked_at)}"
    assert len(rounds.revoked_at) < REVOCABLE
    eve, talking = await talker(rounds, NAMES[index], who)
    rounds.machines.cut(index)
    await asyncio.sleep(rounds.random.uniform(0, 0.8))
    kick: dict[str, Json] = {"id": f"kick-{who}", "kind": "space/kick", "payload": {"participant_id": who}}
    assert await rounds.post("alice", kick, index + 1) in ("", "duplicate_id")
    rounds.revoked_at[who] = time.monotonic()
    await asyncio.sleep(3)
    rounds.machines.heal(index)
    await eve.closed()
    await talking


async def talker(rounds: ClusterRounds, name: str, who: str) -> tuple[Client, asyncio.Task[None]]:
    """Somebody whom the others hear; a gateway that was cut off in the round before, or whose log elects a
    leader, takes nobody in for a moment, opens no stream, or closes the connection."""
    while True:
        with suppress(OSError, websockets.WebSocketException, Closed):
            client = await rounds.gateways[name].join(who)
            await client.say("stream/request", {"direction": "upload"})
            opened = await client.hear(lambda message: message["kind"] in ("stream/open", "system/error"))
            if opened["kind"] == "stream/open":
                talking = asyncio.create_task(_talk_on(client, who, opened["payload"]["stream_id"]))
                await until(lambda: talking.done() or any(frame.sender == who for frame in rounds.frames))  # noqa: B023  # it is waited for
                if not talking.done():
                    return client, talking
            await client.leave()
        await asyncio.sleep(0.1)


async def _talk_on(client: Client, who: str, stream: str) -> None:
    """Messages and frames, until the connection ends."""
    with suppress(websockets.WebSocketException):
        while True:
            for _ in range(4):
                await client.send(f"#{stream}#{who} {time.monotonic():.6f}")
                await asyncio.sleep(0.02)
            await client.say("chat", {"text": who})


async def fill_disk(rounds: ClusterRounds) -> None:
    """Of one NATS server or of all. Afterwards they have to be started anew, as our page says."""
    full = rounds.random.choice(([rounds.random.randrange(len(NAMES))], list(range(len(NAMES)))))
    fillers = [rounds.nats.store(index) / "filler" for index in full]
    for filler in fillers:
        _fill(filler)
    await asyncio.sleep(rounds.random.choice((2.0, 6.0)))
    for index, filler in zip(full, fillers, strict=True):
        filler.unlink()
        rounds.nats.kill(index)
        rounds.nats.start(index)


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as filling:
        while True:
            filling.write(bytes(1 << 16))
    with suppress(OSError), file.open("ab", buffering=0) as filling:
        while True:
            filling.write(b"x")


def mount_stores(folders: list[Path]) -> list[Path]:
    """Small disks in memory, one for each NATS server; returns those to unmount later."""
    mounted = []
    for folder in folders:
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={STORE_MEBIBYTES}m", "tmpfs", str(folder)]
        if subprocess.run(command, check=False, capture_output=True).returncode:  # noqa: S603
            break
        mounted.append(folder)
    return mounted


def unmount(folders: list[Path]) -> None:
    for folder in folders:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)  # noqa: S603, S607


# One cycle: ten of them are the full count of each, and what needs machines or disks of its own is marked.
ALONE: dict[str, tuple[Fault, int]] = {
    "gateway killed": (kill_gateway, 10),
    "NATS killed": (kill_nats, 3),
    "gateway paused": (stop_gateway, 2),
    "NATS paused": (stop_nats, 1),
    "clock set": (set_clocks, 2),
    "gateway slow": (slow_gateway, 1),
}
ON_MACHINES: dict[str, tuple[Fault, int]] = {
    "partition": (partition, 3),
    "revoked while cut off": (revoke_cut_off, 1),
}
ON_SMALL_DISKS: dict[str, tuple[Fault, int]] = {"NATS disk full": (fill_disk, 1)}
