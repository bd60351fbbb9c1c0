"""The table of `bench.automation`, its results as a file, and its bars as `docs/trust.svg`."""

# ruff: noqa: E501  (lines of a table, and of a picture)

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench import report
from moot.protocol.operation import Json

RESULTS: Final = Path(__file__).resolve().parent / "automation.json"
PAGE: Final = report.DOCS / "performance.md"
PICTURE: Final = report.DOCS / "trust.svg"
TITLE: Final = "Rules on public data: what they take over beyond memory and prefixes"
_COLOURS: Final = {"memory": "#9a9a9a", "memory+prefixes": "#d8c9a8", "memory+learner": "#2f6fab"}
_WIDTH, _LEFT, _BAR = 360, 110, 7

# By world and way: the share that is automatic, and counts.
Results = Mapping[str, Mapping[str, Mapping[str, Json]]]


def lines(results: Results, seeds: int, proposals: int) -> Iterator[str]:
    yield f"{seeds} seeds, {proposals} decisions each; which share of the wanted calls of the second half ran"
    yield "without a question: by memory of the very call, with a list of prefixes (wrong approvals), with rules"
    yield ""
    yield f"{'world':24}{'memory':>8}{'prefixes':>10}{'wrong':>7}{'rules':>8}{'approvals':>11}{'wrong':>7}{'shown':>7}{'false':>7}"
    for world, ways in results.items():
        memory, prefixes, rules = (ways[way] for way in _COLOURS)
        yield (
            f"{world:24}{memory['share']:>8.0%}{prefixes['share']:>10.0%}{prefixes['wrong']:>7}"
            f"{rules['share']:>8.0%}{rules['approvals']:>11,}{rules['wrong']:>7}{rules['shown']:>7}{rules['false']:>7}"
        )
    behind = [
        world for world, ways in results.items() if ways["memory+learner"]["share"] < ways["memory"]["share"]
    ]
    yield ""
    yield f"less automatic than memory: {', '.join(behind) or 'nowhere'}"


def svg(results: Results) -> str:
    """Bars by world: memory, prefixes, rules."""
    parts, y = [], 20
    for world, ways in results.items():
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 2 * _BAR}" text-anchor="end">{world}</text>')
        for way, colour in _COLOURS.items():
            share = ways[way]["share"]
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH * share:.0f}" height="{_BAR - 1}" fill="{colour}">'
                f"<title>{world}, {way}: {share:.0%}, {ways[way]['wrong']} wrong</title></rect>"
            )
            y += _BAR
        y += 7
    for at, (way, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 130 * at
        words = way.replace("memory+learner", "rules").replace("memory+", "")
        parts.append(
            f'<rect x="{x}" y="6" width="10" height="8" fill="{colour}"/><text x="{x + 14}" y="14">{words}</text>'
        )
    parts.append(
        f'<text x="{_LEFT}" y="{y + 12}">0 %</text><text x="{_LEFT + _WIDTH - 30}" y="{y + 12}">100 %</text>'
    )
    right, bottom = _LEFT + _WIDTH + 20, y + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {bottom}" width="{right}" height="{bottom}" '
        'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
        f"<title>Share of the wanted calls that ran without a question, by world</title>{''.join(parts)}</svg>\n"
    )


def write(results: Results, seeds: int, proposals: int) -> None:
    RESULTS.write_text(
        json.dumps({"seeds": seeds, "proposals": proposals, "worlds": results}, indent=1) + "\n"
    )
    report.update_docs({TITLE: "\n".join(lines(results, seeds, proposals))})
    PICTURE.write_text(svg(results), "utf-8")
