"""What a changed schema means for those who knew the old one (D-71).

`invalidated` says why a payload that fitted may no longer fit, or that every one still does. What cannot be
shown counts as broken: a needless major version costs a refresh, a missed one breaks callers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import exact_canonical
from moot.xprotocol.contracts.subschemas import (
    ANNOTATIONS,
    DEFINITIONS,
    REFERENCES,
    anchors,
    everywhere,
    rebuilt,
    target_of,
)
from moot.xprotocol.contracts.subsumption import NotShown, check_follows

# Keywords that mean the same in every draft since 6: with these alone, another `$schema` changes nothing.
_STEADY: Final = frozenset(
    {
        *("type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
        *("maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "items", "contains"),
        *("minProperties", "maxProperties", "propertyNames", "allOf", "anyOf", "oneOf", "not", "format"),
        "$schema",
    }
)


def without_notes(schema: Json, *, notes: Collection[str] = ANNOTATIONS) -> Json:
    """The schema without what is only for readers (titles, descriptions, defaults, examples)."""
    if not isinstance(schema, dict):
        return schema
    kept = {keyword: value for keyword, value in schema.items() if keyword not in notes}
    return rebuilt(kept, lambda inner: without_notes(inner, notes=notes))


def plain_schema(schema: Json) -> Json:
    """The schema without notes and with its references written out. Only for schemas without cycles."""
    named = anchors(schema)
    skipped = ANNOTATIONS | DEFINITIONS | {"$id", "$anchor", *REFERENCES}

    def plain(place: Json) -> Json:
        if not isinstance(place, dict):
            return place
        copy = rebuilt({word: value for word, value in place.items() if word not in skipped}, plain)
        references = [place[word] for word in REFERENCES if isinstance(place.get(word), str)]
        written_out = [plain(target_of(reference, schema, named)) for reference in references]
        if len(written_out) == 1 and not copy:
            return written_out[0]
        return copy | {"allOf": [*copy.get("allOf", []), *written_out]} if written_out else copy

    return plain(schema)


def invalidated(old: Json, new: Json) -> str | None:
    """Why a payload that fitted the old schema may not fit the new one; None when every one still does."""
    if exact_canonical(without_notes(old)) == exact_canonical(without_notes(new)):
        return None
    if _unsteady_dialect(old) or _unsteady_dialect(new):
        return "it is written in a draft of JSON Schema that cannot be compared"
    before, after = plain_schema(old), plain_schema(new)
    if _draft(old) != _draft(new) and not (_steady(before) and _steady(after)):
        return "the draft of JSON Schema changed, and with it the meaning of a keyword"
    try:
        check_follows(before, after)
    except NotShown as reason:
        return str(reason)
    except RecursionError:
        return "it is too deep to be compared"
    return None


def members(schema: Json) -> set[str]:
    """The path of every declared member, as in `/address/city`, `[]` standing for items."""
    return set(_declared(plain_schema(schema), "", "properties"))


def required_members(schema: Json) -> set[str]:
    """The path of every member that some part of the schema requires."""
    return set(_declared(plain_schema(schema), "", "required"))


def _declared(schema: Json, path: str, keyword: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    named = schema.get(keyword)
    if isinstance(named, dict | list):
        yield from (f"{path}/{name}" for name in named if isinstance(name, str))
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            yield from _declared(inner, f"{path}/{name}", keyword)
    for way in ("items", "additionalProperties"):
        if isinstance(schema.get(way), dict):
            yield from _declared(schema[way], f"{path}[]", keyword)
    for combination in ("allOf", "anyOf", "oneOf", "prefixItems"):
        inside = f"{path}[]" if combination == "prefixItems" else path
        for branch in schema.get(combination, ()):
            yield from _declared(branch, inside, keyword)


def _draft(schema: Json) -> str:
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    return draft.removesuffix("#") if isinstance(draft, str) else ""


def _unsteady_dialect(schema: Json) -> bool:
    """Draft 4 knows no `const` and has other bounds; up to draft 7 a `$ref` silences its neighbours."""
    draft = _draft(schema)
    if "draft-04" in draft:
        return True
    return any(name in draft for name in ("draft-06", "draft-07")) and any(
        "$ref" in place and not place.keys() <= ANNOTATIONS | DEFINITIONS | {"$ref", "$schema"}
        for _, place in everywhere(schema)
    )


def _steady(schema: Json) -> bool:
    places = [place for _, place in everywhere(schema)]
    return all(place.keys() <= _STEADY and not isinstance(place.get("items"), list) for place in places)
