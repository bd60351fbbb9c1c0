"""One call from an MCP client to a tool and back is one trace, whoever takes part in it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mcp import Client
from moot import tracing
from moot.errors import UsageError
from moot.participant import connect
from moot.protocol.operation import Json
from tests.gateway.running_gateway import participants, running_gateway
from tests.tracing.collector import Collector, ReceivedSpan, collecting
from tests.waiting import bounded, until
from tests.warm_start import start_moot

SERVER = Path(__file__).with_name("telling_server.py")
HOST: list[Any] = [
    "mcp/response",
    "mcp/reject",
    "chat",
    {"kind": "mcp/request", "payload": {"method": "notifications/*"}},
]
LISTS = {"kind": "mcp/request", "payload": {"method": "*/list"}}
GUEST: list[Any] = ["mcp/proposal", "mcp/withdraw", "chat", LISTS]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, ROOT = PARENT.split("-")[1:3]
META: Any = {"traceparent": PARENT}
INTERNAL, SERVER_KIND, CLIENT = 1, 2, 3


async def spans_of_the_call(
    collector: Collector, guest: str, person: str, bridge: str, told: dict[str, Json]
) -> list[ReceivedSpan]:
    """The spans of META's call, by which service told them; each is the child of the one that led to it."""
    name = "tools/call tell"
    asked = await collector.span(guest, name, SERVER_KIND)
    proposed = await collector.span(guest, name, CLIENT)
    waited = await collector.span(guest, "approval", INTERNAL)
    approved = await collector.span(person, name, CLIENT)
    handled = await collector.span(bridge, name, SERVER_KIND)
    forwarded = await collector.span(bridge, name, CLIENT)
    spans = [asked, proposed, waited, approved, handled, forwarded]
    assert {span.trace for span in spans} == {TRACE}
    parents = [ROOT, asked.id, proposed.id, proposed.id, approved.id, handled.id]
    assert [span.parent for span in spans] == parents
    # The server is asked in the name of the last span.
    assert told["traceparent"].split("-")[1:3] == [TRACE, forwarded.id]
    return spans


async def test_a_proposed_call_is_one_trace_from_the_client_to_the_server_and_back(tmp_path: Path) -> None:
    people = participants(guest=GUEST, alice=["*"], tool=HOST)
    for name in ("guest", "alice", "tool"):
        file = tmp_path / f"{name}.token"
        file.write_text(f"t-{name}\n")
        file.chmod(0o600)
    async with (
        collecting() as collector,
        running_gateway(tmp_path, people) as gateway,
        AsyncExitStack() as stack,
    ):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }

        async def start(name: str, command: str, *words: str) -> Any:
            place = [
                "--gateway",
                gateway.url,
                "--space",
                "lab",
                "--token-file",
                str(tmp_path / f"{name}.token"),
            ]
            errors = stack.enter_context((tmp_path / f"{name}.err").open("wb"))
            process = await start_moot(command, *place, *words, environ=environ, cwd=tmp_path, stderr=errors)

            async def end() -> None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

            stack.push_async_callback(end)
            return process

        person = await stack.enter_async_context(connect(gateway.url, "lab", "t-alice"))
        await start("tool", "bridge", "--", sys.executable, str(SERVER))
        served = await start("guest", "mcp", "--http", "127.0.0.1:0")
        async with bounded():
            url = (await served.stdout.readline()).decode().split()[-1]
            await person.roster.wait_for("tool", timeout_seconds=60)
        async with Client(url, mode="2026-07-28") as client:
            calling = asyncio.create_task(client.call_tool("tell", {}, meta=META))
            proposal = (await until(lambda: person.proposals.open()))[0]
            await start("alice", "approve", proposal.id)
            async with bounded():
                told = json.loads((await calling).content[0].text)  # type: ignore[union-attr]

        spans = await spans_of_the_call(collector, "moot-mcp", "moot-approve", "moot-bridge", told)
        asked, _, waited, _, _, forwarded = spans
        assert waited.attributes["moot.approval.outcome"] == "approved"
        assert waited.attributes["moot.approval.by"].startswith("alice")
        assert asked.attributes["mcp.method.name"] == "tools/call"
        assert (forwarded.attributes["network.transport"], asked.attributes["network.transport"]) == (
            "pipe",
            "tcp",
        )
        assert not [key for span in spans for key in span.attributes if "arguments" in key or "result" in key]
        both = {"mcp.client.operation.duration", "mcp.server.operation.duration"}
        await until(lambda: both <= collector.histograms)


def test_nothing_is_loaded_and_nothing_sent_unless_the_environment_names_a_place() -> None:
    for environ in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}):
        assert not tracing.is_wanted(environ)
        tracing.activate_from(environ, "moot-test")
    assert tracing.active is None
    code = (
        "import sys, moot.participant, moot.tracing; print([n for n in sys.modules if 'opentelemetry' in n])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "moot.tracing.exporters", raising=False)
    with pytest.raises(UsageError, match=r"pip install '.\[otel\]'"):
        tracing.activate_from({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "moot-test")
