"""The control socket: one question a connection, from the same user, and one adapter a data folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moot.errors import UsageError
from moot.xprotocol.adapter.operations.control_socket import (
    MAX_CONNECTIONS,
    AdapterNotRunning,
    ControlRequestFailed,
    control_socket,
    send_control_request,
)


async def echo(params: dict[str, Any]) -> dict[str, Any]:
    return {"said": params}


async def refuse(_params: dict[str, Any]) -> dict[str, Any]:
    raise UsageError("not today")


async def break_down(_params: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError("of a secret")


HANDLERS = {"echo": echo, "refuse": refuse, "break": break_down}


async def test_a_question_is_answered_refused_or_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "run" / "control.sock"
    async with control_socket(path, HANDLERS):
        assert await send_control_request(path, "echo", {"a": [1, "ü"]}) == {"said": {"a": [1, "ü"]}}
        with pytest.raises(ControlRequestFailed, match="not today"):
            await send_control_request(path, "refuse")
        with pytest.raises(ControlRequestFailed, match="unknown request; known: break, echo, refuse"):
            await send_control_request(path, "dance")
        with pytest.raises(ControlRequestFailed, match="internal error") as error:
            await send_control_request(path, "break")
        assert "secret" not in str(error.value)


async def test_only_its_owner_may_open_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "run" / "control.sock"
    async with control_socket(path, HANDLERS):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_nobody_at_home_is_not_running(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with pytest.raises(AdapterNotRunning, match="No such file"):
        await send_control_request(path, "echo")
    async with control_socket(path, HANDLERS):
        pass
    assert not path.exists()
    with pytest.raises(AdapterNotRunning):
        await send_control_request(path, "echo")


async def test_two_adapters_never_share_a_data_folder_and_a_crash_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from moot.xprotocol.adapter.operations.control_socket import control_socket\n"
        "async def main():\n    async with control_socket(Path(sys.argv[1]), {}):\n"
        "        print('up', flush=True)\n        await asyncio.Event().wait()\nasyncio.run(main())\n"
    )
    other = subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(UsageError, match="is running already"):
            async with control_socket(path, HANDLERS):
                pass
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    assert path.exists()
    async with control_socket(path, HANDLERS):
        assert await send_control_request(path, "echo") == {"said": {}}


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"nonsense\n",
        b'["ask"]\n',
        b'{"ask": 1}\n',
        b'{"ask": "echo", "params": 3}\n',
        b"[" * 5000 + b"\n",
    ],
)
async def test_what_is_no_question_is_told_how_to_ask(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "control.sock"
    async with control_socket(path, HANDLERS):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)
        answer = json.loads(await reader.readline())
        assert answer == {"ok": False, "error": 'send one line: {"ask": "status"}'}
        writer.close()
        await writer.wait_closed()


async def test_no_more_than_so_many_ask_at_once(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with control_socket(path, HANDLERS):
        idle = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
        # The server takes connections in their order, so this one comes after all the idle ones.
        with pytest.raises(ControlRequestFailed, match=f"too many connections: {MAX_CONNECTIONS}"):
            await send_control_request(path, "echo")
        for _, writer in idle:
            writer.close()
