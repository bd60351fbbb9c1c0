"""What there is outside of a box to be reached, and a run of `escapes.py` against it."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from moot.config.box_config import BoxConfig
from tests.waiting import bounded

ESCAPES = Path(__file__).with_name("escapes.py")
SECRET = "only-outside-7391"
# What the tries look for in the environments of others.
VARIABLE = "only-in-the-parent-5512"
BOUNDS = BoxConfig(memory_bytes=512 << 20, max_processes=24, max_file_bytes=3 << 30)


@contextmanager
def outside_world(folder: Path) -> Iterator[dict[str, Any]]:
    """Files, a process, services: what tries are given to look for."""
    shared, readable = folder / "shared", folder / "readable"
    for made in (shared / ".moot", shared / ".git" / "hooks", readable):
        made.mkdir(parents=True)
    (folder / "secret.txt").write_text(SECRET)
    (shared / ".moot" / "token").write_text(SECRET)
    (shared / "way-out").symlink_to(folder / "secret.txt")
    (shared / ".vscode").mkdir()
    own = (
        shared / "moot.yaml",
        shared / ".git" / "config",
        shared / ".bashrc",
        shared / ".vscode" / "tasks.json",
    )
    for file in (shared / "a.txt", readable / "a.txt", *own):
        file.write_text("text")
    libc = ctypes.CDLL(None)
    with ExitStack() as open_sockets:
        service, by_file, abstract = (
            open_sockets.enter_context(socket.socket(family))
            for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        )
        # Path names of sockets are short.
        short = os.path.relpath(folder / "s")
        service.bind(("0.0.0.0", 0))  # noqa: S104
        by_file.bind(short)
        name = f"moot-{os.getpid()}"
        abstract.bind(f"\0{name}")
        for each in (service, by_file, abstract):
            each.listen()
        used = (Path(sys.prefix), Path(sys.base_prefix), ESCAPES, folder)
        on_the_way = {
            each.relative_to(Path.home()).parts[0] for each in used if each.is_relative_to(Path.home())
        }
        key = 0x6D00_0000 + os.getpid()
        segment = libc.shmget(key, 4096, 0o1600)
        open_sockets.callback(libc.shmctl, segment, 0, None)
        yield {
            "secret": SECRET,
            "variable": VARIABLE,
            "secret_file": str(folder / "secret.txt"),
            "shared": str(shared),
            "readable": str(readable),
            "home": str(Path.home()),
            "home_entries": sorted(set(os.listdir(Path.home())) - on_the_way),
            "temporary": next(iter(os.listdir("/tmp"))),  # noqa: S108
            "pid": os.getpid(),
            "command": Path("/proc/self/cmdline").read_text("utf-8", "replace"),
            "port": service.getsockname()[1],
            "socket": str(folder / "s"),
            "abstract": name,
            "shm_key": key,
            "memory": BOUNDS.memory_bytes,
            "processes": BOUNDS.max_processes,
            "max_file_bytes": BOUNDS.max_file_bytes,
        }


async def outcome_of(start: Any, outside: Any, folder: Path, environment: dict[str, str]) -> dict[str, str]:
    output, faults = bytearray(), bytearray()
    argv = [sys.executable, "-I", "-S", str(ESCAPES), json.dumps(outside)]
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
