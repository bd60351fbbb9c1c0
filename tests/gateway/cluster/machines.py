"""Three machines on this one: network namespaces with two networks, one between them and one to their users.

    users ── 10.N.0.0/24 ── gateway 0, 1, 2          NATS 0, 1, 2 and the gateways ── 10.N.1.0/24

`cut` takes a machine off the network between them without a word to anybody, as a broken switch does: its
gateway, its NATS server and its users still reach each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

COUNT = 3


def why_not() -> str | None:
    """Why there cannot be machines here; None if there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"moot-probe-{os.getpid()}"
    try:
        _ip("netns", "add", probe)
        _ip("link", "add", _name("p"), "type", "bridge")
    except subprocess.CalledProcessError as fault:
        return f"network namespaces cannot be made: {fault.stderr.decode().strip()}"
    finally:
        for command in (("netns", "del", probe), ("link", "del", _name("p"))):
            with suppress(subprocess.CalledProcessError):
                _ip(*command)
    return None


class Machines:
    """`outer` are the addresses that users reach, `inner` those between the machines."""

    def __init__(self) -> None:
        # Two that run at once have other networks.
        net = 64 + os.getpid() % 128
        self.outer = [f"10.{net}.0.{index + 1}" for index in range(COUNT)]
        self.inner = [f"10.{net}.1.{index + 1}" for index in range(COUNT)]
        self._bridges = {"o": _name("bo"), "i": _name("bi")}
        self._spaces = [f"moot-{os.getpid()}-{index}" for index in range(COUNT)]
        try:
            for bridge in self._bridges.values():
                _ip("link", "add", bridge, "type", "bridge")
                _ip("link", "set", bridge, "up")
            _ip("addr", "add", f"10.{net}.0.254/24", "dev", self._bridges["o"])
            for index, space in enumerate(self._spaces):
                _ip("netns", "add", space)
                _ip("-n", space, "link", "set", "lo", "up")
                self._join(index, "o", self.outer[index])
                self._join(index, "i", self.inner[index])
        except BaseException:
            self.close()
            raise

    def command(self, index: int) -> tuple[str, ...]:
        """Before a command that shall run on this machine; it is the process itself that runs then."""
        return "ip", "netns", "exec", self._spaces[index]

    def cut(self, index: int) -> None:
        _ip("link", "set", _name(f"i{index}"), "nomaster")

    def heal(self, index: int) -> None:
        _ip("link", "set", _name(f"i{index}"), "master", self._bridges["i"])

    def close(self) -> None:
        for space in self._spaces:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", space)
        for bridge in self._bridges.values():
            with suppress(subprocess.CalledProcessError):
                _ip("link", "del", bridge)

    def _join(self, index: int, network: str, address: str) -> None:
        port, end, space = _name(f"{network}{index}"), f"net-{network}", self._spaces[index]
        _ip("link", "add", port, "type", "veth", "peer", "name", end, "netns", space)
        _ip("link", "set", port, "master", self._bridges[network])
        _ip("link", "set", port, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", end)
        _ip("-n", space, "link", "set", end, "up")


def _name(part: str) -> str:
    """Names of interfaces have 15 characters at most."""
    return f"mt{os.getpid() % 1_000_000}{part}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S603, S607
