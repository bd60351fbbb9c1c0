"""The table of `bench.trust`, and its curves as `docs/trust.svg`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final

from bench.trust_people import EXPRESSIBLE, NOISY
from bench.trust_run import SimulationRun

PICTURE: Final = Path(__file__).resolve().parent.parent / "docs" / "trust.svg"
_COLOURS: Final = ("#2f6fab", "#3b8f5a", "#8a5fb0", "#d08a3c", "#b0413e", "#4a9d9c")
_GREY: Final = "#9a9a9a"
_WIDTH, _HEIGHT, _LEFT, _TOP = 520, 240, 46, 24
_STEP: Final = 50


def lines(
    runs: Mapping[str, list[SimulationRun]], promised: Sequence[tuple[str, bool]], seeds: Sequence[int]
) -> Iterator[str]:
    """Table and promises."""
    count = sum(len(run.curve) * _STEP for of_policy in runs.values() for run in of_policy)
    fresh = [seed for seed in seeds if seed >= 20]
    yield f"{len(seeds)} people for each policy, {count:,} proposals; every suggestion is accepted"
    yield f"seeds 0 to 19, and drawn for this run: {' '.join(map(str, fresh)) or 'none'}"
    yield ""
    yield (
        f"{'':24}{'automatic after 300':>22}{'wrong':>12}{'wrong':>12}{'largest':>9}{'shown':>8}"
        f"{'reviews':>8}{'prefix list':>18}{'tool after 10':>18}"
    )
    yield (
        f"{'policy':24}{'mean':>11}{'worst':>11}{'approvals':>12}{'rejections':>12}{'bound':>9}{'a run':>8}"
        f"{'a run':>8}{'automatic':>10}{'wrong':>8}{'automatic':>10}{'wrong':>8}"
    )
    for policy, of_policy in runs.items():
        bound = max(run.bound for run in of_policy)
        yield (
            f"{policy:24}{mean(run.after for run in of_policy):>11.0%}"
            f"{min(run.after for run in of_policy):>11.0%}"
            f"{sum(run.wrong_approvals for run in of_policy):>12,}"
            f"{sum(run.wrong_rejections for run in of_policy):>12,}"
            f"{f'{bound:.0%}' if bound else '':>9}"
            f"{mean(run.shown for run in of_policy):>8.1f}{mean(run.reviews for run in of_policy):>8.1f}"
            f"{_baseline_text(of_policy, 'prefix_list')}{_baseline_text(of_policy, 'tool_after_k')}"
        )
    yield f"{'always ask':24}{0:>11.0%}{0:>11.0%}{0:>12}{0:>12}"
    yield ""
    yield "bound: what the least certain accepted suggestion said it could be wrong by, with 95 % confidence"
    for words, kept in promised:
        yield f"{words}: {'met' if kept else 'MISSED'}"


def _baseline_text(runs: Sequence[SimulationRun], name: str) -> str:
    found = [run.baselines[name] for run in runs]
    return f"{mean(each.share for each in found):>10.0%}{sum(each.wrong for each in found):>8,}"


def shares_of(runs: Sequence[SimulationRun]) -> list[float]:
    """The curve of one policy, all people together."""
    return [mean(run.curve[at] for run in runs) for at in range(len(runs[0].curve))]


def svg(runs: Mapping[str, list[SimulationRun]]) -> str:
    """The curves as a picture: policies that rules can say in colours, the others in grey."""
    parts = [
        f'<line x1="{_LEFT}" y1="{_y(share)}" x2="{_LEFT + _WIDTH}" y2="{_y(share)}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{_y(share) + 4}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    width = max(len(of_policy[0].curve) for of_policy in runs.values())
    for decisions in range(0, width * _STEP + 1, 200):
        x = _LEFT + _WIDTH * decisions / (width * _STEP)
        parts.append(f'<text x="{x:.0f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{decisions}</text>')
    x = _LEFT + _WIDTH + 14
    for at, (policy, of_policy) in enumerate(runs.items()):
        shares = [0.0, *shares_of(of_policy)]
        colour = _COLOURS[at % len(_COLOURS)] if policy in EXPRESSIBLE else _GREY
        dash = "" if policy in EXPRESSIBLE else ' stroke-dasharray="5 3"' if policy in NOISY else ""
        points = " ".join(
            f"{_LEFT + _WIDTH * step / width:.0f},{_y(share):.0f}" for step, share in enumerate(shares)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}>'
            f"<title>{policy}</title></polyline>"
        )
        y = _TOP + 12 + 19 * at
        parts.append(
            f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{x + 24}" y="{y}">{policy}</text>'
        )
    right, bottom = x + 180, _TOP + _HEIGHT + 42
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {bottom}" width="{right}" '
        f'height="{bottom}" font-family="sans-serif" font-size="11" fill="#333">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        "<title>Share of decisions that are automatic, by decisions so far</title>"
        f"{''.join(parts)}"
        f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{bottom - 8}" text-anchor="middle">decisions so far; '
        "grey: policies that rules cannot say, dashed: with slips</text></svg>\n"
    )


def _y(share: float) -> float:
    return _TOP + _HEIGHT * (1 - share)


def write_picture(runs: Mapping[str, list[SimulationRun]]) -> None:
    PICTURE.write_text(svg(runs), "utf-8")
