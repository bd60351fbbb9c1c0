"""The dialog in which a person confirms what their assistant shall approve, in a client that others wrote.

The client is the MCP Inspector, with its web page in Chromium. It starts `moot mcp --operator` itself, as
any client would. Its page needs a native part that npm leaves out on some machines; MOOT_INSPECTOR names the
command of another copy.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, FloatRect

from tools.screenshots_scene import SPACE, SceneAccess
from tools.shown import ROOT

_NODE: Final = ROOT / ".node" / "node_modules" / ".bin"
_START_SECONDS: Final = 120.0
_FADE_SECONDS: Final = 2.0


async def take_dialog(browser: Browser, access: SceneAccess) -> bytes:
    """What the person is shown before anything is approved."""
    async with _inspector(access) as url:
        context = await browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
        context.set_default_timeout(_START_SECONDS * 1000)
        page = await context.new_page()
        await page.goto(url)
        # The switch itself is hidden behind what is drawn for it.
        await page.get_by_role("switch").first.click(force=True)
        await page.get_by_text("Connected", exact=True).wait_for()
        await page.get_by_text("Tools", exact=True).first.click()
        await page.get_by_text("moot_approve").first.click()
        await page.get_by_role("textbox").nth(1).fill(access.proposal)
        await page.get_by_role("button", name="Execute Tool").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("Leave it pending").or_(dialog.get_by_role("textbox")).first.wait_for()
        # It fades in, and is drawn anew meanwhile.
        await asyncio.sleep(_FADE_SECONDS)
        box = await dialog.last.bounding_box()
        assert box is not None  # noqa: S101  # it is there
        clip: FloatRect = {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}
        picture = await page.screenshot(clip=clip)
        await context.close()
    return picture


@asynccontextmanager
async def _inspector(access: SceneAccess) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="moot-inspector-", ignore_cleanup_errors=True) as place:
        token = Path(place) / "maria.token"
        token.write_text(access.token, "ascii")
        token.chmod(0o600)
        where = ["--gateway", access.url, "--space", SPACE, "--token-file", str(token)]
        process = await asyncio.create_subprocess_exec(
            os.environ.get("MOOT_INSPECTOR", str(_NODE / "mcp-inspector")),
            *("--web", str(Path(sys.executable).parent / "moot"), "mcp", "--operator", *where),
            # Nothing of whoever takes the picture: no catalog of servers, and no browser of theirs.
            env={"PATH": f"{_NODE}:{os.environ['PATH']}", "HOME": place, "MCP_AUTO_OPEN_ENABLED": "false"},
            cwd=place,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield await asyncio.wait_for(_address(process), _START_SECONDS)
        finally:
            process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    while line := (await process.stdout.readline()).decode():
        if found := re.search(r"http://\S+API_TOKEN\S+", line):
            return found[0]
    raise SystemExit("the Inspector did not start: give another copy with MOOT_INSPECTOR")
