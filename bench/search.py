"""How well tools are found, beside plain BM25 in the same run, and how long that takes.

`python -m bench.search` prints it. Times are CPU of this thread, questions as they come (a new word is
stemmed the first time that it is seen). Recall at k is the share of the right tools among the first k, of as
many as can stand there: with three right ones, one of them in the first place is a recall of 1 at 1.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.search_baseline import PlainBm25
from bench.search_sets import SAMPLE, Query, SearchSet, sets
from moot.xprotocol.search import Document, SearchIndex

NAME_ONLY: Final = "BM25, name + description"
ALL_FIELDS: Final = "BM25, all fields, name × 3"
OURS: Final = "moot"
FIGURES: Final = ("recall@1", "recall@5", "nDCG@10")
# How often the questions are split in two at random, to see whether a difference hangs on a few of them.
SPLITS: Final = 200
LARGE: Final = 10_000
LARGE_QUERIES: Final = 300
MEASURED_MEMORY: Final = 2_000

Search = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Found:
    """How one method did on one set: the figures of each question, and the times in milliseconds."""

    figures: tuple[tuple[float, float, float], ...]
    milliseconds: tuple[float, ...]

    def means(self) -> tuple[float, ...]:
        return tuple(map(statistics.fmean, zip(*self.figures, strict=True)))


@dataclass(frozen=True, slots=True)
class Large:
    """One index of many documents."""

    documents: int
    build_seconds: float
    bytes_each: float
    query: tuple[float, ...]
    # The first question after one document was replaced, and what replacing takes.
    after_change: tuple[float, ...]
    change: tuple[float, ...]


def figures(ranked: Sequence[str], right: frozenset[str]) -> tuple[float, float, float]:
    """Recall at 1 and 5, and nDCG at 10."""
    gain = sum(1 / math.log2(place + 2) for place, key in enumerate(ranked[:10]) if key in right)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(right))))
    return _recall(ranked, right, 1), _recall(ranked, right, 5), gain / ideal


def _recall(ranked: Sequence[str], right: frozenset[str], most: int) -> float:
    return len(right.intersection(ranked[:most])) / min(most, len(right))


def methods(documents: Sequence[Document]) -> dict[str, Callable[[str], list[str]]]:
    """Each a function from a question to the ten best keys."""
    few = PlainBm25({each.key: f"{each.name} {each.description}" for each in documents})
    full = PlainBm25({each.key: _all_text(each) for each in documents})
    return {
        NAME_ONLY: lambda text: few.search(text, 10),
        ALL_FIELDS: lambda text: full.search(text, 10),
        OURS: _searcher(documents),
    }


def judged(search: Search, queries: Sequence[Query]) -> Found:
    gc.collect()
    all_figures, times = [], []
    for query in queries:
        start = time.thread_time_ns()
        ranked = search(query.text)
        times.append((time.thread_time_ns() - start) / 1e6)
        all_figures.append(figures(ranked, query.right))
    return Found(tuple(all_figures), tuple(times))


def halves_kept(ours: Found, other: Found, *, seed: int = 5) -> list[float]:
    """For each figure, in how many of SPLITS random halves of the questions we are no worse."""
    chance = random.Random(seed)
    kept = [0.0] * len(FIGURES)
    numbers = list(range(len(ours.figures)))
    for _ in range(SPLITS):
        half = chance.sample(numbers, max(1, len(numbers) // 2))
        for figure in range(len(FIGURES)):
            more = sum(ours.figures[n][figure] - other.figures[n][figure] for n in half)
            kept[figure] += more >= -1e-9
    return [count / SPLITS for count in kept]


def large(all_sets: Sequence[SearchSet]) -> Large:
    """An index of LARGE documents: all that there are, over and over with other keys and sources."""
    documents = list(_many(all_sets, LARGE))
    queries = [query.text for each in all_sets for query in each.queries]
    asked = random.Random(5).sample(queries, min(LARGE_QUERIES, len(queries)))
    start = time.thread_time()
    index = SearchIndex()
    for document in documents:
        index.add(document)
    built = time.thread_time() - start
    for text in asked:
        index.search(text)
    query = tuple(_milliseconds(lambda text=text: index.search(text)) for text in asked)  # type: ignore[misc]
    change, after = [], []
    for number, text in enumerate(asked):
        document = documents[number * 7 % len(documents)]
        changed = replace(document, description=document.description + " changed")
        change.append(_milliseconds(lambda changed=changed: index.add(changed)))  # type: ignore[misc]
        after.append(_milliseconds(lambda text=text: index.search(text)))  # type: ignore[misc]
    size = _bytes_each(documents[:MEASURED_MEMORY])
    return Large(len(documents), built, size, query, tuple(after), tuple(change))


def _bytes_each(documents: Sequence[Document]) -> float:
    tracemalloc.start()
    index = SearchIndex()
    for document in documents:
        index.add(document)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(index)


def _many(all_sets: Sequence[SearchSet], count: int) -> Iterator[Document]:
    made = 0
    while made < count:
        for each in all_sets:
            for document in each.documents[: count - made]:
                yield replace(document, key=f"{made}", source=f"{document.source} site{made % 97}")
                made += 1


def _milliseconds(step: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    step()
    return (time.thread_time_ns() - start) / 1e6


def _searcher(documents: Sequence[Document]) -> Search:
    index = SearchIndex()
    for document in documents:
        index.add(document)
    return lambda text: [hit.key for hit in index.search(text)]


def _all_text(document: Document) -> str:
    name = " ".join([document.name] * 3)
    rest = (document.source, document.description, document.parameter_names, document.parameters)
    return "\n".join((name, *rest))


def _time(milliseconds: Sequence[float]) -> str:
    ordered = sorted(milliseconds)
    return f"{statistics.fmean(ordered):.2f} ms, p99 {ordered[len(ordered) * 99 // 100]:.2f}"


def lines_of(each: SearchSet, found: dict[str, Found]) -> Iterator[str]:
    """The table of one set, and what is promised of it."""
    head = f"{each.name}: {len(each.documents):,} tools, {len(each.queries):,} questions"
    yield f"{head:44}" + "".join(f"{figure:>10}" for figure in FIGURES) + "   CPU a question"
    for method, result in found.items():
        means = "".join(f"{mean:10.4f}" for mean in result.means())
        yield f"  {method:42}{means}   {_time(result.milliseconds)}"
    pairs = zip(found[OURS].means(), found[ALL_FIELDS].means(), strict=True)
    more = [one - beside for one, beside in pairs]
    kept = "".join(f"{share:>10.0%}" for share in halves_kept(found[OURS], found[ALL_FIELDS]))
    verdict = "met" if min(more) >= -1e-9 else "MISSED"
    shown = "".join(f"{figure:+10.4f}" for figure in more)
    yield f"  {OURS + ' − ' + ALL_FIELDS:42}{shown}   no worse: {verdict}"
    yield f"  {f'  no worse in so many of {SPLITS} random halves':42}{kept}"


def run() -> None:
    all_sets = sets()
    if all_sets[0].name == SAMPLE:
        print("(our own sample: no public data sets here)\n")
    for each in all_sets:
        found = {name: judged(search, each.queries) for name, search in methods(each.documents).items()}
        print(*lines_of(each, found), sep="\n")
        print(flush=True)
    size = large(all_sets)
    print(f"{OURS}, {size.documents:,} schemas")
    print(f"  taken in: {size.build_seconds:.1f} s, {size.bytes_each / 1024:.1f} KiB each")
    print(f"  a question: {_time(size.query)}")
    print(f"  the first one after a change: {_time(size.after_change)}")
    print(f"  replacing one: {_time(size.change)}", flush=True)


if __name__ == "__main__":
    run()
