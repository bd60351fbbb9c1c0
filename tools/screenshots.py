"""`make screenshots`: screenshots of the console for README and docs, taken from a running space.

    python -m tools.screenshots                      the screenshots that the documentation uses
    python -m tools.screenshots --all /tmp/looks     every view in every width, light and dark, for review

The browser signs in as a person does. Committed files stay small: at most eleven, of at most 250 KiB.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from moot import logs
from tools.screenshots_assistant import take_dialog
from tools.screenshots_scene import SPACE, SceneAccess, run_scene
from tools.shown import ROOT

CHROMIUM: Final = "/usr/bin/chromium"
PICTURES: Final = ROOT / "docs" / "pictures"
MAX_PICTURES: Final = 11
MAX_BYTES: Final = 250 * 1024
# Enough for a busy machine; a view normally appears within a second.
_TIMEOUT_SECONDS: Final = 120.0

_TWO_FRAMES: Final = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# A view requests the tool lists when it opens; the answers arrive at once.
_SETTLE_SECONDS: Final = 0.25

SIZES: Final[dict[str, ViewportSize]] = {
    "1280": {"width": 1280, "height": 800},
    "768": {"width": 768, "height": 1024},
    "390": {"width": 390, "height": 844},
}


@dataclass(frozen=True, slots=True)
class Shot:
    """One screenshot: the view, its width, light or dark, and what is selected in it."""

    view: str
    size: str
    scheme: str
    rest: tuple[str, ...] = ()
    key: str = ""

    @property
    def name(self) -> str:
        # Ids differ from run to run; names do not.
        chosen = ["one" if len(each) > 30 else each for each in self.rest]
        what = "-".join([self.view, *chosen, *([self.key] if self.key else [])])
        return f"{what}-{self.size}-{self.scheme}.png"


def documentation_shots(access: SceneAccess) -> dict[str, Shot]:
    """The screenshots of the documentation, by file name."""
    return {
        "approvals.png": Shot("approvals", "1280", "light", (access.proposal,)),
        "timeline.png": Shot("timeline", "1280", "dark"),
        "members.png": Shot("members", "1280", "light", ("reviewer",)),
        "reasoning.png": Shot("reasoning", "1280", "light"),
        "chat.png": Shot("chat", "1280", "light"),
        "flow.png": Shot("flow", "1280", "dark", (access.settled,)),
        "call.png": Shot("call", "1280", "light", ("files", "write_file")),
        "phone.png": Shot("approvals", "390", "dark", (access.edit,)),
        "hook.png": Shot("approvals", "1280", "light", (access.command,)),
        # Last, since the view queries the approver, which the view Flow would list.
        "rules.png": Shot("rules", "1280", "light"),
    }


def all_shots(access: SceneAccess, views: list[str]) -> Iterator[Shot]:
    """Every view, with the selections and dialogs worth reviewing."""
    for scheme in ("light", "dark"):
        for size in SIZES:
            for view in views:
                yield Shot(view, size, scheme)
            yield Shot("approvals", size, scheme, (access.proposal,))
            yield Shot("call", size, scheme, ("files", "write_file"))
            yield Shot("flow", size, scheme, (access.settled,))
            for name in ("coder", "reviewer", "scout", "maria"):
                yield Shot("members", size, scheme, (name,))
            yield Shot("members", size, scheme, ("coder",), "x")
            yield Shot("members", size, scheme, (), "i")
            yield Shot("members", size, scheme, ("reviewer",), "r")
            yield Shot("members", size, scheme, ("coder",), "p")
            yield Shot("members", size, scheme, ("coder",), "Delete")


async def _sign_in(browser: Browser, access: SceneAccess, size: str, scheme: str) -> Page:
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": SIZES[size], "reduced_motion": "reduce"}
    context = await browser.new_context(**options)
    context.set_default_timeout(_TIMEOUT_SECONDS * 1000)
    expect.set_options(timeout=_TIMEOUT_SECONDS * 1000)
    page = await context.new_page()
    await page.goto(access.url)
    await page.get_by_label("Token", exact=True).fill(access.token)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.locator(".top .pill")).to_have_text("Live")
    return page


async def _views(page: Page) -> list[str]:
    # From its navigation: modules are sent joined, so none can be asked by its own address.
    script = """() => [...new Set(
        [...document.querySelectorAll("a.nav-link")].map((each) => each.hash.split("/")[2]))]"""
    found: list[str] = await page.evaluate(script)
    return found


async def _take(page: Page, shot: Shot) -> bytes:
    address = "/".join(["#", SPACE, shot.view, *shot.rest])
    # Via an empty address, so that the view is mounted again.
    await page.evaluate("location.hash = '#/'")
    await page.evaluate("(address) => { location.hash = address; }", address)
    await expect(page.locator(f".view-{shot.view}")).to_be_visible()
    if shot.rest:
        await page.evaluate("(address) => { location.hash = address; }", address)
    if shot.key:
        await page.keyboard.press(shot.key)
    # Move the pointer away: a hover highlight looks like a selection.
    await page.mouse.move(0, 0)
    await page.wait_for_load_state("networkidle")
    # A hook answers nothing but decisions, so what its tool is stays unknown after a while.
    await expect(page.get_by_text("Loading the tool")).to_have_count(0)
    # Two frames: the views are notified in the first and drawn in the second.
    await page.evaluate(_TWO_FRAMES)
    await asyncio.sleep(_SETTLE_SECONDS)
    picture = await page.screenshot()
    if shot.key:
        await page.keyboard.press("Escape")
    return recompress(picture)


def recompress(png: bytes) -> bytes:
    """The same image, compressed at zlib's highest level."""
    head, chunks, at = png[:8], [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    packed = zlib.compress(pixels, 9)
    kept = [(kind, data) for kind, data in chunks if kind in (b"IHDR", b"PLTE")]
    made = [*kept, (b"IDAT", packed), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in made
    )
    return min(png, head + body, key=len)


async def _run(everything: Path | None, only: str) -> int:
    with tempfile.TemporaryDirectory(prefix="moot-pictures-") as place:
        async with run_scene(Path(place)) as access, async_playwright() as playwright:
            options = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=options)
            page = await _sign_in(browser, access, "1280", "light")
            views = await _views(page)
            if everything is None:
                wanted = {
                    PICTURES / file: shot
                    for file, shot in documentation_shots(access).items()
                    if shot.view in views and only in file
                }
            else:
                wanted = {
                    everything / shot.name: shot for shot in all_shots(access, views) if only in shot.name
                }
            faults = await _take_all(browser, access, wanted, committed=everything is None)
            if everything is None and only in "assistant.png":
                faults += _write(PICTURES / "assistant.png", recompress(await take_dialog(browser, access)))
            await browser.close()
    return faults


async def _take_all(
    browser: Browser, access: SceneAccess, wanted: dict[Path, Shot], *, committed: bool
) -> int:
    faults = 0
    pages: dict[tuple[str, str], Page] = {}
    for file, shot in wanted.items():
        looks = (shot.size, shot.scheme)
        if looks not in pages:
            pages[looks] = await _sign_in(browser, access, *looks)
        picture = await _take(pages[looks], shot)
        faults += _write(file, picture, max_bytes=MAX_BYTES if committed else None)
    if committed and len(wanted) > MAX_PICTURES:
        print(f"more than {MAX_PICTURES} pictures")
        faults += 1
    return faults


def _write(file: Path, picture: bytes, max_bytes: int | None = MAX_BYTES) -> int:
    """Write a picture; how many faults it has."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)
    too_large = max_bytes is not None and len(picture) > max_bytes
    print(f"{file} {len(picture) / 1024:.0f} KiB{' IS TOO LARGE' if too_large else ''}")
    return int(too_large)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="DIR", help="every view, width and scheme, into a folder")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose name contains this")
    chosen = parser.parse_args()
    if not Path(CHROMIUM).exists():
        print(f"{CHROMIUM} is missing: tools/system_packages.sh installs it", file=sys.stderr)
        return 2
    logs.set_up("warning", "text", None)
    return 1 if asyncio.run(_run(chosen.all, chosen.only)) else 0


if __name__ == "__main__":
    sys.exit(main())
