"""A load balancer before a cluster leads the members of a space to one gateway."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.deploy.proxies import Proxy, free_address, proxied
from tests.waiting import HANG_SECONDS

SPACES = [f"space{number}" for number in range(30)]


class TellPort(BaseHTTPRequestHandler):
    """Stands for a gateway: whatever is asked for, it tells which one it is."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = str(self.server.server_port).encode()  # type: ignore[attr-defined]  # of every server
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def three_gateways() -> Iterator[list[int]]:
    with ExitStack() as stack:
        ports = []
        for _ in range(3):
            server = ThreadingHTTPServer(("127.0.0.1", 0), TellPort)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        yield ports


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_the_members_of_a_space_come_to_one_gateway_and_the_spaces_to_all(
    proxy: Proxy, tmp_path: Path
) -> None:
    host, port = free_address()
    with three_gateways() as ports, proxied(proxy, tmp_path, host=host, port=port, ports=ports) as authority:
        tls = ssl.create_default_context(cafile=authority.file)
        with httpx.Client(verify=tls, trust_env=False, timeout=HANG_SECONDS) as client:

            def gateway_for(path: str) -> int:
                return int(client.get(f"https://{host}:{port}/moot/{path}").text)

            sockets = {space: {gateway_for(f"ws?space={space}") for _ in range(4)} for space in SPACES}
            assert all(len(each) == 1 for each in sockets.values())
            assert set.union(*sockets.values()) == set(ports)
            assert {gateway_for("spaces") for _ in range(60)} == set(ports)
            assert sockets == {space: {gateway_for(f"spaces/{space}/history")} for space in SPACES}
