"""Starting a server in a box: bubblewrap, its limits, and its way out.

How it works. Bubblewrap makes the box and tells the number of its first process, which waits: it and all that
it will start are limited, and where hosts are listed, sockets are made in the box's own network. Then it may
begin. What cannot be done is an error that says so; the server is not started without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from moot.box import box_sockets
from moot.box.box_plan import (
    HOME,
    MAX_REPOSITORIES,
    PROC_FILES,
    PROC_FOLDERS,
    PROXY_PORT,
    RUN_OUTSIDE,
    SYSTEM,
    SYSTEM_FILES,
    BoxDescriptors,
    BoxPlan,
    box_environment,
    box_texts,
    bwrap_arguments,
    is_shown,
    parents_inside,
)
from moot.box.box_support import START_SECONDS, NotConfined, describe_failure, missing_parts
from moot.box.egress_proxy import EgressFact, EgressProxy, FillHead
from moot.box.folder_overlay import FolderOverlay
from moot.box.host_rules import HostRules, read_rules
from moot.box.program_paths import program_paths
from moot.box.resource_limits import BoxGroup, limit_process
from moot.box.syscall_filter import syscall_filter
from moot.config.box_config import BoxConfig
from moot.errors import UsageError
from moot.net.address_check import Resolve, system_resolve
from moot.resilience.child_process import CERTIFICATES, DRAIN_SECONDS, ChildProcess, start_child
from moot.resilience.process_secrets import close_inherited_files

if TYPE_CHECKING:
    from moot.mcp.upstream.server_settings import StdioServer

log = logging.getLogger(__name__)


class Widened(Protocol):
    """What people allowed one box besides what the operator listed."""

    def at_start(self) -> BoxConfig:
        """All that a box which starts now may reach."""

    def hosts(self) -> tuple[str, ...]:
        """The hosts that may be connected to now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """How one server is confined. `start` takes the place of `start_child`."""

    config: BoxConfig
    # What relative paths are relative to.
    folder: Path
    # What is never shown, also inside of folders that are: tokens and journals.
    hidden: tuple[Path, ...] = ()
    # Where its home is kept; None: in memory.
    home: Path | None = None
    # Told of each attempt to connect.
    report: Callable[[EgressFact], None] = field(default=lambda _fact: None, repr=False, compare=False)
    # What was allowed besides `config`, looked up at each start, and for hosts at each connection.
    widened: Widened | None = field(default=None, repr=False, compare=False)
    fill_head: FillHead | None = field(default=None, repr=False, compare=False)
    resolve: Resolve = system_resolve
    # Where what it writes goes instead: then it also reaches no host.
    overlay: FolderOverlay | None = None

    def plan(self, argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> BoxPlan:
        """Look up everything that the box shows; raises UsageError."""
        links = {Path(each): os.readlink(each) for each in SYSTEM if os.path.islink(each)}
        system = [Path(each) for each in SYSTEM if not os.path.islink(each) and os.path.isdir(each)]
        certificates = [environment[name] for name in CERTIFICATES if name in environment]
        files = [Path(each) for each in (*SYSTEM_FILES, *certificates) if os.path.exists(each)]
        write = {path: path.resolve() for path in self._listed("write")}
        own = program_paths(argv, environment, cwd)
        read: dict[Path, Path] = {}
        for path in sorted((*files, *own)):
            if not is_shown(path, (*read, *write)):
                read[path] = path.resolve()
        read |= {path: path.resolve() for path in self._listed("read")}
        read |= {path: path.resolve() for path in self._run_outside(write)}
        hidden = [path for path in self.hidden if path.exists() and is_shown(path, (*read, *write))]
        # What is a mount cannot be moved: else another folder would take the place of a parent of these.
        write |= {path: path.resolve() for path in parents_inside((*read, *hidden), write)}
        for path, real in (*read.items(), *write.items()):
            for writable, base in write.items():
                # The server may have put a link there that leads out, for the next time it is started.
                if path != writable and path.is_relative_to(writable) and not real.is_relative_to(base):
                    raise UsageError(
                        f"its box: {path} leads to {real}, out of {writable}, which the server can change"
                    )
        hidden += [path for each in (*PROC_FOLDERS, *PROC_FILES) if (path := Path(each)).exists()]
        return BoxPlan(
            links=links,
            system=tuple(system),
            read=read,
            write=write,
            hidden_folders=tuple(path for path in hidden if path.is_dir()),
            hidden_files=tuple(path for path in hidden if not path.is_dir()),
            home=self.home,
            cwd=cwd,
        )

    def _run_outside(self, write: Iterable[Path]) -> list[Path]:
        """In folders that the server may change: what is read or run outside of the box by itself."""
        ours = [self.folder / name for name in ("moot.yaml", "space.yaml")]
        # Repositories are often beside each other in one folder.
        inner = [each.parent for folder in write for each in islice(folder.glob("*/.git"), MAX_REPOSITORIES)]
        of_tools = [folder / name for folder in (*write, *inner) for name in RUN_OUTSIDE]
        return [path for path in (*ours, *of_tools) if path.exists() and is_shown(path, write)]

    def shows(self, path: str) -> bool:
        """Whether a path may be in the box: it is listed, or the system's, or ours."""
        listed = [self._path(each) for each in (*self.config.read, *self.config.write)]
        listed += [HOME, *map(Path, (*SYSTEM, *SYSTEM_FILES))]
        own = (Path("/proc"), Path("/dev"), Path("/tmp"), Path(sys.prefix), Path(sys.base_prefix))  # noqa: S108
        return is_shown(Path(os.path.normpath(path)), (*listed, *own))

    def may_change(self, path: Path) -> bool:
        """Whether this path is listed as one to write."""
        return is_shown(path, [self._path(each) for each in self.config.write])

    def read_only(self, path: str) -> str | None:
        """The folder or file to read in which this path is; None if it is in none."""
        listed = (str(self._path(each)) for each in self.config.read)
        return next((each for each in listed if is_shown(Path(os.path.normpath(path)), [Path(each)])), None)

    def _path(self, listed: str) -> Path:
        return Path(os.path.normpath(self.folder / Path(listed).expanduser()))

    def _listed(self, name: str) -> list[Path]:
        paths = []
        for each in getattr(self.config, name):
            path = self._path(each)
            if path == Path("/") or not path.exists():
                why = "is the whole machine" if path == Path("/") else "is not there"
                raise UsageError(f"its box: {name}: {each} {why}; name a folder or file that is")
            paths.append(path)
        return paths

    async def start(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None,
        cwd: Path | str | None,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None] | None = None,
        has_stdin: bool = False,
        ends_with_stdout: bool = False,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> ChildProcess:
        """Start a server in its box; raises UsageError where it cannot be confined."""
        widened = self.widened
        if widened is not None:
            self = replace(self, config=widened.at_start())
        if (why := missing_parts()) is not None:
            raise NotConfined(why)
        # A box must hold nothing of whoever started us. Where we may not look any more, this was done before.
        with suppress(OSError):
            close_inherited_files()
        cwd = Path(cwd or Path.cwd()).absolute()
        environment = dict(environment or {})
        plan = self.plan(argv, environment, cwd)
        rules = read_rules(self.config.network)
        # Where a host may be allowed later, its refusal has to be seen first.
        has_way_out = bool(rules.rules) or widened is not None
        names = {host: f"127.0.1.{index}" for index, host in enumerate(rules.exact_names, 1)}
        if self.home is not None:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = bytearray()

        def on_error(data: bytes) -> None:
            # Bubblewrap's own words, if it fails.
            if len(said) < 4096:
                said.extend(data)
            (on_stderr or on_stdout)(data)

        with ExitStack() as open_files:
            info, info_writer = _pipe(open_files)
            block_reader, block = _pipe(open_files)
            texts = {path: text.encode() for path, text in box_texts(names).items()}
            files = BoxDescriptors(
                filter=_memory_file(syscall_filter(platform.machine()), open_files),
                texts={path: _memory_file(text, open_files) for path, text in texts.items()},
                info=info_writer.fileno(),
                block=block_reader.fileno(),
            )
            command = [shutil.which("bwrap") or "bwrap", *bwrap_arguments(plan, files), *argv]
            passed = [files.filter, *files.texts.values(), files.info, files.block]
            if self.overlay is not None:
                command, channel = self.overlay.wrap(plan, command)
                open_files.callback(channel.close)
                passed.append(channel.fileno())
            child = await start_child(
                command,
                environment=box_environment(environment, has_network=has_way_out),
                # Inside it has another one, which may not be there outside.
                cwd=None,
                on_stdout=on_stdout,
                on_stderr=on_error,
                has_stdin=has_stdin,
                ends_with_stdout=ends_with_stdout,
                drain_seconds=drain_seconds,
                pass_fds=passed,
            )
            info_writer.close()
            try:
                async with asyncio.timeout(START_SECONDS):
                    pid = await _first_process(info)
                    if self.overlay is not None:
                        self.overlay.receive_folders()
                    limit_process(pid, self.config)
                    group = BoxGroup(pid, self.config)
                    child.ended.add_done_callback(lambda _end: _remove(group))
                    if "pids" not in group.limited and os.geteuid() == 0:
                        # The kernel does not count those of root, and there is no group of ours.
                        log.warning("the processes of a box are not limited here: root, and no cgroup")
                    if has_way_out:
                        now = (lambda: rules) if widened is None else (lambda: read_rules(widened.hosts()))
                        if self.overlay is not None:
                            now = lambda: HostRules(())  # noqa: E731  # one of three
                        proxy = EgressProxy(now, self.report, resolve=self.resolve, fill_head=self.fill_head)
                        child.ended.add_done_callback(lambda _end: proxy.close())
                        await _open_way_out(
                            pid,
                            proxy,
                            {names[host]: (host, ports) for host, ports in rules.exact_names.items()},
                        )
                block.write(b".")
            except (OSError, EOFError) as fault:
                child.kill()
                raise NotConfined(describe_failure(said.decode("utf-8", "replace") or str(fault))) from None
            except BaseException:
                child.kill()
                raise
        return child


def boxed(server: StdioServer, box: Box | None) -> StdioServer:
    """The server as it is started in this box; without one, as it is."""
    return server if box is None else replace(server, command=replace(server.command, start=box.start))


async def _first_process(info: BinaryIO) -> int:
    """The first process of the box, as bubblewrap tells it; raises EOFError if there is none."""
    # Not as a transport: one that is cancelled while it is made closes the file, and so do we.
    loop, descriptor, told = asyncio.get_running_loop(), info.fileno(), bytearray()
    whole: asyncio.Future[bool] = loop.create_future()
    os.set_blocking(descriptor, False)

    def read() -> None:
        with suppress(BlockingIOError):
            data = os.read(descriptor, 4096)
            told.extend(data)
            if not whole.done() and (not data or b"}" in told):
                whole.set_result(bool(data))

    loop.add_reader(descriptor, read)
    try:
        is_told = await whole
    finally:
        loop.remove_reader(descriptor)
    if not is_told:
        # Its words come by another pipe, a moment later.
        await asyncio.sleep(DRAIN_SECONDS)
        raise EOFError("bubblewrap ended")
    return int(json.loads(told)["child-pid"])


async def _open_way_out(
    pid: int, proxy: EgressProxy, hosts: Mapping[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Serve in the box's own network: a proxy, and the hosts by their addresses there; raises OSError."""
    direct = [(address, port, host) for address, (host, ports) in hosts.items() for port in ports]
    addresses = [("127.0.0.1", PROXY_PORT), *((address, port) for address, port, _ in direct)]
    ours, theirs = socket.socketpair()
    with ours, theirs, open(f"/proc/{pid}/ns/net", "rb") as network:
        said = bytearray()
        program = [
            sys.executable,
            "-I",
            "-S",
            box_sockets.__file__,
            str(network.fileno()),
            str(theirs.fileno()),
        ]
        helper = await start_child(
            [*program, json.dumps(addresses)],
            environment={},
            cwd=None,
            on_stdout=said.extend,
            pass_fds=(network.fileno(), theirs.fileno()),
        )
        try:
            await asyncio.wait([helper.ended])
        finally:
            helper.kill()
        if helper.ended.result().code != 0:
            lines = said.decode("utf-8", "replace").splitlines()
            raise OSError(f"no way out of the box: {lines[-1] if lines else helper.ended.result()}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, len(addresses))
    listening = [socket.socket(fileno=each) for each in descriptors]
    await proxy.serve(
        listening[0],
        {each: (host, port) for each, (_, port, host) in zip(listening[1:], direct, strict=True)},
    )


def _remove(group: BoxGroup, tries: int = 20) -> None:
    # The last of its processes may take a moment to go.
    if not group.close() and tries > 0:
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(0.1, _remove, group, tries - 1)


def _pipe(open_files: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    reader, writer = os.pipe()
    made = os.fdopen(reader, "rb", buffering=0), os.fdopen(writer, "wb", buffering=0)
    for each in made:
        open_files.callback(each.close)
    return made


def _memory_file(content: bytes, open_files: ExitStack) -> int:
    if sys.platform != "linux":
        raise OSError("files in memory are there on Linux only")
    made = os.fdopen(os.memfd_create("box"), "w+b", buffering=0)
    open_files.callback(made.close)
    made.write(content)
    made.seek(0)
    return made.fileno()
