"""Runs a whole space: the gateway, the members that it starts and the MCP servers that it bridges.

    runner = SpaceRunner(configuration, secrets, folder=…, environ=…, selection=…)
    await runner.run(stop)      # until `stop` is set; then members, servers and gateway end in this order

Each part has its own task and fails alone: whatever one member or server does, the others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import msgspec

from moot.config import hash_token
from moot.config.configuration import Configuration, MemberConfig
from moot.config.connect_settings import tokens_of
from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.resilience.task_set import wait_for_any
from moot.up.bridged_server import BridgedServer
from moot.up.local_cluster import LocalCluster
from moot.up.member_process import member_process
from moot.up.orphan_cleanup import RunFile, end_orphans, lock_data_folder
from moot.up.part_status import PartStatus
from moot.up.reload_report import findable_gateway
from moot.up.supervised_process import SupervisedProcess
from moot.up.template_vars import TemplateVars

log = logging.getLogger(__name__)

Part = SupervisedProcess | BridgedServer
# Space, name, and whether it is a process of ours (member) or a bridged server.
Key = tuple[str, str, str]


class StartSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which members to start besides those with `auto_start`, and which not to."""

    also: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    @property
    def named(self) -> frozenset[str]:
        return self.also | self.without

    def start(self, name: str, member: MemberConfig) -> bool:
        return name not in self.without and (member.auto_start or name in self.also)


class SpaceRunner:
    """Everything that one configuration describes, running."""

    def __init__(
        self,
        configuration: Configuration,
        secrets: Mapping[str, Secret],
        *,
        folder: Path,
        environ: Mapping[str, str],
        selection: StartSelection,
        cluster: LocalCluster | None = None,
    ) -> None:
        check_selection(configuration, selection)
        self.configuration = configuration
        self.gateway = Gateway(configuration)
        self.gateway.rotation.on_replaced = self._on_token_replaced
        # Set whenever the status of a part changed; the view clears it.
        self.changed = asyncio.Event()
        self.ready = asyncio.Event()
        self.is_stopping = False
        # Messages for the person at the terminal.
        self.notes: list[str] = []
        self._secrets = secrets
        self._folder = folder
        self._environ = environ
        self._selection = selection
        self._cluster = cluster
        if cluster is not None:
            cluster.on_change = self._on_change
        self._parts: dict[Key, Part] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        # What each part was started with, and by space and name what an administrator has given out since.
        self._configs: dict[Key, MemberConfig] = {}
        self._tokens: dict[Key, Secret] = {}
        self._replaced: dict[tuple[str, str], Secret] = {}
        # Parts are ended and started by one task at a time.
        self._changing = asyncio.Lock()
        self._idle: dict[Key, str] = {}
        self._broken: set[Key] = set()
        self._group: asyncio.TaskGroup | None = None
        self._run_file: RunFile | None = None
        self._started_at = 0.0

    @property
    def data(self) -> Path:
        return self.configuration.gateway.data

    @property
    def url(self) -> str:
        """How members on this machine reach the gateway."""
        return self.gateway.addresses.machine_url

    @property
    def other_urls(self) -> list[str]:
        """The addresses of the other gateways of a cluster on this machine."""
        return [] if self._cluster is None else self._cluster.urls

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set and leave no process behind; raises UsageError when it cannot start."""
        with lock_data_folder(self.data), findable_gateway(self.data):
            for name in await end_orphans(self.data):
                self.notes.append(f"{name}: ended, it was left over from an earlier `moot up`")
            self._run_file = RunFile(self.data)
            try:
                await self._run_all(stop)
            finally:
                self._run_file.remove()

    async def _run_all(self, stop: asyncio.Event) -> None:
        cluster = self._cluster
        async with nullcontext() if cluster is None else cluster.servers():
            try:
                await self.gateway.start()
            except UsageError as fault:
                if cluster is None:
                    raise
                raise UsageError(f"{fault}. {cluster.fresh_start_hint}") from None
            self._started_at = asyncio.get_running_loop().time()
            try:
                async with (
                    nullcontext() if cluster is None else cluster.gateways(),
                    self._mcp(),
                ):
                    assert self._run_file is not None  # noqa: S101  # only while running
                    self._run_file.add({"url": self.url, "spaces": list(self.configuration.spaces)})
                    await self._run_parts(stop)
            finally:
                await self.gateway.stop()
                self.gateway.check_on_disk()

    def _mcp(self) -> AbstractAsyncContextManager[None]:
        if not self.gateway.config.mcp:
            return nullcontext()
        # Only here: a space without it starts sooner.
        from moot.up.mcp_endpoint import serve_mcp

        return serve_mcp(self.gateway)

    async def _run_parts(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                self._start_parts(self._wanted(self.configuration))
                self._on_change()
                self.ready.set()
                fault = await self._wait_end(stop)
                self.is_stopping = True
                self.cancel_parts()
            finally:
                self._group = None
        if fault is not None:
            raise fault

    async def _wait_end(self, stop: asyncio.Event) -> UsageError | None:
        """Wait until we are to stop, or the gateway cannot go on; why, in that case."""
        failed = asyncio.create_task(self.gateway.wait_failed())
        try:
            await wait_for_any(stop.wait(), failed)
        finally:
            failed.cancel()
        return failed.result() if failed.done() else None

    def cancel_parts(self) -> None:
        """Cancel every part: the first time they stop gently, the second time at once."""
        for task in self._tasks.values():
            task.cancel()

    async def reload(self, configuration: Configuration, secrets: Mapping[str, Secret]) -> list[str]:
        """Apply a changed configuration: new members start, removed or changed ones end; returns notes."""
        notes = self.gateway.reload(configuration)
        # Whoever was removed must go, however it was named at the start.
        notes += [
            f"no member or server is called {name} any more, as --start or --without says"
            for name in sorted(self._selection.named - _startable(configuration))
        ]
        self._secrets = secrets
        # New spaces need a restart, and a note says so; until then nobody can join them.
        spaces = {
            name: settings
            for name, settings in configuration.spaces.items()
            if name in self.configuration.spaces
        }
        self.configuration = Configuration(
            gateway=self.configuration.gateway, spaces=spaces, notes=configuration.notes
        )
        await self._apply()
        return notes

    async def _apply(self) -> None:
        """Start and end parts until those run that are wanted, each with a token that is valid."""
        async with self._changing:
            self._idle.clear()
            wanted = self._wanted(self.configuration)
            gone = [
                key
                for key in self._parts
                if wanted.get(key) != self._configs[key]
                or self._token(*key[:2]) != self._tokens[key]
                or self._parts[key].gave_up
            ]
            for key in gone:
                self._tasks[key].cancel()
            if gone:
                await asyncio.wait([self._tasks[key] for key in gone])
            for key in gone:
                del self._parts[key], self._tasks[key]
            if self._group is not None and not self.is_stopping:
                self._start_parts({key: config for key, config in wanted.items() if key not in self._parts})
            self._on_change()

    def _on_token_replaced(self, space: str, name: str, token: Secret) -> None:
        """Whoever was started here with the old token is started again with the new one."""
        self._replaced[space, name] = token
        if self._group is not None and any(key[:2] == (space, name) for key in self._parts):
            self._group.create_task(self._apply(), name=f"token of {name}")

    def _token(self, space: str, name: str) -> Secret | None:
        """A token with which this participant has all its rights now; None if none is known."""
        replaced = self._replaced.get((space, name))
        found = [] if replaced is None else [replaced]
        found += tokens_of(self.configuration.spaces[space], name, self._secrets)
        admits = self.gateway.admits
        return next((token for token in found if admits(space, name, hash_token(token.reveal()))), None)

    def statuses(self) -> list[PartStatus]:
        """The status of everything: the gateway first, then each space's servers, members and people."""
        found = [
            PartStatus(
                space="",
                name="gateway",
                kind="gateway",
                state="stopping" if self.is_stopping else "running",
                since=self._started_at,
                joined=True,
                message=self.gateway.url,
            )
        ]
        if self._cluster is not None:
            found += self._cluster.statuses()
        for space in self.configuration.spaces:
            found += self._statuses_of(space)
        return found

    def open_proposals(self) -> int | None:
        """How many proposals wait for a decision, in all spaces; None while this gateway does not know."""
        hosts = self.gateway.directory.hosts.values()
        if not self.gateway.directory.serves_all():
            return None
        return sum(len(host.space.state.ledger.all_open()) for host in hosts)

    # Inside

    def _wanted(self, configuration: Configuration) -> dict[Key, MemberConfig]:
        wanted: dict[Key, MemberConfig] = {}
        for space, settings in configuration.spaces.items():
            for name, member in settings.members.items():
                for kind in _kinds(member):
                    if self._selection.start(name, member):
                        wanted[space, name, kind] = member
                    else:
                        self._idle[space, name, kind] = f"not started; start it with `moot up --start {name}`"
        return dict(sorted(wanted.items(), key=lambda item: item[0][2] != "server"))

    def _start_parts(self, wanted: Mapping[Key, MemberConfig]) -> None:
        assert self._group is not None  # noqa: S101  # only while running
        for key, config in wanted.items():
            space, name, kind = key
            token = self._token(space, name)
            if token is None:
                self._idle[key] = "not started: it has no valid token with all its rights"
                continue
            self._configs[key], self._tokens[key] = config, token
            part = self._part(key, config, self._variables(space, name, token))
            self._parts[key] = part
            self._tasks[key] = self._group.create_task(self._guarded(key, part), name=f"{kind} {name}")

    def _part(self, key: Key, config: MemberConfig, variables: TemplateVars) -> Part:
        space, name, kind = key
        several = len(self.configuration.spaces) > 1
        within = Path(space) if several else Path()
        both = len(list(_kinds(config))) > 1
        log_name = f"{name}-mcp.log" if both and kind == "server" else f"{name}.log"
        logs = self.data / "logs" / within / log_name
        if kind == "server":
            pins = self.data / "pins" / within / f"{name}.json"
            return BridgedServer(config, variables, logs, pins=pins, on_change=self._on_change)
        return member_process(config, variables, logs, on_change=self._on_change)

    def _variables(self, space: str, name: str, token: Secret) -> TemplateVars:
        settings = self.configuration.spaces[space]
        return TemplateVars(
            gateway=",".join([self.url, *self.other_urls]),
            port=self.gateway.port,
            space=space,
            name=name,
            folder=self._folder,
            token=token,
            token_file=settings.token_files.get(name),
            environ=self._environ,
        )

    async def _guarded(self, key: Key, part: Part) -> None:
        try:
            await part.run()
        except Exception:
            # A part's task: a bug in one of them must not end the others.
            log.exception("a part of the space broke", extra={"space": part.space, "participant": part.name})
            self._broken.add(key)
            self._on_change()

    def _on_change(self) -> None:
        self.changed.set()
        if self._run_file is not None and not self.is_stopping:
            pids = {f"{space}/{name}": part.pid for (space, name, _), part in self._parts.items()}
            pids |= {} if self._cluster is None else self._cluster.pids()
            self._run_file.write({name: pid for name, pid in pids.items() if pid is not None})

    def _statuses_of(self, space: str) -> Iterator[PartStatus]:
        present = self._present(space)
        started = set()
        for key, part in self._parts.items():
            if key[0] == space:
                started.add(part.name)
                yield self._with_presence(key, part.status(), part.name in present)
        for (where, name, kind), message in self._idle.items():
            if where == space:
                started.add(name)
                yield PartStatus(
                    space=space,
                    name=name,
                    kind="server" if kind == "server" else "member",
                    state="idle",
                    joined=name in present,
                    message=message,
                )
        for name in sorted(present - started):
            yield PartStatus(space=space, name=name, kind="person", state="running", joined=True)

    def _with_presence(self, key: Key, status: PartStatus, joined: bool) -> PartStatus:
        status = msgspec.structs.replace(status, joined=joined)
        if key not in self._broken:
            return status
        message = "failed by a bug in moot; see logs/gateway.log"
        return msgspec.structs.replace(status, state="ended", message=message)

    def _present(self, space: str) -> set[str]:
        host = self.gateway.directory.hosts.get(space)
        return set() if host is None else {str(one.name) for one in host.space.state.roster.present()}


def check_selection(configuration: Configuration, selection: StartSelection) -> None:
    """Raises UsageError for a name that is neither a member nor a server."""
    startable = _startable(configuration)
    unknown = sorted(selection.named - startable)
    if unknown:
        those = f"choose from {', '.join(sorted(startable))}" if startable else "the configuration has none"
        raise UsageError(f"no member or server is called {', '.join(unknown)}: {those}")


def _startable(configuration: Configuration) -> frozenset[str]:
    return frozenset(
        name
        for settings in configuration.spaces.values()
        for name, member in settings.members.items()
        if any(_kinds(member))
    )


def _kinds(member: MemberConfig) -> Iterator[str]:
    if member.mcp_server is not None:
        yield "server"
    if member.command is not None:
        yield "member"
