"""One call is one trace over the border to another organisation, and over that of a gateway in a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from mcp import Client
from moot.participant import connect
from moot.protocol.operation import Json
from moot.xprotocol.identity import keyfile
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import participants, space_settings, write_config
from tests.ports import held_port
from tests.tracing.collector import Collector, collecting
from tests.tracing.test_trace_of_a_call import (
    CLIENT,
    GUEST,
    HOST,
    META,
    ROOT,
    SERVER,
    SERVER_KIND,
    TRACE,
    spans_of_the_call,
)
from tests.waiting import HANG_SECONDS, bounded, until, until_told
from tests.warm_start import start_moot
from tests.xprotocol.adapter.test_outbound_end_to_end import answers

# Nobody is cut off, however slow the machine is.
PATIENT: dict[str, Json] = {
    "unavailable_seconds": HANG_SECONDS,
    "stale_seconds": 2 * HANG_SECONDS,
}
Start = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def programs(collector: Collector, folder: Path) -> AsyncIterator[Start]:
    """`start(service, command, …)` runs a program that is traced under that name, to the end of the block."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRICS_EXPORTER": "none",
    }
    async with AsyncExitStack() as stack:

        async def start(service: str, *words: str, program: str = "moot") -> Any:
            errors = stack.enter_context((folder / f"{service}.err").open("wb"))
            named = environ | {"OTEL_SERVICE_NAME": service}
            process = await start_moot(*words, environ=named, cwd=folder, stderr=errors, program=program)

            async def end() -> None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

            stack.push_async_callback(end)
            return process

        yield start


async def test_a_call_of_another_organisations_tool_is_one_trace(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay_port, far_port, near_port = (stack.enter_context(held_port()) for _ in range(3))
        collector = await stack.enter_async_context(collecting())
        start = await stack.enter_async_context(programs(collector, tmp_path))
        relay = f"ws://127.0.0.1:{relay_port}"
        far_key, near_key = (
            keyfile.load_or_create(tmp_path / f"{name}.key").key.text for name in ("far", "near")
        )
        far: dict[str, Json] = {
            "mcp_sources": [
                {
                    "name": "tell",
                    "transport": "stdio",
                    "command": f"{sys.executable} {SERVER}",
                    "xprotocol_namespace": "com.acme.tell",
                }
            ],
            "access": {near_key: ["com.acme.tell.*"]},
            "discovery": {"well_known_port": far_port},
        }
        near: dict[str, Json] = {
            "xprotocol_sources": [{"name": "acme", "key": far_key, "relay": relay}],
            "mcp_server": {"transport": "sse", "sse_port": near_port},
            "discovery": {"well_known_port": 0},
        }
        await start("relay", "xp", "relay", "--port", str(relay_port), "--data", str(tmp_path / "relay"))
        await answers(f"http://127.0.0.1:{relay_port}/health", tmp_path / "relay.err")
        for name, document, port in (("far", far, far_port), ("near", near, near_port)):
            document["identity"] = {"key_file": str(tmp_path / f"{name}.key")}
            document["relay"] = {"urls": [relay]}
            (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(document))
            await start(name, "start", "--config", f"{name}.yml", program="xprotocol-adapter")
            await answers(f"http://127.0.0.1:{port}/health", tmp_path / f"{name}.err")
        async with Client(f"http://127.0.0.1:{near_port}/mcp", mode="2026-07-28") as client:

            async def tool() -> str:
                return next((each.name for each in (await client.list_tools()).tools), "")

            name = await until_told(tool)
            answer = await client.call_tool(name, {}, meta=META)
        told = json.loads(answer.content[0].text)  # type: ignore[union-attr]

        asked = await collector.span("near", f"tools/call {name}", SERVER_KIND)
        sent = await collector.span("near", "tools/call com.acme.tell.tell", CLIENT)
        received = await collector.span("far", "tools/call com.acme.tell.tell", SERVER_KIND)
        forwarded = await collector.span("far", "tools/call tell", CLIENT)
        spans = [asked, sent, received, forwarded]
        assert {span.trace for span in spans} == {TRACE}
        assert [span.parent for span in spans] == [ROOT, asked.id, sent.id, received.id]
        assert told["traceparent"].split("-")[1:3] == [TRACE, forwarded.id]
        assert sent.attributes["moot.endpoint"] == far_key
        assert received.attributes["moot.sender"] == near_key
    # The relay never knew which trace it was.
    for file in [*(tmp_path / "relay").rglob("*"), tmp_path / "relay.err"]:
        assert not file.is_file() or TRACE.encode() not in file.read_bytes(), file.name


async def test_a_call_from_one_gateway_of_a_cluster_to_the_other_is_one_trace(tmp_path: Path) -> None:
    people = participants(guest=GUEST, alice=["*"], tool=HOST)
    for name in people:
        file = tmp_path / f"{name}.token"
        file.write_text(f"t-{name}\n")
        file.chmod(0o600)
    servers = NatsServers(tmp_path)
    try:
        async with (
            collecting() as collector,
            programs(collector, tmp_path) as start,
        ):
            urls = []
            for name in ("a", "b"):
                folder = tmp_path / name
                folder.mkdir()
                cluster: dict[str, Json] = {
                    "servers": servers.addresses,
                    "name": "traced",
                    "gateway": name,
                    "replicas": 1,
                    "shards": 1,
                    **PATIENT,
                }
                spaces: dict[str, Json] = {"lab": space_settings(people)}
                config = write_config(
                    folder, {"gateway": {"port": 0, "data": "data", "cluster": cluster}, "spaces": spaces}
                )
                gateway = await start(f"gateway-{name}", "serve", str(config))
                async with bounded():
                    line = (await gateway.stdout.readline()).decode()
                urls.append(next(word for word in line.split() if word.startswith("http")))

            async def member(name: str, url: str, command: str, *words: str) -> Any:
                place = ("--gateway", url, "--space", "lab", "--token-file", str(tmp_path / f"{name}.token"))
                return await start(name, command, *place, *words)

            here, there = urls
            async with connect(there, "lab", "t-alice") as person:
                await member("tool", there, "bridge", "--", sys.executable, str(SERVER))
                served = await member("guest", here, "mcp", "--http", "127.0.0.1:0")
                async with bounded():
                    url = (await served.stdout.readline()).decode().split()[-1]
                    await person.roster.wait_for("tool", timeout_seconds=HANG_SECONDS)
                async with Client(url, mode="2026-07-28") as client:

                    async def is_offered() -> bool:
                        return "tell" in {each.name for each in (await client.list_tools()).tools}

                    # The gateway here may know of it later than the one there.
                    await until_told(is_offered)
                    calling = asyncio.create_task(client.call_tool("tell", {}, meta=META))
                    proposal = (await until(lambda: person.proposals.open()))[0]
                    await member("alice", there, "approve", proposal.id)
                    async with bounded():
                        told = json.loads((await calling).content[0].text)  # type: ignore[union-attr]

            await spans_of_the_call(collector, "guest", "alice", "tool", told)
    finally:
        servers.close()
