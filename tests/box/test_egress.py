"""The way out of a box: only to hosts that are listed, only to public addresses, and each attempt is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.box.egress_proxy import EgressFact
from moot.box.host_rules import read_rules
from moot.config.box_config import BoxConfig
from tests.rows import for_each_row
from tests.waiting import bounded

_TRIES = Path(__file__).with_name("egress_tries.py")


@pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")
async def test_a_box_reaches_the_listed_hosts_and_nothing_else(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 Reached\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = {
        "api.test": ["127.0.0.1"],
        "private.test": ["10.1.2.3"],
        "mixed.test": ["93.184.216.34", "169.254.169.254"],
        "a.wild.test": ["127.0.0.1"],
        "metadata.test": ["169.254.169.254"],
        "mapped.test": ["::ffff:10.0.0.1"],
        "zero.test": ["0.0.0.0"],  # noqa: S104
    }
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        # The second answer of a name would lead inside.
        found["rebound.test"] = ["192.168.0.1"] if asked.count("rebound.test") > 1 else ["127.0.0.1"]
        return found.get(host, [host])

    # The address itself is listed, so that names may lead to it: the service of this test.
    names = [f"{host}:{port}" for host in ("api.test", "rebound.test", "*.wild.test")]
    listed = (
        *names,
        f"127.0.0.1:{port}",
        *(host for host in found if host not in ("api.test", "a.wild.test")),
    )
    facts: list[EgressFact] = []
    box = Box(
        config=BoxConfig(network=listed, read=(str(_TRIES),)),
        folder=tmp_path,
        report=facts.append,
        resolve=resolve,
    )

    def connect(target: str) -> tuple[str, str]:
        return "proxy", f"CONNECT {target} HTTP/1.1\r\n\r\n"

    def get(target: str) -> tuple[str, str]:
        return "proxy", f"GET {target} HTTP/1.1\r\nHost: elsewhere.test\r\nProxy-Authorization: x\r\n\r\n"

    rows: list[tuple[tuple[object, ...], str]] = [
        (connect(f"api.test:{port}"), "204 Reached"),
        (connect(f"API.test.:{port}"), "204 Reached"),
        (connect(f"a.wild.test:{port}"), "204 Reached"),
        (connect(f"127.0.0.1:{port}"), "204 Reached"),
        (get(f"http://api.test:{port}/x?y"), "204 Reached"),
        # Programs that know no proxy connect to the name itself.
        (("direct", "api.test", port), "204 Reached"),
        (connect(f"rebound.test:{port}"), "204 Reached"),
        (connect(f"rebound.test:{port}"), "403 Forbidden"),
        *(
            (connect(target), "403 Forbidden")
            for target in (
                *("elsewhere.test:443", f"wild.test:{port}", "api.test:22", "127.0.0.1:22", "localhost:80"),
                *(
                    "private.test:443",
                    "mixed.test:443",
                    "metadata.test:80",
                    "mapped.test:443",
                    "zero.test:80",
                ),
                *("169.254.169.254:80", "[fd00:ec2::254]:80", f"[::ffff:127.0.0.1]:{port + 1}"),
                *("2130706433:80", "0x7f.1:80", "127.1:80", f"api.test.evil.test:{port}"),
            )
        ),
        (get("http://169.254.169.254/latest/meta-data"), "403 Forbidden"),
        (get("http://private.test/"), "403 Forbidden"),
        (get(f"http://api.test@private.test:{port}/"), "400 Bad Request"),
        (get("https://api.test/"), "400 Bad Request"),
        (get("/only-a-path"), "400 Bad Request"),
        (connect("api.test"), "400 Bad Request"),
        (("proxy", "nonsense\r\n\r\n"), "400 Bad Request"),
        (("direct", "elsewhere.test", 443), "gaierror"),
        (("direct", "10.1.2.3", 443), "OSError"),
    ]
    output, faults = bytearray(), bytearray()
    argv = [sys.executable, "-I", "-S", str(_TRIES), json.dumps([what for what, _ in rows])]
    async with server, bounded():
        child = await box.start(
            argv, environment={}, cwd=tmp_path, on_stdout=output.extend, on_stderr=faults.extend
        )
        await asyncio.wait([child.ended])
        child.kill()
    assert output, faults.decode()
    outcomes = json.loads(output)
    assert [(what, outcome) for (what, _), outcome in zip(rows, outcomes, strict=True)] == rows
    assert {str(fact) for fact in facts if fact.refusal is None} == {
        f"{host}:{port}" for host in ("api.test", "a.wild.test", "rebound.test", "127.0.0.1")
    }
    assert "10.1.2.3, a private address" in next(
        fact.refusal or "" for fact in facts if fact.host == "private.test"
    )
    # What is not listed is not even looked up: a name alone would carry something out.
    assert not any("elsewhere" in name or "evil" in name for name in asked)
    sent = heard[4].decode()
    assert sent.startswith("GET /x?y HTTP/1.1\r\nHost: api.test")
    assert "Proxy-" not in sent


@for_each_row(
    "listed, host, port, allowed",
    [
        ("api.example.org", "api.example.org", 443, True),
        ("api.example.org", "api.example.org", 80, True),
        ("api.example.org", "api.example.org", 22, False),
        ("api.example.org:8443", "api.example.org", 443, False),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "badexample.org", 443, False),
        ("*", "any.example.org", 443, True),
        ("*", "10.0.0.1", 443, False),
        ("*", "93.184.216.34", 443, False),
        ("10.0.0.1:5432", "10.0.0.1", 5432, True),
        ("[::1]:80", "::1", 80, True),
    ],
)
def test_hosts_are_matched_as_they_are_listed(listed: str, host: str, port: int, allowed: bool) -> None:
    assert read_rules((listed,)).allows(host, port) is allowed
