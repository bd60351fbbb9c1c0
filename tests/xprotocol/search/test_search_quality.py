"""How well tools are found, beside plain BM25: on public data sets where they are, else on our own sample.

`python -m bench.search` has the whole table. The margins here are those of the promise: no worse.
"""

from __future__ import annotations

import pytest
from bench.search import ALL_FIELDS, OURS, Found, figures, judged, methods
from bench.search_sets import SAMPLE, SearchSet, sets

ALL = sets()
# Every fourth question: the whole takes longer than a test should.
STEP = 1 if ALL[0].name == SAMPLE else 4
# Of a quarter of the questions; a single one of them moves a figure by this much.
ONE_QUESTION = 1 / 150


@pytest.fixture(scope="module", params=ALL, ids=[each.name for each in ALL])
def found(request: pytest.FixtureRequest) -> dict[str, Found]:
    each: SearchSet = request.param
    print(f"{each.name}: {'our own sample' if each.name == SAMPLE else 'a public data set'}")
    queries = each.queries[::STEP]
    return {name: judged(search, queries) for name, search in methods(each.documents).items()}


def test_words_alone_are_no_worse_than_plain_bm25_over_all_fields(found: dict[str, Found]) -> None:
    ours, plain = found[OURS].means(), found[ALL_FIELDS].means()
    assert all(one >= other - ONE_QUESTION for one, other in zip(ours, plain, strict=True)), (ours, plain)
    assert sum(ours) > sum(plain)


def test_figures_are_what_they_are_called() -> None:
    right = frozenset("ab")
    assert figures(["a", "b"], right) == (1.0, 1.0, 1.0)
    assert figures(["x", "a"], right)[:2] == (0.0, 0.5)
    assert figures([], right) == (0.0, 0.0, 0.0)
    assert figures(["x", "a"], frozenset("a"))[2] == pytest.approx(0.6309, abs=1e-4)
