"""The real box, and the ways out of it: `escapes.py` tries them all, in one box and outside."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.config.box_config import BoxConfig
from moot.resilience.child_process import start_child
from tests.waiting import bounded

pytestmark = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")
_ESCAPES = Path(__file__).with_name("escapes.py")
_SECRET = "only-outside-7391"
_MEMORY = 512 << 20
_PROCESSES = 24


@pytest.fixture
def outside(tmp_path: Path) -> Any:
    """What there is to be reached outside: files, a process, services."""
    shared, readable = tmp_path / "shared", tmp_path / "readable"
    for folder in (shared / ".moot", shared / ".git" / "hooks", readable):
        folder.mkdir(parents=True)
    (tmp_path / "secret.txt").write_text(_SECRET)
    (shared / ".moot" / "token").write_text(_SECRET)
    (shared / "way-out").symlink_to(tmp_path / "secret.txt")
    for file in (shared / "a.txt", shared / "moot.yaml", readable / "a.txt"):
        file.write_text("text")
    libc = ctypes.CDLL(None)
    with ExitStack() as open_sockets:
        service, by_file, abstract = (
            open_sockets.enter_context(socket.socket(family))
            for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        )
        # Path names of sockets are short.
        short = os.path.relpath(tmp_path / "s")
        service.bind(("0.0.0.0", 0))  # noqa: S104
        by_file.bind(short)
        name = f"moot-{os.getpid()}"
        abstract.bind(f"\0{name}")
        for each in (service, by_file, abstract):
            each.listen()
        used = (Path(sys.prefix), Path(sys.base_prefix), _ESCAPES, tmp_path)
        on_the_way = {
            each.relative_to(Path.home()).parts[0] for each in used if each.is_relative_to(Path.home())
        }
        key = 0x6D00_0000 + os.getpid()
        segment = libc.shmget(key, 4096, 0o1600)
        open_sockets.callback(libc.shmctl, segment, 0, None)
        yield {
            "secret": _SECRET,
            "variable": os.environ["ESCAPE_TEST"],
            "secret_file": str(tmp_path / "secret.txt"),
            "shared": str(shared),
            "readable": str(readable),
            "home": str(Path.home()),
            "home_entries": sorted(set(os.listdir(Path.home())) - on_the_way),
            "temporary": next(iter(os.listdir("/tmp"))),  # noqa: S108
            "pid": os.getpid(),
            "command": Path("/proc/self/cmdline").read_text("utf-8", "replace"),
            "port": service.getsockname()[1],
            "socket": str(tmp_path / "s"),
            "abstract": name,
            "shm_key": key,
            "memory": _MEMORY,
            "processes": _PROCESSES,
        }


async def _outcome(start: Any, outside: Any, folder: Path, environment: dict[str, str]) -> dict[str, str]:
    output, faults = bytearray(), bytearray()
    argv = [sys.executable, "-I", "-S", str(_ESCAPES), json.dumps(outside)]
    child = await start(
        argv, environment=environment, cwd=folder, on_stdout=output.extend, on_stderr=faults.extend
    )
    try:
        async with bounded():
            await asyncio.wait([child.ended])
    finally:
        child.kill()
    assert output, faults.decode()
    found: dict[str, str] = json.loads(output)
    return found


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCAPE_TEST", "only-in-the-parent-5512")


async def test_no_way_out_of_the_box_is_open(
    outside: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    listed = BoxConfig(write=(".",), read=("../readable",), memory_bytes=_MEMORY, max_processes=_PROCESSES)
    box = Box(config=listed, folder=shared, hidden=(shared / ".moot",), home=tmp_path / "home")
    with caplog.at_level(logging.WARNING):
        found = await _outcome(box.start, outside, shared, {"PATH": "/usr/bin:/bin"})
    open_ways = {name: outcome for name, outcome in found.items() if outcome.startswith("escaped")}
    if "not limited here" in caplog.text:
        open_ways.pop("more processes")
    assert len(found) >= 80
    assert open_ways == {}
    # Nor was anything changed that was not meant to be.
    assert (shared / "moot.yaml").read_text() == (tmp_path / "readable" / "a.txt").read_text() == "text"
    assert (shared / ".moot" / "token").read_text() == _SECRET


async def test_the_same_ways_are_open_without_a_box(outside: Any, tmp_path: Path) -> None:
    """So the list can fail: what is harmless to try is tried outside, and succeeds."""
    outside["only_harmless"] = True
    with open(tmp_path / "secret.txt") as inherited:

        async def start(*arguments: Any, **options: Any) -> Any:
            return await start_child(*arguments, **options, pass_fds=(inherited.fileno(),))

        environment = {"PATH": "/usr/bin:/bin", "ESCAPE_TEST": outside["variable"]}
        found = await _outcome(start, outside, tmp_path, environment)
    assert len(found) >= 25
    assert {name: outcome for name, outcome in found.items() if not outcome.startswith("escaped")} == {}
