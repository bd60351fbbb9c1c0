"""The quick half of `moot hook`: hands an event to a process that runs already, and passes on its answer.

An agent runs a hook before and after every call, and loading Moot takes far longer than asking. So this file
loads next to nothing, and `moot.cli.main` calls it before anything else:

    socket of this very command, in a folder of our own ──▶ connect ──▶ it says for which command it answers
    nobody there ──▶ start the service, connect again
    another command or user, no folder, too slow, anything odd ──▶ None: `moot hook` does all by itself
    the right one ──▶ send the event ──▶ pass on the whole answer; without one, status 2 stops the call

The service (`hook_service`) decides by the same code that `moot hook` has; what is here only carries bytes.
"""

from __future__ import annotations

# Not `socket`, and no `json`, `hashlib` or `signal`: each of them costs as much as all of this.
import _socket
import os
import sys
from binascii import crc32
from stat import S_ISDIR, S_ISSOCK

import moot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# A call is smaller than this, or refused; a report has what came out of it, too.
MAX_EVENT_BYTES = 16 << 20
# The status with which every one of these agents stops a call.
BLOCKED = 2
# A service that does not say by then who it is counts as gone; one that starts has as long as a slow disk.
_HELLO_SECONDS = 5.0
_START_SECONDS = 20.0
# What the service may take longer than it waits for a decision: it connects, and it delivers its answer.
_MORE_SECONDS = 30.0
# A path of a socket has at most 104 bytes; a name that is taken into use is a little longer.
_MAX_PATH_BYTES = 88
# They name files, or decide where files are.
_FILE_OPTIONS = ("--token-file", "--state")
_FILE_VARIABLES = ("HOME", "XDG_STATE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")


def ask_service(words: Sequence[str]) -> int | None:
    """Let a service answer the event on stdin: the exit status; None if this process has to do it.

    `words` are the arguments after `moot hook`. With None nothing of stdin was read.
    """
    try:
        service = _find_service(words)
    except Exception:  # noqa: BLE001  # whatever it is, the slow way finds it as well, and says so
        return None
    except BaseException:  # noqa: BLE001  # Ctrl+C: any other status would let the agent go on
        return BLOCKED
    if service is None:
        return None
    try:
        return _ask(*service)
    except BaseException as fault:  # noqa: BLE001  # as above
        _complain(f"Not allowed: the hook's service did not answer ({type(fault).__name__}). Try again")
        return BLOCKED


def command_key(words: Sequence[str]) -> bytes | None:
    """All that must be the same for two hooks to share a service, in one line; None if they never do.

    The arguments (gateway, space, token file), the installation, the user's folders, and the network.
    """
    names = [word.partition("=")[0] for word in words]
    if names.count("--token-file") != 1 or any("=" in word for word in words if word.startswith("--")):
        return None
    files = [words[at + 1] for at in range(len(words) - 1) if words[at] in _FILE_OPTIONS]
    variables = [os.environ.get(name) or "" for name in _FILE_VARIABLES]
    # The service is in no folder, where a relative path would name another file.
    if not all(os.path.isabs(path) for path in (*files, *filter(None, variables))):
        return None
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    installed = (moot.__version__, moot.__file__, os.stat(moot.__file__).st_mtime_ns, sys.executable)
    return ascii((installed, os.uname().nodename, network, variables, list(words))).encode()


def socket_path(key: bytes) -> str | None:
    """Where the service of a command listens, in a folder that only we can use; None if there is none.

    Two commands may share a name: the service says the whole key.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folder = os.path.join(state, "moot", "hook-service")
    path = os.path.join(folder, f"{crc32(key):08x}")
    if not os.path.isabs(folder) or len(os.fsencode(path)) > _MAX_PATH_BYTES:
        return None
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    is_private = S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return path if is_private else None


def is_own_peer(line: _socket.socket) -> bool:
    """Whether a process of our own user is at the other end, where the system tells; the folder is ours."""
    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        return True
    # struct ucred: pid, uid, gid.
    told = line.getsockopt(_socket.SOL_SOCKET, option, 12)
    return int.from_bytes(told[4:8], sys.byteorder) == os.geteuid()


def _complain(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Nobody reads it: the status says it, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _find_service(words: Sequence[str]) -> tuple[_socket.socket, float] | None:
    if not hasattr(_socket, "AF_UNIX") or (key := command_key(words)) is None:
        return None
    if (path := socket_path(key)) is None:
        return None
    service = _connect(path, key)
    if service is None and _start(words, os.path.dirname(path)):
        service = _connect(path, key)
    return service


def _connect(path: str, key: bytes) -> tuple[_socket.socket, float] | None:
    """A line to the service of exactly this command, and how long it waits for a decision."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.settimeout(_HELLO_SECONDS)
    try:
        found = os.lstat(path)
        if not S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            return None
        line.connect(path)
        if not is_own_peer(line):
            return None
        hello = b""
        while hello.count(b"\n") < 2 and len(hello) <= len(key) + 40:
            if not (piece := line.recv(1 << 16)):
                return None
            hello += piece
        told, seconds, rest = hello.split(b"\n")
        return (line, float(seconds)) if told == key and not rest else None
    except OSError:
        return None


def _start(words: Sequence[str], folder: str) -> bool:
    """Start the service; False if it does not listen. It outlives us, and is in no group of the agent's."""
    import fcntl
    import select
    import subprocess

    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    # One hook of several that were started at once does this; the others need no service.
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ready, told = os.pipe()
    service = subprocess.Popen(  # noqa: S603  # our own program, with the arguments that we got
        [sys.executable, "-m", "moot.cli.agents.hook_service", *words],
        stdin=subprocess.DEVNULL,
        stdout=told,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    # It goes on without us: nobody waits for its end.
    service.returncode = 0
    os.close(told)
    has_told, _, _ = select.select([ready], [], [], _START_SECONDS)
    is_ready = bool(has_told) and os.read(ready, 1) == b"+"
    os.close(ready)
    os.close(handle)
    return is_ready


def _ask(line: _socket.socket, wait_seconds: float) -> int:
    event = sys.stdin.buffer.read(MAX_EVENT_BYTES)
    line.settimeout(wait_seconds + _MORE_SECONDS)
    # The line stays open for writing: when it closes, we are gone, and nothing is released any more.
    line.sendall(b"%d\n" % len(event) + event)
    answer = b""
    while piece := line.recv(1 << 16):
        answer += piece
    head, _, text = answer.partition(b"\n")
    status, size = (int(part) for part in head.split(b" "))
    if size != len(text) or status not in (0, 1, BLOCKED):
        raise ValueError
    stream = sys.stderr if status else sys.stdout
    stream.buffer.write(text)
    stream.flush()
    return status
