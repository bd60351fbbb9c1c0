"""What a compromised MCP server must not publish through us (XP 8.5, D-74).

A schema is read by people, by models and by the code generators of strangers. So nothing in it may lead
elsewhere (external references), run for ever (cycles), swell (size, depth, references that multiply) or say
to a model what a person does not see (hidden characters). Every check raises ContractRefused with the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moot.protocol import strict_json
from moot.protocol.hidden_text import MAX_NAME_CHARS, find_hidden, has_line_ends
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import MAX_KIND_CHARS, ContractRefused, exact_canonical
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.contracts.subschemas import (
    REFERENCES,
    anchors,
    everywhere,
    pointer_text,
    subschemas,
    target_of,
)

# D-74. The largest of 5,586 real schemas has 49 KB and depth 18.
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
# Of one object: real schemas have up to 630 in all, spread over their definitions.
MAX_PROPERTIES: Final = 512
# References without a cycle can still multiply: ten definitions that each use the next one ten times stand
# for ten thousand million schemas once a reader writes them out.
MAX_EXPANDED_SCHEMAS: Final = 10_000
# Four times the longest real description; it goes into every catalog answer.
MAX_DESCRIPTION_CHARS: Final = 16 * 1024

_DRAFT_4: Final = "json-schema.org/draft-04/schema"
# What `$schema` may say; the fragment and http or https make no difference.
KNOWN_DRAFTS: Final = frozenset(
    {
        _DRAFT_4,
        "json-schema.org/draft-06/schema",
        "json-schema.org/draft-07/schema",
        "json-schema.org/draft/2019-09/schema",
        "json-schema.org/draft/2020-12/schema",
    }
)


def check_name(name: str, what: str) -> None:
    """A tool's or prompt's name: short, visible, on one line. Any script will do."""
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ContractRefused(
            "too_large", f"the name of a {what} has to have 1 to {MAX_NAME_CHARS} characters"
        )
    check_text(name, f"the name of the {what}")
    if has_line_ends(name) or name != name.strip():
        raise ContractRefused("hidden_text", f"the name of the {what} has line ends, tabs or outer spaces")


def check_kind(kind: str) -> None:
    """A kind that can travel: visible, and not longer than spaces allow."""
    if not 1 <= len(kind) <= MAX_KIND_CHARS:
        raise ContractRefused("too_large", f"a kind has to have 1 to {MAX_KIND_CHARS} characters")
    check_text(kind, "the kind")
    if has_line_ends(kind):
        raise ContractRefused("hidden_text", "the kind has line ends or tabs")


def check_text(text: str, where: str) -> None:
    """Nothing that a model reads and a person does not see."""
    found = find_hidden(text)
    if found is not None:
        raise ContractRefused("hidden_text", f"{found} hides in {where[:200]}")


def check_description(text: str) -> None:
    """The effective description, the operator's own included."""
    if len(text) > MAX_DESCRIPTION_CHARS:
        raise ContractRefused("too_large", f"a description of more than {MAX_DESCRIPTION_CHARS} characters")
    check_text(text, "the description")


def check_json(value: Json, what: str) -> None:
    """JSON of bearable size in which nothing hides: what goes into a contract beside its schemas."""
    if strict_json.nests_deeper(value, MAX_SCHEMA_DEPTH):
        raise ContractRefused("too_large", f"{what} nests deeper than {MAX_SCHEMA_DEPTH} levels")
    try:
        size = len(strict_json.encode(value))
    except (TypeError, ValueError):
        raise ContractRefused("malformed", f"{what} is not JSON") from None
    if size > MAX_SCHEMA_BYTES:
        raise ContractRefused("too_large", f"{what} has {size} bytes of at most {MAX_SCHEMA_BYTES}")
    # Only now, since it is slow: NaN and the like, which the quick encoder lets through.
    exact_canonical(value)
    for where, text in _texts(value, ""):
        check_text(text, f"{what} at {where or 'the root'}")


def check_schema(schema: Json, what: str) -> None:
    """D-74, all of it, and that a validator can use the schema. `what` names it in messages."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise ContractRefused("invalid_schema", f"{what} has to be a JSON Schema: an object")
    check_json(schema, what)
    _check_references_are_local(schema, what)
    _check_places(schema, what)
    _check_cycles_and_growth(schema, what)
    Validator(schema)


def _texts(value: Json, where: str) -> Iterator[tuple[str, str]]:
    """Every string in a JSON value, names of members included. Recursion: depth was checked before."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield where + "/", name
            yield from _texts(member, f"{where}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}/{index}")


def _check_references_are_local(schema: Json, what: str) -> None:
    # Everywhere, even where a careful reader sees only data: careless ones fetch a `$ref` inside `examples`.
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for keyword in REFERENCES:
                reference = value.get(keyword)
                if isinstance(reference, str) and not reference.startswith("#"):
                    raise ContractRefused(
                        "external_reference", f"{what} refers to {reference[:120]!r}: only '#…' is allowed"
                    )
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _check_places(schema: dict[str, Json], what: str) -> None:
    # Draft 4 called it `id`, which is a member without meaning in every later draft.
    id_keyword = "id" if _draft_name(schema.get("$schema", "")) == _DRAFT_4 else "$id"
    for pointer, place in everywhere(schema):
        draft = place.get("$schema")
        if draft is not None and _draft_name(draft) not in KNOWN_DRAFTS:
            raise ContractRefused(
                "external_reference", f"{what} names an unknown $schema: {str(draft)[:120]!r}"
            )
        # An inner `$id` opens a document of its own in which `#…` means something else than it seems to.
        if pointer and isinstance(place.get(id_keyword), str):
            where = pointer_text(pointer)
            raise ContractRefused("external_reference", f"{what} has an {id_keyword} below its root: {where}")
        for keyword in ("properties", "patternProperties"):
            members = place.get(keyword)
            if isinstance(members, dict) and len(members) > MAX_PROPERTIES:
                raise ContractRefused(
                    "too_large",
                    f"{what} has {len(members)} properties in one object of at most {MAX_PROPERTIES}",
                )


def _draft_name(draft: Json) -> str:
    return str(draft).removesuffix("#").removeprefix("https://").removeprefix("http://")


def _check_cycles_and_growth(schema: dict[str, Json], what: str) -> None:
    """Depth first, without recursion: a chain of references may be longer than Python's stack."""
    named = anchors(schema)
    # How many schemas a place stands for once its references are written out; 0 while we are inside it.
    weights: dict[int, int] = {}
    for _, start in everywhere(schema):
        stack: list[tuple[dict[str, Json], list[dict[str, Json]], int]] = []
        _enter(start, schema, named, what, weights, stack)
        while stack:
            place, below, at = stack.pop()
            if at < len(below):
                stack.append((place, below, at + 1))
                _enter(below[at], schema, named, what, weights, stack)
            else:
                weights[id(place)] = min(
                    1 + sum(weights[id(inner)] for inner in below), MAX_EXPANDED_SCHEMAS + 1
                )
    if weights[id(schema)] > MAX_EXPANDED_SCHEMAS:
        raise ContractRefused(
            "too_large",
            f"{what} stands for more than {MAX_EXPANDED_SCHEMAS} schemas once its references are written out",
        )


def _enter(
    place: dict[str, Json],
    root: dict[str, Json],
    named: dict[str, dict[str, Json]],
    what: str,
    weights: dict[int, int],
    stack: list[tuple[dict[str, Json], list[dict[str, Json]], int]],
) -> None:
    if id(place) in weights:
        if weights[id(place)] == 0:
            raise ContractRefused("recursive", f"{what} refers back to itself: write the levels out")
        return
    weights[id(place)] = 0
    below = [inner for _, inner in subschemas(place, definitions=False) if isinstance(inner, dict)]
    for keyword in REFERENCES:
        reference = place.get(keyword)
        if isinstance(reference, str):
            target = target_of(reference, root, named)
            if target is None:
                raise ContractRefused(
                    "invalid_schema", f"{what} refers to {reference[:120]!r}, which leads nowhere"
                )
            if isinstance(target, dict):
                below.append(target)
    stack.append((place, below, 0))
