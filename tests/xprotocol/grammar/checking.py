"""The sentence that most tests here are made of: this schema lets these texts through, and not those."""

from __future__ import annotations

from collections.abc import Iterable

from moot.protocol.operation import Json
from moot.xprotocol.grammar import Grammar, compile_grammar
from tests.xprotocol.grammar.derivations import read
from tests.xprotocol.grammar.judges import Judge, judges


def assert_lets_through(schema: Json, texts: Iterable[str], *, not_: Iterable[str] = ()) -> Grammar:
    """Both engines load the schema's grammar, accept the texts and refuse the others."""
    grammar = compile_grammar(schema)
    for name, judge in assert_loads(grammar.text).items():
        for text in texts:
            assert judge.accepts(text), f"{name} refuses {text}\n{grammar.text}"
        for text in not_:
            assert not judge.accepts(text), f"{name} accepts {text}\n{grammar.text}"
    return grammar


def assert_loads(grammar: str) -> dict[str, Judge]:
    """Both engines load the grammar, and it keeps to what all engines know."""
    read(grammar)
    return judges(grammar)


def assert_exact(schema: Json, texts: Iterable[str], *, not_: Iterable[str] = ()) -> None:
    """The same, and the grammar says that it is the whole schema."""
    grammar = assert_lets_through(schema, texts, not_=not_)
    assert grammar.exactness == "exact", grammar.notes
    assert grammar.notes == ()


def assert_noted(schema: Json, word: str, texts: Iterable[str], *, not_: Iterable[str] = ()) -> None:
    """The same, and the grammar says that something about `word` is left to validation."""
    grammar = assert_lets_through(schema, texts, not_=not_)
    assert grammar.exactness == "superset"
    assert any(word in note for note in grammar.notes), grammar.notes
