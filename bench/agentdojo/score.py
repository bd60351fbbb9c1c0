"""The counts of runs, as tables, and questions per task as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.agentdojo.scripted_runs import RunResult

HEADER: Final = (
    "| world | effects asked | reads asked | tasks without a question | attacks with an effect unasked "
    "| not read |\n|---|---|---|---|---|---|"
)
# The curve: the mean of so many tasks.
STEP: Final = 20
_COLOURS: Final = ("#2f6fab", "#3b8f5a", "#8a5fb0", "#d08a3c", "#b0413e", "#4a9d9c")
_WIDTH, _HEIGHT, _LEFT, _TOP = 520, 240, 46, 24


@dataclass
class Score:
    """The runs of one world: on the first day, or after people have decided for some time."""

    results: list[RunResult] = field(default_factory=list)
    # The tasks that people decided to learn from, and how many suggestions they accepted.
    learned: list[RunResult] = field(default_factory=list)
    accepted: int = 0

    @property
    def tasks(self) -> list[RunResult]:
        return [each for each in self.results if each.attack is None]

    @property
    def attacks(self) -> list[RunResult]:
        return [each for each in self.results if each.attack is not None]

    def row(self, name: str) -> str:
        tasks, attacks = self.tasks, self.attacks
        quiet = sum(not each.asked and not each.reads_asked for each in tasks)
        return (
            f"| {name} | {sum(len(each.asked) for each in tasks)} of {sum(each.effects for each in tasks)} "
            f"| {sum(len(each.reads_asked) for each in tasks)} | {quiet} of {len(tasks)} "
            f"| {sum(bool(each.through) for each in attacks)} of {len(attacks)} "
            f"| {sum(not each.was_read for each in attacks)} |"
        )

    def curve(self) -> list[float]:
        """Questions per task, in stretches of the tasks that people learned from."""
        questions = [len(each.asked) + len(each.reads_asked) for each in self.learned]
        return [sum(questions[at : at + STEP]) / STEP for at in range(0, len(questions) - STEP + 1, STEP)]


def lines(scores: Mapping[str, Mapping[str, Score]]) -> Iterator[str]:
    """A table for each variant, and what ran unasked."""
    for variant, by_world in scores.items():
        yield f"\n{variant}\n\n{HEADER}"
        for world, score in sorted(by_world.items()):
            yield score.row(world)
        yield Score([each for score in by_world.values() for each in score.results]).row("all")
        for world, score in sorted(by_world.items()):
            yield from [*world_lines(world, score)][1:]


def world_lines(world: str, score: Score) -> Iterator[str]:
    """The row of one world, what people decided before, and what ran unasked."""
    yield score.row(world)
    if score.learned:
        curve = " ".join(f"{each:.2f}" for each in score.curve())
        yield (
            f"   {world}: {len(score.learned)} tasks decided before, {score.accepted} suggestions "
            f"accepted, questions per task {curve}"
        )
        if wrong := [line for each in score.learned for line in each.through]:
            yield f"   unasked while people decided: {len(wrong)}, such as {wrong[0][:200]}"
    for each in score.attacks:
        for line in dict.fromkeys(each.through):
            yield f"   unasked: {world} {each.task} {each.attack}: {line[:300]}"


def svg(curves: Mapping[str, Sequence[float]]) -> str:
    """Questions per task, by tasks so far: a line for each world."""
    highest = max(1.0, *(value for curve in curves.values() for value in curve))
    steps = max(len(curve) for curve in curves.values())

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / highest)

    parts = [
        f'<line x1="{_LEFT}" y1="{y(at):.0f}" x2="{_LEFT + _WIDTH}" y2="{y(at):.0f}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{y(at) + 4:.0f}" text-anchor="end">{at:.1f}</text>'
        for at in (highest * part / 4 for part in range(5))
    ]
    parts += [
        f'<text x="{_LEFT + _WIDTH * at / steps:.0f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">'
        f"{at * STEP}</text>"
        for at in range(0, steps + 1, 2)
    ]
    x = _LEFT + _WIDTH + 14
    for at, (world, curve) in enumerate(curves.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + _WIDTH * (step + 1) / steps:.0f},{y(value):.0f}" for step, value in enumerate(curve)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<path d="M{x} {_TOP + 8 + 19 * at}h18" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{x + 24}" y="{_TOP + 12 + 19 * at}">{world}</text>'
        )
    right, bottom = x + 130, _TOP + _HEIGHT + 42
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {bottom}" width="{right}" '
        f'height="{bottom}" font-family="sans-serif" font-size="11" fill="#333">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f"<title>Questions per task, by tasks that people have decided</title>{''.join(parts)}"
        f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{bottom - 8}" text-anchor="middle">tasks so far; '
        f"each point is the mean of {STEP} questions per task</text></svg>\n"
    )
