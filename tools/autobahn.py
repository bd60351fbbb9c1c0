"""Runs the Autobahn test suite against the WebSocket server of Moot: `python -m tools.autobahn PYTHON2`.

The suite is from PyPI (`autobahntestsuite`) and runs on Python 2.7 only; pyenv builds one. PYTHON2 is such an
interpreter. The first run makes an environment for it under `--folder`, the following ones use it again:

    pyenv install 2.7.18
    .venv/bin/python -m tools.autobahn ~/.pyenv/versions/2.7.18/bin/python

All cases but those of compression (12, 13), which is never agreed, are run against an echo server whose
connections are those of the gateway. It takes some minutes and is no part of `make test`. The exit code is 0
if every case passed. `--pure` reads frames without the compiled part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

# What the suite asks for, as far as it is used; without TLS, whose OpenSSL of then is no longer to be had.
REQUIREMENTS: Final = (
    "typing==3.10.0.0",
    "incremental==17.5.0",
    "six==1.16.0",
    "attrs==21.4.0",
    "Twisted==20.3.0",
    "txaio==2.1.0",
    "autobahn==0.10.9",
    "jinja2==2.11.3",
    "markupsafe==1.1.1",
    "Werkzeug==1.0.1",
    "klein==17.10.0",
    "unittest2==1.1.0",
)
SUITE: Final = "autobahntestsuite==25.10.1"
# The suite imports TLS even where it does not use it.
LAUNCH: Final = """
import os, site, sys, types
# Packages of a namespace (zope) are found by this only.
site.addsitedir(os.environ["PYTHONPATH"])
import twisted.internet
tls = types.ModuleType("twisted.internet.ssl")
for name in ("ClientContextFactory", "DefaultOpenSSLContextFactory", "ContextFactory"):
    setattr(tls, name, object)
sys.modules["twisted.internet.ssl"] = twisted.internet.ssl = tls
from autobahntestsuite.wstest import run
run()
"""
# The largest message of the suite, and the smallest pieces that it cuts one into.
MESSAGE_BYTES: Final = 16 << 20
MESSAGE_FRAGMENTS: Final = MESSAGE_BYTES // 64 + 1
PASSED: Final = frozenset({"OK", "NON-STRICT", "INFORMATIONAL"})
TIMEOUT_SECONDS: Final = 1_800


class Echo:
    """Sends every message back."""

    subprotocol: str | None = None
    max_first_bytes: int | None = None

    def opened(self, connection: object) -> None:
        self.connection = connection

    def received(self, data: bytes, binary: bool) -> None:
        from moot.net.websocket_frame import BINARY, TEXT, encode_frame

        self.connection.write(encode_frame(data, BINARY if binary else TEXT))  # type: ignore[attr-defined]

    def closed(self) -> None: ...

    def full(self) -> None: ...

    def drained(self) -> None: ...

    def flush(self) -> None: ...


async def _no_pages(_scope: object, _receive: object, _send: object) -> None:
    """There is nothing but WebSockets."""


async def serve_while_tested(command: list[str], folder: Path, only: list[str]) -> int:
    """The suite's exit code."""
    from moot.net import websocket_server
    from moot.net.http_listener import HttpListener, bind_socket
    from moot.net.http_protocol import ConnectionLimiter
    from moot.net.websocket_server import WebSocketServer

    listening = bind_socket("127.0.0.1", 0)
    limiter = ConnectionLimiter()
    websocket_server.MAX_MESSAGE_FRAGMENTS = MESSAGE_FRAGMENTS  # type: ignore[misc]  # as its tests need
    websockets = WebSocketServer(lambda _: Echo(), limiter.release, max_message_bytes=MESSAGE_BYTES)
    listener = HttpListener(_no_pages, limiter, websockets=websockets)
    await listener.listen(listening)
    spec = folder / "fuzzingclient.json"
    target = {"agent": "Moot", "url": f"ws://127.0.0.1:{listening.getsockname()[1]}"}
    spec.write_text(
        json.dumps(
            {
                "outdir": str(folder / "reports"),
                "servers": [target],
                "cases": only,
                "exclude-cases": ["12.*", "13.*"],
                "exclude-agent-cases": {},
            }
        )
    )
    suite = await asyncio.create_subprocess_exec(*command, "-m", "fuzzingclient", "-s", str(spec))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await suite.wait()
    finally:
        if suite.returncode is None:
            suite.kill()
        await listener.stop()
        listening.close()


def make_environment(python: str, folder: Path) -> str:
    """An interpreter that has the suite."""
    site = folder / "site"
    if not (site / "autobahntestsuite").is_dir():
        # Twisted's setup asks for a newer `incremental` than there is for Python 2, unless it finds this one.
        environment = dict(os.environ, PYTHONPATH=str(site), PIP_DISABLE_PIP_VERSION_CHECK="1")
        install = [python, "-m", "pip", "install", "--quiet", "--target", str(site)]
        subprocess.run([*install, "setuptools==44.1.1", *REQUIREMENTS[:4]], check=True, env=environment)
        subprocess.run([*install, *REQUIREMENTS], check=True, env=environment)
        subprocess.run([*install, "--no-deps", SUITE], check=True, env=environment)
    os.environ["PYTHONPATH"] = str(site)
    return python


def report(folder: Path) -> bool:
    """Print how many cases came out how, and those that failed."""
    results = json.loads((folder / "reports" / "index.json").read_text())["Moot"]
    failed = {
        case: (result["behavior"], result["behaviorClose"])
        for case, result in results.items()
        if result["behavior"] not in PASSED or result["behaviorClose"] not in PASSED
    }
    print("behaviour:", dict(Counter(result["behavior"] for result in results.values())))
    print("closing:  ", dict(Counter(result["behaviorClose"] for result in results.values())))
    for case, outcome in failed.items():
        print("failed:", case, *outcome)
    print(f"{len(results) - len(failed)} of {len(results)} cases passed; details in {folder / 'reports'}")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("python", help="an interpreter of Python 2.7 with pip")
    parser.add_argument("--folder", type=Path, default=Path(".autobahn"), help="environment and reports")
    parser.add_argument("--pure", action="store_true", help="without the compiled frame reader")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--cases", nargs="+", default=["*"], help="such as 7.* (default: all)")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.pure:
        os.environ["MOOT_PURE_PYTHON"] = "1"
    python = make_environment(asked.python, asked.folder.resolve())
    from moot.net.event_loop import new_event_loop

    make_loop = new_event_loop if asked.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        code = runner.run(serve_while_tested([python, "-c", LAUNCH], asked.folder.resolve(), asked.cases))
    return 0 if code == 0 and report(asked.folder.resolve()) else 1


if __name__ == "__main__":
    sys.exit(main())
