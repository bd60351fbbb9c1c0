"""GBNF grammars from JSON Schemas (XP 4.4, D-66): what llama.cpp and others let a model write.

    schema → reading (keywords) → merging (what holds together) → shapes (by type)
           → objects, arrays, strings, numbers, values → rules → pruning → writing

A grammar accepts every value of its schema, up to the order of members (the schema's), white space and
members that are not declared. `exact` means that it accepts nothing else; otherwise `notes` say what is left
to validation. It is deterministic: the same schema gives the same text everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from moot.protocol.operation import Json
from moot.xprotocol.grammar.compiler import Compiler
from moot.xprotocol.grammar.notes import GrammarRefused

__all__ = ["Grammar", "GrammarRefused", "compile_grammar"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """GBNF text, and how close it is to its schema."""

    text: str
    exactness: Literal["exact", "superset"]
    notes: tuple[str, ...]


def compile_grammar(schema: Json) -> Grammar:
    """The grammar of a schema's values; raises `GrammarRefused` with the reason where there is none.

    Refused are references out of the schema or to nothing, schemas that no value satisfies, and what is
    larger than `grammar_limits` allows.
    """
    compiler = Compiler(schema)
    try:
        text = compiler.text()
    except RecursionError:
        # Numbers with hundreds of decimal places, for example.
        raise GrammarRefused("the schema needs rules within rules, too deep to be written") from None
    notes = compiler.notes.lines()
    return Grammar(text, "superset" if notes else "exact", notes)
