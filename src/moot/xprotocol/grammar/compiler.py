"""The driver: from a place in the schema to the expression of the values that may stand there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from moot.protocol.operation import Json
from moot.xprotocol.grammar.arrays import array
from moot.xprotocol.grammar.gbnf_writer import has_recursion, level, pruned, write
from moot.xprotocol.grammar.grammar_limits import PLACES
from moot.xprotocol.grammar.json_rules import free_string, unlexed_whitespace, whitespace
from moot.xprotocol.grammar.member_names import Shape, declared_schemas, shape_of
from moot.xprotocol.grammar.notes import GrammarRefused, Notes
from moot.xprotocol.grammar.number.integers import integer
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.number.numbers import fraction, number
from moot.xprotocol.grammar.objects import object_
from moot.xprotocol.grammar.rule_book import (
    NEVER,
    VOCABULARY,
    Expr,
    Lit,
    Ref,
    Rep,
    RuleBook,
    Seq,
    alt,
    opt,
    seq,
)
from moot.xprotocol.grammar.schema import (
    ARRAY_FIELDS,
    FREE,
    OBJECT_FIELDS,
    Library,
    Schema,
    SchemaId,
    to_fraction,
)
from moot.xprotocol.grammar.schema_merge import ways
from moot.xprotocol.grammar.schema_reader import read_schema
from moot.xprotocol.grammar.strings import Note, admits, string
from moot.xprotocol.grammar.values import identity, literal, other_values, type_of

_KINDS = ("object", "array", "string", "number", "boolean", "null")


# Whether a listed value satisfies the schemas around it. Only asked for `enum` and `const`.

# Yes, no, or we cannot tell.
Verdict = bool | None
_DEPTH = 24


def admitted(library: Library, ids: tuple[SchemaId, ...], value: Json, *, depth: int = _DEPTH) -> Verdict:
    """Whether a value satisfies the schemas of these numbers."""
    if depth == 0:
        return None
    noted: list[str] = []
    verdicts = [fits(library, shape_of(way), value, depth=depth) for way in ways(library, ids, noted.append)]
    if True in verdicts:
        return None if noted else True
    return None if None in verdicts else False


def fits(library: Library, shape: Shape, value: Json, *, depth: int = _DEPTH) -> Verdict:
    """Whether a value fits one shape."""
    kind = type_of(value)
    if kind not in shape.types:
        return False
    text = json.dumps(value, ensure_ascii=False)
    known = identity(text)
    if shape.values is not None and known not in {identity(each) for each in shape.values}:
        return False
    if known in {identity(each) for each in shape.excluded}:
        return False
    match kind:
        case "string":
            return admits(shape.strings, value)
        case "integer" | "fraction":
            return shape.numbers.admit(to_fraction(value))
        case "array":
            return _all(_array(library, part, value, depth) for part in shape.parts)
        case "object":
            return _object(library, shape.parts, value, depth)
    return True


def _all(verdicts: Iterator[Verdict]) -> Verdict:
    result: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        if verdict is None:
            result = None
    return result


def _array(library: Library, part: Schema, value: list[Json], depth: int) -> Verdict:
    if len(value) < part.min_items or (part.max_items is not None and len(value) > part.max_items):
        return False
    if part.unique and len({identity(json.dumps(each)) for each in value}) < len(value):
        return False

    def verdicts() -> Iterator[Verdict]:
        for at, each in enumerate(value):
            id = part.prefix[at] if at < len(part.prefix) else part.items
            if id is not None:
                yield admitted(library, (id,), each, depth=depth - 1)
        if part.contains is not None:
            yield None

    return _all(verdicts())


def _object(library: Library, parts: tuple[Schema, ...], value: dict[str, Json], depth: int) -> Verdict:
    for part in parts:
        if any(name not in value for name in part.required) or any(name in value for name in part.forbidden):
            return False
        if len(value) < part.min_properties:
            return False
        if part.max_properties is not None and len(value) > part.max_properties:
            return False

    def verdicts() -> Iterator[Verdict]:
        for name, each in value.items():
            noted: list[str] = []
            ids = declared_schemas(library, parts, name, noted.append)
            if ids is None:
                yield False
            else:
                yield admitted(library, ids, each, depth=depth - 1)
                if noted:
                    yield None

    return _all(verdicts())


class Compiler:
    """Compiles one document. `text` is the grammar, `notes` what it leaves to validation."""

    def __init__(self, document: Json) -> None:
        self.notes = Notes()
        self.book = RuleBook()
        self.library = Library(document, self.notes, read_schema)
        self._known: dict[tuple[SchemaId, ...], Expr] = {}
        # Rules being written, and those of them that something inside already refers to.
        self._open: dict[tuple[SchemaId, ...], str] = {}
        self._recurs: set[str] = set()

    def text(self) -> str:
        self.book.rules["root"] = NEVER
        root = self.value((self.library.root,), "root")
        if isinstance(root, Ref) and root.name not in self._recurs | VOCABULARY and self._is_object(root):
            root = self.book.rules[root.name]
        self.book.rules["root"] = root
        level(self.book)
        live = pruned(self.book.rules)
        if live is None:
            raise GrammarRefused("no value satisfies the schema, so there is nothing to write a grammar of")
        if self.book.overlapping and has_recursion(live):
            unlexed_whitespace(live)
        return write(live)

    def _is_object(self, ref: Ref) -> bool:
        """Whether it is one object; what engines with a lexer must see in one piece stays a rule."""
        body = self.book.rules[ref.name]
        return isinstance(body, Seq) and body.items[0] == Lit("{") and not self.book.halved

    def value(self, ids: tuple[SchemaId, ...], hint: str) -> Expr:
        """What may stand where all these schemas hold."""
        key = tuple(dict.fromkeys(id for id in ids if id != self.library.free))
        if key in self._known:
            return self._known[key]
        if key in self._open:
            self._recurs.add(self._open[key])
            return Ref(self._open[key])
        if len(self._open) >= PLACES:
            raise GrammarRefused(f"the schema leads through more than {PLACES} places; make it flatter")
        name = self.book.name(hint)
        self._open[key] = name
        body = self._body(key, hint)
        del self._open[key]
        if name in self._recurs:
            expr: Expr = self.book.define(name, body)
        else:
            self.book.release(name)
            expr = self.book.rule(hint, body) if _worth_a_rule(body) else body
        self._known[key] = expr
        return expr

    def _body(self, ids: tuple[SchemaId, ...], hint: str) -> Expr:
        def note(words: str) -> None:
            self.notes.add(hint, words)

        shapes = [shape_of(way) for way in ways(self.library, ids, note)]
        if any(shape.is_free() for shape in shapes):
            return self._anything()
        found: dict[str, dict[Expr, None]] = {}
        for shape in shapes:
            for kind, expr in self._by_kind(shape, hint):
                if expr != NEVER:
                    found.setdefault(kind, {})[expr] = None
        self.book.overlapping |= any(len(found.get(kind, ())) > 1 for kind in ("object", "array"))
        return alt(*(expr for exprs in found.values() for expr in exprs))

    def _by_kind(self, shape: Shape, hint: str) -> list[tuple[str, Expr]]:
        def note(words: str) -> None:
            self.notes.add(hint, words)

        if shape.values is not None:
            return self._listed(shape, note)
        found: list[tuple[str, Expr]] = []
        for kind in _KINDS:
            if kind in shape.types or (kind == "number" and shape.types & {"integer", "fraction"}):
                found.append((kind, self._one_kind(kind, shape, hint)))
        return found

    def _listed(self, shape: Shape, note: Note) -> list[tuple[str, Expr]]:
        found: list[tuple[str, Expr]] = []
        for text in shape.values or ():
            value = json.loads(text)
            verdict = fits(self.library, replace(shape, values=None), value)
            if verdict is None:
                note("listed values are not all checked against the other keywords")
            if verdict is not False:
                kind = type_of(value)
                found.append((kind if kind in ("object", "array") else "listed", literal(self.book, value)))
        return found

    def _one_kind(self, kind: str, shape: Shape, hint: str) -> Expr:
        def note(words: str) -> None:
            self.notes.add(hint, words)

        match kind:
            case "null":
                return alt(*(Lit(text) for text in other_values(["null"], shape.excluded)))
            case "boolean":
                return alt(*(Lit(text) for text in other_values(["true", "false"], shape.excluded)))
            case "string":
                return string(self.book, shape.strings, hint=f"{hint}-text", note=note)
            case "number":
                return self._number(shape, hint, note)
        banned = {type(json.loads(text)) for text in shape.excluded}
        if (kind == "object" and dict in banned) or (kind == "array" and list in banned):
            note("not all listed values are kept out")
        if not any(_constrains(kind, part) for part in shape.parts):
            self._anything()
            return Ref(kind)
        if kind == "array":
            return array(self.book, self.library, shape.parts, value=self.value, hint=hint, note=note)
        return object_(self.book, self.library, shape.parts, value=self.value, hint=hint, note=note)

    def _number(self, shape: Shape, hint: str, note: Note) -> Expr:
        if "fraction" not in shape.types:
            only_digits = self.library.draft <= 4
            return integer(
                self.book, shape.numbers, hint=f"{hint}-integer", note=note, only_digits=only_digits
            )
        if "integer" not in shape.types and self.library.draft <= 4:
            # 12E0 is 12, and no integer by the letter of draft 4, which speaks of how it is written.
            note("draft 4: numbers that are written as integers are not kept out")
        elif "integer" not in shape.types:
            return fraction(self.book, shape.numbers, hint=f"{hint}-fraction", note=note)
        return number(self.book, shape.numbers, hint=f"{hint}-number", note=note)

    def _anything(self) -> Expr:
        """Any JSON value."""
        if "value" in self.book.rules:
            return Ref("value")
        book, ws = self.book, whitespace(self.book)
        text = free_string(book)
        plain = number(book, NumberBounds(), hint="number", note=_ignore_note)
        self.book.rules["value"] = NEVER
        value = Ref("value")
        member = book.shared("member", seq(text, Lit(":"), ws, value))
        members = seq(member, Rep(book.rule("member-more", seq(Lit(","), ws, member)), 0, None), ws)
        things = seq(value, Rep(book.rule("value-more", seq(Lit(","), ws, value)), 0, None), ws)
        book.shared("object", seq(Lit("{"), ws, opt(members), Lit("}")))
        book.shared("array", seq(Lit("["), ws, opt(things), Lit("]")))
        book.rules["value"] = alt(
            Ref("object"), Ref("array"), text, plain, Lit("true"), Lit("false"), Lit("null")
        )
        return value


def _constrains(kind: str, part: Schema) -> bool:
    """Whether the schema has a keyword for objects, or for arrays."""
    names = OBJECT_FIELDS if kind == "object" else ARRAY_FIELDS
    return any(getattr(part, name) != getattr(FREE, name) for name in names)


def _ignore_note(words: str) -> None:
    raise AssertionError(f"nothing to note about any number, but: {words}")


def _worth_a_rule(body: Expr) -> bool:
    return not isinstance(body, Ref | Lit) and body != NEVER
