"""Word vectors beside words: the extra `search`."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.search_sets import sample
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.search import Document, SearchIndex
from moot.xprotocol.search.word_vectors import WordVectors, load_vectors
from tests.broken_vectors import TOKENIZER, WEIGHTS, copy_vectors

pytest.importorskip("wordllama", reason="the extra moot[search] is not installed")

import numpy

from tests.waiting import HANG_SECONDS

LOADED = load_vectors()
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    return LOADED


def keys(index: SearchIndex, text: str) -> list[str]:
    return [hit.key for hit in index.search(text)]


def filled(vectors: WordVectors | None) -> SearchIndex:
    index = SearchIndex(vectors=vectors)
    for document in sample().documents:
        index.add(document)
    return index


def test_a_document_is_found_by_meaning_where_no_word_is_shared(vectors: WordVectors) -> None:
    text = "cancel subscription"
    assert "mail/unsubscribe" not in keys(filled(None), text)
    assert keys(filled(vectors), text)[0] == "mail/unsubscribe"


def test_relevance_is_between_0_and_1_and_falls(vectors: WordVectors) -> None:
    for query in sample().queries:
        values = [hit.relevance for hit in filled(vectors).search(query.text)]
        assert values == sorted(values, reverse=True)
        assert all(0 < value <= 1 for value in values)


def test_answers_depend_on_the_documents_alone(vectors: WordVectors) -> None:
    moved, documents = SearchIndex(vectors=vectors), sample().documents
    for document in (*reversed(documents), *documents[::2]):
        moved.add(document)
    for document in documents[::3]:
        moved.remove(document.key)
    for document in documents[::3]:
        moved.add(document)
    fresh = filled(vectors)
    for query in sample().queries:
        assert moved.search(query.text) == fresh.search(query.text)


def test_what_was_removed_is_not_found_by_its_meaning_either(vectors: WordVectors) -> None:
    index = filled(vectors)
    index.remove("mail/unsubscribe")
    assert "mail/unsubscribe" not in keys(index, "cancel subscription")


def test_more_documents_than_there_was_room_for_at_first(vectors: WordVectors) -> None:
    index = filled(vectors)
    for number in range(600):
        index.add(Document(f"n{number}", f"number_{number}", description="counts something"))
    assert keys(index, "cancel subscription")[0] == "mail/unsubscribe"


def test_only_says_who_counts(vectors: WordVectors) -> None:
    hits = filled(vectors).search("cancel subscription", only=lambda key: not key.startswith("mail/"))
    assert hits
    assert not any(hit.key.startswith("mail/") for hit in hits)


@pytest.mark.parametrize("text", ["", "the of and", "\ud800", "\0\u200b", "\U0001f469"])
def test_a_question_without_words_is_answered_with_nothing(vectors: WordVectors, text: str) -> None:
    assert filled(vectors).search(text) == []


def test_a_document_without_words_is_taken_in(vectors: WordVectors) -> None:
    index = SearchIndex(vectors=vectors)
    index.add(Document("a", "\ud800", description="the"))
    assert index.search("anything at all") == []


def test_of_documents_that_are_alike_the_same_are_found_whatever_came_first(vectors: WordVectors) -> None:
    """More than a shortlist holds, and only some may be shown: who has which slot must not matter."""
    alike = [Document(f"k{number:03}", "unsubscribe", description="Stop it") for number in range(120)]
    for documents in (alike, alike[::-1]):
        index = SearchIndex(vectors=vectors)
        for document in documents:
            index.add(document)
        found = [hit.key for hit in index.search("cancel subscription", only=lambda key: key != "k001")]
        assert found == ["k000", *(f"k{number:03}" for number in range(2, 11))]


def test_what_has_nothing_to_do_with_the_question_is_not_found(vectors: WordVectors) -> None:
    index = filled(vectors)
    for text in ("zeppelin", "xyzzy", "photosynthesis", "medieval poetry"):
        assert keys(index, text) == []


@given(st.text(), st.text(max_size=300), st.lists(st.text(), max_size=3))
def test_any_text_at_all_has_a_vector(name: str, description: str, parameters: list[str]) -> None:
    document = Document("k", name, description=description * 50, parameters="\n".join(parameters))
    row = LOADED.of_document(document)
    assert row.shape == (256,)
    assert numpy.isfinite(row).all()
    assert float(row @ row) == pytest.approx(1, abs=1e-4) or not row.any()


@pytest.mark.parametrize(
    "make_text",
    [
        lambda: "q" * 2_000_000,
        lambda: " ".join("q" * 4_000 + str(number) for number in range(512)),
        lambda: "".join(chr(0x4E00 + number % 20_000) for number in range(20_000)) * 50,
        lambda: "e" + "\u0301" * 500_000,
        lambda: " ".join(f"{number:x}zqxj" * 20 for number in range(20_000)),
        lambda: "\U0001f469\u200d" * 300_000,
    ],
    ids=["one word", "long words", "no blanks", "accents", "pieces", "emoji"],
)
def test_a_hostile_text_takes_no_more_memory_than_a_long_one(
    vectors: WordVectors, make_text: Callable[[], str]
) -> None:
    """5 texts of 1,024 pieces, 1 KiB each, whatever the setting. Without the bound some take 110 MB."""
    text = make_text()
    document = Document("k", text, text, text, text, text)
    tracemalloc.start()
    try:
        vectors.of_document(document, max_chars=1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_of_a_text_only_the_first_characters_count(vectors: WordVectors) -> None:
    one = Document("k", "note", description="alpha " * 3 + "omega " * 100)
    other = Document("k", "note", description="alpha " * 3 + "zebra " * 100)
    assert (vectors.of_document(one, max_chars=18) == vectors.of_document(other, max_chars=18)).all()
    assert (vectors.of_document(one) != vectors.of_document(other)).any()


def garbled(home: Path) -> None:
    (home / WEIGHTS).write_bytes(b"\xff" * 4_096)


def cut_short(home: Path) -> None:
    with (home / WEIGHTS).open("r+b") as weights:
        weights.truncate(1_000_000)


def without_numbers(home: Path) -> None:
    from safetensors.numpy import save_file

    save_file(
        {"embedding.weight": numpy.full((32_000, 256), numpy.nan, dtype=numpy.float16)},
        home / WEIGHTS,
    )


def too_few(home: Path) -> None:
    from safetensors.numpy import save_file

    save_file(
        {"embedding.weight": numpy.ones((100, 256), dtype=numpy.float16)},
        home / WEIGHTS,
    )


def another_tokenizer(home: Path) -> None:
    (home / TOKENIZER).write_text('{"version": "1.0"}')


def missing(home: Path) -> None:
    (home / WEIGHTS).unlink()


@pytest.mark.parametrize(
    "break_it", [garbled, cut_short, without_numbers, too_few, another_tokenizer, missing]
)
def test_broken_files_are_found_out_when_they_are_loaded(
    tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    script = """
import asyncio
from moot.config.search_settings import SearchSettings
from moot.xprotocol.vector_search import check_search
print(asyncio.run(check_search(SearchSettings())))
"""
    break_it(copy_vectors(tmp_path))
    answer = run(script, tmp_path)
    assert answer.startswith("lexical (word vectors cannot be used: ")


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_answers_are_the_same_in_every_process(seed: str) -> None:
    script = """
from bench.search_sets import sample
from moot.xprotocol.search import SearchIndex
from moot.xprotocol.search.word_vectors import load_vectors
index = SearchIndex(vectors=load_vectors())
for document in sample().documents:
    index.add(document)
for query in sample().queries:
    print(index.search(query.text))
"""
    here = filled(LOADED)
    expected = "".join(f"{here.search(query.text)}\n" for query in sample().queries)
    assert run(script, PYTHONHASHSEED=seed) == expected


def run(script: str, *path: Path, **env: str) -> str:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": ":".join(map(str, (*path, ROOT))), "HOME": "/nonexistent"} | env,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    ).stdout


def test_vectors_load_without_a_network() -> None:
    """They come in the wheel. No socket can be made in that process, and there is no cache at home."""
    script = """
import socket
def refuse(*given, **named): raise RuntimeError("no network here")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from moot.xprotocol.search.word_vectors import load_vectors
print(load_vectors().dimensions)
"""
    assert run(script) == "256\n"


def test_without_the_extra_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["wordllama"] = None
from moot.errors import UsageError
from moot.xprotocol.search.word_vectors import load_vectors
try:
    load_vectors()
except UsageError as fault:
    print(fault)
"""
    assert "pip install '.[search]' in the clone" in run(script)
