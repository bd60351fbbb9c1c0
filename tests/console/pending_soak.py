"""A proposal, then 100,000 messages and a restart: it is pending for a newcomer on a phone on a slow line.

The same is asked of the SDK and the shell; and at no moment did the page say that nothing is pending.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from playwright.async_api import Page, async_playwright, expect

from moot.participant import connect
from moot.protocol.operation import Json
from tests.browser import CHROMIUM
from tests.console.approvals_page import SETTLED
from tests.console.throttled_line import ThrottledLine, throttled_line
from tests.gateway.raw import TEXT, frame, raw_client
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import Served, command, served
from tests.waiting import HANG_SECONDS, until, until_told

PEOPLE = participants(
    human=["*"], agent=["mcp/proposal", "chat"], files=["mcp/response", "chat"], talker=["chat"]
)
LIMITS: dict[str, Json] = {"messages_per_second": 0, "bytes_per_second": 0}
BATCH = 1_000
# 1.6 Mbit/s with 150 ms to the other end and back, the usual picture of a slow phone.
LINE_BYTES_PER_SECOND = 200_000
LINE_DELAY_SECONDS = 0.15
# Everything that the page ever said about there being nothing.
LISTEN = """
window.__claims = [];
const look = () => {
    const text = document.body?.innerText ?? "";
    for (const words of ["No pending proposals", "none pending"])
        if (text.includes(words)) window.__claims.push(words);
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
"""


def run_pending(messages: int, _seed: int) -> str:
    assert CHROMIUM is not None, "Chromium is missing: tools/system_packages.sh installs it"
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder), messages))


async def _run(folder: Path, messages: int) -> str:
    async with throttled_line(LINE_BYTES_PER_SECOND, LINE_DELAY_SECONDS) as line:
        spaces = {"lab": space_settings(PEOPLE, limits=LIMITS)}
        hosts: dict[str, Json] = {
            "allowed_hosts": ["127.0.0.1", f"127.0.0.1:{line.port}"],
            "allowed_origins": [line.url],
        }
        file = write_config(folder, gateway_settings(spaces, **hosts))
        async with served(file) as gateway:
            proposal = await _propose(gateway)
            await _talk(gateway, messages)
        async with served(file) as gateway:
            line.gateway_port = gateway.port
            token = await _invite(gateway)
            await _ask_programs(folder, gateway, token, proposal)
            form, seen = await _decide(gateway, line, token, proposal)
    return (
        f"{messages} messages, a restart: pending for a newcomer in SDK, shell and a phone's console; "
        f"at 1.6 Mbit/s the sign-in form after {form:.1f} s, the proposal {seen:.1f} s after signing in"
    )


async def _propose(gateway: Served) -> str:
    async with connect(gateway.url, "lab", "t-agent") as agent:
        arguments: Json = {"path": "old.txt", "content": "12345678901234567890"}
        params: Json = {"name": "write_file", "arguments": arguments}
        proposal = await agent.propose("files", "tools/call", params, wait_for_others=True)
        return proposal.id


async def _talk(gateway: Served, messages: int) -> None:
    async with raw_client(gateway.port) as client:
        await client.upgraded("/ws?space=lab&echo=0", token="t-talker")
        for start in range(0, messages, BATCH):
            for number in range(start, start + BATCH):
                chat = {"id": f"m-{number}", "kind": "chat", "payload": {"text": f"message {number}"}}
                client.send(frame(TEXT, json.dumps(chat).encode(), mask=bytes(4)))
            await client.writer.drain()
            # Answered when it and all before it are on disk.
            assert (await gateway.post("human", {"kind": "chat"})).status_code == 200
        last = f"m-{messages - 1}"

        async def is_read() -> bool:
            client.send(frame(TEXT, json.dumps({"id": last, "kind": "chat"}).encode(), mask=bytes(4)))
            while one := await client.frame():
                if b"duplicate_id" in one.payload:
                    return True
            return False

        assert await until_told(is_read)


async def _invite(gateway: Served) -> str:
    rights: Json = [{"kind": "mcp/*"}, {"kind": "chat"}]
    async with connect(gateway.url, "lab", "t-human") as human:
        invitation = await human.admin.invite("newcomer", rights)
    assert invitation.token is not None
    return invitation.token


async def _ask_programs(folder: Path, gateway: Served, token: str, proposal: str) -> None:
    async with connect(gateway.url, "lab", token) as newcomer:
        await newcomer.recall()
        assert [each.id for each in newcomer.proposals.open()] == [proposal]
    file = folder / "newcomer.token"
    file.write_text(token, "ascii")
    file.chmod(0o600)
    where = ("--gateway", gateway.url, "--space", "lab", "--token-file", str(file))
    code, printed = await command("proposals", "--json", *where, cwd=folder)
    assert code == 0, printed
    assert [each["id"] for each in json.loads(printed)] == [proposal]


async def _decide(gateway: Served, line: ThrottledLine, token: str, proposal: str) -> tuple[float, float]:
    """Open the page, see it, approve it with two touches; how long the form and the proposal took."""
    written: list[str] = []
    async with connect(gateway.url, "lab", "t-files") as files, async_playwright() as playwright:

        @files.tool
        def write_file(path: str, content: str) -> str:
            """Write a file."""
            written.append(content)
            return path

        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        context = await browser.new_context(
            viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
        )
        context.set_default_timeout(HANG_SECONDS * 1000)
        expect.set_options(timeout=HANG_SECONDS * 1000)
        page = await context.new_page()
        await page.add_init_script(LISTEN)
        start = time.monotonic()
        await page.goto(f"{line.url}/#/lab/approvals")
        await page.get_by_label("Token", exact=True).fill(token)
        form = time.monotonic() - start
        start = time.monotonic()
        await page.get_by_role("button", name="Sign in", exact=True).tap()
        await expect(page.locator(".approvals-row")).to_contain_text("old.txt")
        seen = time.monotonic() - start
        assert await page.evaluate("window.__claims") == []
        await _approve(page)
        await until(lambda: bool(written))
        await expect(page.locator(".approvals-detail")).to_contain_text("You approved it")
        assert await page.evaluate("location.hash") == f"#/lab/approvals/{proposal}"
        await browser.close()
    assert written == ["12345678901234567890"]
    return form, seen


async def _approve(page: Page) -> None:
    await page.locator(".approvals-row-open").tap()
    await page.wait_for_timeout(SETTLED)
    await page.get_by_role("button", name="Approve once").tap()
    await page.wait_for_timeout(SETTLED)
    await page.get_by_role("button", name="Yes, approve").tap()
