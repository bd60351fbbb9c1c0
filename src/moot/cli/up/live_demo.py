"""The live demo: a gateway on this machine, a tool, an agent that may only propose, and you decide.

The tool and the agent are real members: they hold tokens and connect over WebSocket like anybody else. So do
you, in the console that the gateway serves: your token is printed once, to be pasted, and is in no address. A
link that works once signs you in without it.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import select
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Final

import orjson
import yaml

from moot import logs
from moot.cli.client.browser import has_display, open_browser
from moot.config import load
from moot.errors import CallFailed, MootError, TimedOut
from moot.gateway.app import Gateway
from moot.participant import JoinedSpace, MissedMessages, Proposal, connect, token_from
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

_SPACE: Final[Json] = {
    "participants": {
        "you": {"capabilities": [{"kind": "*"}]},
        "agent": {"profile": "proposal-only"},
        "notes": {"capabilities": [{"kind": "chat"}]},
    }
}
# Time to see the result of a decision before the next proposal.
_PROPOSE_SECONDS: Final = 8.0
_READER_CHECK_SECONDS: Final = 1.0
_INTRODUCTION: Final = "I keep the notes of this space. I may only propose, so please decide what I write."


async def _work(agent: JoinedSpace, proposal: Proposal) -> None:
    """Wait until somebody decides, then propose the next note."""
    for number in itertools.count(2):
        with suppress(CallFailed, TimedOut):
            await proposal.outcome()
        await asyncio.sleep(_PROPOSE_SECONDS)
        proposal = await _propose(agent, number)


async def _propose(agent: JoinedSpace, number: int) -> Proposal:
    arguments = {"text": f"note {number} by the agent"}
    return await agent.propose("notes", "tools/call", {"name": "write_note", "arguments": arguments})


def _offer_notes(notes: JoinedSpace, file: Path) -> None:
    """Offer one tool, which writes a note into a real file."""

    @notes.tool
    def write_note(text: str) -> str:
        "Append a line to notes.md"
        with file.open("a", encoding="utf-8") as opened:
            opened.write(text.replace("\n", " ") + "\n")
        return f"written to {file}"


def _show(envelope: Envelope) -> None:
    payload = envelope.payload
    if envelope.kind == "system/presence":
        what = f"{payload['participant']['id']}: {payload['event']}"
    elif "params" in payload:
        what = orjson.dumps(payload["params"]).decode()
    else:
        what = str(payload.get("result") or payload.get("reason") or payload.get("text") or "")
    print(f"  {envelope.sender:15} {envelope.kind:18} {what}"[:150], flush=True)


async def _show_all(messages: AsyncIterator[Envelope | MissedMessages]) -> None:
    async for message in messages:
        if isinstance(message, Envelope):
            _show(message)


async def _until_nobody_reads() -> None:
    """`moot demo --live | head`: writing would tell, but until somebody decides nothing is written."""
    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)
    while not watched.poll(0):
        await asyncio.sleep(_READER_CHECK_SECONDS)


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
    link = await gateway.make_sign_in_link(token_from(tokens["you"]))
    print(
        f"moot gateway listening on {gateway.url}\n\n"
        f"  open     {gateway.url}/\n"
        f"  sign in  {token_from(tokens['you'])}\n"
        f"  or open  {link}   (once: it signs you in)\n",
        flush=True,
    )

    def join(name: str) -> AbstractAsyncContextManager[JoinedSpace]:
        return connect(gateway.url, "demo", token_from(tokens[name]))

    async with join("you") as you:
        messages = you.envelopes(own=True)
        async with join("notes") as notes, join("agent") as agent:
            _offer_notes(notes, folder / "notes.md")
            await agent.chat(_INTRODUCTION)
            first = await _propose(agent, 1)
            _explain_decisions(gateway, tokens["you"], folder, first.id)
            if browse and has_display():
                # Some browsers keep whoever starts them waiting until they are closed.
                threading.Thread(target=open_browser, args=(link,), daemon=True).start()
            agent.spawn(_work(agent, first))
            closed = asyncio.create_task(_until_nobody_reads())
            closed.add_done_callback(lambda _: messages_task.cancel())
            messages_task = asyncio.create_task(_show_all(messages))
            try:
                await messages_task
            except asyncio.CancelledError:
                if closed.done() and not closed.cancelled():
                    raise BrokenPipeError from None
                raise
            finally:
                closed.cancel()


async def _started(file: Path, port: int) -> Gateway:
    """On the port asked for, or on any that is free: a demo should not fail for that."""
    try:
        gateway = Gateway(load(file, environ={}, port=port))
        await gateway.start()
    except MootError as fault:
        if not port or not _is_taken(fault):
            raise
        print(f"Port {port} is in use by another program; taking a free one instead.\n", flush=True)
        return await _started(file, 0)
    return gateway


def _is_taken(fault: MootError) -> bool:
    return isinstance(fault.__cause__, OSError) and fault.__cause__.errno == errno.EADDRINUSE


def _explain_decisions(gateway: Gateway, token: Path, folder: Path, proposal: str) -> None:
    url = f"{gateway.url}/participants/you/messages"
    curl = f'curl -sS -H "Authorization: Bearer $(cat {token})" -H "Content-Type: application/json"'
    params = '{"name":"write_note","arguments":{"text":"note 1 by the agent"}}'
    call = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
    about = f'"correlation_id":["{proposal}"]'
    approve = f'{{"kind":"mcp/request","to":["notes"],{about},"payload":{call}}}'
    reject = f'{{"kind":"mcp/reject",{about},"payload":{{"reason":"unsafe"}}}}'
    print(
        "`notes` is a tool, `agent` may only propose, and you decide: a proposal is pending in the console.\n"
        f"What the tool wrote: cat {folder / 'notes.md'}\n\n"
        "Or decide from another terminal:\n"
        f'  say() {{ {curl} {url} -d "$1"; }}\n'
        f"  say '{approve}'\n"
        f"  say '{reject}'\n\n"
        "Ctrl-C stops it. Below is what everybody sees.\n",
        flush=True,
    )
