"""The system calls that a box refuses, as a classic BPF program for the kernel (seccomp).

Namespaces take most things away by themselves; this refuses what they leave: other processes' memory, new
namespaces and mounts, kernel keyrings, sockets that no network namespace holds (vsock), typing into a
terminal, and interfaces of the kernel that tool servers do not use and that had most of its holes.
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple


class _Numbers(NamedTuple):
    """The number of a system call by architecture; None: it has no such call."""

    x86_64: int | None
    aarch64: int | None


# As asm/unistd_64.h and asm-generic/unistd.h have them.
_REFUSED: Final = {
    "acct": _Numbers(163, 89),
    "add_key": _Numbers(248, 217),
    "adjtimex": _Numbers(159, 171),
    "bpf": _Numbers(321, 280),
    "chroot": _Numbers(161, 51),
    "clock_adjtime": _Numbers(305, 266),
    "clock_settime": _Numbers(227, 112),
    "delete_module": _Numbers(176, 106),
    "fanotify_init": _Numbers(300, 262),
    "finit_module": _Numbers(313, 273),
    "fsconfig": _Numbers(431, 431),
    "fsmount": _Numbers(432, 432),
    "fsopen": _Numbers(430, 430),
    "fspick": _Numbers(433, 433),
    "init_module": _Numbers(175, 105),
    "ioperm": _Numbers(173, None),
    "iopl": _Numbers(172, None),
    "kcmp": _Numbers(312, 272),
    "kexec_file_load": _Numbers(320, 294),
    "kexec_load": _Numbers(246, 104),
    "keyctl": _Numbers(250, 219),
    "lookup_dcookie": _Numbers(212, 18),
    "migrate_pages": _Numbers(256, 238),
    "modify_ldt": _Numbers(154, None),
    "mount": _Numbers(165, 40),
    "mount_setattr": _Numbers(442, 442),
    "move_mount": _Numbers(429, 429),
    "move_pages": _Numbers(279, 239),
    "name_to_handle_at": _Numbers(303, 264),
    "nfsservctl": _Numbers(180, 42),
    "open_by_handle_at": _Numbers(304, 265),
    "open_tree": _Numbers(428, 428),
    "open_tree_attr": _Numbers(467, 467),
    "perf_event_open": _Numbers(298, 241),
    "pidfd_getfd": _Numbers(438, 438),
    "pivot_root": _Numbers(155, 41),
    "process_madvise": _Numbers(440, 440),
    "process_vm_readv": _Numbers(310, 270),
    "process_vm_writev": _Numbers(311, 271),
    "ptrace": _Numbers(101, 117),
    "quotactl": _Numbers(179, 60),
    "quotactl_fd": _Numbers(443, 443),
    "reboot": _Numbers(169, 142),
    "request_key": _Numbers(249, 218),
    "setdomainname": _Numbers(171, 162),
    "sethostname": _Numbers(170, 161),
    "setns": _Numbers(308, 268),
    "settimeofday": _Numbers(164, 170),
    "swapoff": _Numbers(168, 225),
    "swapon": _Numbers(167, 224),
    "syslog": _Numbers(103, 116),
    "umount2": _Numbers(166, 39),
    "unshare": _Numbers(272, 97),
    "uselib": _Numbers(134, None),
    "userfaultfd": _Numbers(323, 282),
    "vhangup": _Numbers(153, 58),
}
# Libraries ask whether these are there, and use older calls where they are not.
_ABSENT: Final = {
    "clone3": _Numbers(435, 435),
    "io_uring_enter": _Numbers(426, 426),
    "io_uring_register": _Numbers(427, 427),
    "io_uring_setup": _Numbers(425, 425),
    # Its mode is in memory, where no filter looks.
    "openat2": _Numbers(437, 437),
}
_CLONE: Final = _Numbers(56, 220)
_IOCTL: Final = _Numbers(16, 29)
_SOCKET: Final = _Numbers(41, 198)
# Calls that give a file its mode, and which argument that is. A program that runs with the rights of its
# owner, who is whoever started the box, would be a way out for anybody who runs it outside.
_MODES: Final = (
    (_Numbers(90, None), 1),  # chmod
    (_Numbers(91, 52), 1),  # fchmod
    (_Numbers(268, 53), 2),  # fchmodat
    (_Numbers(452, 452), 2),  # fchmodat2
    (_Numbers(133, None), 1),  # mknod
    (_Numbers(259, 33), 2),  # mknodat
    (_Numbers(85, None), 1),  # creat
)
# Here the mode has a meaning only with a flag, one argument before it, that a file is made.
_OPEN_MODES: Final = ((_Numbers(2, None), 2), (_Numbers(257, 56), 3))  # open, openat
_OWNERS_RIGHTS: Final = 0o6000
# O_CREAT, and the bit of O_TMPFILE that is its own.
_MAKES_FILE: Final = 0o100 | 0o20000000
# Every flag of clone that makes a namespace.
_NEW_NAMESPACES: Final = 0x7E02_0000
# TIOCSTI and TIOCLINUX type into the terminal.
_REFUSED_IOCTLS: Final = (0x5412, 0x541C)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
# AUDIT_ARCH_… of linux/audit.h.
_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
# x86-64 has every call a second time from here on (x32).
_X32_BIT: Final = 0x4000_0000

# Of linux/bpf_common.h and linux/seccomp.h.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF_0000
_ERRNO: Final = 0x0005_0000
# Offsets in struct seccomp_data; of an argument its lower half, which is all that the kernel looks at here.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


def supports(machine: str) -> bool:
    """Whether there is a filter for this processor, as `platform.machine` calls it."""
    return machine in _ARCHITECTURES


def syscall_filter(machine: str) -> bytes:
    """The program for `bwrap --seccomp`."""
    is_x86 = machine == "x86_64"

    def number(of: _Numbers) -> int | None:
        return of.x86_64 if is_x86 else of.aarch64

    refuse, absent = _fail(errno.EPERM), _fail(errno.ENOSYS)
    # Another architecture has other numbers: none of its calls is made.
    code = [_load(_ARCHITECTURE_AT), _step(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0), absent]
    code.append(_load(_NUMBER_AT))
    if is_x86:
        code += [_step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), absent]
    for calls, answer in ((_REFUSED, refuse), (_ABSENT, absent)):
        for each in calls.values():
            if (found := number(each)) is not None:
                code += [_step(_JUMP_EQUAL, found, 0, 1), answer]
    argument = [_load(_ARGUMENTS_AT + 8 * index) for index in range(4)]
    mode = [_step(_JUMP_ANY_BIT, _OWNERS_RIGHTS, 0, 1), refuse, _step(_RETURN, _ALLOW)]
    modes = [(call, [argument[at], *mode]) for call, at in _MODES]
    for call, at in _OPEN_MODES:
        makes = [argument[at - 1], _step(_JUMP_ANY_BIT, _MAKES_FILE, 1, 0), _step(_RETURN, _ALLOW)]
        modes.append((call, [*makes, argument[at], *mode]))
    clone = [argument[0], _step(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1), refuse, _step(_RETURN, _ALLOW)]
    ioctl = [argument[1]]
    for request in _REFUSED_IOCTLS:
        ioctl += [_step(_JUMP_EQUAL, request, 0, 1), refuse]
    ioctl.append(_step(_RETURN, _ALLOW))
    # Of netlink only the list of the box's own interfaces, which runtimes ask for.
    sockets = [
        argument[0],
        _step(_JUMP_EQUAL, _AF_UNIX, 6, 0),
        _step(_JUMP_EQUAL, _AF_INET, 5, 0),
        _step(_JUMP_EQUAL, _AF_INET6, 4, 0),
        _step(_JUMP_EQUAL, _AF_NETLINK, 0, 2),
        argument[2],
        _step(_JUMP_EQUAL, 0, 1, 0),
        _fail(errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    for call, block in ((_CLONE, clone), (_IOCTL, ioctl), (_SOCKET, sockets), *modes):
        if (found := number(call)) is not None:
            code += [_step(_JUMP_EQUAL, found, 0, len(block)), *block]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _step(_LOAD, offset)


def _fail(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)
