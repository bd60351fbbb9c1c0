"""What in a proposed call deserves a second look; the console is tried with the same calls."""

from __future__ import annotations

import time

import pytest

from moot.protocol.call_risks import risks_of
from moot.protocol.operation import Json
from tests.participant.risk_cases import cases
from tests.participant.risky_calls import HARMLESS, HOSTILE, RISKY
from tests.waiting import HANG_SECONDS


@pytest.mark.parametrize(("tool", "arguments", "expected"), RISKY)
def test_a_risk_is_named(tool: str, arguments: dict[str, Json], expected: str) -> None:
    assert any(expected in each.text for each in risks_of(tool, arguments))


@pytest.mark.parametrize(("tool", "arguments"), HARMLESS)
def test_nothing_is_said_of_a_harmless_call(tool: str, arguments: dict[str, Json]) -> None:
    assert risks_of(tool, arguments) == []


def test_the_most_serious_comes_first_and_there_are_few() -> None:
    arguments: dict[str, Json] = {"amount": 5, "file": "config/secrets.yml", "path": "../x"}
    assert [each.severity for each in risks_of("run", arguments)] == ["bad", "warn", "info"]
    many: dict[str, Json] = {f"path{number}": "../x" for number in range(50)}
    assert len(risks_of("write", many)) == 8


def test_characters_that_cannot_be_seen_are_named() -> None:
    found = risks_of("say", {"text": "pay \u202e100"})
    assert [each.text for each in found] == ["text contains characters that cannot be seen (U+202E)"]


def test_an_amount_that_a_float_cannot_hold_is_not_told_wrongly() -> None:
    assert risks_of("pay", {"amount": 1e300}) == []
    assert [each.text for each in risks_of("pay", {"amount": 10**30})] == [f"amount: {10**30}"]
    assert risks_of("pay", {"amount": True}) == []


def test_any_depth_and_any_number_of_values_ends() -> None:
    deep: Json = "../x"
    for _ in range(50_000):
        deep = [deep]
    assert [each.severity for each in risks_of("many", {"a": deep})] == ["bad"]
    assert risks_of("many", {"a": ["x"] * 100_000}) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_megabyte_ends(text: str) -> None:
    began = time.process_time()
    risks_of("shell", {"command": (text * 1_000_000)[:1_000_000]})
    assert time.process_time() - began < HANG_SECONDS / 20


def test_the_table_of_cases_is_told_apart() -> None:
    dangerous, harmless = cases("dangerous"), cases("harmless")
    assert len(dangerous) + len(harmless) >= 150
    missed = [call for call in dangerous if not is_flagged(*call)]
    flagged = [call for call in harmless if is_flagged(*call)]
    assert len(missed) <= len(dangerous) * 0.05, missed
    assert len(flagged) <= len(harmless) * 0.03, flagged


def is_flagged(tool: str, arguments: dict[str, Json]) -> bool:
    return any(each.severity != "info" for each in risks_of(tool, arguments))
