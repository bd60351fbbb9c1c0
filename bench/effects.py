"""Effect keys under lost replies and kills: how many payments were made twice, of the same rounds.

python -m bench.effects [--rounds 500] [--ctrlrun /path/to/python/with/ctrlrun]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.gateway.effect_recount import find_doubled
from tests.gateway.effect_rounds import FAULTS, plan, play

from moot.protocol.operation import Json


def _line(name: str, rounds: list[dict[str, Json]], paid: Mapping[int, int]) -> str:
    cells = []
    for fault in FAULTS:
        of = [each["n"] for each in rounds if each["fault"] == fault]
        cells.append(f"{sum(paid.get(number, 0) > 1 for number in of)} of {len(of)}")
    return f"| {name} | {' | '.join(cells)} | {sum(times > 1 for times in paid.values())} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    # A gateway that is started again takes a second or two.
    parser.add_argument("--killed-share", type=float, default=0.5)
    parser.add_argument("--ctrlrun", help="the python of an environment with ctrlrun==0.12.2")
    options = parser.parse_args()
    rounds = plan(options.rounds, options.seed, options.killed_share)
    print(f"| doubled payments | {' | '.join(FAULTS)} | all {len(rounds)} rounds |")
    print(f"|---|{'---|' * (len(FAULTS) + 1)}")
    with tempfile.TemporaryDirectory(prefix="moot-effects-") as name:
        folder = Path(name)
        if options.ctrlrun:
            (folder / "rounds.json").write_text(json.dumps(rounds), "utf-8")
            command = [options.ctrlrun, "bench/effect_rival.py", str(folder / "rounds.json"), name]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
            told = Counter({int(number): times for number, times in json.loads(answer).items()})
            print(_line("ctrlrun 0.12.2", rounds, told), flush=True)
        print(_line("Moot", rounds, asyncio.run(play(folder, rounds))))
        journal = folder / "data" / "spaces" / "lab" / "journal"
        ran, doubled = find_doubled(journal, "pay", "invoice", "payee")
        print(f"\nRecounted from the journal: {ran} calls, {len(doubled)} of them twice unasked")


if __name__ == "__main__":
    main()
