"""Whoever earns a rule and tries its edges gets what the rule says and no more; all of it in `make soak`."""

from __future__ import annotations

from tests.trust.learning.rule_mutants import run_mutants
from tests.trust.learning.value_probes import approved_attacks, run_probes


def test_nothing_is_approved_beyond_what_the_templates_say() -> None:
    assert run_probes(2_000, 19).endswith("none beyond what was earned")


def test_no_attack_is_approved_by_somebody_who_knows_the_tools() -> None:
    assert approved_attacks() == []


def test_no_mutant_of_what_is_approved_does_more_by_what_others_make_of_it() -> None:
    assert run_mutants(1_800, 23).endswith("none does more than was approved")
