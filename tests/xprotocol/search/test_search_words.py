"""Names, prose and questions taken apart for searching."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.search.search_terms import (
    FIELD_CHARS,
    clauses,
    name_terms,
    prose_terms,
    query_terms,
)
from tests.rows import for_each_row


def asked(text: str, *known: str) -> list[str]:
    return query_terms(text, 400, lambda term: term in known)


@pytest.mark.parametrize(
    "name",
    ["getUserById", "get_user_by_id", "get-user-by-id", "GET USER BY ID", "get.user.by/id", "GetUserByID"],
)
def test_a_name_has_the_same_terms_however_its_words_are_joined(name: str) -> None:
    assert name_terms(name) == ["get", "user", "id"]


def test_forms_of_a_word_share_its_stem() -> None:
    assert prose_terms("Deletes deleted, deleting") == ["delet"] * 3
    assert name_terms("opportunities") == name_terms("opportunity")


def test_abbreviations_stay_whole_beside_words() -> None:
    assert name_terms("parseHTMLPage") == ["pars", "html", "page"]


def test_words_of_grammar_are_left_out() -> None:
    assert prose_terms("What's in the file? It isn't there, don't you see") == ["file", "isn", "see"]


@pytest.mark.parametrize(
    ("one", "other"), [("GitHub", "github"), ("to-do", "todo"), ("SHA-256", "sha256"), ("WiFi", "Wifi")]
)
def test_two_spellings_of_one_thing_find_each_other(one: str, other: str) -> None:
    assert set(prose_terms(one)) & set(prose_terms(other))
    assert asked(one, *prose_terms(other)) == asked(other, *prose_terms(one))


def test_a_joined_form_that_no_document_has_is_asked_for_by_its_parts() -> None:
    assert asked("GitHub") == ["git", "hub"]
    assert asked("GitHub", "github") == ["github"]


def test_a_name_in_the_middle_of_a_question_is_taken_apart() -> None:
    assert asked("use the getBuildingHumidity API") == ["use", "get", "build", "humid", "api"]


def test_how_people_ask_is_no_part_of_the_question() -> None:
    assert asked("Hi, could you please help me? I would like to know the weather, thanks") == ["weather"]
    assert prose_terms("help") == ["help"], "in a document it is a word like others"


def test_accents_and_full_width_letters_make_no_difference() -> None:
    assert prose_terms("Pokémon") == prose_terms("pokemon")
    assert prose_terms("ＡＰＩ") == ["api"]


def test_chinese_and_japanese_are_taken_in_pairs_of_characters() -> None:
    assert prose_terms("获取天气") == ["获取", "取天", "天气"]
    assert set(prose_terms("天气")) <= set(prose_terms("获取天气预报"))
    assert prose_terms("ガス") != prose_terms("カス"), "the mark makes another letter"


def test_other_scripts_are_words_too() -> None:
    assert prose_terms("Погода в Осло") == ["погода", "в", "осло"]


def test_clauses_are_sentences_and_what_comes_afterwards() -> None:
    text = "Convert 3.5 euros. Then email Tom, and finally play a song; what is e.g. ready?"
    found = [" ".join(part.split()) for part in clauses(text)]
    assert found == ["Convert 3.5 euros", "email Tom", "play a song", "what is e.g", "ready"]


def test_a_list_of_things_is_one_clause() -> None:
    assert clauses("title, price and stock of the book") == ["title, price and stock of the book"]


@given(st.text(max_size=200))
def test_any_text_has_terms_and_none_of_them_is_empty(text: str) -> None:
    terms = prose_terms(text)
    assert all(terms)
    assert terms == prose_terms(text)
    assert all(asked(text, *terms)) or not asked(text, *terms)
    assert all(part.strip() for part in clauses(text))


@for_each_row(
    "text",
    [
        "." * FIELD_CHARS + "x",
        " " * FIELD_CHARS + "x",
        "\u05b0\u05bc" * FIELD_CHARS,
        "\ufdfa" * FIELD_CHARS,
        "aB" * FIELD_CHARS,
        "a-" * FIELD_CHARS,
        "\ud800" * FIELD_CHARS,
        "天" * FIELD_CHARS,
    ],
    ids=["dots", "blanks", "marks", "ligatures", "camels", "hyphens", "surrogates", "characters"],
)
def test_no_text_takes_long(text: str) -> None:
    """What could be quadratic is not; 32,768 characters would take minutes then."""
    start = time.process_time()
    prose_terms(text)
    clauses(text)
    assert time.process_time() - start < 2
