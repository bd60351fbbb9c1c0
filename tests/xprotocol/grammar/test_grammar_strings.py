"""Strings: what may stand in them, how long they are, patterns and formats."""

from __future__ import annotations

import json
import random

import jsonschema_rs
import pytest

from moot.protocol.operation import Json
from moot.xprotocol.grammar import compile_grammar
from tests.rows import for_each_row
from tests.xprotocol.grammar.checking import assert_exact, assert_noted
from tests.xprotocol.grammar.derivations import Derivations
from tests.xprotocol.grammar.judges import judges


def quoted(*texts: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=False) for text in texts]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (1, None), (0, 3), (2, 2), (3, 5), (1_000, 2_500), (0, 10_000)]
)
def test_lengths_are_counted_in_characters(low: int, high: int | None) -> None:
    """JSON Schema counts code points: an emoji is one, and so is its pair of escapes."""
    schema: Json = {"type": "string", "minLength": low} | ({} if high is None else {"maxLength": high})
    ends = [low, low + 2 if high is None else high]
    texts = [text for n in ends for text in quoted("a" * n, "😀" * n)] + [
        json.dumps("é😀\n"[:n] * (n > 0)) for n in ends if n <= 3
    ]
    beyond = ([low - 1] if low else []) + ([high + 1] if high is not None else [])
    assert_exact(schema, texts, not_=[text for n in beyond for text in quoted("a" * n, "\\" * n)])


def test_lengths_beyond_counting_are_noted() -> None:
    assert_noted({"type": "string", "maxLength": 10_000_000}, "maxLength", quoted("", "a" * 50))


@for_each_row(
    ("pattern", "found", "missing"),
    [
        ("^a", ["a", "abc"], ["ba", "", "A"]),
        ("b$", ["b", "ab"], ["ba", "b\n"]),
        ("x", ["x", "axb", 'say "x"', "\nx"], ["", "abc"]),
        ("^[a-z]+$", ["a", "xyz"], ["", "aB", "a\n", 'a"']),
        (r"^\d{4}-\d{2}$", ["2024-01"], ["2024-1", "２０２４-01", "x2024-01"]),
        (r"^\w+$", ["Az_9"], ["é", "a b", "-"]),
        (r"\s", ["a b", "\t", "\u00a0"], ["ab", ""]),
        (r"^\S+$", ['a"b\\c', "é"], ["a b", "\n", ""]),
        (r"^\D\W$", ["a-", '""', "é\n"], ["1-", "aa"]),
        ("^.{3}$", ["abc", 'a"\\', "日本語", "a\tb"], ["ab", "abcd", "a\nb"]),
        ('^[^"]*$', ["", "a\\b\n"], ['"', 'a"']),
        (r"^[^\\]+$", ['"', "a\n"], ["\\", ""]),
        (r"^[\s\S]*$", ["", '\n"\\\x00'], []),
        ("^(foo|bar)+$", ["foo", "barfoo"], ["", "fo", "foob"]),
        ("^a|b$", ["a1", "1b", "ab"], ["1a1", "b1"]),
        ("^(a|b)?(c|d)?$", ["", "a", "bc", "d"], ["ca", "aa"]),
        ("^(a*)*$", ["", "aaa"], ["b"]),
        ("^(?:a|ab)(?:c|bcd)$", ["ac", "abcd", "abc", "abbcd"], ["ab", "acd"]),
        ("", ["", "anything"], []),
        ("^$", [""], ["a"]),
        (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", ["a.b+c@d-e.fg"], ["a@b", "@b.c"]),
        ("^[-a]$", ["-", "a"], ["b"]),
        (r"^[^\]\-a]$", ["b", "[", "^"], ["]", "-", "a"]),
        (r"^\^\$\.\*\+\?\(\)\[\]\{\}\|\/$", ["^$.*+?()[]{}|/"], ["x"]),
        (r"^\u00e9\x41\t$", ["éA\t"], ["eA\t"]),
        ("^[é-ü]+$", ["éü", "ê"], ["e", "þ"]),
        ("^[😀-😃]$", ["😁"], ["😄", "x"]),
        (r"^\p{Lu}\p{Ll}*$", ["Éa", "Abc"], ["aB", "1"]),
        (
            r"^(?=.*\d)(?=.*[a-z])(?!.*\s).{4,8}$",
            ["abc1", "1aaaaaaa"],
            ["abcd", "1234", "ab 1", "a1", "a1a1a1a1a"],
        ),
        ("^(?!-)[a-z-]{1,5}(?<!-)$", ["a", "a-b"], ["-a", "a-", "", "abcdef"]),
        (r"\bcat\b", ["cat", "a cat!", "(cat)"], ["cats", "concat", "_cat"]),
        ("^a{2,}b{3}c{0,2}$", ["aabbb", "aaabbbcc"], ["abbb", "aabb", "aabbbccc"]),
        ("^(a?){3}b$", ["b", "aab"], ["aaaab", "a"]),
        ("^[A-Fa-f0-9]{1900}$", ["aF" * 950], ["a" * 1899]),
    ],
)
def test_patterns_are_searched_in_the_text_and_never_break_out_of_it(
    pattern: str, found: list[str], missing: list[str]
) -> None:
    """A pattern speaks of the text, the grammar of its JSON: quotes and new lines only come escaped."""
    truth = jsonschema_rs.validator_for({"pattern": pattern})
    assert all(truth.is_valid(text) for text in found)
    assert not any(truth.is_valid(text) for text in missing)
    schema = {"type": "string", "pattern": pattern}
    escaped = [json.dumps(text) for text in found]
    assert_exact(
        schema, [*quoted(*found), *escaped], not_=[*quoted(*missing), *(json.dumps(text) for text in missing)]
    )
    derivations = Derivations(compile_grammar(schema).text, seed=1)
    for _ in range(40):
        text = json.loads(derivations.text())
        assert truth.is_valid(text), text


@for_each_row(
    "pattern", [r"^(a)\1$", "(?i)abc", "^a++$", "(", "[", "a{3,1}", r"\q", "^(?<x>a)\\k<x>$", "x{10001}"]
)
def test_patterns_that_no_grammar_says_are_noted_with_the_reason(pattern: str) -> None:
    assert_noted({"type": "string", "pattern": pattern}, pattern, quoted("anything", ""))


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ({"pattern": "^[a-z]+$", "maxLength": 3}, ["a", "abc"], ["", "abcd", "A"]),
        ({"pattern": "^0x", "minLength": 4}, ["0x12"], ["0x1", "1234"]),
        (
            {"pattern": "^[a-z][a-z0-9-]*$", "minLength": 2, "maxLength": 63},
            ["a1", "a" * 63],
            ["a", "a" * 64, "1a"],
        ),
        ({"pattern": "b", "maxLength": 3}, ["b", "abc"], ["abca", "", "aaa"]),
        ({"pattern": r"^\w+(-\w+)*$", "maxLength": 6}, ["a-b-c", "abcdef"], ["abcdefg", "a-"]),
        ({"format": "date", "pattern": "^20"}, ["2024-02-29"], ["1999-01-01", "2023-02-29"]),
        ({"format": "uuid", "maxLength": 36}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ],
)
def test_pattern_format_and_length_hold_together(bounds: Json, inside: list[str], outside: list[str]) -> None:
    assert_exact({"type": "string", **bounds}, quoted(*inside), not_=quoted(*outside))


def test_two_patterns_hold_together_through_all_of() -> None:
    schema = {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}, {"maxLength": 4}]}
    assert_exact(schema, quoted("ab", "axxb"), not_=quoted("a", "b", "axxxb", "ba"))
    assert_exact({"type": "string", "not": {"pattern": "^a"}}, quoted("", "b", "ba"), not_=quoted("a", "ab"))
    assert_exact(
        {"type": "string", "not": {"enum": ["a", "ab"]}}, quoted("", "b", "abc"), not_=quoted("a", "ab")
    )


FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "date": (
        ["2024-02-29", "1900-02-28", "2000-02-29"],
        ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31"],
    ),
    "time": (
        ["12:30:00Z", "23:59:60Z", "00:00:00.5+05:30"],
        ["24:00:00Z", "12:30:00", "12:60:00Z", "12:00:60Z"],
    ),
    "date-time": (
        ["2024-02-29T12:00:00Z", "1999-12-31t23:59:59.999-08:00"],
        ["2024-02-30T12:00:00Z", "2024-01-01", "2024-01-01 12:00:00Z"],
    ),
    "duration": (["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"], ["P", "PT", "P1D2Y", "1D", "P1W2D"]),
    "uuid": (
        ["123e4567-e89b-12d3-a456-426614174000"],
        ["123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"],
    ),
    "ipv4": (["10.0.0.0", "255.1.20.199"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (
        ["::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4"],
        [":::", "1:2:3:4:5:6:7", "1::2::3", "12345::"],
    ),
    "uri": (
        ["https://a.b/c?d=e#f", "urn:x:y", "http://[::1]:80/%20", "mailto:a@b.c"],
        ["/a", "http://a b", "a", "http://[x]/", "%20:x"],
    ),
    "uri-reference": (["/a?b", "", "a/b", "//h", "https://x"], ["a b", "\\\\x", "%zz", "1:"]),
    "json-pointer": (["", "/a/b~0c~1", "/"], ["a", "/~2"]),
    "relative-json-pointer": (["0", "1/a", "10#"], ["/a", "01", "-1"]),
}


@for_each_row("name", FORMATS)
def test_formats_are_what_their_documents_say(name: str) -> None:
    schema = {"type": "string", "format": name}
    truth = jsonschema_rs.validator_for(schema, validate_formats=True)
    inside, outside = FORMATS[name]
    assert all(truth.is_valid(text) for text in inside)
    assert not any(truth.is_valid(text) for text in outside)
    assert_exact(schema, quoted(*inside), not_=quoted(*outside))
    derivations = Derivations(compile_grammar(schema).text, seed=7)
    for _ in range(150):
        text = json.loads(derivations.text())
        assert truth.is_valid(text), text


def test_every_day_of_some_years_and_no_other() -> None:
    engine = judges(compile_grammar({"type": "string", "format": "date"}).text)["llama.cpp"]
    truth = jsonschema_rs.validator_for({"format": "date"}, validate_formats=True)
    years = [1900, 2000, 2023, 2024, 2100, 2400, *random.Random(3).sample(range(1, 9_999), 3)]
    for year in years:
        for month in (1, 2, 4, 12):
            for day in (28, 29, 30, 31, 32):
                text = f"{year:04}-{month:02}-{day:02}"
                assert engine.accepts(f'"{text}"') == truth.is_valid(text), text


@pytest.mark.parametrize(
    ("name", "texts"),
    [("email", ["a.b+c@d-e.org", '"q"@x.y', "a@[1.2.3.4]"]), ("hostname", ["a-b.c", "localhost"])],
)
def test_formats_of_which_only_the_shape_is_said(name: str, texts: list[str]) -> None:
    assert_noted({"type": "string", "format": name}, name, quoted(*texts), not_=quoted("a b", "", "@", "-a."))


def test_formats_that_are_not_said_at_all() -> None:
    assert_noted({"type": "string", "format": "idn-hostname"}, "idn-hostname", quoted("anything"))
    assert_exact({"type": "string", "format": "binary"}, quoted("anything"))
