"""The control socket: how commands of the same user on this machine talk to a running adapter.

A Unix socket that only its owner may open. One request per connection: one line of JSON in, one line out.

    {"ask": "status"}                    → {"ok": true, "answer": {…}}
    {"ask": "reload"}                    → {"ok": false, "error": "…"}

Next to the socket is a lock file, locked while the adapter runs, so that two never share a data folder; it
also tells a running adapter from a socket that a crash left behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from moot.errors import FolderInUse, MootError, Unreachable, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_changes import ConfigChanges

log = logging.getLogger(__name__)

# A status with a thousand sources is some 300 KiB.
MAX_LINE_BYTES: Final = 4 << 20
# A client sends its request at once.
REQUEST_SECONDS: Final = 10.0
# At the same time.
MAX_CONNECTIONS: Final = 64
_SOCKET_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700

JsonObject = dict[str, Json]
Handler = Callable[[JsonObject], Awaitable[JsonObject]]


class AdapterNotRunning(MootError):
    """Nothing answers at a control socket."""


class ControlRequestFailed(MootError):
    """The adapter refused the request; the text is the adapter's."""


@asynccontextmanager
async def control_socket(path: Path, handlers: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Serve requests at `path` for the length of the block; raises FolderInUse when another adapter does.

    A handler may raise MootError, whose text is the answer.
    """
    server = _ControlServer(handlers)
    with _LockFile(path):
        path.unlink(missing_ok=True)
        bound = _bind(path)
        listening = await asyncio.start_unix_server(server.serve, sock=bound, limit=MAX_LINE_BYTES)
        try:
            yield
        finally:
            listening.close()
            await server.close()
            path.unlink(missing_ok=True)


async def send_control_request(
    path: Path, request: str, params: JsonObject | None = None, *, timeout_seconds: float = REQUEST_SECONDS
) -> JsonObject:
    """Send a request to the adapter at a socket; raises AdapterNotRunning and ControlRequestFailed."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await _open_request(path, request, params)
            try:
                return await _read_reply(reader)
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        raise ControlRequestFailed(
            f"the adapter at {path} did not answer within {timeout_seconds:g} s"
        ) from None


async def _open_request(
    path: Path, request: str, params: JsonObject | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a request was sent; raises AdapterNotRunning."""
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE_BYTES)
        if not _is_same_user(writer):
            # Before anything is sent to somebody else's socket.
            writer.close()
            raise AdapterNotRunning(
                f"the socket {path} belongs to another user: no adapter of yours answers there"
            )
        writer.write(_encode_line({"ask": request, "params": params or {}}))
        await writer.drain()
    except OSError as fault:
        raise AdapterNotRunning(
            f"no adapter answers at {path}: {fault.strerror or type(fault).__name__}"
        ) from None
    return reader, writer


async def _read_reply(reader: asyncio.StreamReader) -> JsonObject:
    """The reply to a request; raises ControlRequestFailed and AdapterNotRunning."""
    try:
        line = await reader.readline()
    except (ValueError, OSError) as fault:
        raise ControlRequestFailed(f"the answer cannot be read: {type(fault).__name__}") from None
    if not line:
        raise AdapterNotRunning("the adapter closed the connection without an answer: it may be stopping")
    message: Any = None
    with suppress(ValueError):
        message = json.loads(line)
    if not isinstance(message, dict):
        raise ControlRequestFailed("the program at this socket is not an adapter")
    if message.get("ok") is not True:
        raise ControlRequestFailed(str(message.get("error") or "the adapter gave no reason"))
    answer = message.get("answer")
    return answer if isinstance(answer, dict) else {}


class _ControlServer:
    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel the requests in progress."""
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio calls this in a task
        self._tasks.add(task)
        try:
            if len(self._tasks) > MAX_CONNECTIONS:
                writer.write(_encode_error(f"too many connections: {MAX_CONNECTIONS}"))
            elif not _is_same_user(writer):
                writer.write(_encode_error("only the user who runs the adapter may use its control socket"))
            else:
                await self._answer(reader, writer)
            await writer.drain()
        except (OSError, TimeoutError):
            # The client is gone, or sent nothing.
            pass
        except asyncio.CancelledError:
            # The adapter stops. asyncio would log a raised one as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                message: Any = json.loads(await reader.readline())
        except (ValueError, RecursionError):
            message = None
        request = message.get("ask") if isinstance(message, dict) else None
        params = message.get("params", {}) if isinstance(message, dict) else None
        if not isinstance(request, str) or not isinstance(params, dict):
            writer.write(_encode_error('send one line: {"ask": "status"}'))
            return
        handler = self._handlers.get(request)
        if handler is not None:
            try:
                writer.write(_encode_line({"ok": True, "answer": await handler(params)}))
            except MootError as fault:
                writer.write(_encode_error(str(fault)))
            except Exception:
                log.exception("a control request failed")
                writer.write(_encode_error("internal error; see the adapter's log"))
        else:
            known = ", ".join(sorted(self._handlers))
            writer.write(_encode_error(f"unknown request; known: {known}"))


class _LockFile:
    """Holds the lock file of a control socket; raises FolderInUse when another process does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> None:
        lock = self._path.with_name(self._path.name + ".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            self._handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise UsageError(f"{lock} cannot be made: {fault.strerror}") from None
        if not _is_safe_folder(lock.parent):
            os.close(self._handle)
            raise UsageError(
                f"the folder {lock.parent} belongs to another user, or anyone may write to it: another user "
                "could put a socket there. Name another path with control:"
            )
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise FolderInUse(
                f"an adapter with this data folder is running already ({self._path}); stop it, or give this "
                "one its own key_file or store"
            ) from None

    def __exit__(self, *_: object) -> None:
        # The file stays: without it, two processes could hold locks on two files of the same name.
        os.close(self._handle)


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        # With the mask there is no moment at which others could connect.
        bound.bind(os.fsencode(path))
        os.chmod(path, _SOCKET_MODE)
    except OSError as fault:
        bound.close()
        raise UsageError(f"the control socket {path}: {fault.strerror or fault}") from None
    finally:
        os.umask(before)
    return bound


def _is_same_user(writer: asyncio.StreamWriter) -> bool:
    connection = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        # Elsewhere the socket's mode has to suffice.
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = struct.unpack("3i", credentials)[1]
    return uid in (os.geteuid(), 0)


def _is_safe_folder(folder: Path) -> bool:
    """Whether other users cannot rename files in it. In /tmp, another user may have created the folder."""
    found = folder.stat()
    anybody_renames = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (os.geteuid(), 0) and not anybody_renames


def _encode_line(message: JsonObject) -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"


def _encode_error(message: str) -> bytes:
    return _encode_line({"ok": False, "error": message})


def control_handlers(
    *,
    is_up: Callable[[], bool],
    status: Callable[[], dict[str, Json]],
    reload: Callable[[], Awaitable[ConfigChanges | None]],
    accept: Callable[[str, list[str] | None], list[str]],
) -> dict[str, Handler]:
    """Handlers by name. Each may raise MootError, whose text is the answer; until `is_up` all do."""

    async def handle_status(_params: dict[str, Json]) -> dict[str, Json]:
        return status()

    async def handle_reload(_params: dict[str, Json]) -> dict[str, Json]:
        changes = await reload()
        return {} if changes is None else changes.summary()

    async def handle_accept(params: dict[str, Json]) -> dict[str, Json]:
        source, names = params.get("source"), params.get("names") or None
        if not isinstance(source, str) or not (names is None or isinstance(names, list)):
            raise UsageError("accept takes the name of a source, and a list of names or nothing")
        return {"accepted": list(accept(source, names))}

    def once_up(handler: Handler) -> Handler:
        async def handle(params: dict[str, Json]) -> dict[str, Json]:
            if not is_up():
                raise Unreachable("the adapter is still starting: try again in a moment")
            return await handler(params)

        return handle

    handlers: dict[str, Handler] = {
        "status": handle_status,
        "reload": handle_reload,
        "accept": handle_accept,
    }
    return {name: once_up(handler) for name, handler in handlers.items()}
