"""The control socket under attack: other users, floods and garbage, and a running adapter behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from moot.errors import MootError, UsageError
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from tests.waiting import until_told
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, notes_server, running_adapter

# A user who is nobody here.
NOBODY = 65_534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, so it has to run as root")

ASKS = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as one:
    one.connect(sys.argv[1])
    try:
        one.sendall(b'{"ask": "status"}\\n')
    except BrokenPipeError:
        pass
    print(one.makefile().readline())
"""
SERVES = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as one:
    one.bind(sys.argv[1])
    one.listen()
    print("up", flush=True)
    other, _ = one.accept()
    other.recv(1000)
    other.sendall(b'{"ok": true, "answer": {"key": "ed25519:mine"}}\\n')
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into, unlike pytest's."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@ROOT_ONLY
async def test_another_user_is_refused_even_where_the_modes_let_him_in(open_folder: Path) -> None:
    async with running_adapter(open_folder, notes_server(open_folder)) as adapter:
        control = adapter.adapter.settings.control
        for each in (control.parent, control.parent.parent):
            each.chmod(0o755)
        control.chmod(0o666)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASKS, str(control), stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert b'"ok": false' in output
        assert b"only the user who runs the adapter" in output
        assert adapter.adapter.key.encode() not in output


@ROOT_ONLY
async def test_whoever_asks_does_not_believe_another_user_s_socket(open_folder: Path) -> None:
    """Somebody puts a socket where ours would be: its answers are not our adapter's."""
    open_folder.chmod(0o777)
    path = open_folder / "control.sock"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVES, str(path), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        with pytest.raises(MootError, match="another user"):
            await send_control_request(path, "status")
    finally:
        process.kill()
        await process.wait()


@ROOT_ONLY
async def test_no_adapter_puts_its_socket_into_a_folder_that_another_user_owns(open_folder: Path) -> None:
    """The folder for long names is under /tmp, where anybody may have made it before us."""
    taken = open_folder / "taken"
    taken.mkdir()
    os.chown(taken, NOBODY, NOBODY)
    long_name = {"control": str(taken / "control.sock")}
    with pytest.raises(UsageError, match="another user"):
        async with running_adapter(open_folder, notes_server(open_folder), **long_name):
            pass


async def test_a_flood_of_garbage_stops_neither_calls_nor_the_next_honest_question(tmp_path: Path) -> None:
    random = Random(3)
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        control = adapter.adapter.settings.control
        garbage = [
            b"",
            b"\n",
            b"\x00" * 10_000 + b"\n",
            b"[" * 100_000 + b"\n",
            b'{"ask": ["status"]}\n',
            b'{"ask": "status", "params": null}\n',
            b'{"ask": "__class__"}\n',
            b'{"ask": "attach", "params": {}}\n',
            b'{"ask": "' + b"x" * (5 << 20) + b'"}\n',
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            random.randbytes(5_000) + b"\n",
        ]

        async def one(data: bytes) -> None:
            # A full backlog, or a connection that is cut in the middle, is an answer, too.
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(control)
                with contextlib.closing(writer):
                    writer.write(data)
                    writer.write_eof()
                    answer = await reader.read()
                    assert b'"ok": true' not in answer

        flood = asyncio.gather(*(one(each) for each in garbage * 10))
        for _ in range(5):
            answer = await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
            assert answer.code is None
        await flood
        assert (await send_control_request(control, "status"))["key"] == adapter.adapter.key


async def test_those_who_connect_and_say_nothing_are_let_go(tmp_path: Path) -> None:
    """Two hundred silent connections: whoever comes next is told so, and the calls go on."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        control = adapter.adapter.settings.control
        silent = []
        for _ in range(200):
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(one, str(control))
            except BlockingIOError:
                await asyncio.sleep(0.01)
            silent.append(one)
        assert (await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})).code is None
        with pytest.raises(MootError):
            await send_control_request(control, "status")
        for one in silent:
            one.close()

        async def key_told() -> str:
            with contextlib.suppress(MootError):
                return str((await send_control_request(control, "status"))["key"])
            return ""

        assert await until_told(key_told) == adapter.adapter.key
