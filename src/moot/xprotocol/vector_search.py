"""Word vectors for a search index: loaded late, once, in a thread; a failure never fails a search.

They take 70 MB and half a second, so nothing is loaded before somebody searches. The first search in a
process loads them in a thread; each search of an index computes the vectors of new documents there, batch by
batch. It waits up to `vector_wait_seconds` for that, and uses words alone if that was too short; the next
search continues where it stopped. An index uses vectors only when all its documents have one, so results do
not depend on how many searches that took.

If they cannot be loaded, the log says so once, and this process searches by words alone from then on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from moot.config.search_settings import SearchSettings
from moot.protocol.operation import Json
from moot.xprotocol.search import Document, SearchIndex
from moot.xprotocol.search.word_vectors import INSTALL, WordVectors, are_vectors_installed, load_vectors

if TYPE_CHECKING:
    from moot.xprotocol.search.word_vectors import Vector

log = logging.getLogger(__name__)

SearchMode = Literal["lexical", "lexical + vectors"]
LEXICAL: Final = "lexical"
WITH_VECTORS: Final = "lexical + vectors"

# Tools, prompts and resources that get a vector: some 0.4 ms of CPU and 1 KiB each. Of a larger number none
# has one, and the search is by words alone.
MAX_VECTOR_TOOLS: Final = 10_000
# Of each text of a tool (name, description, parameters) so many characters count for its vector: more than
# the longest description of 3,000 real tools has. Words count beyond that.
MAX_VECTOR_CHARS: Final = 4_096
# Documents in one batch: some 0.1 s, the longest that the end of the process waits for it.
BATCH_DOCUMENTS: Final = 256
# Of the error text about a broken file.
FAULT_CHARS: Final = 300
# A hundred times what loading takes on a quiet machine.
CHECK_SECONDS: Final = 30.0


class VectorModel:
    """The word vectors of a process, for all its indexes. Its methods may be called from any thread."""

    def __init__(self, load: Callable[[], WordVectors] = load_vectors) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._vectors: WordVectors | None = None
        # Why they cannot be used; empty while they can.
        self.fault = ""

    @property
    def is_loaded(self) -> bool:
        return self._vectors is not None

    def load(self) -> WordVectors:
        """The vectors; the first call takes half a second. Raises whatever is wrong with their files."""
        with self._lock:
            if self._vectors is None:
                begun = time.perf_counter()
                vectors = self._load()
                # Finds files that can be read but not used before a search does.
                vectors.of_document(Document("probe", "read_file", description="Read a file"))
                self._vectors = vectors
                log.info("word vectors loaded", extra={"seconds": round(time.perf_counter() - begun, 2)})
            return self._vectors

    def give_up(self, fault: BaseException) -> None:
        """Search by words alone from now on; logged once."""
        with self._lock:
            if self.fault:
                return
            self.fault = _text_of(fault)
        log.warning(
            "word vectors cannot be used; tools are searched by words alone", extra={"why": self.fault}
        )


# One for the whole process: half a second and 70 MB once, however many indexes there are.
PROCESS_MODEL: Final = VectorModel()


@dataclass(frozen=True, slots=True)
class SearchStatus:
    """How an index is searched, for people: `why` is for the operator, since it may name files."""

    mode: SearchMode
    why: str

    def as_json(self) -> dict[str, Json]:
        return {"mode": self.mode, "why": self.why}

    def __str__(self) -> str:
        return f"{self.mode} ({self.why})" if self.why else self.mode


def make_index() -> SearchIndex:
    """An index that vectors can be added to, if there are any on this machine."""
    return SearchIndex(vectors_come_later=are_vectors_installed())


def search_status(
    settings: SearchSettings, model: VectorModel = PROCESS_MODEL, *, documents: int = 0
) -> SearchStatus:
    """How an index of so many documents is searched with these settings."""
    if not settings.word_vectors:
        return SearchStatus(LEXICAL, "word vectors are turned off")
    if not are_vectors_installed():
        return SearchStatus(LEXICAL, f"with {INSTALL}, tools are found by meaning, too")
    if model.fault:
        return SearchStatus(LEXICAL, f"word vectors cannot be used: {model.fault}")
    if documents > MAX_VECTOR_TOOLS:
        return SearchStatus(LEXICAL, f"{documents} entries, and at most {MAX_VECTOR_TOOLS} get vectors")
    return SearchStatus(WITH_VECTORS, "" if model.is_loaded else "vectors are loaded by the first search")


async def check_search(settings: SearchSettings) -> SearchStatus:
    """How tools would be searched: loads the vectors to see whether that works. For validating."""
    model = VectorModel()
    found = search_status(settings, model)
    if found.mode == LEXICAL:
        return found
    work = asyncio.get_running_loop().run_in_executor(None, model.load)
    await asyncio.wait({work}, timeout=CHECK_SECONDS)
    if not work.done():
        model.fault = f"not loaded within {CHECK_SECONDS:g} s"
    elif (fault := work.exception()) is not None:
        model.fault = _text_of(fault)
    return search_status(settings, model)


class VectorSearch:
    """Adds vectors to one index. Belongs to one loop; `settings` may be replaced while it is in use."""

    def __init__(
        self,
        index: SearchIndex,
        settings: SearchSettings | None = None,
        *,
        model: VectorModel = PROCESS_MODEL,
    ) -> None:
        self.settings = settings or SearchSettings()
        self._index = index
        self._model = model
        # What a thread computes now. Searches made meanwhile wait for it too.
        self._work: asyncio.Future[tuple[WordVectors, list[tuple[Document, Vector]]]] | None = None

    def status(self) -> SearchStatus:
        return search_status(self.settings, self._model, documents=len(self._index))

    @property
    def mode(self) -> SearchMode:
        """How a search made now, without preparing, works."""
        return WITH_VECTORS if self._index.compares_meanings else LEXICAL

    async def prepare(self) -> bool:
        """Before a search: compute missing vectors if that can be done in `vector_wait_seconds`.

        Returns whether it waited, so that something may have changed. Raises nothing. Cancelling is safe: the
        next search uses what a thread has computed.
        """
        waited = False
        index, loop = self._index, asyncio.get_running_loop()
        deadline = loop.time() + self.settings.vector_wait_seconds
        while True:
            index.use_vectors = self.status().mode == WITH_VECTORS
            if not index.use_vectors or not index.without_vectors or loop.time() >= deadline:
                return waited
            waited = True
            if self._work is None:
                batch = tuple(islice(index.without_vectors, BATCH_DOCUMENTS))
                self._work = loop.run_in_executor(None, self._compute, batch, MAX_VECTOR_CHARS)
            work = self._work
            await asyncio.wait({work}, timeout=deadline - loop.time())
            if work.done() and work is self._work:
                self._work = None
                self._add_result(work)

    def _compute(
        self, documents: Sequence[Document], max_chars: int
    ) -> tuple[WordVectors, list[tuple[Document, Vector]]]:
        """In a thread."""
        vectors = self._model.load()
        return vectors, [(each, vectors.of_document(each, max_chars=max_chars)) for each in documents]

    def _add_result(self, work: asyncio.Future[tuple[WordVectors, list[tuple[Document, Vector]]]]) -> None:
        # Not `except`: what reads the files is compiled, and what it raises has no common class.
        fault = work.exception()
        if fault is not None:
            self._model.give_up(fault)
        else:
            self._index.add_vectors(*work.result())


def _text_of(fault: BaseException) -> str:
    text = " ".join(str(fault).split())[:FAULT_CHARS]
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__
