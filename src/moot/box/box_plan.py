"""What a box allows, as the arguments of bubblewrap (`bwrap`). Values in, values out.

How it works. The box starts empty: an own root, process list, network, users, terminal. System folders are
bound read-only; then the program's own files; then what the operator lists, under the same paths as outside,
so that paths in arguments and results mean the same on both sides. The last mounts hide what must stay hidden
inside of those, and the root is made read-only at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# As the server sees them.
HOME: Final = Path("/home/box")
PROXY_PORT: Final = 3128
# 512 MiB of memory for temporary files, and 64 MiB for shared memory: what containers give.
TMP_BYTES: Final = 512 << 20
SHM_BYTES: Final = 64 << 20
# An unprivileged user with a name, whoever runs the box.
_UID: Final = 1000
USERS: Final = f"box:x:{_UID}:{_UID}::{HOME}:/bin/sh\n"
GROUPS: Final = f"box:x:{_UID}:\n"
# Names are found in the file hosts alone: there is no resolver in the box.
NAME_SOURCES: Final = "passwd: files\ngroup: files\nhosts: files\n"
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Of /etc what programs read about the machine, and nothing about its people or its keys.
_ETC: Final = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "gai.conf"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "pki/ca-trust"),
    *("pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "python3", "services", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone"),
)
SYSTEM_FILES: Final = tuple(f"/etc/{name}" for name in _ETC)
# Of /proc what is about the machine and not about a process. Bubblewrap leaves them to the rights of files,
# and root, whose files they are, may write them: /proc/sys names a program that the kernel runs on a crash.
PROC_FOLDERS: Final = tuple(f"/proc/{name}" for name in ("acpi", "bus", "driver", "fs", "irq", "scsi"))
PROC_FILES: Final = tuple(
    f"/proc/{name}"
    for name in (
        *("allocinfo", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount"),
        *("kpageflags", "latency_stats", "modules", "mtrr", "pagetypeinfo", "sched_debug", "slabinfo"),
        *("sysrq-trigger", "timer_list", "vmallocinfo"),
    )
)
# In a folder that a server may change: what git, shells, editors and agents run or obey outside by itself.
RUN_OUTSIDE: Final = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".gitconfig", ".husky"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".envrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
    *(".vscode", ".idea", ".mcp.json", ".claude", ".codex", ".cursor", ".gemini"),
)
# In one folder to write: each is some mounts more.
MAX_REPOSITORIES: Final = 200
_TEXTS: Final = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlan:
    """One box, with every path looked up: what is there was seen by who made this."""

    # Links of the root such as /lib → usr/lib, and the system's folders.
    links: Mapping[Path, str]
    system: tuple[Path, ...]
    # By the path inside: what is shown there, and whether it may be changed.
    read: Mapping[Path, Path]
    write: Mapping[Path, Path]
    # Inside of those, what is never shown.
    hidden_folders: tuple[Path, ...]
    hidden_files: tuple[Path, ...]
    # What the home is kept in; None: in memory, and gone with the box.
    home: Path | None
    cwd: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDescriptors:
    """Open files that bubblewrap inherits, and closes before the server starts."""

    filter: int
    # Of `box_texts`, by path.
    texts: Mapping[str, int]
    info: int
    block: int


def box_texts(names: Mapping[str, str]) -> dict[str, str]:
    """Files that are made for the box. `names`: hosts that have an address of the box's own."""
    hosts = "".join(f"{address} {host}\n" for host, address in names.items())
    local = "127.0.0.1 localhost box\n::1 localhost\n"
    return dict(zip(_TEXTS, (USERS, GROUPS, NAME_SOURCES, local + hosts), strict=True))


def bwrap_arguments(plan: BoxPlan, files: BoxDescriptors) -> list[str]:
    """The arguments of `bwrap`, up to the command itself."""
    words: list[str] = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    words += ["--uid", str(_UID), "--gid", str(_UID), "--hostname", "box", "--cap-drop", "ALL"]
    for link, target in plan.links.items():
        words += ["--symlink", target, str(link)]
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for folder, size in (("/dev/shm", SHM_BYTES), ("/tmp", TMP_BYTES)):  # noqa: S108  # the box's own
        words += ["--perms", "1777", "--size", str(size), "--tmpfs", folder]
    words += ["--remount-ro", "/dev"]
    if plan.home is None:
        words += ["--perms", "0700", "--size", str(TMP_BYTES), "--tmpfs", str(HOME)]
    shown: dict[Path, tuple[str, Path]] = {each: ("--ro-bind", each) for each in plan.system}
    shown |= {inside: ("--ro-bind", outside) for inside, outside in plan.read.items()}
    shown |= {inside: ("--bind", outside) for inside, outside in plan.write.items()}
    if plan.home is not None:
        shown[HOME] = ("--bind", plan.home)
    # A folder before what is inside of it.
    for inside, (how, outside) in sorted(shown.items()):
        words += [how, str(outside), str(inside)]
    for each in plan.hidden_files:
        words += ["--ro-bind", "/dev/null", str(each)]
    for each in plan.hidden_folders:
        # An empty folder that nobody can write to.
        words += ["--perms", "0555", "--size", "4096", "--tmpfs", str(each), "--remount-ro", str(each)]
    for path, descriptor in files.texts.items():
        words += ["--ro-bind-data", str(descriptor), path]
    words += ["--dir", str(plan.cwd)] if not is_shown(plan.cwd, shown) else []
    words += ["--remount-ro", "/", "--chdir", str(plan.cwd)]
    words += ["--seccomp", str(files.filter), "--info-fd", str(files.info), "--block-fd", str(files.block)]
    return [*words, "--"]


def is_shown(path: Path, shown: Iterable[Path]) -> bool:
    """Whether a path is in the box: one of these, or inside of one."""
    return any(path.is_relative_to(each) for each in shown)


def parents_inside(paths: Iterable[Path], write: Iterable[Path]) -> list[Path]:
    """The folders between these paths and the folders to write that they are in."""
    return [
        parent
        for path in paths
        for folder in write
        for parent in path.parents
        if parent != folder and parent.is_relative_to(folder)
    ]


def box_environment(environment: Mapping[str, str], *, has_network: bool) -> dict[str, str]:
    """The variables of the server: those given to it, with a home and a way out of its own."""
    made = {name: value for name, value in environment.items() if name.lower() not in _WAYS_OUT}
    made |= {"HOME": str(HOME), "TMPDIR": "/tmp", "USER": "box", "LOGNAME": "box", "SHELL": "/bin/sh"}  # noqa: S108
    if has_network:
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        for name in ("http_proxy", "https_proxy"):
            made |= {name: proxy, name.upper(): proxy}
        made |= {"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1"}
        # Node.js looks at these variables only when told to.
        made["NODE_USE_ENV_PROXY"] = "1"
    return made


# What leads out of a company's network leads nowhere from inside of a box.
_WAYS_OUT: Final = frozenset({"all_proxy", "http_proxy", "https_proxy", "no_proxy", "node_use_env_proxy"})
