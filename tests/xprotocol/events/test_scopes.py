"""Which capability covers which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.contracts.capabilities import any_covers, covers, is_capability, uncovered
from tests.rows import for_each_row


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ("com.acme.crm.read", "com.acme.crm.read"),
        ("com.acme.crm.*", "com.acme.crm.read"),
        ("com.acme.*", "com.acme.crm.read"),
        ("com.*", "com.acme.crm.read"),
        ("com.acme.*", "com.acme.crm.*"),
        ("com.acme.*", "com.acme.*"),
    ],
)
def test_a_capability_covers_itself_and_a_star_everything_below(held: str, wanted: str) -> None:
    assert covers(held, wanted)


@for_each_row(
    ("held", "wanted"),
    [
        ("com.acme.crm", "com.acme.crm.read"),  # no bare prefix
        ("com.acme.*", "com.acmecorp.crm.read"),  # not on a boundary
        ("com.acme.*", "com.acme"),
        ("com.acme.crm.*", "com.acme.*"),
        ("com.acme.crm.read", "com.acme.crm.*"),
        ("com.acme.crm.read", "com.acme.crm.reader"),
        ("com.acme.crm.read", "com.acme.crm.Read"),
        ("com.acme.*", "org.acme.crm.read"),
        ("crm.read", "com.acme.crm.read"),  # short names are expanded before, never here (D-60)
    ],
)
def test_nothing_else_is_covered(held: str, wanted: str) -> None:
    assert not covers(held, wanted)


@pytest.mark.parametrize("name", ["read", "com.acme.crm.read", "com.acme.*", "a-b_c.D9", "x" * 256])
def test_names_are_labels_joined_by_dots(name: str) -> None:
    assert is_capability(name)


@for_each_row(
    "name",
    [
        "",
        "*",
        ".*",
        "*.read",
        "com.*.read",
        "com.acme*",
        "com..read",
        ".com",
        "com.",
        "a b",
        "a\n",
        "é",
        "x" * 257,
        None,
        5,
        True,
        ["read"],
    ],
)
def test_other_names_are_none(name: object) -> None:
    assert not is_capability(name)


labels = st.sampled_from(["a", "b", "ab"])
capabilities = st.builds(
    lambda parts, star: ".".join(parts) + ".*" * star, st.lists(labels, min_size=1, max_size=3), st.booleans()
)
scopes = st.frozensets(capabilities, max_size=4)
plain = st.lists(labels, min_size=1, max_size=5).map(".".join)


@given(scopes, scopes, plain)
def test_whoever_lacks_nothing_of_another_can_do_all_it_can(
    one: frozenset[str], other: frozenset[str], wanted: str
) -> None:
    if not uncovered(one, other) and any_covers(other, wanted):
        assert any_covers(one, wanted)


@given(capabilities, capabilities, capabilities)
def test_covering_is_an_order(one: str, two: str, three: str) -> None:
    assert covers(one, one)
    if covers(one, two) and covers(two, three):
        assert covers(one, three)
    if covers(one, two) and covers(two, one):
        assert one == two
