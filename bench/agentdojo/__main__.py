"""AgentDojo and τ-bench through the product: `python -m bench.agentdojo --python VENV/bin/python`.

AgentDojo is installed by hand, in an environment of its own (`bench.origins` says how); τ-bench is a checkout
that `--tau` names. Each world is an MCP server in a space that `moot init --from` makes and `moot up` runs;
people's prompts are chats; nothing here calls a model. Prints how much was asked, and what ran unasked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.agentdojo.injected_text import VARIANTS
from bench.agentdojo.scripted_runs import RunResult, ScriptedRun
from bench.agentdojo.world_space import WorldCommand, has_effect, traits_of, world_space

DOJO: Final = ("workspace", "travel", "banking", "slack")
TAU: Final = ("retail", "airline")
# Of each attack, in variants: so many tasks, evenly chosen.
TASKS_OF_A_VARIANT: Final = 3


@dataclass
class Score:
    """The counts of one world."""

    results: list[RunResult] = field(default_factory=list)

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


HEADER: Final = (
    "| world | effects asked | reads asked | tasks without a question | attacks with an effect unasked "
    "| not read |\n|---|---|---|---|---|---|"
)


def with_effect(
    scenarios: Sequence[Mapping[str, Any]], traits: Mapping[str, Any], world: str
) -> list[Mapping[str, Any]]:
    """Tasks, and those attacks that do something."""
    return [
        each for each in scenarios
        if each["attack"] is None or any(has_effect(traits, world, name) for name, _ in each["attack_calls"])
    ]  # fmt: skip


def thinned(scenarios: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each attack some tasks, evenly chosen; no task without an attack."""
    by_attack: dict[str, list[Mapping[str, Any]]] = {}
    for each in scenarios:
        if each["attack"] is not None:
            by_attack.setdefault(each["attack"], []).append(each)
    step = TASKS_OF_A_VARIANT
    return [
        found[at * len(found) // step]
        for found in by_attack.values()
        for at in range(min(step, len(found)))
    ]  # fmt: skip


async def run_world(folder: Path, command: WorldCommand, variant: str, options: argparse.Namespace) -> Score:
    traits, score = traits_of(command.world), Score()
    scenarios = with_effect(await command.scenarios(variant), traits, command.world)
    if variant != "plain":
        scenarios = thinned(scenarios)
    if options.no_attacks:
        scenarios = [each for each in scenarios if each["attack"] is None]
    scenarios = scenarios[: options.first]
    texts = sorted({each["text"] for each in scenarios}) if variant == "tool-description" else []
    async with world_space(folder / f"{command.world}-{variant}", command, describe=texts) as space:
        run = ScriptedRun(space, traits)
        for number, scenario in enumerate(scenarios):
            found = await run.run(scenario, variant)
            score.results.append(found)
            if options.details:
                _print_details(found)
            if number % 100 == 99:
                print(f"· {command.world} {variant}: {number + 1} of {len(scenarios)}", flush=True)
    return score


def _print_details(found: RunResult) -> None:
    for line in [*found.asked, *found.reads_asked]:
        print(f"ASKED {found.task} {found.attack or ''} {line}")
    for line in found.failed:
        print(f"FAILED {found.task} {found.attack or ''} {line}")


async def run_all(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Score]]:
    """Every world in every variant, two worlds at a time."""
    scores: dict[str, dict[str, Score]] = {}
    places = asyncio.Semaphore(options.at_once)

    async def one(command: WorldCommand, variant: str) -> None:
        async with places:
            scores.setdefault(variant, {})[command.world] = await run_world(folder, command, variant, options)

    async with asyncio.TaskGroup() as group:
        for variant in options.variant or ["plain"]:
            for world in options.world or (DOJO if options.tau is None else (*DOJO, *TAU)):
                source = options.tau if world in TAU else None
                group.create_task(one(WorldCommand(world, options.python, source), variant))
    return scores


def print_scores(scores: Mapping[str, Mapping[str, Score]]) -> None:
    for variant, by_world in scores.items():
        print(f"\n{variant}\n\n{HEADER}")
        for world, score in sorted(by_world.items()):
            print(score.row(world))
        print(Score([each for score in by_world.values() for each in score.results]).row("all"))
        for world, score in sorted(by_world.items()):
            for each in score.attacks:
                for line in dict.fromkeys(each.through):
                    print(f"   unasked: {world} {each.task} {each.attack}: {line[:300]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.agentdojo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--python", type=Path, required=True, help="the Python of the environment that has AgentDojo")
    add("--tau", type=Path, metavar="DIR", help="a checkout of τ-bench; its worlds are run, too")
    add("--world", action="append", choices=(*DOJO, *TAU), help="only this world; may be given several times")
    add("--variant", action="append", choices=VARIANTS, help="how instructions are written (default plain)")
    add("--variants", dest="variant", action="store_const", const=[*VARIANTS], help="all of them")
    add("--no-attacks", action="store_true")
    add("--first", type=int, metavar="N", help="only the first N runs of each world")
    add("--at-once", type=int, default=2, metavar="N", help="worlds at a time (default 2)")
    add("--details", action="store_true", help="print what was asked, and why")
    add("--json", type=Path, metavar="FILE", help="write every run into this file")
    add("--keep", type=Path, metavar="DIR", help="keep the folders of the spaces here")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="moot-agentdojo-") as name:
        scores = asyncio.run(run_all(options.keep or Path(name), options))
    print_scores(scores)
    print(f"\n{sum(len(s.results) for of in scores.values() for s in of.values())} runs in "
          f"{time.monotonic() - start:.0f} s")  # fmt: skip
    if options.json:
        found = {v: {w: [asdict(r) for r in s.results] for w, s in of.items()} for v, of in scores.items()}
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
