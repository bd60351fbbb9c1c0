"""Whoever earns a rule and tries its edges gets what the rule says and no more; all of it in `make soak`."""

from __future__ import annotations

from tests.trust.value_probes import run_probes


def test_nothing_is_approved_beyond_what_the_templates_say() -> None:
    assert run_probes(6_000, 19).endswith("none beyond what was earned")
