"""What was measured, as `results.json` and in docs/topics/origins-measured.md.

    python -m bench.agentdojo.results --first LOG --variants LOG --learned LOG --pressed LOG --tau LOG

takes the runs of logs (`bench.agentdojo --log`) into `results.json`, each option one part of it, and writes
the page and its pictures anew. What stands in the page between `<!-- from results: NAME -->` and
`<!-- end -->` comes from there alone; a test holds the page to it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.agentdojo.run_log import RunLog
from bench.agentdojo.score import STEP, Score, svg

RESULTS: Final = Path(__file__).with_name("results.json")
_DOCS: Final = RESULTS.parent.parent.parent / "docs"
PAGE: Final = _DOCS / "topics" / "origins-measured.md"
PICTURE: Final = _DOCS / "origins.svg"
WORLDS: Final = ("workspace", "travel", "banking", "slack", "retail", "airline")
_BLOCK: Final = re.compile(r"(<!-- from results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Counts = Mapping[str, Any]


def counts_of(score: Score) -> dict[str, Any]:
    """The numbers of one world in one part."""
    tasks, attacks = score.tasks, score.attacks
    found: dict[str, Any] = {
        "asked": sum(len(each.asked) for each in tasks),
        "effects": sum(each.effects for each in tasks),
        "reads_asked": sum(len(each.reads_asked) for each in tasks),
        "quiet": sum(not each.asked and not each.reads_asked for each in tasks),
        "tasks": len(tasks),
        "through": sum(bool(each.through) for each in attacks),
        "attacks": len(attacks),
        "not_read": sum(not each.was_read for each in attacks),
        "named": [
            f"{each.task} with {each.attack}: {line.partition(' ')[0]}"
            for each in attacks
            for line in dict.fromkeys(each.through)
        ],
    }
    if score.learned:
        wrong = sum(bool(each.through) for each in score.learned)
        found |= {"decided": len(score.learned), "accepted": score.accepted, "wrong": wrong}
        found["curve"] = score.curve()
    return found


def part_of(log: Path) -> dict[str, dict[str, Any]]:
    """The counts of a log by variant and world."""
    part: dict[str, dict[str, Any]] = {}
    for (world, variant), score in RunLog(log).scores.items():
        part.setdefault(variant, {})[world] = counts_of(score)
    return part


def together(counts: Sequence[Counts]) -> dict[str, Any]:
    """The sums of several worlds."""
    names = ("asked", "effects", "reads_asked", "quiet", "tasks", "through", "attacks", "not_read")
    return {name: sum(each[name] for each in counts) for name in names}


def _table(head: str, rows: Sequence[Sequence[str]]) -> str:
    lines = [head, "|" + "---|" * (head.count("|") - 1), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _rows(part: Mapping[str, Counts]) -> list[tuple[str, Counts]]:
    rows: list[tuple[str, Counts]] = [(world, part[world]) for world in WORLDS if world in part]
    return rows if len(rows) < 2 else [*rows, ("all", together([counts for _, counts in rows]))]


def _world_table(part: Mapping[str, Counts]) -> str:
    return _table(
        "| world | effects asked | tasks without a question | attacks with an effect unasked |",
        [
            (
                world,
                f"{each['asked']} of {each['effects']}",
                f"{each['quiet']} of {each['tasks']}",
                f"{each['through']} of {each['attacks']}",
            )
            for world, each in _rows(part)
        ],
    )


def _named(part: Mapping[str, Counts]) -> str:
    named = [f"{world}, {line}" for world in WORLDS if world in part for line in part[world]["named"]]
    return "".join(f"- ran unasked: {line}\n" for line in named)


def _unread(every: Counts) -> str:
    if not every["not_read"]:
        return "In each attack the agent read the text."
    return (
        f"In {every['not_read']} of {every['attacks']} attacks the agent never came to read the text, and "
        "made the calls at the end all the same."
    )


def first_day(results: Mapping[str, Any]) -> str:
    part = results["first"]["plain"]
    every = together(list(part.values()))
    reads = "No call that only reads asked."
    if every["reads_asked"]:
        reads = f"{every['reads_asked']} calls that only read asked, too."
    return f"{_world_table(part)}\n{reads} {_unread(every)}\n\n{_named(part)}"


def variants(results: Mapping[str, Any]) -> str:
    """One row for all variants with the same numbers."""
    rows: dict[str, list[str]] = {}
    for variant, worlds in results["variants"].items():
        if variant != "plain":
            every = together(list(worlds.values()))
            rows.setdefault(f"{every['through']} of {every['attacks']}", []).append(variant)
    return _table(
        "| the instruction | attacks with an effect unasked, each |",
        [(", ".join(names), counts) for counts, names in rows.items()],
    )


def _over_time(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> str:
    rows = []
    for world, each in _rows(after):
        first = dict(_rows(before)).get(world, each)
        rows.append(
            (
                world,
                f"{first['asked']} of {first['effects']}",
                f"{each['asked']} of {each['effects']}",
                f"{first['quiet']} of {first['tasks']}",
                f"{each['quiet']} of {each['tasks']}",
                f"{each['through']} of {each['attacks']}",
            )
        )
    return _table(
        "| world | effects asked before | after | tasks without a question before | after "
        "| attacks unasked |",
        rows,
    )


def learned(results: Mapping[str, Any]) -> str:
    part = results["learned"]["plain"]
    accepted, wrong = (sum(each[name] for each in part.values()) for name in ("accepted", "wrong"))
    return (
        f"{_over_time(results['first']['plain'], part)}\nWhile the person decided, {wrong} attacks ran, and "
        f"{accepted} suggestions were accepted.\n\n{_while_deciding(part)}\n{_named(part)}"
    )


def _while_deciding(part: Mapping[str, Counts]) -> str:
    """Questions in each hundred of the tasks that were decided, as if each task had come as often."""
    rows = []
    for first in range(0, max(each["decided"] for each in part.values()), 100):
        steps = slice(first // STEP, (first + 100) // STEP)
        asked = sum(
            each["tasks"] * sum(each["curve"][steps]) / max(1, len(each["curve"][steps]))
            for each in part.values()
        )
        tasks = sum(each["tasks"] for each in part.values())
        rows.append((f"{first + 1} to {first + 100}", f"{asked:.0f} in {tasks} tasks"))
    return _table("| tasks in each world | questions meanwhile |", rows)


def pressed(results: Mapping[str, Any], name: str = "pressed") -> str:
    part = results[name]["plain"]
    return f"{_world_table(part)}\n{_named(part)}"


def tau(results: Mapping[str, Any]) -> str:
    part = results["tau"]["plain"]
    every = together(list(part.values()))
    return f"{_world_table(part)}\n{_unread(every)}\n\n{_named(part)}"


BLOCKS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "first": first_day,
    "variants": variants,
    "learned": learned,
    "pressed": pressed,
    "planned": lambda results: pressed(results, "planned"),
    "tau": tau,
}


def page_with(page: str, results: Mapping[str, Any]) -> str:
    """The page with these numbers in the place of what it has; a part that was not measured says so."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        text = BLOCKS[name](results) if name in results else "Not measured.\n"
        return f"{found[1]}\n{text.rstrip()}\n\n{found[3]}"

    return _BLOCK.sub(block, page)


def picture(results: Mapping[str, Any]) -> str:
    """Questions per task while people decided."""
    part = results["learned"]["plain"]
    return svg({world: part[world]["curve"] for world in WORLDS if world in part})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in BLOCKS:
        parser.add_argument(f"--{name}", type=Path, metavar="LOG")
    options = vars(parser.parse_args())
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    results |= {name: part_of(log) for name, log in options.items() if log is not None}
    written = json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True)
    RESULTS.write_text(f"{written}\n", "utf-8")
    # In the order in which the next one will read it.
    results = json.loads(written)
    PAGE.write_text(page_with(PAGE.read_text("utf-8"), results), "utf-8")
    if "learned" in results:
        PICTURE.write_text(picture(results), "utf-8")


if __name__ == "__main__":
    main()
