"""A scripted agent: it looks at the shared files, proposes to change them, and waits for your decision.

It may not write by itself (see moot.yaml), so `space.call` turns each of its calls into a proposal.
"""

from __future__ import annotations

import asyncio
import os

from moot.errors import CallFailed, MootError, Rejected, TimedOut
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope

IDEAS = (
    ("hello.md", "# Hello\n\nThis file is here because you agreed to it.\n", "a first file"),
    ("todo.md", "- [x] agree to a proposal\n- [ ] reject one\n- [ ] say something to the agent\n", "a list"),
)


async def propose(space: JoinedSpace, path: str, text: str, why: str) -> None:
    """One change: thought about aloud, proposed, and answered for."""
    async with space.reasoning(f"I would like to write {path}: {why}") as thinking:
        try:
            # In the context of the reasoning, so that whoever decides reads why.
            outcome = await space.call(
                "files", "write_file", {"path": path, "text": text}, context=thinking.context
            )
        except Rejected as no:
            words = await no.explanation(timeout_seconds=2.0)
            await thinking.conclude(f"{no.by} does not want {path} ({no.reason}); I leave it")
            await space.chat(f"All right, no {path}." + (f" You said: {words}" if words else ""))
        except (CallFailed, TimedOut) as fault:
            await thinking.conclude(f"nothing came of {path}: {fault}")
        else:
            await thinking.conclude(f"{outcome.by} agreed")
            await space.chat(f"Thank you, {outcome.by}: {outcome.text}.")


async def remember(space: JoinedSpace, chat: Envelope) -> None:
    """What somebody says to us, proposed as a line of notes.md."""
    try:
        before = (await space.call("files", "read_file", {"path": "notes.md"})).text
    except CallFailed:
        before = "# Notes\n"
    line = f"- {chat.sender}: {' '.join(str(chat.payload['text']).split())}\n"
    await propose(space, "notes.md", before.rstrip("\n") + "\n" + line, f"{chat.sender} said something")


async def main() -> None:
    where = (os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"])
    async with connect(*where) as space:
        await space.roster.wait_for("files", timeout_seconds=120)
        chats: asyncio.Queue[Envelope] = asyncio.Queue(100)

        @space.on("chat")
        def listen(chat: Envelope) -> None:
            # What refers to something else, such as why a proposal was rejected, is not for the notes.
            if not chats.full() and not chat.correlation_id and (not chat.to or space.me in chat.to):
                chats.put_nowait(chat)

        found = (await space.call("files", "list_files")).text
        await space.chat(f"I see {', '.join(found.split())}. I may look, but not write; so I will propose.")
        for path, text, why in IDEAS:
            await propose(space, path, text, why)
        await space.chat("Say something, and I will propose to note it down in notes.md.")
        while space.close_reason is None:
            await remember(space, await chats.get())


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except MootError as fault:
        raise SystemExit(f"agent: {fault}") from None
