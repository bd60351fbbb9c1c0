"""Two engines that are not ours say what a grammar accepts: llama.cpp's own, and llguidance.

llama.cpp's engine is in the `xllamacpp` wheel, which exports its C++ functions under their mangled names; the
wheel is pinned because of that. No model is loaded: the matcher takes code points one by one.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Protocol

import llguidance
import xllamacpp
from llguidance.gbnf_to_lark import gbnf_to_lark


class NotLoaded(Exception):
    """The engine refuses the grammar itself."""


class Judge(Protocol):
    """A loaded grammar."""

    def accepts(self, text: str) -> bool: ...


@cache
def _llama() -> ctypes.CDLL:
    shared = next(Path(xllamacpp.__file__).parent.glob("*.so"))
    library = ctypes.CDLL(str(shared))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        (
            _INIT,
            pointer,
            [pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool, pointer, size, pointer, size],
        ),
        (_CLONE, pointer, [pointer]),
        (_ACCEPT, None, [pointer, ctypes.c_uint32]),
        (_STACKS, pointer, [pointer]),
        (_FREE, None, [pointer]),
    ):
        function = getattr(library, name)  # `library[name]` would be a new object each time
        function.restype = result
        function.argtypes = arguments
    return library


_INIT = "_Z23llama_grammar_init_implPK11llama_vocabPKcS3_bPS3_mPKim"
_CLONE = "_Z24llama_grammar_clone_implRK13llama_grammar"
_ACCEPT = "_Z20llama_grammar_acceptP13llama_grammarj"
_STACKS = "_Z24llama_grammar_get_stacksP13llama_grammar"
_FREE = "_Z23llama_grammar_free_implP13llama_grammar"
# sizeof(std::vector): begin, end, capacity.
_VECTOR = 3 * ctypes.sizeof(ctypes.c_void_p)


class LlamaCpp:
    """llama.cpp's parser and matcher for one grammar."""

    def __init__(self, grammar: str) -> None:
        self._handle = getattr(_llama(), _INIT)(None, grammar.encode(), b"root", False, None, 0, None, 0)
        if not self._handle:
            raise NotLoaded("llama.cpp does not load the grammar")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            getattr(_llama(), _FREE)(self._handle)

    def accepts(self, text: str) -> bool:
        library = _llama()
        state = getattr(library, _CLONE)(self._handle)
        try:
            for char in text:
                getattr(library, _ACCEPT)(state, ord(char))
                if not _stack_heights(state):
                    return False
            # An empty stack: nothing more has to come.
            return 0 in _stack_heights(state)
        finally:
            getattr(library, _FREE)(state)


def _stack_heights(state: int) -> list[int]:
    """How deep each of the matcher's stacks is, read from its std::vector of std::vectors."""
    first, last = (ctypes.c_size_t * 2).from_address(getattr(_llama(), _STACKS)(state))
    heights = []
    for address in range(first, last, _VECTOR):
        low, high = (ctypes.c_size_t * 2).from_address(address)
        heights.append((high - low) // ctypes.sizeof(ctypes.c_void_p))
    return heights


@cache
def _byte_tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer("byte")


class LlGuidance:
    """llguidance over bytes, for one grammar in its own translation from GBNF."""

    def __init__(self, grammar: str) -> None:
        try:
            lark = gbnf_to_lark(grammar)
        except Exception as error:
            raise NotLoaded(f"gbnf_to_lark: {error}") from error
        self._matcher = llguidance.LLMatcher(
            _byte_tokenizer(), llguidance.grammar_from("lark", lark), log_level=0
        )
        if self._matcher.is_error():
            raise NotLoaded(f"llguidance: {self._matcher.get_error()[:300]}")

    def accepts(self, text: str) -> bool:
        matcher = self._matcher.deep_copy()
        tokens = list(text.encode())
        taken = matcher.try_consume_tokens(tokens)
        if matcher.is_error():
            raise NotLoaded(f"llguidance: {matcher.get_error()[:300]}")
        return taken == len(tokens) and matcher.is_accepting()


def judges(grammar: str) -> dict[str, Judge]:
    """Both engines with the grammar loaded; raises `NotLoaded`."""
    return {"llama.cpp": LlamaCpp(grammar), "llguidance": LlGuidance(grammar)}
