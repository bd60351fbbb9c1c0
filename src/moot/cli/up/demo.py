"""`moot demo`: a scripted space in the terminal; `moot demo --live`: a real one on this machine."""

from __future__ import annotations

import argparse
import time
from typing import Any

import orjson

from moot.cli.options.shared_options import add_listen_port
from moot.cli.process import program
from moot.cli.process.interruption import run_service
from moot.cli.up.live_demo import run_live
from moot.conformance.pure_driver import PureDriver
from moot.protocol.operation import Json
from moot.resilience.durations import parse_duration

_SPACE: Json = {
    "participants": {
        "alice": [{"kind": "*"}],
        "agent": [
            {"kind": "mcp/proposal"},
            {"kind": "mcp/withdraw"},
            {"kind": "chat"},
            {"kind": "reasoning/*"},
        ],
        "files": [{"kind": "chat"}],
    }
}
_CALL: Json = {
    "method": "tools/call",
    "params": {"name": "write_file", "arguments": {"path": "notes.md", "text": "hello"}},
}

# Who does what, and the sentence that goes before it.
_SCRIPT: list[tuple[str, str, Json]] = [
    (
        "agent wants to call a tool and may not: the gateway refuses, and nobody else sees it",
        "agent",
        {"id": "e1", "kind": "mcp/request", "to": ["files"], "payload": {"jsonrpc": "2.0", "id": 1} | _CALL},
    ),
    (
        "so agent proposes it; everybody sees the proposal, nothing runs",
        "agent",
        {"id": "p1", "kind": "mcp/proposal", "to": ["files"], "payload": _CALL},
    ),
    (
        "alice tries to run something else under that proposal: refused, it is not what was reviewed",
        "alice",
        {
            "id": "f0",
            "kind": "mcp/request",
            "to": ["files"],
            "correlation_id": ["p1"],
            "payload": {
                "method": "tools/call",
                "params": {"name": "delete_file", "arguments": {"path": "/"}},
            },
        },
    ),
    (
        "alice approves by making exactly the proposed call",
        "alice",
        {
            "id": "f1",
            "kind": "mcp/request",
            "to": ["files"],
            "correlation_id": ["p1"],
            "payload": {"jsonrpc": "2.0", "id": 7} | _CALL,
        },
    ),
    (
        "files answers; it needs no capability for an answer that was requested, and agent sees the result",
        "files",
        {
            "id": "r1",
            "kind": "mcp/response",
            "to": ["alice"],
            "correlation_id": ["f1"],
            "payload": {
                "jsonrpc": "2.0",
                "id": 7,
                "result": {"content": [{"type": "text", "text": "written"}]},
            },
        },
    ),
    (
        "alice has seen enough: from now on agent may call this one tool by itself",
        "alice",
        {
            "id": "g1",
            "kind": "capability/grant",
            "payload": {
                "recipient": "agent",
                "capabilities": [
                    {
                        "kind": "mcp/request",
                        "payload": {"method": "tools/call", "params": {"name": "write_file"}},
                    }
                ],
            },
        },
    ),
    (
        "agent calls it directly now",
        "agent",
        {"id": "e2", "kind": "mcp/request", "to": ["files"], "payload": {"jsonrpc": "2.0", "id": 2} | _CALL},
    ),
    (
        "something looks odd: alice pauses agent",
        "alice",
        {"id": "s1", "kind": "participant/pause", "to": ["agent"], "payload": {"reason": "looking into it"}},
    ),
    (
        "agent is held back until somebody resumes it",
        "agent",
        {"id": "c1", "kind": "chat", "payload": {"text": "but I was just…"}},
    ),
]


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="watch a scripted space: a proposal, a decision, a grant, a pause",
        about="Plays a short script through a real space and prints what each member receives. "
        "It is a script in this terminal: no socket is opened and no tool is run. With --live it is a real "
        "gateway with its console, a tool that writes a file, and an agent whose proposals you decide.",
        examples="  moot demo --delay 1\n  moot demo --live --port 0\n",
    )
    add = parser.add_argument
    add("--delay", type=parse_duration, default=0.0, metavar="TIME", help="pause between the steps")
    add("--live", action="store_true", help="a real gateway with a tool and an agent; you decide")
    add_listen_port(parser, 8080)
    add("--no-browser", action="store_true", help="with --live: do not open the console in a browser")
    parser.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> int:
    if options.live:
        return run_service(run_live(options.port, browse=not options.no_browser))
    print("A scripted space in this terminal: three members, no sockets. ◀ is what a member receives.\n")
    driver = PureDriver(_SPACE)
    for name in _SPACE["participants"]:
        print(f"— {name} joins")
        _show(driver.join(name, {}))
    for sentence, name, envelope in _SCRIPT:
        time.sleep(options.delay)
        print(f"\n— {sentence}")
        print(f"  {name} ▶ {_brief(envelope)}")
        driver.now += 1
        _show(driver.send(name, envelope))
    print("\nNext: docs/tutorial.md builds such a space in Python; `moot conformance` checks it row by row.")
    return 0


def _show(received: dict[str, list[Json]]) -> None:
    lines: dict[str, list[str]] = {}
    for name, messages in sorted(received.items()):
        for message in messages:
            lines.setdefault(_brief(message), []).append(name)
    for line, names in lines.items():
        print(f"  {', '.join(names)} ◀ {line}")


def _brief(message: Json) -> str:
    payload = message.get("payload", {})
    facts: dict[str, Json] = {}
    for key in ("error", "event", "reason", "text", "method", "result"):
        if key in payload:
            facts[key] = payload[key]
    if "capabilities" in payload:
        facts["gives"] = payload["capabilities"]
    if "you" in payload:
        facts["may"] = [entry["kind"] for entry in payload["you"]["capabilities"]]
    if "participant" in payload:
        facts["who"] = payload["participant"]["id"]
    if "params" in payload:
        facts["tool"] = payload["params"].get("name")
    to = f" to {', '.join(message['to'])}" if message.get("to") else ""
    about = f" about {', '.join(message['correlation_id'])}" if message.get("correlation_id") else ""
    return f"{message['kind']}{to}{about} {orjson.dumps(facts).decode()}"
