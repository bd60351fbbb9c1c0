"""A real Firefox, driven over WebDriver BiDi, and a push service that it subscribes at.

Firefox takes the address of its push service from its settings, so here the whole way of a notification is
real: it subscribes, the gateway seals and sends, and Firefox itself opens the message and wakes the service
worker.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection, serve

from tests.waiting import bounded, until_told

_LISTENING = re.compile(r"BiDi listening on (ws://\S+)")


class PushService:
    """What Mozilla's does, for one browser: `acknowledged` are its words about each message."""

    # Firefox has opened the message and given it to the service worker.
    DELIVERED = 100

    def __init__(self) -> None:
        self.url = self.endpoint = ""
        self.acknowledged: list[int] = []
        self._browser: ServerConnection | None = None
        self._channel: str | None = None

    async def _talk(self, browser: ServerConnection) -> None:
        self._browser = browser
        try:
            async for raw in browser:
                if (answer := self._answer(json.loads(raw))) is not None:
                    await browser.send(json.dumps(answer))
        except websockets.ConnectionClosed:
            pass

    def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        channel = message.get("channelID")
        match message.get("messageType"):
            case "hello":
                return {"messageType": "hello", "uaid": uuid.uuid4().hex, "status": 200, "use_webpush": True}
            case "register" as kind:
                self._channel = channel
                return {
                    "messageType": kind,
                    "status": 200,
                    "channelID": channel,
                    "pushEndpoint": f"{self.endpoint}/{channel}",
                }
            case "unregister" as kind:
                self._channel = None
                return {"messageType": kind, "status": 200, "channelID": channel}
            case "ack":
                self.acknowledged += [each["code"] for each in message["updates"]]
        return None

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A message of the gateway."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
        }
        body = await reader.readexactly(int(headers["content-length"]))
        status = "201 Created" if self._channel is not None else "410 Gone"
        if self._browser is not None and self._channel is not None:
            message = {
                "messageType": "notification",
                "channelID": self._channel,
                "version": uuid.uuid4().hex,
                "data": base64.urlsafe_b64encode(body).rstrip(b"=").decode(),
                "headers": {"encoding": headers["content-encoding"]},
            }
            await self._browser.send(json.dumps(message))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def push_service() -> AsyncIterator[PushService]:
    made = PushService()
    listening = await asyncio.start_server(made._take, "127.0.0.1", 0)
    made.endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/push"
    spoken = [websockets.Subprotocol("push-notification")]
    async with serve(made._talk, "127.0.0.1", 0, ping_interval=None, subprotocols=spoken) as sockets:
        made.url = f"ws://127.0.0.1:{next(iter(sockets.sockets)).getsockname()[1]}/"
        yield made
    listening.close()


class Firefox:
    """One page of one Firefox."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._count = 0
        self._context = ""
        # What the page and its scripts complained about.
        self.complaints: list[str] = []

    async def open(self) -> None:
        await self._command("session.new", capabilities={})
        await self._command("session.subscribe", events=["log.entryAdded"])
        self._context = (await self._command("browsingContext.getTree"))["contexts"][0]["context"]

    async def go(self, url: str) -> None:
        await self._command("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def reload(self) -> None:
        await self._command("browsingContext.reload", context=self._context, wait="complete")

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, what it comes to."""
        answer = await self._command(
            "script.evaluate", expression=script, target={"context": self._context}, awaitPromise=True
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return answer["result"].get("value")

    async def see(self, script: str) -> Any:
        """Look until an expression comes to something."""
        return await until_told(lambda: self.run(script), lambda: script)

    async def _command(self, method: str, **params: Any) -> Any:
        self._count += 1
        await self._socket.send(json.dumps({"id": self._count, "method": method, "params": params}))
        async with bounded():
            while True:
                message = json.loads(await self._socket.recv())
                if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                    self.complaints.append(str(message["params"].get("text")))
                if message.get("id") == self._count:
                    assert message["type"] == "success", message
                    return message["result"]


@asynccontextmanager
async def firefox(profile: Path, settings: Mapping[str, str | int | bool]) -> AsyncIterator[Firefox]:
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program is not None, "Firefox is missing: apt-get install firefox-esr"
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
    (profile / "user.js").write_text("".join(lines))
    process = await asyncio.create_subprocess_exec(
        program,
        *(
            "--headless",
            "--no-remote",
            "--remote-debugging-port",
            "0",
            "--profile",
            str(profile),
            "about:blank",
        ),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with bounded():
            while (found := _LISTENING.search((await process.stderr.readline()).decode())) is None:
                assert process.returncode is None
        drain = asyncio.create_task(process.stderr.read())
        async with websockets.connect(f"{found[1]}/session", max_size=None, ping_interval=None) as socket:
            page = Firefox(socket)
            await page.open()
            yield page
        drain.cancel()
    finally:
        process.terminate()
        await process.wait()
