"""How quickly the console answers a click: 100,000 envelopes loaded, 1,000 a second arriving, real Chromium.

The envelopes are conversations of proposal, request and response, sent over a WebSocket through a gateway as
any others. Every click is a real one of the mouse, on a line of the timeline, a view or the filter. It is
measured in the page: from the time that the browser gives the event to the frame that shows what came of it.
Frames are those of requestAnimationFrame while the load goes on. An empty page with one button is clicked in
the same way before and after: what it takes is the machine's part, and no console can be quicker.

On a machine that others use the same task may take a tenth of a second or half of one. So the page's main
thread is traced too: the CPU that its tasks take, and those of them between a click and its answer, is the
console's own doing, whoever else is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from bench.console_load import Load
from bench.processes import gateway

CHROMIUM: Final = "/usr/bin/chromium"
LOADED: Final = 100_000
PER_SECOND: Final = 1_000
SECONDS: Final = 15.0
# The promise of the console.
MOST_MILLISECONDS: Final = 100.0
# What browsers call a long task.
LONG_TASK_MILLISECONDS: Final = 50.0
# Tasks of every thread, with their CPU, and what the page marks: when a click came and was answered.
_TASKS: Final = "toplevel"
_MARKS: Final = "blink.user_timing"
# While it is filled up the page is given time to read: it is not a slow reader that is measured.
FILLING_PER_SECOND: Final = 5_000
# Where the machine is too busy to take all in within that, what was taken in is measured, and said so.
FILLING_SECONDS: Final = 75.0
# Clicks on the empty page, before and after.
EMPTY_CLICKS: Final = 20
BETWEEN_CLICKS_MILLISECONDS: Final = 250
_EMPTY: Final = (
    "<!doctype html><title>empty</title><button style='width:300px;height:200px' "
    'onclick="this.textContent = Number(this.textContent) + 1">0</button>'
)
# A click is answered by the frame after it; a message to oneself comes when that is laid out and painted.
_MEASURE: Final = """
window.__clicks = []; window.__frames = []; window.__long = []; window.__why = []; window.__watching = false;
addEventListener("click", (event) => {
  if (window.__watching) performance.mark("clicked");
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      window.__clicks.push(performance.now() - event.timeStamp);
      if (window.__watching) performance.mark("answered");
    };
    channel.port2.postMessage(0);
  });
}, { capture: true });
let before = performance.now();
const frame = (now) => {
  if (window.__watching) window.__frames.push(now - before);
  before = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (window.__watching) window.__long.push(each.duration);
}).observe({ type: "longtask" });
new PerformanceObserver((list) => {
  const scripts = list.getEntries().flatMap((each) => window.__watching ? each.scripts : []);
  for (const each of scripts) window.__why.push([
    each.duration, each.invoker, `${each.sourceURL.split("/").pop()}:${each.sourceFunctionName}`]);
}).observe({ type: "long-animation-frame" });
"""


@dataclass(frozen=True)
class Answers:
    """Milliseconds from a click to the frame that shows what came of it, and between frames."""

    loaded: int
    arrived: float
    empty: list[float]
    clicks: list[float]
    frames: list[float]
    # Tasks of the page's main thread of 50 ms and more, and the scripts that frames of that length ran.
    long_tasks: list[float]
    why: list[tuple[float, str, str]]
    seconds: float
    memory_mib: float
    # The share of all cores' time that the host gave to others although something was to be done here.
    stolen: float
    # Milliseconds of CPU that each task of the page's main thread took, whatever neighbours do; and all tasks
    # from a click to its answer together.
    tasks: list[float]
    click_cpu: list[float]

    @property
    def busy(self) -> float:
        return sum(self.tasks) / 1000 / self.seconds


def _config() -> dict[str, Any]:
    people = {name: {"tokens": [f"t-{name}"], "capabilities": [{"kind": "*"}]} for name in ("human", "agent")}
    limits = {"messages_per_second": 0, "bytes_per_second": 0, "max_open_proposals": 1_000_000}
    # While it is filled the page may be behind, by 4,096 messages at most; that it was not thrown out is
    # looked at in the end.
    return {
        "gateway": {"port": 0, "data": "data", "outbox_bytes": 256 << 20},
        "spaces": {"bench": {"participants": people, "limits": limits}},
    }


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


def _fill(page: Page, load: Load, loaded: int) -> None:
    end = time.perf_counter() + FILLING_SECONDS
    load.go(FILLING_PER_SECOND, loaded)
    while _size(page) < loaded and time.perf_counter() < end:
        page.wait_for_timeout(200)
    load.go(0, 0)
    # What is still on its way is not to be measured with what comes.
    while _size(page) < load.said and time.perf_counter() < end + 30:
        page.wait_for_timeout(200)


def _click_about(page: Page, seconds: float) -> None:
    """Lines of the timeline, its order, folding, other views: a click every quarter of a second.

    By place, as a mouse does it; Playwright's own click waits until a line stands still, and none does.
    """
    list_box = page.get_by_role("listbox", name="Timeline").bounding_box()
    assert list_box is not None
    left, top = list_box["x"] + 300, list_box["y"] + 40
    order, fold = _middle(page, ".tl-modes > button >> nth=0"), _middle(page, ".tl-modes > button >> nth=1")
    chat, timeline = _middle(page, ".nav-link[href$='/chat']"), _middle(page, ".nav-link[href$='/timeline']")
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end:
        lines = [(left, top + 32 * (3 + (rounds + step) % 12)) for step in (0, 5)]
        for where in (*lines, order, lines[0], fold, order, fold, chat, timeline):
            page.mouse.click(*where)
            page.wait_for_timeout(BETWEEN_CLICKS_MILLISECONDS)
        page.keyboard.press("G")
        rounds += 1


def _click_nothing(browser: Browser) -> list[float]:
    """The same measure on a page that does nothing."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(_MEASURE)
    page.goto("data:text/html," + _EMPTY)
    for _ in range(EMPTY_CLICKS):
        page.mouse.click(100, 100)
        page.wait_for_timeout(BETWEEN_CLICKS_MILLISECONDS / 2)
    found: list[float] = page.evaluate("window.__clicks")
    page.close()
    return found


def _tasks(events: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Milliseconds of CPU of each task of the page's main thread, and of each answer to a click.

    The browser's own pages have a main thread, too: the page's is where clicks are marked.
    """
    clicked, answered = (
        sorted(each["ts"] for each in events if each["name"] == name) for name in ("clicked", "answered")
    )
    (page,) = {(each["pid"], each["tid"]) for each in events if each["name"] == "clicked"}
    tasks = [
        (each["ts"], each["ts"] + each.get("dur", 0), each.get("tdur", 0) / 1000)
        for each in events
        if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) == page
    ]
    answers = [
        sum(cpu for begun, ended, cpu in tasks if ended >= start and begun <= end)
        for start, end in zip(clicked, answered, strict=False)
    ]
    return [cpu for _, _, cpu in tasks], answers


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
        # Without a graphics card, drawing in software is quicker than a card made of software.
        flags = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        empty = _click_nothing(browser)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(_MEASURE)
        page.goto(f"{url}/#/bench/timeline")
        page.get_by_label("Token", exact=True).fill("t-human")
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.locator(".top .pill", has_text="Live").wait_for()
        with Load(url, "bench", "t-agent") as load:
            _fill(page, load, loaded)
            size = _size(page)
            load.go(per_second)
            browser.start_tracing(page=page, categories=[_TASKS, _MARKS])
            page.evaluate("window.__clicks = []; window.__frames = []; window.__watching = true")
            before, begun, stolen = load.said, time.perf_counter(), _stolen_seconds()
            _click_about(page, seconds)
            took = time.perf_counter() - begun
            stolen = (_stolen_seconds() - stolen) / took / (os.cpu_count() or 1)
            arrived = (load.said - before) / took
            tasks, click_cpu = _tasks(json.loads(browser.stop_tracing())["traceEvents"])
            found = page.evaluate("[window.__clicks, window.__frames, window.__long, window.__why]")
            state = page.locator(".top .pill").inner_text()
            memory = page.evaluate("performance.memory.usedJSHeapSize") / (1 << 20)
        page.close()
        empty += _click_nothing(browser)
        browser.close()
    if state != "Live":
        raise RuntimeError(f"the page lost its connection meanwhile: {state}")
    clicks, frames, long_tasks, why = found
    return Answers(
        size, arrived, empty, clicks, frames, long_tasks, why, took, memory, stolen, tasks, click_cpu
    )


def _stolen_seconds() -> float:
    """Since the start of this machine, of all cores; 0 where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def show(answers: Answers, *, wanted: int = LOADED, explain: bool = False) -> None:
    short = "" if answers.loaded >= wanted else f" (not {wanted:,}: the machine was too busy to take them in)"
    print(f"{answers.loaded:,} envelopes loaded{short}, {answers.arrived:,.0f} a second arriving")
    load = os.getloadavg()[0]
    print(
        f"load average {load:.1f} on {os.cpu_count()} cores; "
        f"other machines of the host took {answers.stolen:.0%} of them meanwhile"
    )
    print(f"{'milliseconds':28}{'median':>9}{'p95':>9}{'worst':>9}{'count':>9}")
    rows = {
        "click, an empty page": answers.empty,
        "click, the console": answers.clicks,
        "the same, by its CPU": answers.click_cpu,
        "between frames": answers.frames,
        "tasks of 50 ms and more": answers.long_tasks,
        "tasks of 50 ms of CPU": [each for each in answers.tasks if each >= LONG_TASK_MILLISECONDS],
    }
    for words, values in rows.items():
        shown = [statistics.median(values), _share(values, 0.95), max(values)] if values else []
        print(f"{words:28}" + "".join(f"{each:9.1f}" for each in shown or [0.0] * 3) + f"{len(values):9}")
    share = sum(answers.long_tasks) / (answers.seconds * 10)
    print(f"{share:.1f} % of the time is in long tasks; {answers.memory_mib:.0f} MiB of JavaScript heap")
    print(f"the page's main thread takes {answers.busy * 100:.0f} % of a core")
    within = sum(each <= MOST_MILLISECONDS for each in answers.clicks) / len(answers.clicks)
    verdict = "kept" if within == 1 else f"{within:.0%} were"
    print(f"promise: every click is answered within {MOST_MILLISECONDS:g} ms: {verdict}")
    print(f"the longest task of the page takes {max(answers.tasks):.0f} ms of CPU")
    if explain:
        for took, invoker, source in sorted(answers.why, reverse=True)[:25]:
            print(f"  {took:7.1f} ms {invoker} {source}")


def main() -> None:
    show(run())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--loaded", type=int, default=LOADED)
    parser.add_argument("--per-second", type=int, default=PER_SECOND)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--explain", action="store_true", help="print which scripts long frames ran")
    chosen = parser.parse_args()
    show(run(chosen.loaded, chosen.per_second, chosen.seconds), wanted=chosen.loaded, explain=chosen.explain)
