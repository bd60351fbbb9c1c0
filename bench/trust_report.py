"""The table of `bench.trust`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Final

from bench.trust_run import SimulationRun

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
