"""Whether one JSON Schema takes everything that another takes: a proof, or no answer (D-71).

The old schema is held as a conjunction of parts (`allOf`, and each alternative of `anyOf` in turn, become
parts); every keyword of the new schema has to follow from them, first at once and then case by case. What
cannot be shown this way raises `NotShown`; it may be true all the same.

One exception makes additive changes possible at all (Appendix B): members that no part of the old schema
declares, neither by name nor by an explicit `additionalProperties`, are not counted as
something that old callers send. Otherwise a new optional field would break every schema that does not forbid
unknown members.

Schemas come here plain: no references, no notes. Keywords mean what they mean since draft 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused, exact_canonical
from moot.xprotocol.contracts.payload_validation import Validator

Parts = tuple[dict[str, Json], ...]

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
# Steps of the proof; each takes a millisecond at worst. Nested alternatives could take for ever.
MAX_STEPS: Final = 2_000

# Groups that bind together: the new ones are the old ones, or there are none. With the types that they bind.
_ALIKE: Final = (
    (("string",), ("pattern",)),
    (("string",), ("format",)),
    (("string",), ("contentEncoding", "contentMediaType", "contentSchema")),
    (("array",), ("contains", "minContains", "maxContains")),
    (("object",), ("propertyNames",)),
    (("object",), ("dependentRequired",)),
    (("object",), ("dependentSchemas",)),
    (("object",), ("dependencies",)),
    ((), ("not",)),
    ((), ("if", "then", "else")),
)
# Their meaning hangs on all their neighbours.
_ENTANGLED: Final = ("unevaluatedItems", "unevaluatedProperties", "additionalItems")
_BOUNDS: Final = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
_ANYTHING: Final[Parts] = ({},)


class NotShown(Exception):
    """The proof does not go through; the text says where it stops."""


def check_follows(old: Json, new: Json) -> None:
    """Raises NotShown unless every value that fits `old` is shown to fit `new`."""
    _Proof().follows(_parts(old), new, "")


def _parts(schema: Json) -> Parts:
    """A schema as a conjunction. `False` becomes a part that no value fits."""
    if schema is True:
        return _ANYTHING
    if not isinstance(schema, dict):
        return ({"enum": []},)
    branches = schema.get("allOf", ())
    rest = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    return (rest, *(part for branch in branches for part in _parts(branch)))


class _Proof:
    """One attempt to show that a new schema follows from old parts."""

    def __init__(self) -> None:
        self.steps = 0

    def follows(self, old: Parts, new: Json, path: str) -> None:
        """Raises NotShown unless every value that fits all the parts fits `new`."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise NotShown(f"{path or 'the payload'}: too many alternatives to compare")
        if new is True or new == {} or _impossible(old) or _is_part(new, old):
            return
        try:
            self._follows_at_once(old, new, path)
        except NotShown:
            # Then one case at a time: the old schema's own alternatives, or its types.
            cases = _cases(old)
            if not cases:
                raise
            for case in cases:
                self.follows(case, new, path)

    def _follows_at_once(self, old: Parts, new: Json, path: str) -> None:
        values = _listed_values(old)
        if values is not None:
            self._values_fit(values, old, new, path)
            return
        if not isinstance(new, dict):
            raise NotShown(f"{path or 'the payload'} is no longer allowed")
        types = _types(old)
        taken = _widened(_types((new,)))
        if not types <= taken:
            raise NotShown(f"{path or 'the payload'} no longer takes {', '.join(sorted(types - taken))}")
        if "enum" in new or "const" in new:
            raise NotShown(f"{path or 'the payload'} now takes listed values only")
        for entangled in _ENTANGLED:
            if entangled in new:
                raise NotShown(f"{path or 'the payload'} uses {entangled}")
        for concerned, keywords in _ALIKE:
            if (not concerned or types & set(concerned)) and not _alike(old, new, keywords):
                raise NotShown(f"{path or 'the payload'}: {keywords[0]} changed")
        if types & {"integer", "number"}:
            _check_numbers(old, new, path, types)
        if "string" in types:
            _check_counts(old, new, path, "minLength", "maxLength")
        if "array" in types:
            _check_counts(old, new, path, "minItems", "maxItems")
            self._arrays(old, new, path)
        if "object" in types:
            _check_counts(old, new, path, "minProperties", "maxProperties")
            self._objects(old, new, path)
        for branch in new.get("allOf", ()):
            self.follows(old, branch, path)
        if "anyOf" in new:
            self._one_of_them(old, new["anyOf"], path)
        if "oneOf" in new:
            if not _disjoint(new["oneOf"]) and not _alike(old, new, ("oneOf",)):
                raise NotShown(f"{path or 'the payload'}: oneOf changed")
            if _disjoint(new["oneOf"]):
                self._one_of_them(old, new["oneOf"], path)

    def _values_fit(self, values: Sequence[Json], old: Parts, new: Json, path: str) -> None:
        try:
            before, after = [Validator(part) for part in old], Validator(new)
        except ContractRefused:
            raise NotShown(f"{path or 'the payload'} cannot be compared") from None
        for value in values:
            if all(validator.accepts(value) for validator in before) and not after.accepts(value):
                raise NotShown(f"{path or 'the payload'} no longer takes a value that it took")

    def _one_of_them(self, old: Parts, branches: Sequence[Json], path: str) -> None:
        reason = NotShown(f"{path or 'the payload'} has no alternatives left")
        for branch in branches:
            try:
                self.follows(old, branch, path)
            except NotShown as fault:
                reason = fault
            else:
                return
        raise reason

    def _arrays(self, old: Parts, new: dict[str, Json], path: str) -> None:
        if new.get("uniqueItems") is True and not any(part.get("uniqueItems") is True for part in old):
            raise NotShown(f"{path or 'the payload'}: items now have to differ")
        if "prefixItems" in new or isinstance(new.get("items"), list):
            if not _alike(old, new, ("prefixItems", "items")):
                raise NotShown(f"{path or 'the payload'}: items by place changed")
            return
        if "items" in new:
            # With items by place in an old part, its `items` speaks of the later ones only.
            whole = [part for part in old if "prefixItems" not in part]
            items = [part["items"] for part in whole if isinstance(part.get("items"), dict | bool)]
            self.follows(_all_of(items), new["items"], f"{path}[]")

    def _objects(self, old: Parts, new: dict[str, Json], path: str) -> None:
        promised = {name for part in old for name in part.get("required", ())}
        for name in new.get("required", ()):
            if name not in promised:
                raise NotShown(f"{path}/{name} is required now")
        declared: dict[str, Json] = new.get("properties", {})
        patterns: dict[str, Json] = new.get("patternProperties", {})
        others = new.get("additionalProperties", True)
        for name in sorted({*declared, *(name for part in old for name in _named(part))}):
            values = _member(old, name)
            if values is None:
                continue
            if name in declared:
                self.follows(values, declared[name], f"{path}/{name}")
            elif not patterns:
                self.follows(values, others, f"{path}/{name}")
            else:
                raise NotShown(f"{path}/{name} is no longer declared by name")
        for pattern, schema in patterns.items():
            same = [p["patternProperties"][pattern] for p in old if pattern in p.get("patternProperties", ())]
            if not same:
                raise NotShown(f"{path or 'the payload'}: patternProperties changed")
            self.follows(_all_of(same), schema, f"{path}/({pattern})")
        if others is not True:
            rest = _others(old)
            if rest is not None:
                self.follows(rest, others, f"{path}/*")


def _is_part(new: Json, old: Parts) -> bool:
    # The quick comparison first, though to Python 1 and True are the same.
    return any(part == new and exact_canonical(part) == exact_canonical(new) for part in old)


def _all_of(schemas: Sequence[Json]) -> Parts:
    return tuple(part for schema in schemas for part in _parts(schema)) or _ANYTHING


def _named(schema: Json) -> frozenset[str]:
    """Every member of the object itself that a schema speaks of, in whatever alternative."""
    if not isinstance(schema, dict):
        return frozenset()
    names = {*schema.get("properties", ()), *schema.get("required", ())}
    inner = [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in schema.get(keyword, ())]
    inner += [schema[keyword] for keyword in ("if", "then", "else", "not") if keyword in schema]
    inner += schema.get("dependentSchemas", {}).values()
    return frozenset(names.union(*map(_named, inner)))


def _member(old: Parts, name: str) -> Parts | None:
    """What the old parts say about a member; None when no old caller sends it."""
    schemas: list[Json] = []
    declared = False
    for part in old:
        declared = declared or name in _named(part)
        if name in part.get("properties", ()):
            schemas.append(part["properties"][name])
        elif part.get("patternProperties"):
            # Whether a pattern or `additionalProperties` speaks about it is left open.
            declared = True
        elif "additionalProperties" in part:
            schemas.append(part["additionalProperties"])
            declared = True
    values = _all_of(schemas)
    return values if declared and not _impossible(values) else None


def _others(old: Parts) -> Parts | None:
    """What the old parts say about members that they do not name; None when there can be none."""
    # Beside patterns, `additionalProperties` speaks only of names that match none of them.
    plain = [part for part in old if not part.get("patternProperties")]
    values = _all_of([part["additionalProperties"] for part in plain if "additionalProperties" in part])
    return None if _impossible(values) else values


def _types(parts: Parts) -> frozenset[str]:
    types = TYPES
    for part in parts:
        given = part.get("type")
        if given is not None:
            named = frozenset(given if isinstance(given, list) else [given])
            types = _widened(types) & _widened(named)
    return types - {"integer"} if "number" in types else types


def _widened(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _impossible(parts: Parts) -> bool:
    return not _types(parts) or any(part.get("enum") == [] for part in parts)


def _listed_values(parts: Parts) -> Sequence[Json] | None:
    """The values that fit at most, when they can be counted."""
    for part in parts:
        if "const" in part:
            return [part["const"]]
        if isinstance(part.get("enum"), list):
            return list(part["enum"])
    types = _types(parts)
    if types <= {"boolean", "null"}:
        return [*([True, False] if "boolean" in types else []), *([None] if "null" in types else [])]
    return None


def _cases(old: Parts) -> list[Parts]:
    for place, part in enumerate(old):
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                rest = {name: value for name, value in part.items() if name != keyword}
                # What another alternative declares is sent by some callers, whichever alternative they fit.
                spoken_of = {"properties": dict.fromkeys(sorted(_named(part)), True)}
                around = (*old[:place], rest, spoken_of, *old[place + 1 :])
                return [(*around, *_parts(branch)) for branch in part[keyword]] or [({"enum": []},)]
    types = _types(old)
    return [(*old, {"type": type}) for type in sorted(types)] if 1 < len(types) < len(TYPES) - 1 else []


def _alike(old: Parts, new: dict[str, Json], keywords: tuple[str, ...]) -> bool:
    wanted = {keyword: new[keyword] for keyword in keywords if keyword in new}
    if not wanted:
        return True
    given = ({keyword: part[keyword] for keyword in keywords if keyword in part} for part in old)
    return any(exact_canonical(found) == exact_canonical(wanted) for found in given)


def _disjoint(branches: Sequence[Json]) -> bool:
    """Whether no value can fit two of the alternatives, seen by their types alone."""
    seen: set[str] = set()
    for branch in branches:
        if not isinstance(branch, dict) or "type" not in branch:
            return False
        types = _widened(_types((branch,)))
        if types & seen:
            return False
        seen |= types
    return True


def _check_counts(old: Parts, new: dict[str, Json], path: str, least: str, most: str) -> None:
    if new.get(least, 0) > max((part.get(least, 0) for part in old), default=0):
        raise NotShown(f"{path or 'the payload'}: {least} was raised")
    limits = [part[most] for part in old if most in part]
    if most in new and (not limits or min(limits) > new[most]):
        raise NotShown(f"{path or 'the payload'}: {most} was lowered")


def _check_numbers(old: Parts, new: dict[str, Json], path: str, types: frozenset[str]) -> None:
    for inclusive, exclusive, sign in _BOUNDS:
        wanted, given = _bound((new,), inclusive, exclusive, sign), _bound(old, inclusive, exclusive, sign)
        if wanted is not None and (given is None or given < wanted):
            raise NotShown(f"{path or 'the payload'}: {inclusive} changed")
    step = new.get("multipleOf")
    if step is not None and not (step == 1 and types.isdisjoint({"number"})):
        steps = [part["multipleOf"] for part in old if "multipleOf" in part]
        # Whole numbers only: the remainder of fractions is not to be trusted.
        whole = [old_step for old_step in steps if type(old_step) is int and type(step) is int]
        if step not in steps and not any(old_step % step == 0 for old_step in whole):
            raise NotShown(f"{path or 'the payload'}: multipleOf changed")


def _bound(parts: Parts, inclusive: str, exclusive: str, sign: int) -> tuple[float, int] | None:
    """The tightest bound, larger being tighter: the number (sign turned for upper ones), then open or not."""
    closed = [(sign * part[inclusive], 0) for part in parts if inclusive in part]
    return max([*closed, *((sign * part[exclusive], 1) for part in parts if exclusive in part)], default=None)
