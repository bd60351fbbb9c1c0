"""Folders of a box as overlays: what is written there stays in memory, and the folders as they are.

Run as a program, with nothing but the standard library, before bubblewrap: `python -I -S overlay_mounts.py
SOCKET_FD SCRATCH MAX_BYTES MAX_FILES FOLDERS -- COMMAND …`, with the folders as JSON. It enters users and
mounts of its own, lays an overlay over each folder, hands over what holds the changes, one open folder each,
and becomes the command. SCRATCH is an empty folder that stays empty.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys

# Of sched.h, sys/mount.h.
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    scratch, most_bytes, most_files = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    folders = [str(each) for each in json.loads(sys.argv[5])]
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
        check(libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode()))

    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
    # Opened before anything is laid over them; by number no name has to be quoted.
    lower = [os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) for each in folders]
    mount(
        "preview",
        scratch,
        "tmpfs",
        _MS_NOSUID | _MS_NODEV,
        f"size={most_bytes},nr_inodes={most_files},mode=700",
    )
    top = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    uppers = []
    for index, (target, base) in enumerate(zip(folders, lower, strict=True)):
        for name in (f"u{index}", f"w{index}"):
            os.mkdir(name, 0o700, dir_fd=top)
        upper = os.open(f"u{index}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
        # The overlay has the mode of its upper folder; and where a folder was made anew has to be seen later.
        os.fchmod(upper, os.fstat(base).st_mode & 0o7777)
        os.setxattr(upper, "user.overlay.tried", b"y")
        os.removexattr(upper, "user.overlay.tried")
        work = os.open(f"w{index}", os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
        places = f"lowerdir=/proc/self/fd/{base},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
        mount("preview", target, "overlay", 0, f"{places},userxattr")
        uppers.append(upper)
    check(libc.umount2(f"/proc/self/fd/{top}".encode(), _MNT_DETACH))
    socket.send_fds(channel, [b"."], uppers)
    # Nothing of this is for the command.
    channel.close()
    command = sys.argv[7:]
    os.execv(command[0], command)  # noqa: S606  # the box is the command, and no shell is between


if __name__ == "__main__":
    _main()
