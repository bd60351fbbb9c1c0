"""The requirement manifest, the vectors, and the page made from them."""

from __future__ import annotations

import pytest
from tools.conformance_report import page
from tools.shown import shown

from moot.conformance.expectation import difference, filled
from moot.conformance.manifest import load_manifest
from moot.conformance.pure_driver import PureDriver
from moot.conformance.runner import Failed, run_vector
from moot.conformance.vectors import Vector, read_vectors, vectors_in
from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.conformance_vectors import FILES, all_vectors, play_all
from tests.rows import for_each_row


@for_each_row("file", FILES)
def test_the_vectors_of_a_file(file: str) -> None:
    """Each vector on the pure space."""
    play_all(file, lambda _, vector: run_vector(vector, PureDriver(vector.space)))


def test_a_file_with_a_vector_that_fails_names_it_and_plays_the_others() -> None:
    played: list[int] = []

    def play(number: int, vector: Vector) -> None:
        played.append(number)
        if number == 1:
            raise Failed("it was not so", [])

    with pytest.raises(ExceptionGroup, match="1 of") as error:
        play_all(FILES[0], play)
    assert error.value.exceptions[0].__notes__ == [f"vector {vectors_in(FILES[0])[1].name!r}"]
    assert played == list(range(len(vectors_in(FILES[0]))))


def test_every_row_of_a_room_that_is_built_is_shown() -> None:
    found = shown()
    missing = [
        id for id, row in load_manifest().items() if not row.waits and not row.deviates and id not in found
    ]
    assert missing == []


def test_vectors_and_marks_name_only_rows_that_exist() -> None:
    assert sorted(set(shown()) - set(load_manifest())) == []
    of_steps = [step.rows or [] for _, vector in all_vectors() for step in vector.steps]
    named = {row for rows in of_steps for row in (rows.values() if isinstance(rows, dict) else rows)}
    assert sorted(named - set(load_manifest())) == []


def test_the_manifest_holds_every_row_once_with_words_of_its_own() -> None:
    manifest = load_manifest()
    assert len(manifest) == 536 + 307 + 298
    words = [row.words for row in manifest.values()]
    assert all(4 <= len(text) <= 110 for text in words)


def test_vector_names_are_unique() -> None:
    names = [vector.name for _, vector in all_vectors()]
    assert len(names) == len(set(names)) >= 480


@pytest.mark.requirement("MEW-0-1")
def test_the_page_lists_every_row_with_its_level() -> None:
    text = page(shown())
    missing = [id for id, row in load_manifest().items() if f"| {id} | {row.level} |" not in text]
    assert missing == []
    assert "## MEW v0.4\n\n### Met" in text


SPACE: Json = {"participants": {"alice": ["*"], "bob": ["chat"]}}
CHAT: Json = {"by": "bob", "send": {"id": "c1", "kind": "chat", "payload": {"text": "hi"}}}


@pytest.mark.parametrize(
    "claim",
    [
        {"refused": "capability_violation"},
        {"relayed": ["alice"]},
        {"relayed": True, "hear": {"alice": [{"kind": "chat"}]}},
        {"hear": {"others": [{"kind": "chat", "payload": {"text": "ho"}}]}},
        {"hear": {"others": [{"kind": "chat", "payload": {"text": "hi", "format": "$any"}}]}},
        {"relayed": True, "hear": {"carol": []}},
        {},
    ],
)
def test_a_vector_that_says_something_false_fails(claim: Json) -> None:
    """A check that cannot fail would be a defect."""
    vector = Vector("false", ["MEW-3-1"], read_steps([CHAT | claim]), SPACE)
    with pytest.raises(Failed):
        run_vector(vector, PureDriver(SPACE))


def test_a_vector_that_says_the_truth_passes() -> None:
    steps = read_steps([CHAT | {"relayed": True}])
    run_vector(Vector("true", ["MEW-3-1"], steps, SPACE), PureDriver(SPACE))


def read_steps(steps: list[Json]) -> list[Json]:
    import json

    text = json.dumps([{"name": "x", "rows": [], "steps": steps}])
    return list(read_vectors(text, "inline")[0].steps)


@pytest.mark.parametrize(
    "text",
    [
        "- {name: x, rows: [], steps: [{by: a}]}",
        "- {name: x, rows: [], steps: [{by: a, send: {}, raw: x}]}",
        "- {name: x, rows: [], steps: [], surprise: 1}",
        "- [",
    ],
)
def test_a_malformed_vector_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError, match="somewhere"):
        read_vectors(text, "somewhere")


@for_each_row(
    ("expected", "actual", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": "$absent"}, {"b": 1}, True),
        ({"a": "$absent"}, {"a": None}, False),
        ({"a": "$text"}, {"a": ""}, False),
        ({"a": "$time"}, {"a": "2026-01-01T00:00:00Z"}, True),
        ({"a": "$time"}, {"a": "yesterday"}, False),
        ({"a": "$unheard-of"}, {"a": 1}, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1], False),
        ({"$has": [{"k": 1}]}, [{"k": 2}, {"k": 1, "l": 0}], True),
        ({"$has": [{"k": 3}]}, [{"k": 2}], False),
        ({"$lacks": [{"k": 2}]}, [{"k": 2}], False),
        ({"$lacks": [{"k": 3}]}, [{"k": 2}], True),
        ({"$has": [1]}, "text", False),
        ({"$not": "x"}, "y", True),
        ({"$not": "x"}, "x", False),
        ({"$contains": "b"}, "abc", True),
        ({"$contains": "d"}, "abc", False),
        ({"$exactly": {"a": 1}}, {"a": 1}, True),
        ({"$exactly": {"a": 1}}, {"a": 1, "b": 2}, False),
        ({"$without": "secret"}, {"a": ["a secret"]}, False),
        ({"$without": "secret"}, {"a": 1}, True),
        ({"$odd": 1}, 1, False),
    ],
)
def test_the_language_of_expectations(expected: Json, actual: Json, same: bool) -> None:
    assert (difference(expected, actual, {}) is None) is same


def test_what_is_saved_can_be_named_later() -> None:
    memory: dict[str, Json] = {}
    assert difference({"id": "$save:ID"}, {"id": "x1"}, memory) is None
    assert filled({"correlation_id": ["{{ID}}"], "text": "about {{ID}}"}, memory) == {
        "correlation_id": ["x1"],
        "text": "about x1",
    }
