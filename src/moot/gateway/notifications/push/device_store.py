"""Where the devices of all people are kept: in a file of the data folder, readable by the gateway's user
alone; in a cluster in one value that its gateways have in common.

Without it nobody is told by Web Push until they turn it on again; nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from moot.errors import Unavailable
from moot.gateway.notifications.push.subscription import Subscription
from moot.gateway.notifications.sender import SharedValues
from moot.resilience.atomic_file import write_atomically
from moot.store.worker_thread import DaemonExecutor

log = logging.getLogger(__name__)

# What becomes of those that are kept; may be asked more than once.
Edit = Callable[[list[Subscription]], list[Subscription]]

_SHARED_KEY: Final = "push-devices"


class DeviceStore(Protocol):
    """Devices in the order in which they were added."""

    async def read(self) -> list[Subscription]:
        """Raises Unavailable."""

    async def change(self, edit: Edit, *, holds_unkept: bool = False) -> list[Subscription]:
        """Returns those that are kept now. Raises OSError, Unavailable, and what `edit` raises; with
        `holds_unkept` it holds all the same until the next start if it cannot be written to a file."""


class DeviceFile:
    """Of a gateway that is alone."""

    def __init__(self, file: Path, files: DaemonExecutor) -> None:
        self._file = file
        self._files = files
        self._known: list[Subscription] | None = None

    async def read(self) -> list[Subscription]:
        if self._known is None:
            read = asyncio.get_running_loop().run_in_executor(self._files, read_subscriptions, self._file)
            self._known = await read
        return self._known

    async def change(self, edit: Edit, *, holds_unkept: bool = False) -> list[Subscription]:
        known = await self.read()
        if (found := edit(known)) == known:
            return known
        if holds_unkept:
            self._known = found
        await asyncio.get_running_loop().run_in_executor(self._files, write_subscriptions, self._file, found)
        self._known = found
        return found


class SharedDevices:
    """Of all gateways of a cluster. What one had in a file before it was one of them is added."""

    def __init__(self, values: SharedValues, file: Path, files: DaemonExecutor) -> None:
        self._values = values
        self._file = file
        self._files = files
        self._is_moved = False

    async def read(self) -> list[Subscription]:
        await self._move()
        return _decode_shared(await self._values.read(_SHARED_KEY))

    async def change(self, edit: Edit, *, holds_unkept: bool = False) -> list[Subscription]:  # noqa: ARG002
        await self._move()
        return await self._change(edit)

    async def _change(self, edit: Edit) -> list[Subscription]:
        changed = await self._values.change(
            _SHARED_KEY, lambda found: msgspec.json.encode(edit(_decode_shared(found)))
        )
        return _decode_shared(changed)

    async def _move(self) -> None:
        if self._is_moved:
            return
        loop = asyncio.get_running_loop()
        own = await loop.run_in_executor(self._files, read_subscriptions, self._file)
        if own:

            def add(known: list[Subscription]) -> list[Subscription]:
                names = {each.name for each in known}
                return [*known, *(each for each in own if each.name not in names)]

            await self._change(add)
        try:
            # Or what is turned off from now on would come back.
            await loop.run_in_executor(self._files, lambda: self._file.unlink(missing_ok=True))
        except OSError as fault:
            raise Unavailable(f"{self._file} cannot be removed: {type(fault).__name__}") from None
        self._is_moved = True


def _decode_shared(found: bytes | None) -> list[Subscription]:
    try:
        return [] if found is None else _decode(found)
    except ValueError as fault:
        log.warning("the cluster's push subscriptions cannot be read", extra={"why": type(fault).__name__})
        return []


def read_subscriptions(file: Path) -> list[Subscription]:
    """Those that are kept; none, with a warning, if the file cannot be read."""
    try:
        return _decode(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as fault:
        log.warning(
            "push subscriptions cannot be read: people turn notifications on again",
            extra={"file": str(file), "why": type(fault).__name__},
        )
        return []


def _decode(content: bytes) -> list[Subscription]:
    """Raises ValueError."""
    found = msgspec.json.decode(content, type=list[Subscription])
    for each in found:
        _ = each.browser_keys
    return found


def write_subscriptions(file: Path, subscriptions: Iterable[Subscription]) -> None:
    """Replace the file; raises OSError."""
    write_atomically(file, msgspec.json.encode(list(subscriptions)))
