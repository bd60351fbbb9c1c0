"""`docs/mcp-conformance.md`, written from runs of the suites."""

# ruff: noqa: E501  # a table row of the page is one line

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bridges.space.conformance_suites import Checks, Suite, problems

if TYPE_CHECKING:
    from tests.bridges.space.conformance_soak import Comparison

_HEAD: Final = """# MCP conformance

<!-- Written by `python -m tests.bridges.space.conformance_soak --write-docs`. -->

MCP publishes conformance suites (`@modelcontextprotocol/conformance`) and servers that show everything a suite asks
for. Each suite was run against each of these servers twice: directly, and through Moot.

```
suite → moot mcp --http → gateway → moot bridge → the same server, over Streamable HTTP
```

`make soak` runs all of it again and fails where a scenario passes directly and not through Moot, unless this page
explains it. `make test` runs the suites against servers of our own, made with the official SDK.
"""

_TAIL: Final = """
## How both eras work at once

A bridge holds [a connection in each era](decisions/0074-a-connection-in-each-era.md) to a server that it reaches over
HTTP, and a call uses the era of the client that made it. A server that is started as a process speaks one era: the
handshake where it can, unless `--era stateless` (`era:` in `mcp_servers:`) says otherwise.

## What is relayed

| | client of the handshake era | client of the stateless era |
|---|---|---|
| tools, resources, prompts, completion | yes | yes |
| progress, log messages | yes | yes |
| elicitation, sampling, roots during a call | as requests to the client | as `input_required` |
| resource subscriptions | `resources/subscribe` | `subscriptions/listen` |
| list changes | notifications | `subscriptions/listen` |
| tasks of the Tasks extension | – (the extension is of the stateless era) | yes |

## What is not relayed, and why

- Requests of a server outside of any call: no member of a space could be the one to answer. A server that asks for
  roots right after its handshake gets those of the bridge's own settings.
- `server-sse-polling`: no stream belongs to a tool in a space. The call is answered all the same.
- The experimental tasks of 2025-11-25 as tasks. A tool that runs only as such a task is
  [called like any other](decisions/0074-a-connection-in-each-era.md), and the bridge waits for its task.
- JSON-RPC batches of 2025-03-26 as batches: a client that agreed on that version may send up to 64 messages in one and
  gets the answers one by one. Servers get none; those that they send are read over stdio, not over HTTP.
- `notifications/tasks` for a task that a bridged server made; polling it works.

## Other clients and servers

In `make test` the official SDK's client calls the tools of five servers (npm `server-everything`, `server-filesystem`,
`server-memory`; PyPI `mcp-server-time`, `mcp-server-git`) through a space in both eras, and `mcp-inspector --cli` lists
and calls with its `--protocol-era` `legacy`, `auto` and `modern`.
"""


_STDIO_TITLE: Final = "## Over stdio"
_NEXT_TITLE: Final = "## How both eras work at once"


def write_stdio_section(file: Path, found: Sequence[tuple[Suite, str, dict[str, Checks]]]) -> None:
    """Write the part of the page about servers that are processes; `found` has the era that was asked for."""
    text = file.read_text()
    start, end = text.find(_STDIO_TITLE), text.index(_NEXT_TITLE)
    file.write_text(text[: end if start < 0 else start] + _stdio(found) + "\n" + text[end:])


def _stdio(found: Sequence[tuple[Suite, str, dict[str, Checks]]]) -> str:
    lines = [
        f"{_STDIO_TITLE}\n",
        "The suites cannot start a process, so there is nothing to compare with. The server here is one of our own, made with",
        "the official SDK; it speaks both eras, and each of its tools asks its caller in the way of one era only.\n",
        "| `moot bridge` | MCP version | suite | through Moot |",
        "|---|---|---|---|",
    ]
    for suite, option, scenarios in found:
        passed = sum(not problems(checks) for checks in scenarios.values())
        lines.append(
            f"| `{option}` | {suite.spec_version} | {suite.version} | {passed} of {len(scenarios)} |"
        )
    return "\n".join(lines) + "\n"


def write_page(
    file: Path, comparisons: Sequence[Comparison], explained: Mapping[tuple[str, str, str], str]
) -> None:
    """Write the page, apart from the part about stdio."""
    parts = [_HEAD, _summary(comparisons), _differences(comparisons, explained)]
    file.write_text("\n".join(parts) + _TAIL)


def _summary(comparisons: Sequence[Comparison]) -> str:
    lines = [
        "## Scenarios passed\n",
        "| server | MCP version | suite | direct | through Moot |",
        "|---|---|---|---|---|",
    ]
    for each in comparisons:
        counts = [
            f"{sum(not problems(checks) for checks in found.values())} of {len(found)}"
            for found in (each.direct, each.through)
        ]
        name = (
            f"[{each.server.title}]({each.server.repository}/tree/{each.server.commit}/{each.server.folder})"
        )
        lines.append(
            f"| {name} | {each.suite.spec_version} | {each.suite.version} | {counts[0]} | {counts[1]} |"
        )
    return "\n".join(lines) + "\n"


def _differences(comparisons: Sequence[Comparison], explained: Mapping[tuple[str, str, str], str]) -> str:
    lines = ["## Where the two differ\n"]
    for each in comparisons:
        where = f"{each.server.title}, {each.suite.spec_version} (suite {each.suite.version})"
        for scenario in each.lost:
            why = explained.get((each.server.title, each.suite.spec_version, scenario), "Not explained.")
            lines.append(f"- {where}: `{scenario}` passes directly and not through Moot. {why}")
        gained = [
            f"`{scenario}`"
            for scenario, checks in each.direct.items()
            if problems(checks) and not problems(each.through.get(scenario, []))
        ]
        if gained:
            lines.append(f"- {where}: fails directly and passes through Moot: {', '.join(gained)}.")
    return "\n".join(lines if len(lines) > 1 else [*lines, "Nowhere."]) + "\n"
