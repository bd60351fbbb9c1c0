"""Word vectors beside words: the extra `search`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.search_sets import sample

from moot.xprotocol.search import Document, SearchIndex
from moot.xprotocol.search.vectors import WordVectors, load_vectors

pytest.importorskip("wordllama", reason="the extra moot[search] is not installed")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    return load_vectors()


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


def run(script: str) -> str:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_vectors_load_without_a_network() -> None:
    """They come in the wheel. No socket can be made in that process, and there is no cache at home."""
    script = """
import socket
def refuse(*given, **named): raise RuntimeError("no network here")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from moot.xprotocol.search.vectors import load_vectors
print(load_vectors().dimensions)
"""
    assert run(script) == "256\n"


def test_without_the_extra_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["wordllama"] = None
from moot.errors import UsageError
from moot.xprotocol.search.vectors import load_vectors
try:
    load_vectors()
except UsageError as fault:
    print(fault)
"""
    assert "pip install 'moot[search]'" in run(script)
