"""SQL: what a statement does to which tables, and whether it has a condition.

A query is reduced to its statement, its tables, `*` or columns, and whether a real condition and a limit
restrict it; a change also to the columns that it sets and to its condition. Only one statement without
comments, made of well-known parts, is read: no other functions, no common table expressions, no locks, no
names in quotes.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any, Final

from moot.trust.values.atoms import Atom, fixed
from moot.trust.values.guard_words import is_secret
from moot.trust.values.word_lists import CHANGE_PARTS, COMPARISONS, QUERY_PARTS

log = logging.getLogger(__name__)

MAX_SQL_CHARS: Final = 2_000
MAX_PARENTHESES: Final = 20
# Comments, a second statement, dollar quotes, escapes: dialects disagree about them.
_HIDING: Final = re.compile(r"--|/\*|\*/|#|;|\\|\$|`|\0|@@")


@lru_cache(maxsize=1)
def _library() -> Any:
    """sqlglot; None where the extra `rules` is not installed."""
    try:
        import sqlglot
    except ImportError:
        log.warning("SQL is only compared word for word: pip install 'moot[rules]'")
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
    # A name to some databases, a text to others: to those `"id" = 'id'` always holds.
    if any(name.args.get("quoted") for name in statement.find_all(library.exp.Identifier)):
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


def _query_summary(statement: Any) -> str | None:
    library = _library()
    if any(is_secret(column.name) for column in statement.find_all(library.exp.Column)):
        return None
    tables = _tables(statement)
    if not tables:
        return None
    what = "*" if any(True for _ in _plain_stars(statement)) else "columns"
    selects = list(statement.find_all(library.exp.Select))
    restricted = all(select.args.get("where") and _restricts(select.args["where"].this) for select in selects)
    limit = " limit" if statement.args.get("limit") else ""
    return f"select {what} from {', '.join(tables)}{' where' if restricted else ''}{limit}"  # noqa: S608


def _plain_stars(statement: Any) -> Any:
    library = _library()
    for star in statement.find_all(library.exp.Star):
        if not isinstance(star.parent, library.exp.Count):
            yield star


def _change_summary(kind: str, statement: Any) -> str | None:
    library = _library()
    tables = _tables(statement)
    if len(tables) != 1:
        return None
    if kind == "Insert":
        target = statement.this
        columns = [each.name.lower() for each in getattr(target, "expressions", [])]
        if not columns or type(statement.expression).__name__ != "Values":
            return None
        rows = len(statement.expression.expressions)
        return f"insert {rows} into {tables[0]} ({', '.join(columns)})"
    where = statement.args.get("where")
    condition = None if where is None else _equalities(where.this)
    if condition is None:
        return None
    ending = f"{tables[0]} where {' and '.join(f'{name} = ?' for name in sorted(condition))}"
    if kind == "Delete":
        return f"delete from {ending}"  # noqa: S608
    sets = []
    for each in statement.expressions:
        plain = isinstance(each, library.exp.EQ) and isinstance(each.this, library.exp.Column)
        if not plain or not isinstance(
            each.expression, library.exp.Literal | library.exp.Null | library.exp.Boolean
        ):
            return None
        sets.append(each.this.name.lower())
    return f"update set {', '.join(sorted(sets))} of {ending}"


def _tables(statement: Any) -> list[str]:
    library = _library()
    found = set()
    for table in statement.find_all(library.exp.Table):
        found.add(".".join(part.name.lower() for part in table.parts))
    return sorted(found)


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


def _equalities(condition: Any) -> list[str] | None:
    """The columns of `a = 1 AND b = 2`; None for any other condition."""
    library = _library()
    if isinstance(condition, library.exp.And):
        left, right = _equalities(condition.this), _equalities(condition.expression)
        return None if left is None or right is None else left + right
    if isinstance(condition, library.exp.EQ):
        column, value = condition.this, condition.expression
        if isinstance(column, library.exp.Column) and isinstance(value, library.exp.Literal):
            return [column.name.lower()]
    return None
