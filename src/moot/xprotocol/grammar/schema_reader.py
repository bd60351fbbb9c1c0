"""Keywords into `Schema` fields, draft 2020-12 with what real tools still use of drafts 4 to 7."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.schema import (
    FREE,
    TYPES,
    Library,
    Schema,
    SchemaId,
    is_count,
    to_fraction,
)
from moot.xprotocol.grammar.schema_references import Location
from moot.xprotocol.grammar.values import same_values


def read_schema(library: Library, raw: Json, where: str, location: Location) -> SchemaId:
    """The number of a schema; whatever it is that stands there, it gets one."""
    if raw is True:
        return library.free
    if raw is False:
        return library.never
    if not isinstance(raw, dict):
        library.notes.add(where, "this is no schema, so anything goes")
        return library.free
    return library.add(_Reading(library, raw, where, library.resources.inside(raw, location)).schema())


class _Reading:
    def __init__(self, library: Library, raw: Mapping[str, Json], where: str, location: Location) -> None:
        self.library = library
        self.draft = library.draft
        self.location = location
        self.raw = raw
        self.where = where

    def schema(self) -> Schema:
        references = tuple(
            self.library.resources.reference(self.raw[word], self.location, dynamic=word == "$dynamicRef")
            for word in ("$ref", "$dynamicRef", "$recursiveRef")
            if isinstance(self.raw.get(word), str) and (word == "$ref" or self.draft > 7)
        )
        if self.draft <= 7 and references:
            return replace(FREE, references=references)
        schema = replace(FREE, references=references) if references else FREE
        for words, step in _STEPS:
            # Most schemas have words of one step or two.
            if not words.isdisjoint(self.raw):
                schema = step(self, schema)
        return schema

    # What the other steps read with.

    def malformed(self, word: str) -> None:
        self.library.notes.add(self.where, f"{word} makes no sense here and is ignored")

    def sub(self, raw: Json, *path: str) -> SchemaId:
        steps = "/".join(step.replace("~", "~0").replace("/", "~1") for step in path)
        return read_schema(self.library, raw, f"{self.where}/{steps}", self.location)

    def sub_list(self, word: str) -> tuple[SchemaId, ...]:
        given = self.raw.get(word, [])
        if not isinstance(given, list) or (word in self.raw and not given):
            self.malformed(word)
            return ()
        return tuple(self.sub(each, word, str(n)) for n, each in enumerate(given))

    def sub_map(self, word: str) -> tuple[tuple[str, SchemaId], ...]:
        given = self.raw.get(word, {})
        if not isinstance(given, dict):
            self.malformed(word)
            return ()
        return tuple((name, self.sub(each, word, name)) for name, each in given.items())

    def optional(self, word: str) -> SchemaId | None:
        return self.sub(self.raw[word], word) if word in self.raw else None

    def unevaluated(self, word: str) -> SchemaId | None:
        return None if self.library.legacy else self.optional(word)

    def counted(self, word: str) -> int | None:
        if word not in self.raw:
            return None
        value: Json = self.raw[word]
        if not is_count(value):
            self.malformed(word)
            return None
        return int(value)

    def words(self, word: str) -> tuple[str, ...]:
        given = self.raw.get(word, [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            self.malformed(word)
            return ()
        return tuple(dict.fromkeys(given))

    # The steps.

    def general(self, schema: Schema) -> Schema:
        types = schema.types
        if "type" in self.raw:
            given = self.raw["type"]
            names = given if isinstance(given, list) else [given]
            if names and all(isinstance(name, str) and name in TYPES for name in names):
                types = frozenset().union(*(TYPES[name] for name in names))
            else:
                self.malformed("type")
        values: tuple[str, ...] | None = None
        if "enum" in self.raw:
            if isinstance(self.raw["enum"], list):
                values = tuple(dict.fromkeys(_text(value) for value in self.raw["enum"]))
            else:
                self.malformed("enum")
        if "const" in self.raw and self.draft >= 6:
            one = (_text(self.raw["const"]),)
            values = one if values is None else same_values(values, one)
        return replace(schema, types=types, values=values)

    def numbers(self, schema: Schema) -> Schema:
        bounds = NumberBounds()
        for word, other in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            # Draft 4 said `"exclusiveMinimum": true` beside the bound.
            opened = self.raw.get(other) is True
            for keyword, open in ((word, opened), (other, True)):
                value = self.raw.get(keyword)
                if keyword not in self.raw or (keyword == other and isinstance(value, bool)):
                    continue
                if isinstance(value, bool) or not isinstance(value, int | float):
                    self.malformed(keyword)
                elif word == "minimum":
                    bounds = bounds.from_below(to_fraction(value), open=open)
                else:
                    bounds = bounds.from_above(to_fraction(value), open=open)
        unit = self.raw.get("multipleOf")
        if "multipleOf" in self.raw:
            if isinstance(unit, bool) or not isinstance(unit, int | float) or unit <= 0:
                self.malformed("multipleOf")
            else:
                bounds = replace(bounds, multiples=(to_fraction(unit),))
        return replace(schema, numbers=bounds)

    def strings(self, schema: Schema) -> Schema:
        found: dict[str, tuple[str, ...]] = {}
        for word in ("pattern", "format"):
            value = self.raw.get(word)
            if isinstance(value, str):
                found[word] = (value,)
            elif word in self.raw:
                self.malformed(word)
        return replace(
            schema,
            min_length=self.counted("minLength") or 0,
            max_length=self.counted("maxLength"),
            patterns=found.get("pattern", ()),
            formats=found.get("format", ()),
        )

    def objects(self, schema: Schema) -> Schema:
        properties = self.sub_map("properties") if isinstance(self.raw.get("properties"), dict) else None
        if properties is None and "properties" in self.raw:
            self.malformed("properties")
        names = self.optional("propertyNames") if self.draft >= 6 else None
        return replace(
            schema,
            properties=properties,
            pattern_properties=self.sub_map("patternProperties"),
            additional=self.optional("additionalProperties"),
            unevaluated_properties=self.unevaluated("unevaluatedProperties"),
            property_names=() if names is None else (names,),
            required=self.words("required"),
            min_properties=self.counted("minProperties") or 0,
            max_properties=self.counted("maxProperties"),
            dependent=self.dependencies(),
        )

    def dependencies(self) -> tuple[tuple[str, SchemaId], ...]:
        """`dependentRequired` and `dependentSchemas`, and both under the older name.

        Draft 2020-12 dropped the older name, but tools without `$schema` use it and mean it, and the
        validator of calls enforces it, too.
        """
        found: list[tuple[str, SchemaId]] = []
        newer = () if self.library.legacy else ("dependentRequired", "dependentSchemas")
        for word in ("dependencies", *newer):
            given = self.raw.get(word, {})
            if not isinstance(given, dict):
                self.malformed(word)
                continue
            for name, needs in given.items():
                if isinstance(needs, list) and word != "dependentSchemas":
                    needed = tuple(each for each in needs if isinstance(each, str))
                    found.append((name, self.library.add(replace(FREE, required=needed))))
                elif word == "dependentRequired":
                    self.malformed(word)
                else:
                    found.append((name, self.sub(needs, word, name)))
        return tuple(found)

    def arrays(self, schema: Schema) -> Schema:
        prefix = self.sub_list("prefixItems") if self.draft >= 2020 and "prefixItems" in self.raw else ()
        items = None
        if isinstance(self.raw.get("items"), list):
            # A tuple, as drafts before 2020-12 wrote it.
            prefix = tuple(self.sub(each, "items", str(n)) for n, each in enumerate(self.raw["items"]))
            items = self.optional("additionalItems")
        elif "items" in self.raw:
            items = self.optional("items")
        contains = self.optional("contains") if self.draft >= 6 else None
        min_contains = None if self.library.legacy else self.counted("minContains")
        return replace(
            schema,
            prefix=prefix,
            items=items,
            unevaluated_items=self.unevaluated("unevaluatedItems"),
            contains=contains,
            min_contains=1 if min_contains is None else min_contains,
            max_contains=None if self.library.legacy else self.counted("maxContains"),
            min_items=self.counted("minItems") or 0,
            max_items=self.counted("maxItems"),
            unique=self.raw.get("uniqueItems") is True,
        )

    def combinations(self, schema: Schema) -> Schema:
        any_of = self.sub_list("anyOf")
        one_of = self.sub_list("oneOf")
        negated = self.optional("not")
        conditions: tuple[tuple[SchemaId, SchemaId, SchemaId], ...] = ()
        if "if" in self.raw and self.draft >= 7:
            then, otherwise = self.optional("then"), self.optional("else")
            free = self.library.free
            conditions = (
                (
                    self.sub(self.raw["if"], "if"),
                    free if then is None else then,
                    free if otherwise is None else otherwise,
                ),
            )
        return replace(
            schema,
            all_of=self.sub_list("allOf"),
            choices=(tuple((each,) for each in any_of),) if any_of else (),
            one_of=(one_of,) if one_of else (),
            negated=() if negated is None else (negated,),
            conditions=conditions,
        )


# Each step of reading, and the words without one of which it would change nothing.
_STEPS: Final = (
    (frozenset({"type", "enum", "const"}), _Reading.general),
    (
        frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}),
        _Reading.numbers,
    ),
    (frozenset({"pattern", "format", "minLength", "maxLength"}), _Reading.strings),
    (
        frozenset({"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"})
        | {"propertyNames", "required", "minProperties", "maxProperties"}
        | {"dependencies", "dependentRequired", "dependentSchemas"},
        _Reading.objects,
    ),
    (
        frozenset({"prefixItems", "items", "unevaluatedItems", "contains", "minContains", "maxContains"})
        | {"minItems", "maxItems", "uniqueItems"},
        _Reading.arrays,
    ),
    (frozenset({"allOf", "anyOf", "oneOf", "not", "if"}), _Reading.combinations),
)


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
