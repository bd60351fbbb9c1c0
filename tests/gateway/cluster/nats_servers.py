"""NATS servers with JetStream for tests: real processes on loopback, one or three of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.gateway.cluster.machines import Machines
from tests.ports import held_port
from tests.waiting import until_seen

BINARY = Path(sys.executable).parent / "nats-server"


class NatsServers:
    """`count` servers in one NATS cluster; a single one is no cluster."""

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        extra: str = "",
        *,
        jetstream: str = "",
        machines: Machines | None = None,
    ) -> None:
        """`extra` are lines of the configuration, `jetstream` those of its part of that name."""
        self.folder = folder
        self._extra, self._jetstream = extra, jetstream
        self._held = ExitStack()
        self._machines = machines
        if machines is None:
            self.ports, self._routes, self._monitors = (
                [self._held.enter_context(held_port()) for _ in range(count)] for _ in range(3)
            )
            self._inner = self._outer = ["127.0.0.1"] * count
        else:
            self.ports, self._routes, self._monitors = ([port] * count for port in (4222, 6222, 8222))
            self._inner, self._outer = machines.inner, machines.outer
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * count
        for index in range(count):
            self.start(index)
        self.wait_healthy()

    @property
    def addresses(self) -> list[str]:
        return [f"nats://{host}:{port}" for host, port in zip(self._inner, self.ports, strict=True)]

    def store(self, index: int) -> Path:
        """Where this server keeps its streams."""
        return self.folder / f"n{index}"

    def start(self, index: int) -> None:
        routes = ", ".join(
            f"nats://{host}:{port}" for host, port in zip(self._inner, self._routes, strict=True)
        )
        lines = [
            f"server_name: n{index}",
            f"listen: {self._inner[index]}:{self.ports[index]}",
            f"http: {self._outer[index]}:{self._monitors[index]}",
            f'jetstream {{\n store_dir: "{self.store(index)}"\n {self._jetstream}\n}}',
            self._extra,
        ]
        if len(self.ports) > 1:
            here = f"{self._inner[index]}:{self._routes[index]}"
            lines.append(f"cluster {{ name: c, listen: {here}, routes: [{routes}] }}")
        config = self.folder / f"n{index}.conf"
        config.write_text("\n".join(lines) + "\n")
        log = str(self.folder / f"n{index}.log")
        before = () if self._machines is None else self._machines.command(index)
        self.processes[index] = subprocess.Popen(  # noqa: S603  # our own
            [*before, BINARY, "-c", str(config), "-l", log]
        )

    def add(self) -> int:
        """One more server, on loopback, that finds the others."""
        for ports in (self.ports, self._routes, self._monitors):
            ports.append(self._held.enter_context(held_port()))
        self._inner, self._outer = [*self._inner, "127.0.0.1"], [*self._outer, "127.0.0.1"]
        self.processes.append(None)
        self.start(len(self.ports) - 1)
        return len(self.ports) - 1

    def kill(self, index: int) -> None:
        process = self.processes[index]
        assert process is not None
        process.kill()
        process.wait()
        self.processes[index] = None

    def send(self, index: int, number: signal.Signals) -> None:
        process = self.processes[index]
        assert process is not None
        process.send_signal(number)
        if number is signal.SIGSTOP:
            # A busy machine lets its threads run on for a while, and they would still answer.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def wait_healthy(self) -> None:
        until_seen(lambda: all(map(self._is_healthy, range(len(self.ports)))))

    def _is_healthy(self, index: int) -> bool:
        try:
            with urllib.request.urlopen(  # our own
                f"http://{self._outer[index]}:{self._monitors[index]}/healthz", timeout=1
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.02)
            return False

    def close(self) -> None:
        for index, process in enumerate(self.processes):
            if process is not None:
                process.send_signal(signal.SIGCONT)
                self.kill(index)
        self._held.close()
