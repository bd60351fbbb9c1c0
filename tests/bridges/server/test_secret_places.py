"""After random use of a secret, nothing that anybody reads or keeps has its value, in any common form."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import random
import string
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from moot import tracing
from moot.bridges.server.call_secrets import CallSecrets
from moot.cli import main as moot
from moot.config.secrets.secret_config import SecretConfig
from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.resilience.task_set import end_tasks
from moot.tui.rows import Rows
from tests.bridges.bridged_space import bridged_space, call
from tests.bridges.server.echoing_server import FORMS
from tests.console.in_node import in_node
from tests.gateway.running_gateway import Client
from tests.tui.terminal_session import TerminalSpace, pane_text, screen_text
from tests.tui.terminal_session import until as seen_at
from tests.waiting import until

_SERVER = Path(__file__).with_name("echoing_server.py")
_PLACES = ("result", "error", "failed", "structured", "progress", "log", "stderr", "large")
# `make soak`-like counts by hand: MOOT_SECRET_ROUNDS=2000.
_ROUNDS = int(os.environ.get("MOOT_SECRET_ROUNDS", "0"))


def _forms(value: str) -> set[bytes]:
    found = set()
    for text in (value, value[::-1]):
        plain = text.encode()
        found |= {
            text,
            quote(text, safe=""),
            quote(text),
            json.dumps(text)[1:-1],
            plain.hex(),
            plain.hex().upper(),
        }
        # Without the letters at its ends, which depend on what is before and after it.
        for before in (b"", b"-", b"--"):
            found.add(base64.b64encode(before + plain).decode().rstrip("=")[4:-4])
    return {each.encode() for each in found}


# What the console keeps of what its socket was sent.
_CONSOLE = """async (bring, messages) => {
  Object.assign(globalThis, { addEventListener() {}, document: { hidden: true } });
  const { State } = await bring("core/state/state.js");
  const state = new State("lab", { publish() {} });
  for (const raw of messages) state.receive(raw);
  const texts = [], left = [state], known = new Set();
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value === "string") texts.push(value);
    if (value === null || typeof value !== "object" || known.has(value)) continue;
    known.add(value);
    if (value instanceof Map || value instanceof Set) left.push(...value.keys(), ...value.values());
    left.push(...Object.keys(value), ...Object.values(value));
  }
  return texts.join("|");
}"""


async def _hear(client: Client, heard: list[str]) -> None:
    while True:
        message = await client.next()
        heard.append(message if isinstance(message, str) else json.dumps(message))


async def test_ten_kinds_of_places_have_no_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traces with arguments and results, which nobody has unless they ask for them.
    spans, meters = InMemorySpanExporter(), InMemoryMetricReader()
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(tracing, "active", None)
    monkeypatch.setattr("moot.tracing.call_tracer.add_ids_to_logs", lambda: None)
    tracing.activate(traces, MeterProvider([meters], shutdown_on_exit=False), with_content=True)
    chance = random.Random(40)  # so that a failure can be repeated
    caplog.set_level("DEBUG")
    letters = string.ascii_letters + string.digits + "+/=%&\"'\\ <>\u00e9"
    value = "k" + "".join(chance.choice(letters) for _ in range(30)) + "z"
    secrets = CallSecrets({"KEY": SecretConfig(env="OURS", tools=("use",))}, tmp_path, {"OURS": value})
    # Each form at each place once, in random order; then more, if that is asked for.
    rounds = [(form, place) for form in FORMS for place in _PLACES if place != "large" or form == "plain"]
    rounds += [(chance.choice(list(FORMS)), chance.choice(_PLACES[:-1])) for _ in range(_ROUNDS)]
    chance.shuffle(rounds)
    seen: list[object] = []
    heard: list[str] = []
    async with AsyncExitStack() as stack:
        space = await stack.enter_async_context(bridged_space(tmp_path, {"dora": ["*"], "eve": ["*"]}))
        alice, carl = await space.join("alice"), await space.join("carl")
        socket = await space.gateway.open("/ws?space=lab", token="t-eve")
        listening = asyncio.create_task(_hear(socket, heard))
        stack.push_async_callback(end_tasks, [listening])
        terminal = TerminalSpace(cast("Any", space)).terminal("dora", size=(200, 60))
        app, pilot = await stack.enter_async_context(terminal)
        server = StdioServer(
            command=Command(argv=(sys.executable, str(_SERVER))), stderr_file=tmp_path / "stderr.log"
        )
        member = await space.bridge(server, secrets=secrets)
        for number, (form, place) in enumerate(rounds):
            arguments: JsonObject = {"key": "{{secret:KEY}}", "form": form, "place": place}
            try:
                if number % 8:
                    seen.append(await call(alice, "use", arguments, progress=seen.append, log=seen.append))
                else:
                    asked = await carl.propose("host", "tools/call", {"name": "use", "arguments": arguments})
                    await until(partial(alice.proposals.get, asked.id))
                    seen.append(await alice.approve(asked.id))
                    seen.append(await asked.outcome())
            except McpError as fault:
                seen.append((str(fault), fault.data))
        seen += [member.upstream.stderr.last_lines(), alice.proposals.get(asked.id), asked.seen.params]
        await carl.send("chat", {"text": "the last of all"})
        await seen_at(pilot, lambda: "the last of all" in pane_text(app.panes.timeline))
        await until(lambda: any("the last of all" in each for each in heard))
        terminal_text = [pane_text(each) for each in app.query(Rows)] + [screen_text(app)]
    data = str(tmp_path / "data")
    receipts = [
        "receipt",
        asked.id,
        "--data",
        data,
        "--show",
        "response",
        "-o",
        str(tmp_path / "receipt.json"),
    ]
    for words in (
        ["journal", "send", f"file:{tmp_path}/siem.jsonl", "--data", data],
        ["journal", "send", f"file:{tmp_path}/ocsf.jsonl", "--data", data, "--ocsf"],
        ["journal", "archive", str(tmp_path / "archive.tar.gz"), "--data", data],
        receipts,
    ):
        assert moot(words) == 0, words
    places = {
        "what members saw": repr(seen).encode(),
        "logs": caplog.text.encode(),
        "traces": "".join(each.to_json() for each in spans.get_finished_spans()).encode(),
        "metrics of traces": str(meters.get_metrics_data()).encode(),
        "terminal": "\n".join(terminal_text).encode(),
        "socket of the console": "\n".join(heard).encode(),
        "state of the console": in_node(_CONSOLE, [*heard]).encode(),
    }
    for file in tmp_path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            places[str(file.relative_to(tmp_path))] = (
                gzip.decompress(content) if file.suffix == ".gz" else content
            )
    for name in ("stderr.log", "siem.jsonl", "ocsf.jsonl", "archive.tar.gz", "receipt.json"):
        assert name in places
    for name in ("traces", "terminal", "state of the console"):
        assert b"{{secret:KEY}}" in places[name], name
    everything = b"".join(places.values())
    assert everything.count(b"{{secret:KEY}}") > len(rounds)
    found = {(name, form) for name, content in places.items() for form in _forms(value) if form in content}
    assert found == set()
