"""A gateway behind a real proxy with TLS and a path, and the browser of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# Fixtures: pytest finds them by their names here.
from tests.console.conftest import _no_traceback_in_the_log, loop, watched
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.deploy.proxies import Proxy, free_address, proxied

__all__ = ["_no_traceback_in_the_log", "loop", "watched"]


class Behind(NamedTuple):
    """What is known in front of the proxy, and the gateway behind it."""

    proxy: Proxy
    url: str
    authority: Path
    gateway: Running


@pytest.fixture(params=["nginx", "caddy"])
def behind(request: pytest.FixtureRequest, tmp_path: Path, loop: Loop) -> Iterator[Behind]:
    """https://ADDRESS:PORT/moot: the gateway knows the proxy's name and nothing of the path."""
    proxy: Proxy = request.param
    host, port = free_address()
    gateway = Running(
        tmp_path,
        loop,
        spaces(),
        allowed_hosts=[f"{host}:{port}"],
        allowed_origins=[f"https://{host}:{port}"],
        max_connections_per_address=0,
    )
    try:
        with proxied(proxy, tmp_path, host=host, port=port, ports=[gateway.port]) as authority:
            yield Behind(proxy, f"https://{host}:{port}/moot", authority.file, gateway)
    finally:
        gateway.stop()
