"""Generalising: constants stay, what varies goes as far as it was seen, and no further."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.trust.learning.generalisation import Generalisation, generalise
from moot.trust.learning.learner import suggest
from moot.trust.learning.lessons import Lessons, kind_of
from moot.trust.learning.text_patterns import ArgumentOptions, cover_texts
from moot.trust.rules.conditions import Range
from moot.values.covers import MIN_NEW_VALUES
from moot.values.kinds import ValuePattern
from moot.values.quoting import literal
from tests.examples import examples
from tests.rows import for_each_row
from tests.trust.histories import HOUR, START, call, history

SOME = settings(deadline=None, max_examples=examples(15))


def _covers(patterns: tuple[str, ...], text: str) -> bool:
    right = read_capability({"kind": "mcp/request", "payload": {"x": list(patterns)}})
    return right.matches("mcp/request", {"x": text})


def _admits(cover: ArgumentOptions, text: str) -> bool:
    if cover.kind is None:
        return text in cover.options
    return ValuePattern(cover.kind, [str(each) for each in cover.options]).index_of(text) is not None


def _cover(texts: list[str], name: str = "path") -> ArgumentOptions | None:
    return cover_texts(texts, name=name)


def _over(arguments: list[dict[str, Json]], *, every: float = 60.0) -> Generalisation | None:
    known = [kind_of(call(given, at=START + every * n)) for n, given in enumerate(arguments)]
    kinds = [each for each in known if each is not None]
    assert len({kind for kind, _ in kinds}) == 1
    return next(generalise(kinds[0][0], Lessons([example for _, example in kinds])), None)


def test_one_value_stays_that_value() -> None:
    cover = _cover(["/srv/a.txt"] * 4)
    assert cover is not None
    assert (cover.options, cover.kind, cover.first_times) == (("/srv/a.txt",), None, (None,))


def test_values_that_keep_coming_back_become_a_list() -> None:
    cover = _cover(["red", "blue"] * 5)
    assert cover is not None
    assert set(cover.options) == {"red", "blue"}
    assert not _admits(cover, "green")


def test_new_names_become_a_shape_in_the_folders_that_were_seen() -> None:
    names = [f"/srv/{folder}/r-{number}.txt" for folder in ("reports", "public") for number in range(10, 20)]
    cover = _cover(names)
    assert cover is not None
    assert cover.first_times == (10, 10)
    for fine in ("/srv/reports/r-55.txt", "/srv/public/r-99.txt", *names):
        assert _admits(cover, fine)
    for odd in (
        "/srv/private/r-55.txt",
        "/srv/reports/r-555.txt",
        "/srv/reports/r-55.sh",
        "/srv/reports/x-55.txt",
        "/srv/reports/sub/r-55.txt",
        "/srv/reports/R-55.TXT",
        "/srv/reports/r-55.txt\n",
        "/srv/reports/../public/r-55.txt",
        "x/srv/reports/r-55.txt",
    ):
        assert not _admits(cover, odd), odd


def test_a_few_different_names_carry_no_shape() -> None:
    assert _cover([f"/srv/{n}.txt" for n in range(MIN_NEW_VALUES - 1)]) is None


def test_a_folder_that_is_new_each_time_becomes_a_shape_too() -> None:
    cover = _cover([f"/home/u{n}/notes.txt" for n in range(100, 112)])
    assert cover is not None
    assert _admits(cover, "/home/u777/notes.txt")
    assert not _admits(cover, "/home/u777/keys.txt")
    assert not _admits(cover, "/home/../notes.txt")


def test_hidden_files_and_odd_letters_never_become_part_of_a_shape() -> None:
    names = [f"/srv/n{n}" for n in range(12)] + ["/srv/.env", "/srv/\u0435vil", "/srv/a%2fb"]
    cover = _cover(names)
    assert cover is not None
    for odd in ("/srv/.env", "/srv/\u0435vil", "/srv/a%2fb", "/srv/.x", "/srv/.."):
        assert not _admits(cover, odd)


@for_each_row("text", ["/srv/", "a*b", "!no", "what?", "/^x$/", "[x]", "a.b", "(", "\\", "\u00e9"])
def test_a_literal_matches_itself_and_nothing_else(text: str) -> None:
    pattern = literal(text)
    assert pattern is not None
    assert _covers((pattern,), text)
    for other in (text + "x", "x" + text, text[1:], text.replace("*", "z").replace("?", "z") + "z"):
        assert not _covers((pattern,), other)


@SOME
@given(st.text(min_size=1, max_size=40))
def test_any_literal_matches_itself_alone(text: str) -> None:
    pattern = literal(text)
    assert pattern is not None
    assert _covers((pattern,), text)
    assert not _covers((pattern,), text + "a")


_segments = st.text(alphabet="abcXYZ019-_.%\\ \u00e9\u0435/", min_size=1, max_size=12)


@SOME
@given(st.lists(_segments, min_size=5, max_size=40), _segments)
def test_a_shape_takes_nothing_longer_stranger_or_climbing(seen: list[str], probe: str) -> None:
    cover = _cover(seen)
    if cover is None or not any(cover.first_times):
        return
    for text in (probe, probe + "/..", "../" + probe, seen[0] + "\0", seen[0] + "%2e", seen[0] + "\n"):
        if _admits(cover, text) and text not in seen:
            assert ".." not in text.split("/")
            assert text.isascii()
            assert set(re.sub("[a-zA-Z0-9_-]", "", text)) <= set("".join(seen))


def test_numbers_become_the_range_seen_and_whole_ones_stay_whole() -> None:
    found = _over([{"amount": amount} for amount in (7, 3, 97, 40, 55, 61)])
    assert found is not None
    assert found.rule.range == {("amount",): Range(3, 97)}
    floats = _over([{"amount": amount} for amount in (7, 3.5, 97, 40, 55, 61)])
    assert floats is not None
    assert floats.rule.range[("amount",)] == Range(3.5, 97.0)
    ports = _over([{"port": port} for port in (80, 443) * 5])
    assert ports is not None
    assert (ports.rule.arguments, ports.rule.range) == ({"port": [80, 443]}, {})


def test_a_list_that_never_varied_stays_exactly_what_it_was() -> None:
    found = _over([{"tags": ["a", "b"]}] * 6)
    assert found is not None
    assert found.rule.equals == {"tags": ["a", "b"]}
    assert kind_of(call({"argv": ["a", "b"]})) != kind_of(call({"argv": ["b", "a"]}))


def test_each_list_whose_order_matters_has_a_rule_of_its_own() -> None:
    """A program and its arguments: what was approved again and again."""
    given: list[dict[str, Json]] = [{"argv": ["git", word]} for word in ("status", "diff")]
    given.append({"argv": ["git", "push"]})
    decisions = history(given * 20, lambda each: each["argv"][1] != "push", tool="run", every=HOUR)
    found = suggest(decisions, now=START + 100 * HOUR)
    assert sorted(each.rule.equals["argv"][1] for each in found) == ["diff", "status"]


def test_booleans_are_listed_only_when_both_came_twice() -> None:
    found = _over([{"force": False}] * 5 + [{"force": True}])
    assert found is not None
    assert found.rule.arguments == {"force": False}


@pytest.mark.parametrize(
    "other",
    [
        call({"path": "a"}, proposer="other"),
        call({"path": "a"}, to=["other"]),
        call({"path": "a"}, tool="other"),
        call({"path": 1}),
        call({"path": "a", "force": True}),
        call({"path": {"x": "a"}}),
    ],
)
def test_other_proposers_hosts_tools_and_arguments_are_other_kinds(other: object) -> None:
    first = kind_of(call({"path": "a"}))
    second = kind_of(other)  # type: ignore[arg-type]
    assert first is not None
    assert second is not None
    assert first[0] != second[0]


def test_what_no_rule_could_say_has_no_kind() -> None:
    assert kind_of(call({"$x": 1})) is None
    assert kind_of(call({"a*": 1})) is None
    assert kind_of(call({"a": 1}, to=["x", "y"])) is None
    assert kind_of(call(params={"name": "t", "arguments": {}, "task": {}})) is None
