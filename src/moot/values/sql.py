"""SQL: what a statement does to which tables, and whether it has a condition.

A query is reduced to its tables and how they are joined, `*` or columns, and whether a real condition and a
limit restrict it; a change to its table, the columns that it sets, and its condition with the types of the
values. Only one statement without comments, made of well-known parts with well-known arguments, is read: no
other functions, no statements within it, no locks, no names in quotes. Names stay as they are written:
`Orders` and `orders` are two tables to some databases.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from moot.values.atoms import Atom, fixed
from moot.values.word_lists import CHANGE_PARTS, COMPARISONS, QUERY_PARTS, is_secret

log = logging.getLogger(__name__)

MAX_SQL_CHARS: Final = 2_000
MAX_PARENTHESES: Final = 20
# Comments, a second statement, dollar quotes, escapes: dialects disagree about them.
_HIDING: Final = re.compile(r"--|/\*|\*/|#|;|\\|\$|`|\0|@@")
# What of each part is understood, by sqlglot's names; a part with anything else set is not. So `INSERT OR
# REPLACE`, `LIMIT 1 BY x`, `NOT LIKE`, new columns for a table, and whatever a newer sqlglot reads have no
# summary. Names in quotes are texts to some databases: to those `"id" = 'id'` always holds.
_UNDERSTOOD: Final[Mapping[str, frozenset[str]]] = {
    part: frozenset(arguments.split())
    for part, arguments in {
        "Select": "expressions distinct from from_ joins where group having order limit offset",
        "Insert": "this expression",
        "Update": "this expressions where",
        "Delete": "this where",
        "Table": "this db catalog alias",
        "TableAlias": "this",
        "Alias": "this alias",
        "Column": "this table db catalog",
        "Join": "this on using side kind",
        "Limit": "expression",
        "Offset": "expression",
        "Ordered": "this desc nulls_first",
        "Star": "",
        "Literal": "this is_string",
        "Identifier": "this",
        "Count": "this big_int",
        "Round": "this decimals",
        "In": "this expressions",
        "Between": "this low high",
        "Case": "this ifs default",
        "If": "this true false",
    }.items()
}
_PLAIN: Final = frozenset({"this", "expression", "expressions"})
# PostgreSQL reads `u.to_json` as `to_json(u)`: the whole row.
_ROW_FUNCTIONS: Final = frozenset(
    {"to_json", "to_jsonb", "row_to_json", "json_build_array", "jsonb_build_array", "quote_literal",
     "quote_nullable", "concat", "hstore", "record_out", "record_send"}
)  # fmt: skip


@lru_cache(maxsize=1)
def _library() -> Any:
    """sqlglot; None where the extra `rules` is not installed."""
    try:
        import sqlglot
    except ImportError:
        log.warning("SQL is only compared word for word: pip install '.[rules]' in the clone of Moot")
        return None
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    return sqlglot


def sql_atoms(text: str) -> list[Atom] | None:
    """What the statement does, as one fixed atom; None if it cannot be told."""
    body = text.strip().removesuffix(";").strip()
    if len(body) > MAX_SQL_CHARS or not text.isascii() or _HIDING.search(body):
        return None
    # Deeper statements take a parser long, and no person reads them.
    found = _summary(body) if body.count("(") <= MAX_PARENTHESES else None
    return None if found is None else [fixed(found)]


@lru_cache(maxsize=2048)
def _summary(body: str) -> str | None:
    library = _library()
    if library is None:
        return None
    try:
        statements = library.parse(body)
    except (library.errors.SqlglotError, RecursionError):
        return None
    if len(statements) != 1 or statements[0] is None:
        return None
    statement = statements[0]
    # The parser is lenient: only what it would write in the same order has it understood.
    if _tokens(body) != _tokens(statement.sql()):
        return None
    if not all(map(_is_understood, statement.walk())):
        return None
    kind = type(statement).__name__
    nodes = {type(node).__name__ for node in statement.walk()}
    match kind:
        case "Select" if nodes <= QUERY_PARTS:
            return _query_summary(statement)
        case "Insert" | "Update" | "Delete" if nodes <= CHANGE_PARTS:
            return _change_summary(kind, statement)
    return None


def _tokens(text: str) -> list[tuple[str, str]]:
    """The words and what each is taken for: a text in quotes is no name."""
    found = [(token.token_type.name, token.text.upper()) for token in _library().tokenize(text)]
    words = [(kind, "<>" if word == "!=" else word) for kind, word in found]
    return [each for each in words if each[1] not in ("AS", "INNER")]


def _is_understood(node: Any) -> bool:
    used = {name for name, value in node.args.items() if value not in (None, False, [])}
    return used <= _UNDERSTOOD.get(type(node).__name__, _PLAIN)


def _query_summary(statement: Any) -> str | None:
    library = _library()
    source = statement.args.get("from_") or statement.args.get("from")
    # What is read within a statement would look like what is joined.
    if source is None or any(node is not statement for node in statement.find_all(library.exp.Select)):
        return None
    joins = statement.args.get("joins") or []
    tables = [source.this, *(join.this for join in joins)]
    if not all(isinstance(table, library.exp.Table) for table in tables):
        return None
    called = _called(tables)
    if called is None or not _reads_columns(statement, called):
        return None
    written = [_table_name(tables[0])]
    for join in joins:
        words = _join_words(join, called)
        if words is None:
            return None
        written.append(words)
    limit = statement.args.get("limit")
    # `LIMIT ALL`, `LIMIT NULL` and, to SQLite, `LIMIT -1` are none.
    if limit is not None and _type_word(limit.expression) != "number":
        return None
    where = statement.args.get("where")
    what = "*" if any(True for _ in _plain_stars(statement)) else "columns"
    ending = (" where" if where and _restricts(where.this) else "") + (" limit" if limit else "")
    return f"select {what} from {' '.join(written)}{ending}"  # noqa: S608


def _table_name(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


def _called(tables: list[Any]) -> dict[str, str] | None:
    """What columns may call each table, in small letters, and its name; None if one is there twice."""
    found: dict[str, str] = {}
    for table in tables:
        name = _table_name(table)
        if name.lower() in map(str.lower, found.values()):
            return None
        for each in {table.alias} if table.alias else {name, table.name}:
            if found.setdefault(each.lower(), name) != name:
                return None
    return found


def _reads_columns(statement: Any, called: Mapping[str, str]) -> bool:
    """Whether all that looks like a column is one of these tables, without a secret name.

    A table's name in place of a column is the whole row to some databases. A new name for a column counts as
    a column: with MySQL, `SELECT HIGH_PRIORITY password` reads one that sqlglot takes for a new name.
    """
    library = _library()
    rows = {each.rpartition(".")[2] for each in {*called, *map(str.lower, called.values())}}
    for column in statement.find_all(library.exp.Column):
        *qualifier, name = [part.name.lower() for part in column.parts]
        if qualifier and (".".join(qualifier) not in called or name in _ROW_FUNCTIONS):
            return False
    columns = [node.name for node in statement.find_all(library.exp.Column)]
    columns += [node.alias for node in statement.find_all(library.exp.Alias)]
    return not any(is_secret(name) or name.lower() in rows for name in columns)


def _join_words(join: Any, called: Mapping[str, str]) -> str | None:
    """How a table is bound to those before it; None if it is not, and all its rows would be read."""
    if join.side not in ("", "LEFT", "RIGHT", "FULL") or join.kind not in ("", "INNER", "OUTER"):
        return None
    name = _table_name(join.this)
    words = f"{join.side.lower()} join {name}".strip()
    on, using = join.args.get("on"), join.args.get("using")
    if using and on is None:
        return f"{words} using ({', '.join(sorted(each.name for each in using))})"
    bound = None if on is None else _bound_columns(on, name, called)
    return None if bound is None else f"{words} on {' and '.join(sorted(bound))}"


def _bound_columns(condition: Any, joined: str, called: Mapping[str, str]) -> list[str] | None:
    """`a.x = b.y` for each column of the joined table that must be as one of another; None for all else."""
    library = _library()
    if isinstance(condition, library.exp.And):
        left = _bound_columns(condition.this, joined, called)
        right = _bound_columns(condition.expression, joined, called)
        return None if left is None or right is None else left + right
    sides = [condition.this, condition.expression] if isinstance(condition, library.exp.EQ) else [condition]
    if len(sides) != 2 or not all(isinstance(side, library.exp.Column) for side in sides):
        return None
    tables = [called.get(".".join(part.name.lower() for part in side.parts[:-1])) for side in sides]
    if tables.count(joined) != 1 or None in tables:
        return None
    pairs = zip(tables, sides, strict=True)
    return [" = ".join(sorted(f"{table}.{side.name}" for table, side in pairs))]


def _plain_stars(statement: Any) -> Any:
    library = _library()
    for star in statement.find_all(library.exp.Star):
        if not isinstance(star.parent, library.exp.Count):
            yield star


def _change_summary(kind: str, statement: Any) -> str | None:
    library = _library()
    tables = list(statement.find_all(library.exp.Table))
    if len(tables) != 1:
        return None
    table = _table_name(tables[0])
    if kind == "Insert":
        columns = [each.name for each in getattr(statement.this, "expressions", [])]
        rows = statement.expression
        if not columns or not isinstance(rows, library.exp.Values):
            return None
        if any(True for _ in rows.find_all(library.exp.Column)):
            return None
        return f"insert {len(rows.expressions)} into {table} ({', '.join(columns)})"
    where = statement.args.get("where")
    condition = None if where is None else _equalities(where.this, table)
    if condition is None:
        return None
    ending = f"{table} where {' and '.join(sorted(condition))}"
    if kind == "Delete":
        return f"delete from {ending}"  # noqa: S608
    sets = []
    for each in statement.expressions:
        column = _column_name(each.this, table) if isinstance(each, library.exp.EQ) else None
        value = _type_word(each.expression)
        if column is None or value is None:
            return None
        sets.append(column if value == "?" else f"{column} = {value}")
    return f"update set {', '.join(sorted(sets))} of {ending}"


def _column_name(node: Any, table: str) -> str | None:
    """The name of a column of this table; None for anything else."""
    if not isinstance(node, _library().exp.Column):
        return None
    *qualifier, name = [part.name for part in node.parts]
    return name if not qualifier or ".".join(qualifier) in (table, table.rpartition(".")[2]) else None


def _type_word(node: Any) -> str | None:
    """`?` for a text, else the type of a value; None for anything else.

    To MySQL nearly every text is equal to the number 0.
    """
    match type(node).__name__:
        case "Literal":
            return "?" if node.is_string else "number"
        case "Null" | "Boolean" as kind:
            return kind.lower()
    return None


def _restricts(condition: Any) -> bool:
    """Whether a condition can only hold for some rows: `id = 5`, and not `1 = 1` or `id = id`."""
    kind = type(condition).__name__
    if kind == "Paren":
        return _restricts(condition.this)
    if kind == "And":
        return _restricts(condition.this) or _restricts(condition.expression)
    if kind == "Or":
        return _restricts(condition.this) and _restricts(condition.expression)
    library = _library()
    if kind not in COMPARISONS or not isinstance(condition.this, library.exp.Column):
        return False
    # `id = 2 > 0` compares a column with the outcome of a comparison, which may always hold.
    if any(
        type(node).__name__ in COMPARISONS | {"NEQ", "Not"}
        for node in condition.walk()
        if node is not condition
    ):
        return False
    others = [node for node in condition.walk() if isinstance(node, library.exp.Column)]
    literals = list(condition.find_all(library.exp.Literal, library.exp.Null, library.exp.Boolean))
    if kind in ("Like", "ILike") and all(set(each.name) <= {"%", "_"} for each in literals):
        return False
    return len(others) == 1 and bool(literals)


def _equalities(condition: Any, table: str) -> list[str] | None:
    """`a = number` and `b = ?` of `a = 1 AND b = 'x'`; None for any other condition."""
    library = _library()
    if isinstance(condition, library.exp.And):
        left, right = _equalities(condition.this, table), _equalities(condition.expression, table)
        return None if left is None or right is None else left + right
    if isinstance(condition, library.exp.EQ) and isinstance(condition.expression, library.exp.Literal):
        column = _column_name(condition.this, table)
        return None if column is None else [f"{column} = {_type_word(condition.expression)}"]
    return None
