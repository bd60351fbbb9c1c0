"""Ways out of a box, each tried once: a program that prints, as JSON, how each of them went.

`python escapes.py OUTSIDE` with OUTSIDE as JSON: what is there outside, to be reached. The outcome of a try
is "escaped", or why not. Those in `HARMLESS` are run outside of a box as well, where they have to succeed.
"""

# ruff: noqa: BLE001, S103, S108, SIM115

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OUTSIDE: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
_LIBC = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"
Try = Callable[[], object]
TRIES: dict[str, Try] = {}
HARMLESS: set[str] = set()
# By the numbers of errors: a call that the filter refuses, and not one that only had no sense as it was made.
_FILTERED = {errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT}


class Unfiltered(Exception):
    """The kernel looked at a call that it should not have seen."""


def _add(name: str, attempt: Try, *, harmless: bool = False) -> None:
    TRIES[name] = attempt
    if harmless:
        HARMLESS.add(name)


def _syscall(x86: int, arm: int, *arguments: Any) -> int:
    """The result; raises OSError."""
    found = _LIBC.syscall(ctypes.c_long(x86 if _X86 else arm), *arguments)
    if found < 0:
        number = ctypes.get_errno()
        if number not in _FILTERED:
            raise Unfiltered(os.strerror(number))
        raise OSError(number, os.strerror(number))
    return int(found)


def _secret_in(path: str) -> bool:
    return _OUTSIDE["secret"] in Path(path).read_text("utf-8", "replace")


def _connects(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> bool:
    with socket.socket(family, kind) as made:
        made.settimeout(3)
        made.connect(address)
        if kind == socket.SOCK_DGRAM:
            made.send(b"\0")
    return True


def _write(path: str) -> bool:
    Path(path).write_text("escaped", "utf-8")
    return True


# Before any other, which may open some.


def _inherited() -> list[str]:
    found = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd") if int(number) > 2]
    there = [os.readlink(each) for each in found if os.path.lexists(each)]
    # uvloop leaves a second number for each of its own three.
    own = {os.readlink(f"/proc/self/fd/{number}") for number in range(3)}
    return [each for each in there if each not in own]


_add("open files of the parent", _inherited, harmless=True)


def _replace(folder: str, name: str) -> bool:
    """What is read there by itself outside would be ours."""
    os.rename(folder, f"{folder}-before")
    os.mkdir(folder)
    return _write(f"{folder}/{name}")


_AGENTS = {"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"}


def _of_first_process() -> list[str]:
    own = {os.readlink(f"/proc/self/fd/{number}") for number in range(3)}
    there = [os.readlink(f"/proc/1/fd/{number}") for number in os.listdir("/proc/1/fd")]
    return [each for each in there if each not in own and not each.startswith("anon_inode:")]


def _at_end(path: str, size: int) -> bool:
    """A file of so many bytes and one more, of which only the last is on the disk."""
    with open(path, "wb", buffering=0) as file:
        try:
            return os.pwrite(file.fileno(), b"x", size) > 0
        finally:
            os.unlink(path)


def _owners_rights(how: str) -> bool:
    """Whoever runs such a file outside does it as who started the box."""
    made = f"{_shared}/suid-{how}"
    if how == "open":
        os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o4755))
    elif how == "openat2":
        asked = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
        os.close(_syscall(437, 437, -100, made.encode(), asked, 24))
    else:
        with open(made, "wb") as file:
            if how == "fchmod":
                os.fchmod(file.fileno(), 0o2755)
            else:
                os.chmod(made, 0o4755)
    return bool(os.stat(made).st_mode & 0o6000)


def _there(folder: str, *names: str) -> list[str]:
    return [name for name in names if os.path.lexists(f"{folder}/{name}")]


def _write_at(path: str, text: str) -> bool:
    with open(path, "w") as file:
        file.write(text)
    return True


# Files

_shared, _file = _OUTSIDE.get("shared", ""), _OUTSIDE.get("secret_file", "")


def _through_link(kind: str) -> bool:
    made = f"{_shared}/link-{os.getpid()}-{kind}"
    (os.symlink if kind == "symbolic" else os.link)(_file, made)
    try:
        return _secret_in(made)
    finally:
        os.unlink(made)


_add("file by its path", lambda: _secret_in(_file), harmless=True)
_add("file by a symbolic link", lambda: _through_link("symbolic"), harmless=True)
_add("file by a hard link", lambda: _through_link("hard"), harmless=True)
_add("file by a link that was there", lambda: _secret_in(f"{_shared}/way-out"), harmless=True)
_add("file by ..", lambda: _secret_in(f"{_shared}/../secret.txt"), harmless=True)
_add("file by the root of itself", lambda: _secret_in(f"/proc/self/root{_file}"), harmless=True)
_add("file by the root of the first process", lambda: _secret_in(f"/proc/1/root{_file}"))
_add(
    "file by the folder of itself",
    lambda: _secret_in(f"/proc/self/cwd/../../../../../../..{_file}"),
    harmless=True,
)
_add("tokens inside of a shown folder", lambda: _secret_in(f"{_shared}/.moot/token"), harmless=True)
_add("tokens by moving them", lambda: os.rename(f"{_shared}/.moot", f"{_shared}/moved"))
_add("change the configuration", lambda: _write(f"{_shared}/moot.yaml"))
_add("replace the configuration", lambda: os.rename(f"{_shared}/a.txt", f"{_shared}/moot.yaml"))
_add("add a hook of git", lambda: _write(f"{_shared}/.git/hooks/pre-commit"))
_add("put another repository in its place", lambda: _replace(f"{_shared}/.git", "config"))
_add("change what a shell runs when it starts", lambda: _write(f"{_shared}/.bashrc"))
_add("change what an editor runs", lambda: _write(f"{_shared}/.vscode/tasks.json"))
_add("write into a folder to read", lambda: _write(f"{_OUTSIDE['readable']}/made"))
_add("remove from a folder to read", lambda: os.unlink(f"{_OUTSIDE['readable']}/a.txt"))
_add("make a file to read writable", lambda: os.chmod(f"{_OUTSIDE['readable']}/a.txt", 0o700))
_add("write into the root", lambda: _write("/made"))
_add("write into /usr", lambda: _write("/usr/made"))
_add("write into /etc", lambda: _write("/etc/made"))
_add("write into the program", lambda: _write(f"{sys.base_prefix}/lib/made"))
_add("password hashes", lambda: Path("/etc/shadow").read_bytes())
_add("people of the machine", lambda: "root:" in Path("/etc/passwd").read_text("utf-8"), harmless=True)
_add("private keys of TLS", lambda: os.listdir("/etc/ssl/private"))
_add("homes", lambda: bool(set(os.listdir(_OUTSIDE["home"])) & set(_OUTSIDE["home_entries"])))
_add("sockets of services", lambda: os.listdir("/run"), harmless=True)
_add("logs of the machine", lambda: os.listdir("/var/log"), harmless=True)
_add("temporary files of others", lambda: _OUTSIDE["temporary"] in os.listdir("/tmp"), harmless=True)
_add(
    "devices of the machine",
    lambda: any(stat.S_ISBLK(os.lstat(f"/dev/{name}").st_mode) for name in os.listdir("/dev")),
)
_add("make a device", lambda: os.mknod(f"{_shared}/device", stat.S_IFBLK | 0o600, os.makedev(8, 0)))
_add("memory of the kernel", lambda: Path("/proc/kcore").open("rb").read(16))
_add("log of the kernel", lambda: Path("/dev/kmsg").open("rb"))
_add("handler of core dumps", lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
_add("keys of the kernel's console", lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY))
_add("settings of the machine", lambda: os.listdir("/sys/kernel"), harmless=True)
_add("groups of processes", lambda: os.listdir("/sys/fs/cgroup"), harmless=True)
_add("file by its handle", lambda: _syscall(304, 265, -100, b"\0" * 16, 0) or True)
_add("open files of the first process", _of_first_process)
_add("program with the rights of its owner", lambda: _owners_rights("chmod"))
_add("the same as it is made", lambda: _owners_rights("open"))
_add("the same by its number", lambda: _owners_rights("fchmod"))
_add("the same by the newest call", lambda: _owners_rights("openat2"))
_add(
    "disks, virtual machines and tunnels",
    lambda: _there("/dev", "fuse", "kvm", "net", "userfaultfd", "mem", "sda"),
)
_add(
    "services of a desktop",
    lambda: _there("/tmp", ".X11-unix", ".ICE-unix") or _there("/run", "user", "dbus"),
)
_add("agents that hold keys", lambda: sorted(_AGENTS & set(os.environ)))
_add(
    "logins of git",
    lambda: _there(_OUTSIDE["home"], ".git-credentials", ".gitconfig", ".netrc", ".ssh", ".aws"),
)
_add("be the last that is ended for memory", lambda: _write_at("/proc/self/oom_score_adj", "-1000"))
_add("other users by a map", lambda: _write_at("/proc/self/uid_map", "0 0 1"))
_add("one file that grows for ever", lambda: _at_end(f"{_shared}/big", _OUTSIDE["max_file_bytes"]))
_add("fill the memory by /tmp", lambda: _allocate("/tmp/big", 2 << 30))
_add("fill the memory by /dev/shm", lambda: _allocate("/dev/shm/big", 1 << 30))
_add("fill the memory by /dev", lambda: _write("/dev/big"))


def _allocate(path: str, size: int) -> bool:
    with open(path, "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        finally:
            os.unlink(path)
    return True


# Processes


def _clone(flags: int) -> bool:
    """A process of its own with new namespaces."""
    if _syscall(56, 220, flags | 17, None, None, None, None) == 0:
        os._exit(0)
    os.wait()
    return True


def _read_memory() -> bool:
    there = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(there), 8)
    return _syscall(310, 270, os.getppid(), vector, 1, vector, 1, 0) >= 0


def _trace() -> bool:
    """Attach to the parent; let go of it again, and wake it up."""
    parent = os.getppid()
    _syscall(101, 117, 16, parent, 0, 0)
    os.waitpid(parent, 0x4000_0000)
    _syscall(101, 117, 17, parent, 0, 0)
    os.kill(parent, signal.SIGCONT)
    return True


def _processes() -> list[str]:
    return [each for each in os.listdir("/proc") if each.isdigit()]


def _environments() -> bool:
    def read(pid: str) -> str:
        try:
            return Path(f"/proc/{pid}/environ").read_text("utf-8", "replace")
        except OSError:
            return ""

    return any(_OUTSIDE["variable"] in read(pid) for pid in _processes())


def _sees_outside() -> bool:
    def command(pid: str) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
        except OSError:
            return ""

    return any(command(pid) == _OUTSIDE["command"] for pid in _processes())


def _signal_outside() -> bool:
    os.kill(_OUTSIDE["pid"], 0)
    return bool(_OUTSIDE["command"] == Path(f"/proc/{_OUTSIDE['pid']}/cmdline").read_text("utf-8", "replace"))


def _become_root() -> bool:
    os.setresuid(0, 0, 0)
    return os.geteuid() == 0


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


_add("environment of others", _environments, harmless=True)
_add("environment of the parent", lambda: _OUTSIDE["variable"] in "".join(os.environ.values()), harmless=True)
_add("see a process outside", _sees_outside, harmless=True)
_add("end a process outside", _signal_outside, harmless=True)
_add("capabilities", lambda: int(_status("CapEff"), 16) or int(_status("CapBnd"), 16), harmless=True)
_add("gain rights by a program", lambda: _status("NoNewPrivs") == "0")
_add("become root", _become_root)
_add("trace a process of the box", _trace)
_add("be traced", lambda: _syscall(101, 117, 0, 0, 0, 0) == 0)
_add("memory of a process of the box", _read_memory)
_add("open files of a process of the box", lambda: _syscall(438, 438, os.pidfd_open(os.getppid()), 0, 0))
_add("new users by unshare", lambda: _syscall(272, 97, 0x1000_0000) == 0)
_add("new mounts by unshare", lambda: _syscall(272, 97, 0x0002_0000) == 0)
_add("new users by clone", lambda: _clone(0x1000_0000))
_add("new network by clone", lambda: _clone(0x4000_0000))
_add("new users by clone3", lambda: _syscall(435, 435, ctypes.create_string_buffer(b"\0\0\0\x10", 64), 64))
_add("other namespace", lambda: _syscall(308, 268, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0)
_add("mount", lambda: _syscall(165, 40, b"none", b"/tmp", b"tmpfs", 0, 0) == 0)
_add("mount by the newer call", lambda: _syscall(430, 430, b"tmpfs", 0))
_add("copy of a mount", lambda: _syscall(428, 428, -100, b"/", 1))
_add("remove what hides the tokens", lambda: _syscall(166, 39, f"{_shared}/.moot".encode(), 2) == 0)
_add("another root", lambda: os.chroot(_shared or "/"))
_add("program in the kernel", lambda: _syscall(321, 280, 0, ctypes.create_string_buffer(72), 72))
_add("counters of the kernel", lambda: _syscall(298, 241, ctypes.create_string_buffer(112), 0, -1, -1, 0))
_add("keys in the kernel", lambda: _syscall(250, 219, 0, -3, 0))
_add("queues to the kernel", lambda: _syscall(425, 425, 1, ctypes.create_string_buffer(120)))
_add("page faults of others", lambda: _syscall(323, 282, 0))
_add("calls by their second number", lambda: _X86 and _syscall(0x4000_0000 + 39, 0) >= 0)
_add("module of the kernel", lambda: _syscall(313, 273, 0, b"", 0) == 0)
_add("restart the machine", lambda: _syscall(169, 142, 0, 0, 0, 0) == 0)


# Network


def _resolver() -> bool:
    return bool(socket.getaddrinfo(socket.gethostname() + ".example.org", 80))


def _packets(family: int, kind: int, protocol: int = 0) -> bool:
    socket.socket(family, kind, protocol).close()
    return True


_add(
    "service of this machine",
    lambda: _connects(socket.AF_INET, ("127.0.0.1", _OUTSIDE["port"])),
    harmless=True,
)
_add(
    "service over IPv6",
    lambda: _connects(socket.AF_INET6, ("::ffff:127.0.0.1", _OUTSIDE["port"])),
    harmless=True,
)
_add(
    "service by another address",
    lambda: _connects(socket.AF_INET, ("127.0.0.2", _OUTSIDE["port"])),
    harmless=True,
)
_add("public address", lambda: _connects(socket.AF_INET, ("192.0.2.1", 9), socket.SOCK_DGRAM))
_add("name server", lambda: _connects(socket.AF_INET, ("8.8.8.8", 53), socket.SOCK_DGRAM))
_add("names", _resolver)
_add("metadata of a cloud", lambda: _connects(socket.AF_INET, ("169.254.169.254", 80)))
_add("metadata over IPv6", lambda: _connects(socket.AF_INET6, ("fd00:ec2::254", 80)))
_add("echo requests", lambda: _packets(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
_add("packets of the link", lambda: _packets(socket.AF_PACKET, socket.SOCK_RAW))
_add("host of a virtual machine", lambda: _packets(40, socket.SOCK_STREAM))
_add("ciphers of the kernel", lambda: _packets(38, socket.SOCK_SEQPACKET))
_add("events of the kernel", lambda: _packets(socket.AF_NETLINK, socket.SOCK_RAW, 15), harmless=True)
_add("socket without a file", lambda: _connects(socket.AF_UNIX, "\0" + _OUTSIDE["abstract"]), harmless=True)
_add("socket of a service", lambda: _connects(socket.AF_UNIX, _OUTSIDE["socket"]), harmless=True)
_add("shared memory of others", lambda: _LIBC.shmget(_OUTSIDE["shm_key"], 0, 0) >= 0, harmless=True)

# Terminal and clock

_add("terminal", lambda: open("/dev/tty", "rb"))
_add("type into the terminal", lambda: fcntl.ioctl(0, 0x5412, array.array("b", [10])))
_add("set the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
_add("name the machine", lambda: _LIBC.sethostname(b"box2", 4) == 0)


def _memory() -> bool:
    return len(bytearray(_OUTSIDE["memory"] + (8 << 20))) > 0


def _bomb() -> bool:
    """More processes than allowed, each of which ends by itself."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        while len(started) < _OUTSIDE["processes"] + 5:
            started.append(subprocess.Popen(["/bin/sleep", "60"]))
    finally:
        for each in started:
            each.kill()
            each.wait()
    return True


_add("more memory", _memory)
_add("more processes", _bomb)
_add("raise its own limits", lambda: resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2))


def _outcome(attempt: Try) -> str:
    try:
        found = attempt()
    except Unfiltered as fault:
        return f"escaped: the kernel looked at the call: {fault}"
    except OSError as fault:
        return errno.errorcode.get(fault.errno or 0, str(fault))
    except Exception as fault:
        return type(fault).__name__
    return f"escaped: {found!r:.200}" if found not in (False, [], 0) else "nothing found"


def _outcome_apart(attempt: Try) -> str:
    """The same by a process of its own, for boxes in which a try may end who makes it."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writer, _outcome(attempt).encode())
        os._exit(0)
    os.close(writer)
    is_ready = select.select([reader], [], [], 20)[0]
    said = os.read(reader, 4_096).decode() if is_ready else ""
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said or "ended by it"


def main() -> None:
    done: dict[str, str] = {}
    for name, attempt in TRIES.items():
        if name in HARMLESS or not _OUTSIDE.get("only_harmless"):
            # The first looks at what is open: nothing of ours may be yet.
            is_apart = _OUTSIDE.get("apart") and done
            done[name] = _outcome_apart(attempt) if is_apart else _outcome(attempt)
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
