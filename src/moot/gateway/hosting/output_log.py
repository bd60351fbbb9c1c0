"""Members that are files (`output_log`): all that they hear is appended, one JSON line each.

Such a member joins when its space opens. It is welcomed, listed, told of errors and removed like any other:
everybody sees that somebody records, and the file holds what this participant may hear and nothing else.
The reference implementation lets one without `auto_connect: true` join when it first posts over HTTP. Here it
has been recording by then, so its file gets another welcome, with the members and streams of that moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from moot.errors import Refused
from moot.gateway.hosting.delivery import SessionOutbox
from moot.gateway.hosting.input_applier import NewSession
from moot.gateway.hosting.space_host import SpaceHost
from moot.net.outbox import Outbox
from moot.net.websocket_frame import split_frames
from moot.space.members.member import Options

log = logging.getLogger(__name__)


class OutputLog:
    """One file that grows by everything that its member hears."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path)
        self._is_broken = False

    def join(self, host: SpaceHost, name: str, *, welcome_at_first_post: bool) -> None:
        """Be in the space from now on; a participant that may not join now is reported and stays away."""
        session = host.order.new_session()
        if welcome_at_first_post:
            host.welcome_at_first_post[name] = session
        outbox = Outbox("mew", lambda _: None)
        outbox.attach(self)

        def close(_code: int, reason: str) -> None:
            log.info("output_log ended", extra={"space": host.name, "participant": name, "reason": reason})
            asyncio.get_running_loop().call_soon(host.leave, session)

        def attach() -> None:
            host.delivery.attach(session, SessionOutbox(outbox, "mew", name, close))

        def reject(refusal: Refused) -> None:
            log.warning(
                "output_log not joined",
                extra={"space": host.name, "participant": name, "why": refusal.message},
            )

        host.order.join(NewSession(session, name, "mew", Options()), attach, reject)

    def write(self, data: bytes) -> None:
        """Append what a connection would have been sent; frames of streams are left out.

        A file that was moved away, as logrotate does it, goes on under its own name. One that cannot be
        written never holds up a space.
        """
        lines = b"".join(_lines(data))
        try:
            if lines:
                if not self._is_in_place():
                    fresh = _open(self._path)
                    os.close(self._file)
                    self._file = fresh
                os.write(self._file, lines)
            self._is_broken = False
        except OSError as fault:
            if not self._is_broken:
                log.warning(
                    "output_log cannot be written", extra={"path": str(self._path), "why": fault.strerror}
                )
            self._is_broken = True

    def _is_in_place(self) -> bool:
        """Whether the name of the file is still that of the file that is open."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        os.close(self._file)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lines(data: bytes) -> Iterator[bytes]:
    for message in split_frames(data):
        if message.startswith(b"{"):
            yield message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
