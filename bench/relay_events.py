"""Relay events per CPU second, beside the verification that each of them cannot do without.

`python -m bench.relay_events` starts `moot xp relay` on one core and a load on another: a sender that keeps a
window of events unconfirmed, and the recipient, subscribed. CPU is what the kernel says of the relay's
process, all threads: sockets, JSON, checks, disk and delivery. In turns with it, on the same core, the bare
signature check of the same events is measured; the share is the median over the rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from nacl.bindings import crypto_sign_open

from bench.processes import LOAD_CORE, SERVER_CORE, Process, on_core, started
from moot.net.websocket_client import ClientSocket, dial
from moot.protocol import base64url
from moot.xprotocol.events.event_composer import compose
from moot.xprotocol.events.events import SIGNED_LABEL, SignedDirected, canonical_header
from moot.xprotocol.events.relay_auth import prove
from moot.xprotocol.identity.keys import Identity

ROUNDS: Final = 7
EVENTS: Final = 2_000
# By how many are unconfirmed at a time, in bulk and by a caller who waits: the share of what verification
# alone allows.
LEAST_SHARES: Final = {256: 0.8, 1: 0.4}
SMALL_BYTES: Final = 500
KIND: Final = "com.acme.filesystem.write_file"
_PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Round:
    """CPU for one event, in microseconds."""

    relayed: float
    verified: float


class _Ear:
    """Counts what a relay says, and sends the next when one is confirmed."""

    def __init__(self) -> None:
        self.line: ClientSocket | None = None
        self.left: list[bytes] = []
        self.confirmed = self.heard = 0
        self.wanted = 0
        self.challenge: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ready = asyncio.Event()
        self.done = asyncio.Event()

    def opened(self, line: ClientSocket) -> None:
        self.line = line

    def received(self, data: bytes, _binary: bool) -> None:
        assert self.line is not None
        if data.startswith(b'["EVENT"'):
            self.heard += 1
            if self.heard == self.wanted:
                self.done.set()
        elif data.startswith(b'["OK","auth"'):
            assert b"true" in data, data
            self.ready.set()
        elif data.startswith(b'["OK"'):
            assert b",true," in data, data
            self.confirmed += 1
            if self.left:
                self.line.send(self.left.pop())
            if self.confirmed == self.wanted:
                self.done.set()
        elif data.startswith(b'["AUTH"'):
            self.challenge.set_result(data[9:-2].decode())
        elif data.startswith(b'["EOSE"'):
            self.ready.set()
        else:
            raise AssertionError(data)

    def closed(self, code: int, reason: str) -> None:
        if not self.done.is_set():
            print("closed", code, reason, file=sys.stderr)


def _events(alice: Identity, bob: Identity, now: float) -> list[SignedDirected]:
    payload = {"path": "docs/readme.md", "text": ("lorem ipsum dolor " * SMALL_BYTES)[: SMALL_BYTES - 40]}
    return [
        compose(
            alice,
            KIND,
            payload,
            recipient=bob.key.text,
            enc_key=bob.enc_key.text,
            now=now,
            correlation_id=f"c-{number}",
        )
        for number in range(EVENTS)
    ]


def _verify_cost(events: list[SignedDirected], alice: Identity) -> float:
    """On the relay's core; microseconds of CPU for each signature check."""
    pairs = [
        (base64url.decode(each.event.signature[8:]), SIGNED_LABEL + canonical_header(each.covered))
        for each in events
    ]
    key = alice.key.raw
    with on_core(SERVER_CORE):
        start = time.process_time_ns()
        for signature, message in pairs:
            crypto_sign_open(signature + message, key)
        return (time.process_time_ns() - start) / len(pairs) / 1_000


async def _carried(
    relay: Process, url: str, events: list[SignedDirected], bob: Identity, window: int
) -> float:
    """Have a relay carry these events to their recipient; microseconds of its CPU for each."""
    sender, reader = _Ear(), _Ear()
    sending, reading = await dial(url, sender, headers={}), await dial(url, reader, headers={})
    proof = prove(bob, url, await reader.challenge, now=time.time())
    reading.send(b'["AUTH",' + proof + b"]")
    await reader.ready.wait()
    reader.ready.clear()
    reading.send(b'["REQ","b",{"recipients":["%b"],"limit":0}]' % bob.key.text.encode())
    await reader.ready.wait()
    sender.wanted = reader.wanted = len(events)
    frames = [b'["EVENT",' + each.raw + b"]" for each in events]
    first, sender.left = frames[:window], frames[window:]
    before = relay.cpu_seconds
    for frame in first:
        sending.send(frame)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await sender.done.wait()
        await reader.done.wait()
    taken = relay.cpu_seconds - before
    for line in (sending, reading):
        line.close(1000, "")
        await line.wait_closed(2.0)
    return taken / len(events) * 1e6


async def rounds(window: int, count: int = ROUNDS) -> list[Round]:
    """Both costs, in turns, so that a busy moment hits both."""
    with tempfile.TemporaryDirectory(prefix="moot-bench-relay-") as name:
        folder = Path(name)
        command = [str(Path(sys.executable).parent / "moot"), "xp", "relay", "--port", "0", "--data", name]
        command += ["--no-rate-limits"]
        async with started(command, SERVER_CORE, folder / "relay.log") as relay:
            url = (await relay.line_with(r"listening on (ws://\S+)"))[1]
            alice, bob = Identity.generate(), Identity.generate()
            await _carried(relay, url, _events(alice, bob, time.time())[:200], bob, window)
            found = []
            for _ in range(count):
                events = _events(alice, bob, time.time())
                verified = _verify_cost(events, alice)
                relayed = await _carried(relay, url, events, bob, window)
                found.append(Round(relayed, (verified + _verify_cost(events, alice)) / 2))
            return found


def main() -> None:
    for window, least in LEAST_SHARES.items():
        with on_core(LOAD_CORE):
            found = uvloop.run(rounds(window))
        _print(found, window, least)


def _print(found: list[Round], window: int, least: float) -> None:
    share = statistics.median(each.verified / each.relayed for each in found)
    relayed = statistics.median(each.relayed for each in found)
    verified = statistics.median(each.verified for each in found)
    print("one event at a time" if window == 1 else f"{window} events at once")
    print(f"{'verify alone':44}{verified:8.1f} µs CPU{1e6 / verified:10,.0f} per CPU second")
    words = "relayed: verified, stored, OK, delivered"
    print(f"{words:44}{relayed:8.1f} µs CPU{1e6 / relayed:10,.0f} per CPU second")
    verdict = "met" if share >= least else "MISSED"
    print(f"share of what verification allows: {share:.0%}, at least {least:.0%}: {verdict}")


if __name__ == "__main__":
    main()
