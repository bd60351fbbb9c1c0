"""How quickly the console answers a click: 100,000 envelopes loaded, 1,000 a second arriving, real Chromium.

The envelopes are conversations of proposal, request and response, sent over a WebSocket through a gateway as
any others. Every click is a real one of the mouse, on a line of the timeline, a view or the filter. It is
measured in the page: from the time that the browser gives the event to the frame that shows what came of it.
Frames are those of requestAnimationFrame while the load goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import CDPSession, Page, sync_playwright
from websockets.asyncio.client import ClientConnection, connect

from bench.processes import gateway

CHROMIUM: Final = "/usr/bin/chromium"
LOADED: Final = 100_000
PER_SECOND: Final = 1_000
SECONDS: Final = 20.0
# The promise of the console.
MOST_MILLISECONDS: Final = 100.0
# While it is filled up the page is given time to read: it is not a slow reader that is measured.
FILLING_PER_SECOND: Final = 5_000
FILLING_SECONDS: Final = 180.0
_MEASURE: Final = """
window.__clicks = []; window.__frames = []; window.__watching = false;
addEventListener("pointerdown", (event) => {
  const begun = event.timeStamp;
  addEventListener("click", () => requestAnimationFrame(() => setTimeout(() =>
    window.__clicks.push(performance.now() - begun), 0)), { capture: true, once: true });
}, { capture: true });
let before = performance.now();
const frame = (now) => {
  if (window.__watching) window.__frames.push(now - before);
  before = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


@dataclass(frozen=True)
class Answers:
    """Milliseconds from a click to the frame that shows what came of it, and between frames."""

    loaded: int
    arrived: float
    clicks: list[float]
    frames: list[float]
    memory_mib: float
    # CPU of the page's main thread for each second: neighbours on the machine do not change it.
    busy: float

    @property
    def worst(self) -> float:
        return max(self.clicks)


def _config() -> dict[str, Any]:
    people = {name: {"tokens": [f"t-{name}"], "capabilities": [{"kind": "*"}]} for name in ("human", "agent")}
    limits = {"messages_per_second": 0, "bytes_per_second": 0, "open_proposals": 1_000_000}
    # While it is filled the page may be far behind; that it was not thrown out is looked at in the end.
    outbox = {"outbox_messages": 200_000, "outbox_bytes": 256 << 20, "outbox_seconds": 120}
    return {
        "gateway": {"port": 0, "data": "data"} | outbox,
        "spaces": {"bench": {"participants": people, "limits": limits}},
    }


def _conversation(number: int) -> Iterator[str]:
    """A proposal, the request that fulfils it, and its answer; now and then a chat."""
    call = {
        "method": "tools/call",
        "params": {"name": f"tool_{number % 17}", "arguments": {"path": f"notes/{number}.txt"}},
    }
    yield json.dumps({"id": f"p{number}", "kind": "mcp/proposal", "to": ["agent"], "payload": call})
    about = {"correlation_id": [f"p{number}"]}
    yield json.dumps({"id": f"q{number}", "kind": "mcp/request", "to": ["agent"], "payload": call} | about)
    result = {"result": {"content": [{"type": "text", "text": f"line {number} of the file, and more of it"}]}}
    about = {"correlation_id": [f"q{number}"]}
    yield json.dumps({"id": f"r{number}", "kind": "mcp/response", "to": ["agent"], "payload": result} | about)
    yield json.dumps({"id": f"c{number}", "kind": "chat", "payload": {"text": f"done with {number}"}})


def _envelopes() -> Iterator[str]:
    number = 0
    while True:
        yield from _conversation(number)
        number += 1


class Load:
    """Says things at a steady pace from a thread of its own."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("http://", "ws://")
        self._pace = 0.0
        self._said = 0
        self._stopping = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def say(self, count: int, pace: float) -> None:
        """So many, at that pace; comes back when they are sent."""
        until = self._said + count
        self._until, self._pace = until, pace
        if not self._thread.is_alive():
            self._thread.start()
        while self._said < until:
            time.sleep(0.05)

    def go_on(self, pace: float) -> None:
        self._until, self._pace = sys.maxsize, pace

    @property
    def said(self) -> int:
        return self._said

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(10)

    async def _run(self) -> None:
        headers = {"Authorization": "Bearer t-agent"}
        address = f"{self._url}/ws?space=bench&echo=0"
        async with connect(
            address, additional_headers=headers, proxy=None, max_queue=None, ping_interval=None
        ) as socket:
            reader = asyncio.create_task(_read(socket))
            envelopes = _envelopes()
            owed, before = 0.0, time.perf_counter()
            while not self._stopping:
                await asyncio.sleep(0.005)
                now = time.perf_counter()
                owed = min(self._pace / 10, owed + (now - before) * self._pace)
                before = now
                while owed >= 1 and self._said < self._until:
                    await socket.send(next(envelopes))
                    owed -= 1
                    self._said += 1
            reader.cancel()


async def _read(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


@contextmanager
def _gateway(folder: Path) -> Iterator[str]:
    """`moot serve` in a process of its own, watched from a thread: Playwright has the main one."""
    found: list[str] = []
    opened, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with gateway(folder / "gateway", _config()) as (_, address):
            found.append(address.partition("/ws")[0].replace("ws://", "http://"))
            opened.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    if not opened.wait(60):
        raise RuntimeError("the gateway did not start")
    try:
        yield found[0]
    finally:
        done.set()
        thread.join(30)


def _size(page: Page) -> int:
    text: str = page.locator(".tl-count").inner_text()
    return int(text.split()[-2 if "messages" in text else -1].replace(",", ""))


def _wait_for(page: Page, loaded: int) -> None:
    end = time.perf_counter() + FILLING_SECONDS
    while (size := _size(page)) < loaded:
        if time.perf_counter() > end:
            raise RuntimeError(f"the page took in {size:,} of {loaded:,} envelopes in {FILLING_SECONDS:g} s")
        page.wait_for_timeout(200)


def _click_about(page: Page, seconds: float) -> None:
    """Lines of the timeline, its order, folding, other views: a click every quarter of a second.

    By place, as a mouse does it; Playwright's own click waits until a line stands still, and none does.
    """
    list_box = page.get_by_role("listbox", name="Timeline").bounding_box()
    assert list_box is not None
    left, top = list_box["x"] + 300, list_box["y"] + 40
    order, fold = _middle(page, ".tl-modes button >> nth=0"), _middle(page, ".tl-modes button >> nth=1")
    chat, timeline = _middle(page, ".nav-link[href$='/chat']"), _middle(page, ".nav-link[href$='/timeline']")
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end:
        lines = [(left, top + 32 * (3 + (rounds + step) % 12)) for step in (0, 5)]
        for where in (*lines, order, lines[0], fold, order, fold, chat, timeline):
            page.mouse.click(*where)
            page.wait_for_timeout(250)
        page.keyboard.press("G")
        rounds += 1


def _worked(devtools: CDPSession) -> float:
    """Seconds of CPU that the page's main thread has taken."""
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


def _middle(page: Page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def run(loaded: int = LOADED, per_second: int = PER_SECOND, seconds: float = SECONDS) -> Answers:
    """One page, one gateway, one member that talks."""
    with (
        tempfile.TemporaryDirectory(prefix="moot-bench-") as name,
        _gateway(Path(name)) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(_MEASURE)
        page.goto(f"{url}/#/bench/timeline")
        page.get_by_label("Token", exact=True).fill("t-human")
        page.get_by_role("button", name="Enter", exact=True).click()
        page.locator(".pill", has_text="Live").wait_for()
        load = Load(url)
        load.say(loaded, FILLING_PER_SECOND)
        _wait_for(page, loaded)
        load.go_on(per_second)
        page.evaluate("window.__clicks = []; window.__frames = []; window.__watching = true")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        worked = _worked(devtools)
        before, begun = load.said, time.perf_counter()
        _click_about(page, seconds)
        took = time.perf_counter() - begun
        arrived = (load.said - before) / took
        busy = (_worked(devtools) - worked) / took
        found = page.evaluate("({clicks: window.__clicks, frames: window.__frames})")
        state = page.locator(".pill").inner_text()
        memory = page.evaluate("performance.memory.usedJSHeapSize") / (1 << 20)
        size = _size(page)
        load.stop()
        browser.close()
    if state != "Live":
        raise RuntimeError(f"the page lost its connection meanwhile: {state}")
    return Answers(size, arrived, found["clicks"], found["frames"], memory, busy)


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def show(answers: Answers) -> None:
    clicks, frames = answers.clicks, answers.frames
    print(f"{answers.loaded:,} envelopes in the page, {answers.arrived:,.0f} a second arriving")
    print(f"{'':22}{'median':>9}{'p95':>9}{'worst':>9}")
    for words, values in (("click to frame, ms", clicks), ("between frames, ms", frames)):
        print(f"{words:22}{statistics.median(values):9.1f}{_share(values, 0.95):9.1f}{max(values):9.1f}")
    print(f"{len(clicks)} clicks, {len(frames)} frames, {answers.memory_mib:.0f} MiB of JavaScript heap")
    print(f"the page's main thread takes {answers.busy * 100:.0f} % of a core")
    verdict = "kept" if answers.worst <= MOST_MILLISECONDS else "NOT kept"
    print(f"promise: every click within {MOST_MILLISECONDS:g} ms: {verdict}")


def main() -> None:
    show(run())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--loaded", type=int, default=LOADED)
    parser.add_argument("--per-second", type=int, default=PER_SECOND)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args()
    show(run(chosen.loaded, chosen.per_second, chosen.seconds))
