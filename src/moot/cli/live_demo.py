"""The live demo: a gateway on this machine, a tool, an agent that may only propose, and you to decide.

The tool and the agent are real members: they hold tokens and connect over WebSocket like anybody else. So do
you, in the console that the gateway serves: your token is printed once, to be pasted, and is in no address.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from moot import logs
from moot.config import load
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.protocol.operation import Json

_SPACE: Final[Json] = {
    "participants": {
        "you": {"capabilities": [{"kind": "*"}]},
        "agent": {"profile": "proposal-only"},
        "notes": {"capabilities": [{"kind": "chat"}]},
    }
}
# Time to see what came of a decision before the next one waits.
_PROPOSE_SECONDS: Final = 8.0
_GREETING: Final = "I keep the notes of this space. I may only propose, so please decide what I write."


class Guest(WSListener):
    """One member of the demo, over a real WebSocket."""

    def __init__(self, hear: Callable[[Guest, dict[str, Any]], None]) -> None:
        self._hear = hear
        self._transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._hear(self, orjson.loads(frame.get_payload_as_bytes()))

    def say(self, kind: str, payload: Json, **more: Json) -> None:
        if self._transport is not None and not self._transport.is_disconnected:
            self._transport.send(WSMsgType.TEXT, orjson.dumps({"kind": kind, "payload": payload} | more))

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.disconnect()


async def _connect(gateway: Gateway, token: Path, hear: Callable[[Guest, dict[str, Any]], None]) -> Guest:
    url = f"{gateway.url.replace('http', 'ws', 1)}/ws?space=demo"
    headers = [("Authorization", f"Bearer {token.read_text().strip()}")]
    _, guest = await ws_connect(lambda: Guest(hear), url, extra_headers=headers)
    assert isinstance(guest, Guest)  # noqa: S101  # what the factory made
    return guest


def _notes(folder: Path) -> Callable[[Guest, dict[str, Any]], None]:
    """A tool server with one tool, which writes a note into a real file. It acts only when named (D-81)."""

    def hear(guest: Guest, envelope: dict[str, Any]) -> None:
        if envelope["kind"] != "mcp/request" or "notes" not in envelope.get("to", []):
            return
        body = envelope["payload"]
        answer: dict[str, Json] = {"jsonrpc": "2.0", "id": body.get("id")}
        if body.get("method") == "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
            tool = {"name": "write_note", "description": "Append a line to notes.md", "inputSchema": schema}
            answer["result"] = {"tools": [tool]}
        elif body.get("method") == "tools/call" and body.get("params", {}).get("name") == "write_note":
            text = str(body["params"].get("arguments", {}).get("text", ""))
            with (folder / "notes.md").open("a", encoding="utf-8") as file:
                file.write(text.replace("\n", " ") + "\n")
            answer["result"] = {"content": [{"type": "text", "text": f"written to {folder / 'notes.md'}"}]}
        else:
            answer["error"] = {"code": -32601, "message": "the only tool here is write_note"}
        guest.say("mcp/response", answer, to=[envelope["from"]], correlation_id=[envelope["id"]])

    return hear


def _agent(envelopes: asyncio.Queue[dict[str, Any]]) -> Callable[[Guest, dict[str, Any]], None]:
    return lambda _guest, envelope: envelopes.put_nowait(envelope)


async def _work(agent: Guest, heard: asyncio.Queue[dict[str, Any]]) -> None:
    """Propose, wait until somebody decides, think of the next thing."""
    agent.say("chat", {"text": _GREETING})
    for number in range(1, 1_000_000):
        call: Json = {
            "method": "tools/call",
            "params": {"name": "write_note", "arguments": {"text": f"note {number} by the agent"}},
        }
        id = f"proposal-{number}"
        agent.say("mcp/proposal", call, id=id, to=["notes"])
        while True:
            envelope = await heard.get()
            about = envelope.get("correlation_id", [])
            if envelope["kind"] in ("mcp/reject", "mcp/response") and (
                id in about or envelope["kind"] == "mcp/response"
            ):
                break
        await asyncio.sleep(_PROPOSE_SECONDS)


class DemoTimeline:
    """Prints what everybody hears, until nobody reads it any more (`moot demo --live | head`)."""

    def __init__(self) -> None:
        self.unread = asyncio.Event()

    def hear(self, _guest: Guest, envelope: dict[str, Any]) -> None:
        try:
            _show(envelope)
        except BrokenPipeError:
            self.unread.set()


def _show(envelope: dict[str, Any]) -> None:
    payload = envelope.get("payload", {})
    if envelope["kind"] == "system/presence":
        what = f"{payload['participant']['id']}: {payload['event']}"
    elif "params" in payload:
        what = orjson.dumps(payload["params"]).decode()
    else:
        what = str(payload.get("result") or payload.get("reason") or payload.get("text") or "")
    if envelope["kind"] != "system/welcome":
        print(f"  {envelope['from']:15} {envelope['kind']:18} {what}"[:150], flush=True)


async def run_live(port: int, *, browse: bool) -> int:
    """Run the demo until cancelled; `browse` opens the console in a browser, where there is a display."""
    logs.set_up("warning", "text", None)
    with tempfile.TemporaryDirectory(prefix="moot-demo-") as place:
        folder = Path(place)
        file = folder / "moot.yaml"
        file.write_text(yaml.safe_dump({"spaces": {"demo": _SPACE}}), "utf-8")
        file.chmod(0o600)
        gateway = await _started(file, port)
        try:
            await _run(gateway, folder, browse=browse)
        finally:
            await gateway.stop()
            print("stopped; the demo left nothing behind", flush=True)
    return 0


async def _run(gateway: Gateway, folder: Path, *, browse: bool) -> None:
    """Until cancelled; raises BrokenPipeError when nobody reads what is printed."""
    tokens = gateway.configuration.spaces["demo"].token_files
    _explain(gateway, tokens["you"], folder)
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    timeline = DemoTimeline()
    ears = {"you": timeline.hear, "notes": _notes(folder), "agent": _agent(heard)}
    guests = {name: await _connect(gateway, tokens[name], hear) for name, hear in ears.items()}
    if browse and _has_display():
        # Some browsers keep whoever starts them waiting until they are closed.
        threading.Thread(target=_open_browser, args=(f"{gateway.url}/",), daemon=True).start()
    working = asyncio.create_task(_work(guests["agent"], heard))
    try:
        await timeline.unread.wait()
        raise BrokenPipeError
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        # Before the gateway goes, which would wait for them to say goodbye.
        for guest in guests.values():
            guest.leave()


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open_browser(url: str) -> None:
    """Where that is not possible nobody has to hear of it: the address is printed in any case."""
    # In a process and a session of its own: Ctrl-C is not meant for the browser.
    subprocess.run(  # noqa: S603  # an address of ours, and no shell
        [sys.executable, "-m", "webbrowser", "-t", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


async def _started(file: Path, port: int) -> Gateway:
    """On the port asked for, or on any that is free: a demo should not fail for that."""
    try:
        gateway = Gateway(load(file, environ={}, port=port))
        await gateway.start()
    except UsageError as fault:
        if not port or not _is_taken(fault):
            raise
        print(f"Port {port} is in use by another program; taking a free one instead.\n", flush=True)
        return await _started(file, 0)
    return gateway


def _is_taken(fault: UsageError) -> bool:
    return isinstance(fault.__cause__, OSError) and fault.__cause__.errno == errno.EADDRINUSE


def _explain(gateway: Gateway, token: Path, folder: Path) -> None:
    url = f"{gateway.url}/participants/you/messages"
    curl = f'curl -sS -H "Authorization: Bearer $(cat {token})" -H "Content-Type: application/json"'
    call = '{"method":"tools/call","params":{"name":"write_note","arguments":{"text":"note 1 by the agent"}}}'
    approve = f'{{"kind":"mcp/request","to":["notes"],"correlation_id":["proposal-1"],"payload":{call}}}'
    reject = '{"kind":"mcp/reject","correlation_id":["proposal-1"],"payload":{"reason":"unsafe"}}'
    print(
        f"moot gateway listening on {gateway.url}\n\n"
        f"  open     {gateway.url}/\n"
        f"  sign in  {token.read_text('utf-8').strip()}\n\n"
        "`notes` is a tool, `agent` may only propose, and you decide: a proposal is pending in the console.\n"
        f"What the tool wrote: cat {folder / 'notes.md'}\n\n"
        "Or decide from another terminal:\n"
        f'  say() {{ {curl} {url} -d "$1"; }}\n'
        f"  say '{approve}'\n"
        f"  say '{reject}'\n\n"
        "Ctrl-C stops it. Below is what everybody sees.\n",
        flush=True,
    )
