"""One test for many rows tries all of them, and says which failed."""

from __future__ import annotations

from inspect import signature

import pytest

from tests.rows import for_each_row


def test_all_rows_are_tried_and_those_that_fail_are_named() -> None:
    tried: list[tuple[int, int, int]] = []

    @for_each_row("left", [1, 2, 3])
    @for_each_row(("right", "sum"), [(1, 2), (5, 9)], ids=["one", "five"])
    def add(left: int, right: int, sum: int) -> None:
        tried.append((left, right, sum))
        assert left + right == sum

    assert not signature(add).parameters
    with pytest.raises(ExceptionGroup, match="3 of 3 rows") as error:
        add()
    assert len(tried) == 6
    first = error.value.exceptions[0]
    assert isinstance(first, ExceptionGroup)
    assert first.exceptions[0].__notes__ == ["row 1: five"]
    assert first.__notes__ == ["row 0: (1,)"]


def test_rows_that_hold_pass_and_none_or_odd_ones_are_refused() -> None:
    for_each_row("value", "abc", ids=str.upper)(lambda value: None)()
    with pytest.raises(AssertionError, match="no rows"):
        for_each_row("value", [])
    with pytest.raises(AssertionError, match="longer or shorter"):
        for_each_row("left, right", [(1, 2), (1,)])
