"""Static word vectors beside BM25: what a question and a document mean, where they share no word.

The extra `search`. The vectors are WordLlama's, 256 numbers for each of 32,000 pieces of
words, and come inside its wheel. They are read from there as they are: WordLlama's own loader looks for its
tokenizer in the wrong folder and would go to the network for it. Nothing here ever does.

A text means what its words mean on average. A document is its name and its description, half and half, and
a bit of its source and parameters. So a document's vector depends on that document alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError
from moot.xprotocol.search.documents import Document
from moot.xprotocol.search.search_terms import plain_words

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Vector = NDArray[numpy.float32]

_WEIGHTS: Final = Path("weights", "l2_supercat_256.safetensors")
_TENSOR: Final = "embedding.weight"
_TOKENIZER: Final = Path("tokenizers", "l2_supercat_tokenizer_config.json")
INSTALL: Final = "pip install '.[search]' in the clone of Moot"

# A name and a description say what a tool is for; the rest says what it takes.
MAIN_WEIGHT: Final = 1.0
OTHER_WEIGHT: Final = 0.3
# Words of one text; the average of more hardly moves.
WORDS: Final = 512
# Of one text of a document: more than the longest description of 3,000 real tools has.
TEXT_CHARS: Final = 4_096
# Pieces of words of one text. Prose has some 1.3 a word; letters at random have ten times as many, and each
# takes a kilobyte while the average is computed.
PIECES: Final = 2 * WORDS
# Found by meaning alone from here on. Of the right tools of public benchmarks 95 % are closer to their
# question; nonsense comes this close to some tool only among thousands of them.
LEAST_LIKENESS: Final = 0.2
FIRST_ROWS: Final = 256


class WordVectors:
    """The vectors of words, loaded once and shared by any number of indexes."""

    def __init__(self, pieces: Vector, tokenizer: Tokenizer) -> None:
        self._pieces = pieces
        self._tokenizer = tokenizer

    @property
    def dimensions(self) -> int:
        return int(self._pieces.shape[1])

    def means(self, texts: Sequence[str]) -> Vector:
        """What each text means: a row of length 1, or of zeros where no word counts."""
        import numpy

        found = [self._tokenizer.encode(" ".join(plain_words(text)[:WORDS])).ids[:PIECES] for text in texts]
        rows = numpy.zeros((len(texts), self.dimensions), dtype=numpy.float32)
        filled = [number for number, pieces in enumerate(found) if pieces]
        if filled:
            # All at once: what costs is the number of calls, not of vectors.
            starts = list(accumulate((len(found[number]) for number in filled[:-1]), initial=0))
            pieces = [piece for number in filled for piece in found[number]]
            rows[filled] = _units(numpy.add.reduceat(self._pieces[pieces], starts, axis=0))
        return rows

    def of_document(self, document: Document, *, max_chars: int = TEXT_CHARS) -> Vector:
        """The vector of a document, of length 1 unless no word in it counts.

        Of each of its texts the first `max_chars` characters count.
        """
        import numpy

        texts = (document.name, document.description, document.source)
        all_texts = [*texts, document.parameter_names, document.parameters]
        means = self.means([text[:max_chars] for text in all_texts])
        weights = numpy.array([MAIN_WEIGHT, MAIN_WEIGHT, OTHER_WEIGHT, OTHER_WEIGHT, OTHER_WEIGHT])
        total: Vector = numpy.einsum("i,ij->j", weights.astype(numpy.float32), means)
        unit: Vector = _units(total[None, :])[0]
        return unit


class DocumentVectors:
    """The vectors of documents by slot, as one matrix that grows by doubling."""

    def __init__(self, words: WordVectors) -> None:
        import numpy

        self._words = words
        self._rows: Vector = numpy.zeros((FIRST_ROWS, words.dimensions), dtype=numpy.float32)
        self._used = 0

    def put(self, slot: int, row: Vector) -> None:
        import numpy

        if slot >= len(self._rows):
            more = numpy.zeros((max(slot + 1, 2 * len(self._rows)), self._words.dimensions), numpy.float32)
            more[: len(self._rows)] = self._rows
            self._rows = more
        self._rows[slot] = row
        self._used = max(self._used, slot + 1)

    def clear(self, slot: int) -> None:
        if slot < len(self._rows):
            self._rows[slot] = 0.0

    def asked(self, texts: Sequence[str]) -> QueryVectors:
        """A question and its clauses, to be compared with the documents that are here now."""
        return QueryVectors(self._words.means(texts), self._rows[: self._used])


class QueryVectors:
    """A question's vectors beside those of all documents.

    Products are taken by einsum: `@` takes several threads for a matrix of this size, and that takes a
    hundred times as long as one thread whenever something else wants the cores.
    """

    def __init__(self, asked: Vector, rows: Vector) -> None:
        self._asked = asked
        self._rows = rows

    def nearest(self, most: int, allowed: Callable[[int], bool] | None) -> list[int]:
        """The slots of the documents closest to the whole question; only those that are `allowed`."""
        import numpy

        likeness = numpy.einsum("ij,j->i", self._rows, self._asked[0])
        close = likeness >= LEAST_LIKENESS
        if allowed is not None:
            ordered = numpy.argsort(-likeness, kind="stable")
            slots = (int(slot) for slot in ordered if close[slot] and allowed(int(slot)))
            nearest = list(islice(slots, most))
            if len(nearest) == most:
                last = likeness[nearest[-1]]
                nearest += takewhile(lambda slot: bool(likeness[slot] == last), slots)
            return nearest
        lowest = numpy.partition(likeness, -most)[-most] if most < len(likeness) else LEAST_LIKENESS
        # Here and above, all that share the last place: which of them has which slot must not matter.
        found: list[int] = numpy.flatnonzero((likeness >= lowest) & close).tolist()
        return found

    def likeness(self, slots: Sequence[int]) -> list[list[float]]:
        """For each text, how close each document is: 0 to 1, and 0 for those that point away."""
        import numpy

        likeness = numpy.einsum("ij,kj->ik", self._asked, self._rows[list(slots)])
        found: list[list[float]] = numpy.clip(likeness, 0.0, 1.0).tolist()
        return found


def are_vectors_installed() -> bool:
    """Whether the extra is there; whether its files are sound, `load_vectors` finds out. Takes no time."""
    return _home() is not None


def load_vectors() -> WordVectors:
    """WordLlama's vectors from its wheel. Takes some 0.3 s of CPU and 70 MB.

    Raises UsageError without the extra, or when what is in its files cannot be the vectors. Files that are
    broken in other ways raise whatever their readers raise.
    """
    home = _home()
    if home is None:
        raise UsageError(f"word vectors are not installed: {INSTALL}")
    missing = [str(path) for path in (_WEIGHTS, _TOKENIZER) if not (home / path).is_file()]
    if missing:
        raise UsageError(f"the installed wordllama has no {' and no '.join(missing)}: {INSTALL}")
    import numpy
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(home / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # The mark that models put before a text is no part of it.
    tokenizer.post_processor = None
    tensor = load_file(home / _WEIGHTS).get(_TENSOR)
    # Looked at now: every search would stumble over it otherwise.
    if tensor is None or tensor.ndim != 2 or len(tensor) < tokenizer.get_vocab_size():
        raise UsageError(f"{home / _WEIGHTS} does not hold a vector for each piece of a word")
    pieces = tensor.astype(numpy.float32)
    if not numpy.isfinite(pieces).all():
        raise UsageError(f"{home / _WEIGHTS} holds vectors that are no numbers")
    return WordVectors(pieces, tokenizer)


def _home() -> Path | None:
    """The folder of the installed WordLlama; it is looked for, not imported."""
    spec = find_spec("wordllama")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _units(rows: Vector) -> Vector:
    """Rows of length 1; those of length 0 stay."""
    import numpy

    squares: Vector = numpy.einsum("ij,ij->i", rows, rows)
    lengths = numpy.sqrt(numpy.where(squares > 0, squares, numpy.float32(1)))
    units: Vector = numpy.divide(rows, lengths[:, None], dtype=numpy.float32)
    return units
