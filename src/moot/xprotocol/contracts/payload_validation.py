"""Whether a payload fits its schema, in words that repeat nothing of what the payload holds.

The words may be logged and go back over the wire, so they name places and what the schema asks, never values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import jsonschema_rs

from moot.errors import SchemaViolation
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused

# Enough to mend a call by; a hostile payload can break a schema in a million places.
MAX_PROBLEMS: Final = 16
# Of these, what goes into one line.
MAX_TOLD: Final = 3
MAX_PATH_CHARS: Final = 256
MAX_MESSAGE_CHARS: Final = 200
# Patterns come from one stranger and texts from another. Plain ones run in linear time; those with look-ahead
# give up after this many steps back, a tenth of a millisecond, and the text then counts as not matching.
MAX_PATTERN_BACKTRACKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class PayloadProblem:
    """One way in which a payload does not fit: where (JSON Pointer, empty: all of it), and what is asked."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'payload'} {self.message}"


class Validator:
    """A schema made ready for many payloads. Raises ContractRefused for what is no usable JSON Schema.

    `format` is read as a note, as JSON Schema 2020-12 has it: a server that takes `example.com` for a `uri`
    keeps getting it. Nothing is ever fetched.
    """

    __slots__ = ("_compiled",)

    def __init__(self, schema: Json) -> None:
        try:
            self._compiled = jsonschema_rs.validator_for(
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_PATTERN_BACKTRACKS),
            )
        except ValueError as fault:
            raise ContractRefused("invalid_schema", _first_line(fault)) from None

    def accepts(self, value: Json) -> bool:
        """Whether the value fits."""
        try:
            return self._compiled.is_valid(value)
        except ValueError:
            return False

    def problems(self, value: Json) -> list[PayloadProblem]:
        """What does not fit, at most MAX_PROBLEMS; empty when all is well."""
        try:
            return [_problem(error) for error in islice(self._compiled.iter_errors(value), MAX_PROBLEMS)]
        except ValueError:
            return [PayloadProblem("", "cannot be read as JSON")]

    def check(self, value: Json) -> None:
        """Raises SchemaViolation, in one bounded line, when the value does not fit."""
        problems = self.problems(value)
        if problems:
            more = f" (and {len(problems) - MAX_TOLD} more)" if len(problems) > MAX_TOLD else ""
            raise SchemaViolation("; ".join(map(str, problems[:MAX_TOLD])) + more)


def _problem(error: jsonschema_rs.ValidationError) -> PayloadProblem:
    path = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path)
    return PayloadProblem(_cut(path, MAX_PATH_CHARS), _cut(_words(error), MAX_MESSAGE_CHARS))


_WORDS: Final[Mapping[str, Callable[[Json], str]]] = {
    "type": lambda kind: f"has to be {' or '.join(kind.types)}",
    "required": lambda kind: f"lacks the member {kind.property!r}",
    # The names are part of where things stand, like a path, and are cut like one.
    "additionalProperties": lambda kind: f"has members that are not declared: {', '.join(kind.unexpected)}",
    "unevaluatedProperties": lambda kind: f"has members that are not declared: {', '.join(kind.unexpected)}",
    "enum": lambda _: "is none of the values listed",
    "const": lambda _: "is not the one value allowed",
    "minimum": lambda kind: f"has to be at least {kind.limit}",
    "maximum": lambda kind: f"has to be at most {kind.limit}",
    "exclusiveMinimum": lambda kind: f"has to be more than {kind.limit}",
    "exclusiveMaximum": lambda kind: f"has to be less than {kind.limit}",
    "multipleOf": lambda kind: f"has to be a multiple of {kind.multiple_of}",
    "minLength": lambda kind: f"has to have at least {kind.limit} characters",
    "maxLength": lambda kind: f"has to have at most {kind.limit} characters",
    "minItems": lambda kind: f"has to have at least {kind.limit} items",
    "maxItems": lambda kind: f"has to have at most {kind.limit} items",
    "minProperties": lambda kind: f"has to have at least {kind.limit} members",
    "maxProperties": lambda kind: f"has to have at most {kind.limit} members",
    "uniqueItems": lambda _: "has the same item twice",
    "anyOf": lambda _: "fits none of the alternatives",
    "falseSchema": lambda _: "is not allowed here",
}


def _words(error: jsonschema_rs.ValidationError) -> str:
    name = error.kind.name
    if name == "falseSchema" and error.schema_path and error.schema_path[-1] == "additionalProperties":
        return "has members that are not declared"
    words = _WORDS.get(name)
    return words(error.kind) if words is not None else f"does not fit {name}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _first_line(fault: ValueError) -> str:
    return _cut("no usable JSON Schema: " + str(fault).split("\n", 1)[0], MAX_MESSAGE_CHARS)
