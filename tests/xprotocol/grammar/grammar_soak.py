"""Schemas by chance, by the thousand: every one compiles rightly or is refused for a reason that holds."""

from __future__ import annotations

from collections import Counter

from tests.xprotocol.grammar.instances import Instances, validator
from tests.xprotocol.grammar.schemas import Schemas
from tests.xprotocol.grammar.trials import Trial, try_schema


def chance_schema(seed: int) -> list[str]:
    """What is wrong with the grammar of the schema of this seed; nothing, if all is well."""
    return _faults(seed, _trial(seed))


def _trial(seed: int) -> Trial:
    return try_schema(Schemas(seed).document(), seed, values=6, spoilt=8, texts=12)


def _faults(seed: int, trial: Trial) -> list[str]:
    if trial.verdict != "rejected" or "no value satisfies" not in trial.reason:
        return trial.faults
    # Refused as unsatisfiable: then no value may be found that satisfies it.
    schema = Schemas(seed).document()
    truth = validator(schema)
    if truth is None:
        return []
    values = Instances(schema, truth, seed).valid(1, tries=60)
    return [f"refused as unsatisfiable, but {value} satisfies it" for value in values]


def run_grammar_soak(cases: int, seed: int) -> str:
    """Raises at the first fault; gives back the figures."""
    verdicts: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        trial = _trial(number)
        faults = _faults(number, trial)
        if faults:
            raise AssertionError(f"schema {number}: {faults[0]}")
        verdicts[trial.verdict] += 1
    return f"{cases:,} schemas by chance: " + ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts.items())
