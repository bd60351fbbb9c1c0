"""Tools found by what somebody wants to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.search_sets import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import InvalidRequest, ResourceLimit
from moot.xprotocol.search import MOST_HITS, QUERY_CHARS, Document, SearchIndex
from moot.xprotocol.search.bm25 import POSTINGS, TermEvidence, best
from tests.examples import examples
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[3]


def index_of(*documents: Document) -> SearchIndex:
    index = SearchIndex()
    for document in documents:
        index.add(document)
    return index


def keys(index: SearchIndex, text: str, limit: int = 10) -> list[str]:
    return [hit.key for hit in index.search(text, limit=limit)]


SAMPLE = index_of(*sample().documents)


def test_every_field_finds_a_document() -> None:
    index = index_of(
        Document("a", "alpha", "bravo", "charlie", "deltaName", "echo", ("foxtrot",)), Document("b", "x")
    )
    for word in ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot"):
        assert keys(index, word) == ["a"]


def test_a_word_in_the_name_counts_more_than_in_the_description_and_a_signal_least() -> None:
    index = index_of(
        Document("1", "other", description="something else entirely", signals=("invoice",)),
        Document("2", "other", description="something about an invoice"),
        Document("3", "invoice", description="something else entirely"),
    )
    assert keys(index, "invoice") == ["3", "2", "1"]


def test_rare_words_count_more_than_common_ones() -> None:
    common = [Document(f"c{number}", f"get_number_{number}") for number in range(5)]
    index = index_of(*common, Document("r", "purge_cache"))
    assert keys(index, "get purge")[0] == "r"


def test_relevance_is_between_0_and_1_and_falls() -> None:
    hits = SAMPLE.search("convert an amount from one currency to another")
    values = [hit.relevance for hit in hits]
    assert values == sorted(values, reverse=True)
    assert all(0 < value <= 1 for value in values)
    assert hits[0].key == "money/convert_currency"
    assert values[0] > 0.5 > values[1]


def test_equals_are_sorted_by_key_whatever_came_first() -> None:
    twins = [Document(key, "read_file", description="Read a file") for key in "dbac"]
    assert keys(index_of(*twins), "read a file") == ["a", "b", "c", "d"]
    assert keys(index_of(*reversed(twins)), "read a file", limit=2) == ["a", "b"]


def test_a_phrase_counts_more_than_its_words_apart() -> None:
    index = index_of(
        Document("a", "alpha", description="interest in a compound of salt and water"),
        Document("b", "beta", description="compound interest in a bank of salt"),
    )
    assert keys(index, "compound interest") == ["b", "a"]


def test_a_mistyped_word_finds_what_it_looks_like() -> None:
    assert keys(SAMPLE, "weathr forecastt")[0] == "sky/weather_forecast"
    assert keys(SAMPLE, "xqzzt") == []


def test_each_thing_asked_for_comes_near_the_top() -> None:
    text = "Convert 10 euros to yen. Then play a song in the kitchen. Finally, open an issue about the noise."
    assert set(keys(SAMPLE, text, limit=3)) == {
        "money/convert_currency",
        "music/play_song",
        "code/open_issue",
    }


def test_numbers_hardly_count() -> None:
    index = index_of(
        Document("a", "add_numbers"), Document("b", "iso", description="the standard 8601 of 8601")
    )
    assert keys(index, "add 8601")[0] == "a"


def test_only_says_who_counts_before_the_limit_does() -> None:
    text = "write a file, delete a file, read a file; inbox"
    assert not {"mail/search_inbox"} & set(keys(SAMPLE, text, limit=3))
    (hit,) = SAMPLE.search(text, limit=1, only=lambda key: not key.startswith("files/"))
    assert hit.key == "mail/search_inbox"
    assert SAMPLE.search("file", only=lambda key: key.startswith("mail/")) == []


def test_a_document_of_the_same_key_takes_the_place_of_the_old_one() -> None:
    index = index_of(Document("a", "read_file"), Document("a", "play_song"))
    assert len(index) == 1
    assert keys(index, "file") == []
    assert keys(index, "song") == ["a"]


def test_what_was_removed_is_not_found_and_leaves_no_word_behind() -> None:
    index = index_of(Document("a", "purge_cache", signals=("flush",)), Document("b", "read_file"))
    assert index.remove("a")
    assert not index.remove("a")
    assert "a" not in index
    for text in ("purge", "flush", "purgee"):
        assert keys(index, text) == []
    index.remove("b")
    assert keys(index, "file") == []
    assert len(index) == 0


@settings(max_examples=examples(15))
@given(st.lists(st.tuples(st.sampled_from(range(12)), st.booleans()), max_size=40))
def test_answers_depend_on_the_documents_alone(steps: list[tuple[int, bool]]) -> None:
    documents = sample().documents[:12]
    moved = SearchIndex()
    for number, stays in steps:
        if stays:
            moved.add(documents[number])
        else:
            moved.remove(documents[number].key)
    fresh = index_of(*(document for document in documents if document.key in moved))
    assert len(moved) == len(fresh)
    for query in sample().queries[:12]:
        assert moved.search(query.text) == fresh.search(query.text)


@settings(max_examples=examples(15))
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 9),
            st.dictionaries(st.integers(0, 60), st.floats(0.01, 1), min_size=1, max_size=40),
        ),
        max_size=12,
    ),
    st.integers(1, 20),
)
def test_the_best_are_those_of_adding_everything_up(
    found: list[tuple[float, dict[int, float]]], most: int
) -> None:
    """As long as the postings are few; test_common_words_alone… has many."""
    evidence = [TermEvidence(f"t{n:02}", weight, shares, [0]) for n, (weight, shares) in enumerate(found)]
    totals: dict[int, float] = {}
    for each in sorted(evidence, key=lambda each: (-each.weight, each.term)):
        for slot, share in each.shares.items():
            totals[slot] = totals.get(slot, 0.0) + each.weight * share
    wanted = sorted(totals, key=lambda slot: (-totals[slot], f"{slot:04}"))[:most]
    assert set(best(evidence, most, key_of=lambda slot: f"{slot:04}")) == set(wanted)


def test_common_words_alone_still_find_and_order_documents() -> None:
    documents = [
        Document(f"{n:05}", "get_data", description="Get the data of a thing" + " tail" * (n % 7))
        for n in range(POSTINGS + 500)
    ]
    index = index_of(*documents, Document("z", "get_data_list", description="Get the data list of a thing"))
    assert keys(index, "get data") == [f"{7 * n:05}" for n in range(10)]
    assert keys(index, "get list of data")[0] == "z"


@for_each_row(
    "text",
    ["", "   ", "the of and", "?!.,;", "\0", "\ud800\udfff", "\u200b\u200d", "\U0001f469", "-" * QUERY_CHARS],
    ids=["empty", "blank", "stop", "signs", "nul", "surrogates", "joiners", "emoji", "dashes"],
)
def test_a_question_without_words_is_answered_with_nothing(text: str) -> None:
    assert SAMPLE.search(text) == []


def test_of_a_long_question_the_beginning_counts() -> None:
    """Whoever pastes a page of text after what they want gets an answer."""
    found = SAMPLE.search("file")
    assert found
    assert [hit.key for hit in SAMPLE.search("file" + " -" * QUERY_CHARS)] == [hit.key for hit in found]
    assert SAMPLE.search("-" * QUERY_CHARS + " file") == []


@pytest.mark.parametrize("limit", [0, -1, MOST_HITS + 1])
def test_a_limit_out_of_bounds_is_refused(limit: int) -> None:
    with pytest.raises(InvalidRequest, match=f"1 to {MOST_HITS}"):
        SAMPLE.search("file", limit=limit)


@given(st.text(max_size=QUERY_CHARS))
def test_any_other_question_is_answered(text: str) -> None:
    assert len(SAMPLE.search(text)) <= 10


def test_an_index_that_is_full_says_so_and_keeps_what_it_has() -> None:
    index = SearchIndex(most_documents=2)
    index.add(Document("a", "read_file"))
    index.add(Document("b", "write_file"))
    with pytest.raises(ResourceLimit, match="2 documents"):
        index.add(Document("c", "delete_file"))
    index.add(Document("b", "play_song"))
    assert keys(index, "song") == ["b"]
    assert keys(index, "read write delete") == ["a"]


def test_an_entry_of_tools_list_becomes_a_document_with_its_parameters() -> None:
    tool = {
        "name": "createEvent",
        "title": "New appointment",
        "description": "Puts something into the calendar",
        "inputSchema": {
            "type": "object",
            "properties": {
                "startTime": {"type": "string", "description": "when it begins"},
                "guests": {
                    "type": "array",
                    "items": {"properties": {"nickname": {"description": "what friends say"}}},
                },
            },
        },
    }
    index = index_of(Document.of_tool("cal/createEvent", tool, source="cal"), Document("other", "other"))
    for word in ("appointment", "calendar", "start", "begins", "nickname", "friends", "cal"):
        assert keys(index, word) == ["cal/createEvent"]


@pytest.mark.parametrize(
    "tool",
    [
        None,
        [],
        {},
        {"name": 7, "description": ["x"], "inputSchema": "no"},
        {"inputSchema": {"properties": [1]}},
    ],
)
def test_a_tool_of_any_shape_becomes_a_document(tool: object) -> None:
    assert keys(index_of(Document.of_tool("strange/thing", tool)), "strange") == ["strange/thing"]


def test_a_schema_that_contains_itself_is_read_to_a_depth() -> None:
    schema: dict[str, object] = {}
    schema["properties"] = {"child": schema, "leaf": {"description": "end"}}
    assert keys(index_of(Document.of_tool("tree", {"inputSchema": schema})), "leaf child") == ["tree"]


SCRIPT = """
from bench.search_sets import sample
from moot.xprotocol.search import SearchIndex
index = SearchIndex()
for document in sample().documents:
    index.add(document)
for document in sample().documents[::3]:
    index.remove(document.key)
for document in sample().documents[::3]:
    index.add(document)
print([index.search(query.text) for query in sample().queries])
"""


def test_answers_are_the_same_in_processes_with_other_hash_seeds() -> None:
    answers = {
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", SCRIPT],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_SECONDS,
        ).stdout
        for seed in ("1", "2", "12345")
    }
    assert answers == {f"{[SAMPLE.search(query.text) for query in sample().queries]}\n"}
