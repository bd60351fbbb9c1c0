"""Vectors come to an index late, once, from a thread, and their trouble is nobody's trouble."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from bench.search_sets import sample

from moot.config.search_settings import SearchSettings
from moot.xprotocol import vector_search
from moot.xprotocol.search import Document, SearchIndex
from moot.xprotocol.search.word_vectors import WordVectors, load_vectors
from moot.xprotocol.vector_search import VectorModel, VectorSearch, check_search, search_status

pytest.importorskip("wordllama", reason="the extra moot[search] is not installed")

PATIENT = SearchSettings(vector_wait_seconds=600)
QUERY, FOUND = "cancel subscription", "mail/unsubscribe"


def filled() -> SearchIndex:
    index = SearchIndex(vectors_come_later=True)
    for document in sample().documents:
        index.add(document)
    return index


def keys(index: SearchIndex, query: str = QUERY) -> list[str]:
    return [hit.key for hit in index.search(query)]


class Loader:
    """The real vectors; counts how often, remembers where, and waits while its gate is closed."""

    def __init__(self, *, gate_is_open: bool = True) -> None:
        self.threads: list[threading.Thread] = []
        self.gate = threading.Event()
        if gate_is_open:
            self.gate.set()

    def __call__(self) -> WordVectors:
        self.threads.append(threading.current_thread())
        assert self.gate.wait(60)
        return load_vectors()


async def test_nothing_is_loaded_before_the_first_search_and_then_once_in_a_thread() -> None:
    loader = Loader()
    model = VectorModel(loader)
    one, other = filled(), filled()
    searches = [VectorSearch(one, PATIENT, model=model), VectorSearch(other, PATIENT, model=model)]
    assert (loader.threads, keys(one)) == ([], [])
    assert str(searches[0].status()) == "lexical + vectors (vectors are loaded by the first search)"
    await asyncio.gather(*(each.prepare() for each in searches * 3))
    assert keys(one) == keys(other)
    assert keys(one)[0] == FOUND
    (thread,) = loader.threads
    assert thread is not threading.main_thread()
    assert str(searches[0].status()) == "lexical + vectors"


async def test_a_search_waits_no_longer_than_it_may_and_the_next_one_has_the_vectors() -> None:
    loader, index = Loader(gate_is_open=False), filled()
    hasty = VectorSearch(index, SearchSettings(vector_wait_seconds=0.01), model=VectorModel(loader))
    await hasty.prepare()
    assert (hasty.mode, keys(index)) == ("lexical", [])
    loader.gate.set()
    hasty.settings = PATIENT
    await hasty.prepare()
    assert (hasty.mode, keys(index)[0]) == ("lexical + vectors", FOUND)
    assert len(loader.threads) == 1


async def test_a_search_that_is_cancelled_leaves_its_work_to_the_next_one() -> None:
    loader, index = Loader(gate_is_open=False), filled()
    search = VectorSearch(index, PATIENT, model=VectorModel(loader))
    searching = asyncio.ensure_future(search.prepare())
    while not loader.threads:
        await asyncio.sleep(0)
    searching.cancel()
    await asyncio.wait({searching})
    loader.gate.set()
    await search.prepare()
    assert (keys(index)[0], len(loader.threads)) == (FOUND, 1)


async def test_what_cannot_be_loaded_is_told_once_and_words_are_searched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = 0

    def broken() -> WordVectors:
        nonlocal tries
        tries += 1
        raise OSError("the weights\nare garbled " + "x" * 1_000)

    model, index = VectorModel(broken), filled()
    with caplog.at_level(logging.INFO, logger="moot"):
        for search in (VectorSearch(index, PATIENT, model=model), VectorSearch(filled(), model=model)):
            for _ in range(3):
                await search.prepare()
    (record,) = caplog.records
    assert record.message == "word vectors cannot be used; tools are searched by words alone"
    assert tries == 1
    status = search.status()
    assert status.mode == "lexical"
    assert status.why.startswith("word vectors cannot be used: OSError: the weights are garbled x")
    assert len(status.why) < 400
    assert keys(index, "stop a newsletter")[0] == FOUND


async def test_vectors_that_fail_after_they_were_loaded_are_given_up() -> None:
    class Brittle(WordVectors):
        def of_document(self, document: Document, *, max_chars: int = 4_096) -> object:  # type: ignore[override]
            if document.key == "bad":
                raise MemoryError
            return super().of_document(document, max_chars=max_chars)

    real = load_vectors()
    model, index = VectorModel(lambda: Brittle(real._pieces, real._tokenizer)), filled()
    search = VectorSearch(index, PATIENT, model=model)
    await search.prepare()
    assert search.mode == "lexical + vectors"
    index.add(Document("bad", "bad"))
    await search.prepare()
    assert (search.mode, model.fault) == ("lexical", "MemoryError")
    assert keys(index, "stop a newsletter")[0] == FOUND


async def test_more_than_may_have_vectors_are_searched_by_words_until_there_are_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, many = filled(), len(sample().documents)
    monkeypatch.setattr("moot.xprotocol.vector_search.MAX_VECTOR_TOOLS", many)
    search = VectorSearch(index, PATIENT)
    await search.prepare()
    assert keys(index)[0] == FOUND
    index.add(Document("one", "more"))
    await search.prepare()
    assert keys(index) == []
    assert str(search.status()) == f"lexical ({many + 1} entries, and at most {many} get vectors)"
    index.remove("one")
    await search.prepare()
    assert keys(index)[0] == FOUND


async def test_vectors_can_be_turned_off_and_on_while_in_use() -> None:
    index = filled()
    search = VectorSearch(index, PATIENT)
    await search.prepare()
    search.settings = SearchSettings(word_vectors=False)
    await search.prepare()
    assert (keys(index), str(search.status())) == ([], "lexical (word vectors are turned off)")
    search.settings = PATIENT
    await search.prepare()
    assert keys(index)[0] == FOUND


async def test_what_changes_while_its_vector_is_computed_gets_its_own_one() -> None:
    loader, index = Loader(gate_is_open=False), filled()
    search = VectorSearch(index, PATIENT, model=VectorModel(loader))
    searching = asyncio.ensure_future(search.prepare())
    while not loader.threads:
        await asyncio.sleep(0)
    (old,) = (each for each in sample().documents if each.key == FOUND)
    index.add(Document(FOUND, "sunflower", description="Yellow petals"))
    index.remove("mail/send_email")
    loader.gate.set()
    await searching
    assert keys(index) != [FOUND]
    assert keys(index, "flowers blossom")[0] == FOUND
    index.add(old)
    await search.prepare()
    assert keys(index)[0] == FOUND


async def test_answers_do_not_depend_on_how_the_vectors_came(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = SearchIndex(vectors=load_vectors())
    for document in sample().documents:
        at_once.add(document)
    monkeypatch.setattr(vector_search, "BATCH_DOCUMENTS", 5)
    later = SearchIndex(vectors_come_later=True)
    search = VectorSearch(later, PATIENT)
    for document in reversed(sample().documents):
        later.add(document)
        if document.key.endswith("e"):
            await search.prepare()
    await search.prepare()
    for query in sample().queries:
        assert later.search(query.text) == at_once.search(query.text)


async def test_checking_loads_them() -> None:
    assert str(await check_search(SearchSettings())) == "lexical + vectors"
    assert str(await check_search(SearchSettings(word_vectors=False))).startswith("lexical (")


def test_without_the_extra_one_line_says_what_it_would_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_search, "are_vectors_installed", lambda: False)
    assert (
        str(search_status(SearchSettings()))
        == "lexical (with pip install '.[search]' in the clone of Moot, tools are found by meaning, too)"
    )
