"""What a person makes of a suggestion may be narrower, never wider; what cannot be proven is wider."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moot.trust.checks.narrowing_proof import find_counter_example, find_wider_part
from moot.trust.rules.conditions import Hours, Range, RangeByText
from moot.trust.rules.rule import Rule, RuleLimits
from moot.values.kinds import ValuePattern
from tests.rows import for_each_row

SUGGESTED = Rule(
    name="reports",
    decision="approve",
    proposer="agent",
    to=("files",),
    method="tools/call",
    tool="write_file",
    arguments={"path": "reports/*", "mode": ["w", "a"]},
    range={("size",): Range(1, 100)},
    equals={"flags": [1]},
    hours=Hours(9 * 60, 17 * 60),
    limits=RuleLimits(
        max_decisions=10, per_seconds=3_600.0, expires_at=1_000.0, while_present=("alice",), check_share=0.05
    ),
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"arguments": {"path": "reports/2026/*", "mode": "w"}},
        {"range": {("size",): Range(2, 50)}},
        {"hours": Hours(10 * 60, 12 * 60)},
        {
            "limits": RuleLimits(
                max_decisions=5,
                per_seconds=7_200.0,
                expires_at=900.0,
                while_present=("alice", "bob"),
                check_share=0.5,
            )
        },
        {"after": 5.0},
    ],
)
def test_less_is_taken(changes: dict[str, object]) -> None:
    assert find_wider_part(replace(SUGGESTED, **changes), SUGGESTED) is None  # type: ignore[arg-type]


@for_each_row(
    ("changes", "where"),
    [
        ({"decision": "reject"}, "decision"),
        ({"proposer": "*"}, "proposer"),
        ({"to": ("files", "mail")}, "proposer"),
        ({"to": None}, "proposer"),
        ({"tool": ["write_file", "delete_file"]}, "proposer"),
        ({"arguments": {"path": "*", "mode": "w"}}, "arguments"),
        ({"arguments": {"path": "reports/*"}}, "arguments"),
        ({"arguments": {"path": "reports/*", "mode": "w", "owner": "root"}}, "arguments"),
        ({"extra_arguments": True}, "extra_arguments"),
        ({"range": {("size",): Range(0, 100)}}, "range"),
        ({"range": {}}, "range"),
        ({"range": {("size",): Range(1.0, 100.0)}}, "range"),
        ({"equals": {}}, "equals"),
        ({"equals": {"flags": [True]}}, "equals"),
        ({"hours": None}, "hours"),
        ({"hours": Hours(8 * 60, 12 * 60)}, "hours"),
        ({"hours": Hours(9 * 60, 17 * 60, "Europe/Berlin")}, "hours"),
        ({"limits": replace(SUGGESTED.limits, max_decisions=None)}, "limits.count"),
        ({"limits": replace(SUGGESTED.limits, max_decisions=240, per_seconds=86_400.0)}, "limits.count"),
        ({"limits": replace(SUGGESTED.limits, per_seconds=60.0)}, "limits.count"),
        ({"limits": replace(SUGGESTED.limits, expires_at=None)}, "limits.expires_at"),
        ({"limits": replace(SUGGESTED.limits, while_present=())}, "limits.while_present"),
        ({"limits": replace(SUGGESTED.limits, check_share=0.0)}, "limits.check_share"),
    ],
)
def test_more_is_not(changes: dict[str, object], where: str) -> None:
    assert where in (find_wider_part(replace(SUGGESTED, **changes), SUGGESTED) or "")  # type: ignore[arg-type]


def test_how_often_each_payee_is_paid_is_narrowed_too() -> None:
    suggested = replace(SUGGESTED, limits=replace(SUGGESTED.limits, max_each=2))
    for each, wider in ((2, None), (1, None), (3, "limits.each"), (None, "limits.each")):
        edited = replace(suggested, limits=replace(SUGGESTED.limits, max_each=each))
        assert find_wider_part(edited, suggested) == wider


def test_a_further_list_is_wider_where_each_value_of_the_first_has_a_limit() -> None:
    """With two purposes a payee would be paid twice as often."""
    suggested = replace(
        SUGGESTED,
        arguments={"payee": ["ACME", "Beta"], "purpose": "*"},
        limits=replace(SUGGESTED.limits, max_each=2),
    )
    for arguments, wider in (
        ({"payee": ["ACME"], "purpose": "*"}, None),
        ({"payee": "ACME", "purpose": "rent"}, None),
        ({"payee": ["ACME", "Beta"], "purpose": ["rent", "fees"]}, "limits.each"),
    ):
        assert find_wider_part(replace(suggested, arguments=arguments), suggested) == wider


BY_PAYEE = RangeByText.over("payee", {"ACME": Range(1, 300), "Beta": Range(5, 10)})


@for_each_row(
    ("edited", "is_less"),
    [
        (BY_PAYEE, True),
        (RangeByText.over("payee", {"ACME": Range(2, 300)}), True),
        (RangeByText.over("payee", {"ACME": Range(1, 301)}), False),
        (RangeByText.over("payee", {"Other": Range(5, 6)}), False),
        (RangeByText.over("mode", {"ACME": Range(2, 300)}), False),
        (Range(5, 6), False),
    ],
)
def test_a_range_for_each_payee_is_narrowed_payee_by_payee(edited: Range, is_less: bool) -> None:
    suggested = replace(SUGGESTED, range={("size",): BY_PAYEE})
    assert (find_wider_part(replace(suggested, range={("size",): edited}), suggested) is None) is is_less
    # What a range goes by is an argument that the rule names.
    named = replace(suggested, arguments={**SUGGESTED.arguments, "payee": "ACME"})
    assert find_wider_part(named, suggested) is None
    whole = replace(SUGGESTED, range={("size",): Range(1, 300)})
    assert find_wider_part(suggested, whole) == "arguments"
    assert find_wider_part(named, replace(named, range={("size",): Range(1, 300)})) is None


def test_addressed_to_nobody_is_neither_somebody_nor_anybody() -> None:
    nobody = replace(SUGGESTED, to=())
    assert find_wider_part(SUGGESTED, nobody) == "to"
    assert find_wider_part(nobody, nobody) is None


def test_templates_are_narrowed_and_a_wider_one_is_refused_with_an_example() -> None:
    values: dict[tuple[str, ...], ValuePattern] = {("path",): ValuePattern("path", ["reports/<name>.md"])}
    suggested = replace(SUGGESTED, arguments={}, values=values)
    for narrower in (["reports/day-<2 digits>.md"], ["reports/a.md", "reports/b.md"]):
        edited = replace(suggested, values={("path",): ValuePattern("path", narrower)})
        assert find_wider_part(edited, suggested) is None
    exact = replace(suggested, values={}, arguments={"path": ["reports/a.md"]})
    assert find_wider_part(exact, suggested) is None
    wider = replace(suggested, values={("path",): ValuePattern("path", ["reports/<path>.md"])})
    assert find_wider_part(wider, suggested) == "path of path"
    assert find_counter_example(wider, suggested) == "path 'reports/a/b/c/d/e/f/g/h.md'"
    assert find_wider_part(replace(suggested, values={}), suggested) is not None
    other = replace(suggested, values={}, arguments={"path": "reports/*"})
    assert find_wider_part(other, suggested) == "path of path"
