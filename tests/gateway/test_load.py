"""Rates, memory and the price of validation, on a real gateway in its own process (m3p's figures, D-51).

Of CPU, as the machine is shared; `make bench` measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from tests.gateway.raw import TEXT, RawClient, frame, raw_client
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import served

PEOPLE = participants(alice=["*"], idle=["chat"])
LIMITS: Json = {"messages_per_second": 0, "bytes_per_second": 0, "max_sessions_per_member": 2_000}
SOCKETS = 1_000
BATCH = 500


def settings(**rules: Json) -> Json:
    spaces = {"lab": space_settings(PEOPLE, limits=LIMITS, **rules)}
    return gateway_settings(spaces, max_connections_per_address=0, joins_per_second=0)


def batches(count: int, tag: str) -> Iterator[bytes]:
    """Requests in m3p's spelling, whose kind is checked against the payload; masked and framed beforehand."""
    body = '{"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"}}}'
    for start in range(0, count, BATCH):
        yield b"".join(
            frame(
                TEXT,
                f'{{"protocol":"mcpx/v0.1","id":"{tag}-{number}","ts":"2026-01-01T00:00:00Z","from":"alice",'
                f'"kind":"mcp.request.tools/call:read_file","payload":{body}}}'.encode(),
                mask=bytes(4),
            )
            for number in range(start, start + BATCH)
        )


async def run_through(client: RawClient, count: int, tag: str) -> None:
    """Send so many and wait until the last one was handled."""
    for batch in batches(count, tag):
        client.send(batch)
        await client.writer.drain()
    client.send(frame(TEXT, b'{"id":"%b-end","kind":"system.fence"}' % tag.encode()))
    while one := await client.frame():
        if b"system.error" in one.payload:
            assert f"{tag}-end".encode() in one.payload, one.payload
            break


@pytest.mark.requirement("M3P-48", "M3P-51")
async def test_memory_stays_flat_through_100_000_validated_messages(tmp_path: Path) -> None:
    """And a second of CPU takes far more than 1,000 of them; journal and polling window are on."""
    async with served(write_config(tmp_path, settings())) as gateway, raw_client(gateway.port) as client:
        await client.upgraded("/ws?topic=lab&dialect=m3p&echo=0", token="t-alice")

        async def run_so_many(count: int, tag: str) -> None:
            for number in range(count // 10_000):
                await run_through(client, 10_000, f"{tag}{number}")
                # Answered when it and all before it are on disk: a slow one keeps no more in memory.
                assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200

        # Past the first snapshot, which takes its memory once.
        await run_so_many(40_000, "warm")
        before, start = gateway.resident_bytes(), gateway.cpu_seconds()
        await run_so_many(100_000, "m")
        # Kept whole, they would be 33 MB.
        assert gateway.resident_bytes() - before < 24 << 20
        assert 100_000 / (gateway.cpu_seconds() - start) > 1_000


@pytest.mark.requirement("M3P-50", "M3P-52", "M3P-59", "M3P-60")
async def test_validation_costs_microseconds_and_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lazy beside minimal: CPU a message, and bytes a connection with 1,000 idle sockets."""
    per_message: dict[str, float] = {}
    per_socket: dict[str, float] = {}
    for mode in ("lazy", "minimal"):
        folder = tmp_path / mode
        folder.mkdir()
        async with served(write_config(folder, settings(kind_validation=mode))) as gateway:
            async with raw_client(gateway.port) as client:
                await client.upgraded("/ws?topic=lab&dialect=m3p&echo=0", token="t-alice")
                await run_through(client, 2_000, "warm")
                start = gateway.cpu_seconds()
                await run_through(client, 10_000, "timed")
                per_message[mode] = (gateway.cpu_seconds() - start) / 10_000
            async with AsyncExitStack() as stack:
                before = gateway.resident_bytes()
                where = "/ws?topic=lab&dialect=m3p&routing=directed"
                for _ in range(SOCKETS):
                    # Asks at once: who connects and is silent for seconds is dropped.
                    idle = await stack.enter_async_context(raw_client(gateway.port))
                    await idle.upgraded(where, token="t-idle")
                per_socket[mode] = (gateway.resident_bytes() - before) / SOCKETS
    with capsys.disabled():
        shown = ", ".join(
            f"{mode} {per_message[mode] * 1e6:.0f} µs {size / 1024:.1f} KiB"
            for mode, size in per_socket.items()
        )
        print(f"\nm3p: CPU a message and memory a socket: {shown}")
    assert per_message["minimal"] - per_message["lazy"] < 50e-6
    assert max(per_socket.values()) <= 32 << 10
    assert abs(per_socket["minimal"] - per_socket["lazy"]) < 8 << 10
