"""The official JavaScript SDK as the other side: `make a2a-agents`.

Its client sends to and streams from `moot a2a serve`, and verifies the signature of a card. `moot a2a join`
brings an agent that its server runs into a space. Needs `MOOT_A2A_PACKAGES`, a folder with `@a2a-js/sdk` and
`express` from npm, and Node.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path

from moot.participant import connect
from moot.protocol.envelope import Envelope
from tests.agents.a2a.served_space import CALLER, CODER, LIST, write_config
from tests.agents.a2a.test_processes import command
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import bounded, until

HERE = Path(__file__).parent / "js"
COMPLETED = 3


async def try_client(gateway: LocalGateway, folder: Path, env: dict[str, str]) -> list[tuple[str, str]]:
    """What its client gets of a published member."""
    reply: list[tuple[str, str]] = []
    async with connect(gateway.url, "lab", "t-coder") as coder:

        @coder.on("chat")
        async def answer(chat: Envelope) -> None:
            if "coder" in chat.to:
                await coder.chat(f"Read: {chat.payload['text']}", to=chat.sender, about=chat.id)

        serve = ("serve", "--publish", "coder", "--port", "0")
        async with command(folder, "a2a", *serve, ready="is published at") as line:
            card = line.split()[-1]
            url = card.removesuffix("/.well-known/agent-card.json")
            for version in ("", "1.0"):
                process = await asyncio.create_subprocess_exec(
                    "node", str(HERE / "verify.mjs"), card, version, stdout=PIPE, env=env
                )
                async with bounded():
                    out, _ = await process.communicate()
                is_good = process.returncode == 0 and json.loads(out.splitlines()[-1]) == {"refused": True}
                what = f"the card for {version or '0.3 and 1.0'}, signature"
                reply.append((what, "passed" if is_good else "FAILED"))
            for binding in ("JSONRPC", "HTTP+JSON"):
                for how in ("send", "stream"):
                    text = f"{binding} {how}"
                    # Without a slash at the end the SDK takes the member's name for a file.
                    given = (str(HERE / "client.mjs"), f"{url.rstrip('/')}/", "t-acme", binding, how, text)
                    process = await asyncio.create_subprocess_exec(
                        "node", *given, stdout=PIPE, stderr=PIPE, env=env
                    )
                    async with bounded():
                        out, fault = await process.communicate()
                    got = json.loads(out) if process.returncode == 0 else {}
                    is_good = got.get("state") == COMPLETED and got["texts"] == [f"Read: {text}"]
                    is_good = is_good and (how == "send" or got["events"] >= 3)
                    why = "" if is_good else f": {got or fault.decode(errors='replace')[-400:]}"
                    reply.append(
                        (f"its client, {binding}, {how}", f"{'passed' if is_good else 'FAILED'}{why}")
                    )
    return reply


async def try_server(
    gateway: LocalGateway, folder: Path, env: dict[str, str], how: str
) -> list[tuple[str, str]]:
    """What comes of a chat to an agent that its server runs."""
    process = await asyncio.create_subprocess_exec(
        "node", str(HERE / "server.mjs"), how, stdout=PIPE, env=env
    )
    assert process.stdout is not None
    received: list[str] = []
    result = "FAILED"
    try:
        async with bounded():
            url = (await process.stdout.readline()).decode().strip()
        async with connect(gateway.url, "lab", "t-alice") as alice:

            @alice.on("chat")
            def note(chat: Envelope) -> None:
                received.append(str(chat.payload["text"]))

            join = ("join", url, "--style", "bare")
            name = f"echo-{how}"
            async with command(folder, name, *join, ready=f"Joined lab as {name}"):
                await alice.chat("Hello.", to=name)
                await until(lambda: "answer:\nYou said: Hello." in received, lambda: "\n".join(received))
                result = "passed"
    except AssertionError as fault:
        result = f"FAILED: {fault}"
    finally:
        process.kill()
        await process.wait()
    return [(f"its server, JSONRPC, {how}", result)]


async def main() -> int:
    packages = os.environ.get("MOOT_A2A_PACKAGES", "")
    if not packages or not (Path(packages) / "node_modules/@a2a-js/sdk").is_dir():
        print(
            "MOOT_A2A_PACKAGES has to be a folder with @a2a-js/sdk and express: make a2a-agents fetches them"
        )
        return 2
    env = {**os.environ, "A2A_PACKAGES": str(Path(packages).resolve())}
    version = json.loads((Path(packages) / "node_modules/@a2a-js/sdk/package.json").read_text())["version"]
    everybody = participants(
        **{
            "alice": ["*"],
            "coder": CODER,
            "acme": CALLER,
            "a2a": [LIST],
            "echo-send": CODER,
            "echo-stream": CODER,
        }
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "gateway").mkdir()
        async with running_gateway(folder / "gateway", everybody) as gateway:
            write_config(folder, gateway, everybody)
            answer = await try_client(gateway, folder, env)
            for how in ("send", "stream"):
                answer += await try_server(gateway, folder, env, how)
    print(f"@a2a-js/sdk {version}")
    for what, result in answer:
        print(f"  {what:<32} {result}")
    return 0 if all(result == "passed" for _, result in answer) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
