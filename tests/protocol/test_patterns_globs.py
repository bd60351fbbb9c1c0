"""Globs as D-11 rules them."""

from __future__ import annotations

import time

from moot.protocol.patterns.globs import MAX_TEXT, glob, includes, overlap
from tests.rows import for_each_row

MATCHES = [
    ("*", "anything/at/all"),
    ("*", ""),
    ("*", "a/../b"),
    ("**", "../x"),
    ("***", "../x"),
    ("mcp/*", "mcp/request"),
    ("mcp/*", "mcp/"),
    ("mcp/*", "mcp/a/b/c"),
    ("chat", "chat"),
    ("*/list", "tools/list"),
    ("a/*/c", "a/b/c"),
    ("a/**/c", "a/b/b/c"),
    ("**/c", "a/b/c"),
    ("**/c", "/c"),
    ("a*b*", "axxbyy/zz"),
    ("read_?", "read_a"),
    ("a[b]{c}", "a[b]{c}"),
    ("a/../*", "a/../b"),
    ("../*", "../b"),
    ("*..", ".."),
    ("*.", "..."),
    ("a*", "a/..."),
    ("*a*a*a*a*b", "aaaab"),
    ("a*c", "a\n\0c"),
    ("é?", "éü"),
    ("", ""),
]

REFUSES = [
    ("chat/*", "chat"),
    ("chat", "chat/acknowledge"),
    ("chat", "Chat"),
    ("mcp/*", "xmcp/request"),
    ("*/list", "a/b/list"),
    ("*/list", "list"),
    ("a/*/c", "a/b/b/c"),
    ("read_?", "read_"),
    ("a?b", "a/b"),
    ("a*", "a/.."),
    ("a/*", "a/../b"),
    ("**/x", "../x"),
    ("?.", ".."),
    (".?", ".."),
    ("a/**", "a/b/../c"),
    ("[ab]", "a"),
    ("", "a"),
]


@for_each_row(("pattern", "text"), MATCHES)
def test_a_glob_matches_the_whole_text(pattern: str, text: str) -> None:
    """D-11."""
    assert glob(pattern).matches(text)


@for_each_row(("pattern", "text"), REFUSES)
def test_a_glob_refuses_what_its_wildcards_may_not_take(pattern: str, text: str) -> None:
    """D-11."""
    assert not glob(pattern).matches(text)


def test_a_hostile_glob_takes_no_longer_than_its_text() -> None:
    text = "a" * MAX_TEXT
    for pattern in ("*a*a*a*a*b", "*a" * 500 + "b", "*a" + "?" * 1000 + "b"):
        begun = time.process_time()
        assert not glob(pattern).matches(text)
        # Some 30 ms on the slowest machine we have; backtracking would take years.
        assert time.process_time() - begun < 2


def test_a_text_beyond_the_limit_is_matched_by_the_lone_star_and_by_no_negation() -> None:
    text = "a" * (MAX_TEXT + 1)
    assert glob("*").matches(text)
    assert not glob("a*").matches(text)
    assert not glob("b*").excludes(text)
    assert glob("b").excludes(text)


INCLUDED = [
    ("*", "*"),
    ("*", "a/../b"),
    ("mcp/*", "mcp/request"),
    ("mcp/*", "mcp/re*"),
    ("mcp/*", "mcp/*"),
    ("**", "a*b"),
    ("a*", "a**b"),
    ("a/*/c", "a/b?/c"),
    ("a/*/c", "a/*x*/c"),
    ("a*?b", "a?*b"),
    ("a?c", "abc"),
    ("a/**", "a/b/*/c"),
    ("a/../*", "a/../b*"),
    ("a*b*", "ab*"),
]

NOT_INCLUDED = [
    ("a*", "*"),
    ("a/*/c", "a/**/c"),
    ("a/*", "a/..*"),
    ("a/**/b", "a/../b"),
    ("a*", "a/../b*"),
    ("*.", "*.."),
    (".?", ".*."),
    ("?", "*"),
    ("mcp/re*", "mcp/*"),
    ("chat", "chat*"),
]


@for_each_row(("wide", "narrow"), INCLUDED)
def test_a_glob_includes_a_narrower_one(wide: str, narrow: str) -> None:
    assert includes(glob(wide), glob(narrow))


@for_each_row(("wide", "narrow"), NOT_INCLUDED)
def test_a_glob_does_not_include_what_it_might_refuse(wide: str, narrow: str) -> None:
    """The lone star matches `..`, no other wildcard does, so `a/*` has not all of `a/..*`."""
    assert not includes(glob(wide), glob(narrow))


@for_each_row(
    ("one", "other", "common"),
    [
        ("a*", "*b", True),
        ("a*", "b*", False),
        ("*/list", "tools/*", True),
        ("a/*/c", "a/b", False),
        ("?", "/", False),
        ("?x", "a?", True),
        ("*a/*", "b*", True),
        ("read_*", "write_*", False),
        ("*", "x", True),
    ],
)
def test_two_globs_meet_when_a_text_is_of_both(one: str, other: str, common: bool) -> None:
    assert overlap(glob(one), glob(other)) is common
    assert overlap(glob(other), glob(one)) is common


def test_globs_too_long_to_compare_are_taken_to_meet() -> None:
    assert overlap(glob("a" * 400 + "*"), glob("b" * 400 + "*"))
