"""A table that keeps the latest entries."""

from __future__ import annotations

from moot.protocol.latest_dict import LatestDict


def test_the_oldest_entry_goes_first() -> None:
    table: LatestDict[str, int] = LatestDict(2)
    for number, key in enumerate("abc"):
        table[key] = number
    assert table == {"b": 1, "c": 2}


def test_what_is_put_in_anew_is_the_latest() -> None:
    table: LatestDict[str, int] = LatestDict(2)
    for key in "abac":
        table[key] = table.get(key, 0) + 1
    assert table == {"a": 2, "c": 1}
