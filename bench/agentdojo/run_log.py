"""Every run in a file, a JSON object a line, so that a long measurement can be stopped and go on.

Runs of the first day are added one by one. After people have decided many tasks a space is what these made of
it: so such a measurement stands in one line, and is repeated as a whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.agentdojo.score import Score
from bench.agentdojo.scripted_runs import RunResult


class RunLog:
    """`path` None: nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text("utf-8").splitlines() if path is not None and path.exists() else []
        self.scores: dict[tuple[str, str], Score] = {}
        for line in lines:
            row = json.loads(line)
            score = self.scores.setdefault((row["world"], row["variant"]), Score())
            score.results += [RunResult(**each) for each in row["results"]]
            score.learned += [RunResult(**each) for each in row.get("learned", ())]
            score.accepted += row.get("accepted", 0)

    def score(self, world: str, variant: str) -> Score | None:
        """What was measured before."""
        return self.scores.get((world, variant))

    def known(self, world: str, variant: str) -> set[tuple[str, str | None]]:
        """The runs, by task and attack."""
        score = self.score(world, variant)
        return set() if score is None else {(each.task, each.attack) for each in score.results}

    def add(self, world: str, variant: str, result: RunResult) -> None:
        self._write({"world": world, "variant": variant, "results": [asdict(result)]})

    def add_score(self, world: str, variant: str, score: Score) -> None:
        self._write({"world": world, "variant": variant, **asdict(score)})

    def _write(self, row: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
