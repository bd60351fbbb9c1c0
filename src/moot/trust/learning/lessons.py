"""What people decided, by kind: the same proposer, host, method, tool, and arguments by name and type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.trust.history.proposal_case import Case, Path, leaves, path_text, type_of, without_nulls
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.conditions import canonical

# In the path of an argument: each element of a list. Longer lists are compared as a whole.
EACH: Final = "[]"
MAX_ELEMENTS: Final = 50

# Lists whose order says what is done: only as they were.
ORDERED_NAMES: Final = frozenset(
    "argv args arguments command cmd commands script steps pipeline options flags".split()  # noqa: SIM905
)

# By host and tool.
ToolSchemas = Mapping[tuple[str, str], Json]
NO_SCHEMAS: Final[ToolSchemas] = {}


@dataclass(frozen=True, slots=True)
class CaseKind:
    """What proposals must have in common to be compared at all."""

    proposer: str
    to: tuple[str, ...]
    method: str
    tool: str | None
    shape: tuple[tuple[Path, str], ...]
    # What the tool's schema says about texts, such as `uri`; it tells no proposals apart.
    formats: tuple[tuple[Path, str], ...] = field(default=(), compare=False)

    def format_of(self, path: Path) -> str | None:
        return next((format for of, format in self.formats if of == path), None)


@dataclass(frozen=True, slots=True)
class Example:
    """A case with its arguments as leaves; what stands in the elements of a list as a tuple."""

    case: Case
    values: Mapping[Path, Json]

    def at(self, path: Path) -> tuple[Json, ...]:
        value = self.values[path]
        return value if isinstance(value, tuple) else (value,)


@dataclass(slots=True)
class Lessons:
    """What people decided about one kind of proposal."""

    approved: list[Example] = field(default_factory=list)
    # Also rejections of the same calls with an argument that is null: who rejects one means the other, too.
    rejected: list[Example] = field(default_factory=list)


def group_by_kind(history: Iterable[HistoryProposal], schemas: ToolSchemas) -> dict[CaseKind, Lessons]:
    kinds: dict[CaseKind, Lessons] = {}

    def lessons_like(case: Case) -> tuple[Lessons, Example] | None:
        known = kind_of(case)
        if known is None:
            return None
        kind, example = known
        if kind not in kinds and schemas:
            kind = replace(kind, formats=_formats_of(kind, schemas))
        return kinds.setdefault(kind, Lessons()), example

    for decision in history:
        case, lesson = decision.case, decision.lesson
        if lesson is None:
            continue
        if (known := lessons_like(case)) is not None:
            lessons, example = known
            (lessons.approved if lesson == "approve" else lessons.rejected).append(example)
        bare = without_nulls(case)
        if lesson == "reject" and bare is not case and (known := lessons_like(bare)) is not None:
            known[0].rejected.append(known[1])
    return kinds


def kind_of(case: Case) -> tuple[CaseKind, Example] | None:
    """The kind of a proposal; None if no rule can express it (several hosts, unexpected fields)."""
    values = dict(_leaves(case.arguments))
    if case.unexpected_fields or len(case.to) > 1 or not case.method:
        return None
    if any(is_wild(key) or key.startswith(("$", "[")) for path in values for key in path if key != EACH):
        return None
    if _are_ambiguous(values):
        return None
    shape = tuple(sorted((path, _type(case, path, value)) for path, value in values.items()))
    return CaseKind(case.proposer, case.to, case.method, case.tool, shape), Example(case, values)


def _leaves(arguments: Mapping[str, Json]) -> Iterator[tuple[Path, Json]]:
    for path, value in leaves(arguments):
        is_ordered = path[-1].lower() in ORDERED_NAMES
        elements = _elements(value) if isinstance(value, list) and not is_ordered else None
        if elements is None:
            yield path, value
        else:
            yield from (((*path, EACH, *inner), values) for inner, values in elements.items())


def _elements(values: list[Json]) -> dict[Path, tuple[Json, ...]] | None:
    """What the elements of a list hold: texts, numbers, or objects with the same of them; None otherwise."""
    rows: list[dict[Path, Json]] = [
        dict(leaves(each)) if isinstance(each, dict) else {(): each} for each in values
    ]
    if not 0 < len(rows) <= MAX_ELEMENTS or any(row.keys() != rows[0].keys() for row in rows):
        return None
    found = {path: tuple(row[path] for row in rows) for path in rows[0]}
    types = {path: {_type_word(value) for value in column} for path, column in found.items()}
    return found if all(kinds in ({"text"}, {"number"}) for kinds in types.values()) else None


def _type_word(value: Json) -> str:
    # 5 and 5.5 are both amounts; what is whole in all examples stays whole in the rule.
    return type_of(value).removeprefix("whole ")


def _are_ambiguous(paths: Collection[Path]) -> bool:
    """Whether words cannot tell arguments apart: `{"a.b": …}` from `{"a": {"b": …}}`, or or from a."""
    if not any("." in key for path in paths for key in path):
        return False
    texts = {path_text(path) for path in paths}
    return len(texts) < len(paths) or any(
        text[:at] in texts for text in texts for at, sign in enumerate(text) if sign == "."
    )


def _type(case: Case, path: Path, value: Json) -> str:
    if isinstance(value, tuple):
        return _type_word(value[0])
    type = _type_word(value)
    # A rule holds only for the very same one, so each is a kind of its own.
    return f"{type} {canonical(case.arguments[path[0]]).decode()}" if type in ("list", "object") else type


def _formats_of(kind: CaseKind, schemas: ToolSchemas) -> tuple[tuple[Path, str], ...]:
    """The formats of the texts in these proposals, where their tool declares any."""
    if len(kind.to) != 1 or kind.tool is None:
        return ()
    schema = schemas.get((kind.to[0], kind.tool))
    found = ((path, _format_at(schema, path)) for path, type in kind.shape if type == "text")
    return tuple((path, format) for path, format in found if format is not None)


def _format_at(schema: Json, path: Path) -> str | None:
    """Only what stands plainly in `properties`: references and alternatives are not followed."""
    for key in path:
        if key == EACH:
            schema = schema.get("items") if isinstance(schema, Mapping) else None
            continue
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
    format = schema.get("format") if isinstance(schema, Mapping) else None
    return format if isinstance(format, str) else None
