"""Versions of contracts from a registry of earlier definitions (Appendix B, D-71).

Translation knows no history. The registry is a value: it goes in with what was published before, and a new
one comes out. Whoever runs the adapter saves it as JSON and loads it again.

`invalidated` says why a payload that fitted the old schema may no longer fit, or that every one still does.
What cannot be shown counts as broken: a needless major version costs a refresh, a missed one breaks callers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from moot.errors import InvalidJson, UsageError
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import FIRST_VERSION, exact_canonical
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


Level = Literal["major", "minor", "patch"]

FORMAT: Final = "moot/contract-versions/1"
# Only words; a default or a deprecation is more than that, though no payload breaks on it.
_WORDS: Final = frozenset({"$comment", "description", "example", "examples", "title"})
_VERSION: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){2}")


class VersionDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a version stands for. Neither siblings nor our own software are part of it."""

    description: str
    payload: Json
    response: Json
    required_capability: str
    # What the operator wrote; what we generate follows from the rest.
    semantic: Mapping[str, Json] = {}


class VersionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest version of a kind, and what it stands for."""

    version: str
    definition: VersionDefinition


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A contract that is new (`level` None) or differs from the one before."""

    kind: str
    version: str
    level: Level | None
    reason: str


@dataclass(frozen=True, slots=True)
class VersionRegistry:
    """Every kind that was ever published. Kinds stay when their tool goes: it may come back changed."""

    entries: Mapping[str, VersionEntry]

    def registered(self, definitions: Mapping[str, VersionDefinition]) -> VersionUpdate:
        """The registry with these definitions in it, and what that makes of their versions."""
        after = dict(self.entries)
        changes: list[VersionChange] = []
        for kind, definition in definitions.items():
            before = after.get(kind)
            found = None if before is None else change_between(before.definition, definition)
            if before is None:
                changes.append(VersionChange(kind, FIRST_VERSION, None, "first seen"))
            elif found is not None:
                changes.append(VersionChange(kind, raised(before.version, found[0]), *found))
            else:
                continue
            after[kind] = VersionEntry(changes[-1].version, definition)
        versions = {kind: after[kind].version for kind in definitions}
        return VersionUpdate(VersionRegistry(after), versions, tuple(changes))


@dataclass(frozen=True, slots=True)
class VersionUpdate:
    """What came of it: the registry to keep, the version of each kind, and what is new or changed."""

    registry: VersionRegistry
    versions: Mapping[str, str]
    changes: tuple[VersionChange, ...]


EMPTY: Final = VersionRegistry({})


def raised(version: str, level: Level) -> str:
    """The next version; the numbers after the one raised start again."""
    major, minor, patch = (int(number) for number in version.split("."))
    if level == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if level == "minor" else f"{major}.{minor}.{patch + 1}"


def change_between(old: VersionDefinition, new: VersionDefinition) -> tuple[Level, str] | None:
    """How large a change is and why; None when nothing changed at all, the order of members included."""
    if _text(old) == _text(new):
        return None
    broken = _broken(old, new)
    if broken is not None:
        return "major", broken
    if _meaning(old) == _meaning(new):
        return "patch", "only words changed"
    return "minor", "everything that worked still works"


def save_registry(registry: VersionRegistry) -> bytes:
    """JSON to be kept; kinds sorted, schemas in their own order."""
    entries = {
        kind: {"version": entry.version, "definition": msgspec.to_builtins(entry.definition)}
        for kind, entry in sorted(registry.entries.items())
    }
    return strict_json.encode({"format": FORMAT, "entries": entries})


def load_registry(saved: bytes) -> VersionRegistry:
    """The registry that `save_registry` wrote; raises UsageError for anything else.

    Start without the file to begin again at 1.0.0, which tells callers nothing about what changed meanwhile.
    """
    try:
        value = strict_json.parse(saved)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise UsageError(f"not a registry of versions: `format` has to be {FORMAT!r}")
        entries = msgspec.convert(value.get("entries"), dict[str, VersionEntry])
        for kind, entry in entries.items():
            if not _VERSION.fullmatch(entry.version):
                raise UsageError(
                    f"the registry of versions: {kind[:120]!r} has no version like {FIRST_VERSION}"
                )
    except (InvalidJson, msgspec.ValidationError) as fault:
        raise UsageError(f"the registry of versions cannot be read: {fault}") from None
    return VersionRegistry(entries)


def _broken(old: VersionDefinition, new: VersionDefinition) -> str | None:
    if old.required_capability != new.required_capability:
        return f"callers now need {new.required_capability}"
    # XP B: a required field that goes is as much of a break as one that comes.
    for path in sorted(required_members(old.payload) - required_members(new.payload)):
        return f"{path} is no longer required"
    for path in sorted(members(old.payload) - members(new.payload)):
        return f"{path} is gone"
    reason = invalidated(old.payload, new.payload)
    if reason is not None:
        return reason
    # An answer goes the other way: whoever reads it knows the old schema.
    reason = invalidated(new.response, old.response)
    return f"answers: {reason}" if reason is not None else None


def _text(definition: VersionDefinition) -> bytes:
    return strict_json.encode(msgspec.to_builtins(definition))


def _meaning(definition: VersionDefinition) -> bytes:
    schemas = (definition.payload, definition.response)
    return exact_canonical([without_notes(schema, notes=_WORDS) for schema in schemas])
