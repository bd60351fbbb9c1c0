"""nginx and Caddy before a gateway: the files of `deploy/`, with other names, ports and folders in them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from tests.authority import Authority
from tests.waiting import HANG_SECONDS, until_seen

Proxy = Literal["nginx", "caddy"]
DEPLOY: Final = Path(__file__).parents[2] / "deploy"

# nginx' own folders are root's; here everything is in one of the test's.
_NGINX: Final = """
worker_processes 1;
pid {folder}/nginx.pid;
{user}
events {{ worker_connections 256; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/moot.conf;
}}
"""


def free_address() -> tuple[str, int]:
    """An address of this process alone, so that nobody takes the port before the proxy does."""
    pid = os.getpid()
    host = f"127.{100 + (pid >> 16) % 100}.{pid >> 8 & 255}.{max(1, pid & 254)}"
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, probe.getsockname()[1]


def shipped(file: str, changes: Mapping[str, str]) -> str:
    """A file of `deploy/` with these texts exchanged; every one of them has to be in it."""
    text = (DEPLOY / file).read_text("utf-8")
    for old, new in changes.items():
        assert old in text, f"{file} no longer says {old!r}"
        text = text.replace(old, new)
    return text


@contextmanager
def proxied(proxy: Proxy, folder: Path, *, host: str, port: int, ports: Sequence[int]) -> Iterator[Authority]:
    """A proxy with TLS at https://HOST:PORT/moot/ before the gateways at these ports of 127.0.0.1; gives the
    authority of its certificate."""
    authority = Authority(folder, "authority")
    certificate, key = authority.issue(proxy, address=host)
    place = (certificate, key, host, port, [f"127.0.0.1:{each}" for each in ports])
    command = _nginx(folder, *place) if proxy == "nginx" else _caddy(folder, *place)
    output = folder / f"{proxy}.log"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with output.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  # our own line
            command, stdout=log, stderr=log, env=environ, cwd=folder
        )
    try:
        _wait_for_port(host, port, process, output)
        yield authority
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def _nginx(
    folder: Path, certificate: Path, key: Path, host: str, port: int, gateways: list[str]
) -> list[str]:
    changes = {
        "listen 443 ssl http2": f"listen {host}:{port} ssl http2",
        "server_name moot.example.org": f"server_name {host}",
        "/etc/ssl/moot/fullchain.pem": str(certificate),
        "/etc/ssl/moot/privkey.pem": str(key),
        "server 127.0.0.1:8080;": " ".join(f"server {gateway};" for gateway in gateways),
    }
    (folder / "moot.conf").write_text(shipped("nginx/moot.conf", changes), "utf-8")
    # As root it would hand the test's folder to nobody.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, user=user), "utf-8")
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert nginx is not None, "nginx is missing: tools/system_packages.sh installs it"
    return [nginx, "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]


def _caddy(
    folder: Path, certificate: Path, key: Path, host: str, port: int, gateways: list[str]
) -> list[str]:
    changes = {
        "moot.example.org {": f"https://{host}:{port} {{\n\tbind {host}\n\ttls {certificate} {key}",
        "127.0.0.1:8080 {": f"{' '.join(gateways)} {{",
    }
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    file = folder / "Caddyfile"
    file.write_text(options + shipped("caddy/Caddyfile", changes), "utf-8")
    caddy = shutil.which("caddy")
    assert caddy is not None, "caddy is missing: tools/system_packages.sh installs it"
    return [caddy, "run", "--config", str(file), "--adapter", "caddyfile"]


def _wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    def listens() -> bool:
        assert process.poll() is None, output.read_text("utf-8", "replace")
        with socket.socket() as probe:
            return probe.connect_ex((host, port)) == 0

    until_seen(listens, lambda: output.read_text("utf-8", "replace"))
