"""Mutants of approved commands and statements, judged by bash and SQLite themselves.

The adversary knows the rules: besides tricks it puts texts from the edges of their slots into each other. Of
what a rule approves, bash says which programs run with which words, and which files are written; SQLite says
which tables and columns a statement touches. Whatever is more than the approved examples did is a fault.
"""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.values.examples import edge_texts, outside_texts
from tests.trust.histories import call
from tests.trust.learning.value_probes import _NAMES, NOW, _earn, probe_of

# Options before and behind files, messages, names, numbers, redirections and pipes.
COMMANDS: Final = [
    *(f"scan -q --depth {count} src/{name}.txt" for count, name in enumerate(_NAMES, 1)),
    *(f"render src/{name}.md > out/{name}.html" for name in _NAMES),
    *(f"git commit --message 'Mend the {name} page'" for name in _NAMES),
    *(f"git checkout {name}" for name in _NAMES),
    *(f"git log -n {count} | head -n {count}" for count in range(3, 41)),
]
STATEMENTS: Final = [
    *(f"SELECT id, total FROM orders WHERE id = {n}" for n in range(40)),  # noqa: S608
    *(f"SELECT id FROM orders WHERE owner = '{name}' LIMIT 5" for name in _NAMES),  # noqa: S608
    *(f"UPDATE orders SET total = {n}.50 WHERE id = {n}" for n in range(10, 50)),  # noqa: S608
]
_PROGRAMS: Final = ("scan", "render", "git", "head")
_TABLES: Final = (
    "CREATE TABLE orders (id INTEGER, total REAL, owner TEXT, card TEXT); CREATE TABLE users (name, password)"
)


class BashJudge:
    """What a command does: each program that runs, its words but for names and numbers, files it writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir()
        for name in _PROGRAMS:
            (programs / name).write_text(
                "#!/bin/sh\n" + f'printf "%s\\n" "{name}" "$@" "" >> "$LOG"\ncat > /dev/null < /dev/null\n'
            )
            (programs / name).chmod(0o755)

    def seen(self, command: str) -> set[tuple[str, ...]]:
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            place = Path(scratch)
            for name in ("src", "out"):
                (place / name).mkdir()
            environment = {"PATH": str(self._folder / "bin"), "LOG": str(place / "log"), "HOME": scratch}
            subprocess.run(  # noqa: S603
                ["/bin/bash", "-c", command], cwd=place, env=environment, capture_output=True, check=False
            )
            log = (place / "log").read_text() if (place / "log").exists() else ""
            runs = {_shapes(run.split("\n")) for run in log.split("\n\n") if run}
            written = [path for path in place.rglob("*") if path.is_file() and path.name != "log"]
            return runs | {("writes", path.parent.name, path.suffix) for path in written}


def _shapes(words: list[str]) -> tuple[str, ...]:
    """The words without what may vary; a message is one word, whatever it says."""
    return tuple(
        "message" if before == "--message" else _shape(word)
        for before, word in zip(["", *words], words, strict=False)
    )


def _shape(word: str) -> str:
    """A word without what may vary: names and numbers; a folder and an ending stay."""
    if word.startswith("-") or word in _PROGRAMS or word in ("checkout", "commit", "log"):
        return word
    folder, slash, name = word.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    is_name = (stem if dot else name).replace("_", "").replace("-", "").replace(" ", "").isalnum()
    return f"{folder}{slash}{'x' if is_name else stem}{dot}{ending if dot else ''}"


def judge_sql(statement: str) -> set[tuple[str, ...]]:
    """What a statement touches, as SQLite's authorizer is asked; nothing is kept."""
    found: set[tuple[str, ...]] = set()

    def note(action: int, one: str | None, two: str | None, *_: str | None) -> int:
        found.add((str(action), one or "", two or ""))
        return sqlite3.SQLITE_OK

    database = sqlite3.connect(":memory:")
    try:
        database.executescript(_TABLES)
        database.set_authorizer(note)
        database.execute(statement)
    except (sqlite3.Error, sqlite3.Warning) as fault:
        return {("refused", type(fault).__name__)}
    finally:
        database.close()
    return found


def run_mutants(count: int, seed: int) -> str:
    """Judge mutants of what was earned; raises AssertionError at the first that does more."""
    rng = random.Random(seed)
    approved = 0
    with tempfile.TemporaryDirectory() as scratch:
        judges: list[tuple[str, list[str], Callable[[str], set[tuple[str, ...]]]]] = [
            ("command", COMMANDS, BashJudge(Path(scratch)).seen),
            ("sql", STATEMENTS, judge_sql),
        ]
        for argument, good, judge in judges:
            rules = _earn(argument, good, lambda _: True).rules
            allowed = {each for text in good[:: len(good) // 60] for each in judge(text)}
            known = _known_texts(rules)
            seen: set[str] = set(good)
            for _ in range(count // len(judges)):
                text = probe_of(rng, rng.choice(good), rng.choice((*good, *known)))
                if text in seen or evaluate(rules, call({argument: text}), NOW).decision != "approve":
                    continue
                seen.add(text)
                approved += 1
                # What is written elsewhere cannot be seen in the folder.
                assert not re.search(r">\s*(?:[/~]|\S*\.\.)", text), text
                assert judge(text) <= allowed | {("refused", "OperationalError")}, (text, judge(text))
    assert approved > 0
    return f"{count:,} mutants, {approved:,} others approved, none does more to bash or SQLite"


def _known_texts(rules: tuple[Rule, ...]) -> list[str]:
    """What the adversary makes of the rules: texts at the edges of their slots, inside and outside."""
    patterns = [pattern for rule in rules for pattern in rule.values.values()]
    return [text for pattern in patterns for text in (*edge_texts(pattern), *outside_texts(pattern))]
