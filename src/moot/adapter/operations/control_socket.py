"""The control socket: how others on this machine, of the same user, ask a running adapter something.

A Unix socket that only its owner may open. One question a connection: one line of JSON in, one line out.

    {"ask": "status"}                    → {"ok": true, "answer": {…}}
    {"ask": "reload"}                    → {"ok": false, "error": "…"}
    {"ask": "attach", "params": {…}}     → {"ok": true, "answer": {}}, then bytes both ways until either ends

The last kind is a *stream*: the connection is handed over, and what is said on it is somebody else's
business. Beside the socket lies a lock, held while the adapter runs, so that two never share a data folder;
what a crash left behind is told apart from a running adapter by it.
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

from moot.errors import MootError, UsageError
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# A status with a thousand sources is some 300 KiB.
LINE_BYTES: Final = 4 << 20
# A question comes at once; whoever is slower is no client of ours.
ASK_SECONDS: Final = 10.0
# Of one user, at once.
CONNECTIONS: Final = 64
_SOCKET_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700

JsonObject = dict[str, Json]
Handler = Callable[[JsonObject], Awaitable[JsonObject]]
StreamHandler = Callable[[JsonObject, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class AdapterNotRunning(MootError):
    """Nothing answers at a control socket."""


class ControlRequestFailed(MootError):
    """The adapter answered that it cannot; the text is its own."""


@asynccontextmanager
async def control_socket(
    path: Path, handlers: Mapping[str, Handler], streams: Mapping[str, StreamHandler] | None = None
) -> AsyncIterator[None]:
    """Answer questions at `path` for the length of the block; raises UsageError when another adapter does.

    A handler may raise MootError, whose text is the answer.
    """
    server = _Server(handlers, streams or {})
    with _locked(path):
        path.unlink(missing_ok=True)
        bound = _bound(path)
        listening = await asyncio.start_unix_server(server.serve, sock=bound, limit=LINE_BYTES)
        try:
            yield
        finally:
            listening.close()
            await server.close()
            path.unlink(missing_ok=True)


async def ask(
    path: Path, question: str, params: JsonObject | None = None, *, within: float = ASK_SECONDS
) -> JsonObject:
    """Ask the adapter at a socket; raises NotRunning when there is none, AskFailed when it says no."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await open_ask(path, question, params)
            try:
                return await answered(reader)
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        raise ControlRequestFailed(f"the adapter at {path} did not answer within {within:g} s") from None


async def open_ask(
    path: Path, question: str, params: JsonObject | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a question was put; for streams. Raises NotRunning."""
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES)
    except OSError as fault:
        raise AdapterNotRunning(
            f"no adapter answers at {path}: {fault.strerror or type(fault).__name__}"
        ) from None
    if not _is_ours(writer):
        # Before anything is said: what stands there may want to hear it.
        writer.close()
        raise AdapterNotRunning(
            f"the socket {path} belongs to another user: no adapter of yours answers there"
        )
    try:
        writer.write(_line({"ask": question, "params": params or {}}))
        await writer.drain()
    except OSError as fault:
        raise AdapterNotRunning(
            f"no adapter answers at {path}: {fault.strerror or type(fault).__name__}"
        ) from None
    return reader, writer


async def answered(reader: asyncio.StreamReader) -> JsonObject:
    """The answer to a question; raises AskFailed and NotRunning."""
    try:
        line = await reader.readline()
    except (ValueError, OSError) as fault:
        raise ControlRequestFailed(f"an answer that cannot be read: {type(fault).__name__}") from None
    if not line:
        raise AdapterNotRunning("the adapter closed the connection without an answer: it is stopping")
    message: Any = None
    with suppress(ValueError):
        message = json.loads(line)
    if not isinstance(message, dict):
        raise ControlRequestFailed("whatever listens there is no adapter")
    if message.get("ok") is not True:
        raise ControlRequestFailed(str(message.get("error") or "the adapter gave no reason"))
    answer = message.get("answer")
    return answer if isinstance(answer, dict) else {}


class _Server:
    def __init__(self, handlers: Mapping[str, Handler], streams: Mapping[str, StreamHandler]) -> None:
        self._handlers = handlers
        self._streams = streams
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End what is still being answered."""
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
            if len(self._tasks) > CONNECTIONS:
                writer.write(_refusal(f"{CONNECTIONS} are asking already"))
            elif not _is_ours(writer):
                writer.write(_refusal("only the user who runs the adapter may ask it"))
            else:
                await self._answer(reader, writer)
            await writer.drain()
        except (OSError, TimeoutError):
            # Whoever asked is gone, or never did.
            pass
        except asyncio.CancelledError:
            # The adapter stops. Raised on, asyncio's own callback would tell of it as a fault.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                message: Any = json.loads(await reader.readline())
        except (ValueError, RecursionError):
            message = None
        question = message.get("ask") if isinstance(message, dict) else None
        params = message.get("params", {}) if isinstance(message, dict) else None
        if not isinstance(question, str) or not isinstance(params, dict):
            writer.write(_refusal('ask with one line: {"ask": "status"}'))
            return
        stream = self._streams.get(question)
        handler = self._handlers.get(question)
        if stream is not None:
            writer.write(_line({"ok": True, "answer": {}}))
            await stream(params, reader, writer)
        elif handler is not None:
            try:
                writer.write(_line({"ok": True, "answer": await handler(params)}))
            except MootError as fault:
                writer.write(_refusal(str(fault)))
            except Exception:
                log.exception("a question failed")
                writer.write(_refusal("internal error; see the adapter's log"))
        else:
            known = ", ".join(sorted({*self._handlers, *self._streams}))
            writer.write(_refusal(f"no such question; there is {known}"))


class _locked:
    """Holds the lock of a control socket; raises UsageError when another process does."""

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
        if not _is_our_folder(lock.parent):
            os.close(self._handle)
            raise UsageError(
                f"the folder {lock.parent} belongs to another user, or anybody may write there: somebody "
                "could put a socket of his own into it. Name another with control:"
            )
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise UsageError(
                f"an adapter with this data folder runs already ({self._path}); stop it, or give this one a "
                "key_file or store of its own"
            ) from None

    def __exit__(self, *_: object) -> None:
        # The file stays: whoever removed it could let two hold locks on two files of one name.
        os.close(self._handle)


def _bound(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        # With the mask, there is no moment at which others could connect.
        bound.bind(os.fsencode(path))
        os.chmod(path, _SOCKET_MODE)
    except OSError as fault:
        bound.close()
        raise UsageError(f"the control socket {path}: {fault.strerror or fault}") from None
    finally:
        os.umask(before)
    return bound


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    connection = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        # The socket's mode is all there is elsewhere.
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid = struct.unpack("3i", credentials)[1]
    return uid in (os.geteuid(), 0)


def _is_our_folder(folder: Path) -> bool:
    """Whether no stranger can rename what lies in it. In /tmp, a folder may have been made before us."""
    found = folder.stat()
    anybody_renames = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (os.geteuid(), 0) and not anybody_renames


def _line(message: JsonObject) -> bytes:
    return json.dumps(message).encode("ascii") + b"\n"


def _refusal(why: str) -> bytes:
    return _line({"ok": False, "error": why})
