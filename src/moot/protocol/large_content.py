"""Values that are too large for an envelope: kept by the gateway, named in the envelope by their hash.

A space tells every message to all of its members, so a message stays small. Of the params or the result of a
call that does not fit, long texts (and, where that is not enough, whole members) are taken out. In their
place stands what people and models can read: the beginning, the size and the hash. `_meta` lists the places:

    "_meta": {"moot/content": [{"at": ["content", 0, "text"], "sha256": "…", "bytes": 5242880}]}

Whoever runs the call, or asked for it, puts the values back before anybody acts on them. An approval is for
the hash and the beginning, so nothing else than what was shown can run. A place in arguments holds an object,
never a part of the text: no pattern of a capability or a rule takes the beginning for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from moot.errors import InvalidRequest
from moot.protocol import strict_json
from moot.protocol.operation import Json, UnreadPayload

CONTENT_KEY: Final = "moot/content"
# One value, and those of one message together: what people attach to mails has 25 MiB at most.
MAX_CONTENT_BYTES: Final = 32 << 20
# Shorter texts stay: the reference to one and its beginning take up to 3 KB.
_LONG_CHARS: Final = 16_384
_EXCERPT_CHARS: Final = 2_000
# References in one message; a list of a thousand long texts becomes one value.
MAX_PARTS: Final = 64
_MAX_PATH: Final = 64
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# In a result these hold base64, which a part of would not be.
_BASE64_MEMBERS: Final = frozenset({"data", "blob"})

Path = tuple[str | int, ...]


class ContentPart(NamedTuple):
    """One value that was taken out of a message."""

    at: Path
    sha256: str
    size: int
    # The value is JSON, and not the text itself.
    is_json: bool = False


class TakenOut(NamedTuple):
    """A message without its large values, and those values by their hashes."""

    body: dict[str, Json]
    values: dict[str, bytes]


def take_out(body: Mapping[str, Json], *, is_result: bool, max_bytes: int) -> TakenOut:
    """The params or the result of a call in at most `max_bytes`, as far as that is possible."""
    values: dict[str, bytes] = {}
    parts: list[ContentPart] = []

    def keep(at: Path, value: Json) -> Json:
        is_json = not isinstance(value, str)
        data = strict_json.encode(value) if is_json else value.encode("utf-8", "surrogatepass")
        part = ContentPart(at, sha256(data).hexdigest(), len(data), is_json)
        values[part.sha256] = data
        parts.append(part)
        return _placeholder(part, data, is_result=is_result)

    small = _replace(dict(body), (), keep)
    if len(parts) > MAX_PARTS:
        values.clear()
        parts.clear()
        small = dict(body)
    for name in sorted(small, key=lambda each: -len(strict_json.encode(small[each]))):
        if len(strict_json.encode(small)) <= max_bytes:
            break
        if name not in ("_meta", "name", "uri", "resultType", "isError"):
            parts[:] = [part for part in parts if part.at[0] != name]
            small[name] = keep((name,), body[name])
    used = {part.sha256 for part in parts}
    meta = small.get("_meta")
    listed: list[Json] = [_to_json(part) for part in parts]
    small["_meta"] = {**(meta if isinstance(meta, dict) else {}), CONTENT_KEY: listed}
    return TakenOut(small, {digest: data for digest, data in values.items() if digest in used})


def parts_of(body: UnreadPayload) -> list[ContentPart]:
    """The values that were taken out of params or a result; raises InvalidRequest for what names none."""
    meta = body.get("_meta")
    listed = meta.get(CONTENT_KEY) if isinstance(meta, dict) else None
    if listed is None:
        return []
    if not isinstance(listed, list) or len(listed) > MAX_PARTS:
        raise InvalidRequest(f"_meta[{CONTENT_KEY!r}] must be a list of at most {MAX_PARTS} entries")
    return [_read_part(entry) for entry in listed]


def listed_parts(body: Json) -> list[ContentPart]:
    """The same for whoever shows a message: what names none has none."""
    try:
        return parts_of(body) if isinstance(body, dict) else []
    except InvalidRequest:
        return []


class ContentReference(NamedTuple):
    """What stands in the place of a large argument."""

    sha256: str
    size: int
    excerpt: str


def reference_in(value: Json) -> ContentReference | None:
    """Of an argument that was taken out."""
    match value:
        case {
            "moot/content": {"sha256": str(digest), "bytes": int(size), "begins_with": str(excerpt), **rest}
        }:
            if len(value) == 1 and not rest and _SHA256.fullmatch(digest):
                return ContentReference(digest, size, excerpt)
    return None


def shows_all_parts(params: Mapping[str, Json]) -> bool:
    """Whether all places in `_meta` show the values that they name: the list tells nothing more then."""
    shown = [(part, reference_in(_get(params, part.at))) for part in listed_parts(params)]
    return bool(shown) and all(
        reference is not None and (reference.sha256, reference.size) == (part.sha256, part.size)
        for part, reference in shown
    )


def put_back(body: Mapping[str, Json], values: Mapping[str, bytes], *, is_result: bool) -> dict[str, Json]:
    """The whole params or result; raises InvalidRequest where a place or a value does not fit.

    Params also have to show what they stand for: a person has read that.
    """
    whole = dict(body)
    for part in parts_of(body):
        data = values[part.sha256]
        if len(data) != part.size or sha256(data).hexdigest() != part.sha256:
            raise InvalidRequest("a value of the message is not the one that its hash names")
        if not is_result and _get(body, part.at) != _placeholder(part, data, is_result=False):
            raise InvalidRequest("a value of the message is not the one that it shows")
        try:
            value = (
                strict_json.parse_any_depth(data) if part.is_json else data.decode("utf-8", "surrogatepass")
            )
            whole = _set(whole, part.at, value)
        except (LookupError, TypeError, ValueError):
            raise InvalidRequest("a value of the message has no place in it") from None
    meta = {name: value for name, value in whole["_meta"].items() if name != CONTENT_KEY}
    if meta:
        return whole | {"_meta": meta}
    del whole["_meta"]
    return whole


def too_large_result(size: int, most: int) -> dict[str, Json]:
    """The result of a tool that ran, in place of one that cannot be passed on."""
    text = (
        f"The tool ran. Its result of {size:,} bytes is larger than {most:,} bytes, the most that this space "
        "passes on, and was not kept. Do not repeat the call for it: ask for less, or for a part."
    )
    return {"content": [{"type": "text", "text": text}], "_meta": {"moot/result_bytes": size}}


def _replace(value: Json, at: Path, keep: Callable[[Path, Json], Json]) -> Json:
    if isinstance(value, str):
        return keep(at, value) if len(value) > _LONG_CHARS else value
    if len(at) >= _MAX_PATH:
        return value
    if isinstance(value, dict):
        return {name: _replace(member, (*at, name), keep) for name, member in value.items()}
    if isinstance(value, list):
        return [_replace(item, (*at, index), keep) for index, item in enumerate(value)]
    return value


def _placeholder(part: ContentPart, data: bytes, *, is_result: bool) -> Json:
    excerpt = data[: 4 * _EXCERPT_CHARS].decode("utf-8", "ignore")[:_EXCERPT_CHARS]
    if not is_result:
        return {CONTENT_KEY: {"sha256": part.sha256, "bytes": part.size, "begins_with": excerpt}}
    text = f"{excerpt}\n… ({part.size:,} bytes in all; the rest is kept by the gateway, sha256 {part.sha256})"
    match part.at:
        case ("content",):
            return [{"type": "text", "text": text}]
        case ("structuredContent",):
            return {}
        case (*_, str(name)) if name in _BASE64_MEMBERS:
            return ""
    return [] if part.is_json else text


def _to_json(part: ContentPart) -> dict[str, Json]:
    made: dict[str, Json] = {"at": list(part.at), "sha256": part.sha256, "bytes": part.size}
    return made | ({"json": True} if part.is_json else {})


def _read_part(entry: Json) -> ContentPart:
    match entry:
        case {"at": [_, *_] as at, "sha256": str(digest), "bytes": int(size)}:
            fits = len(at) <= _MAX_PATH + 1 and all(each.__class__ in (str, int) for each in at)
            if fits and at[0] != "_meta" and size >= 0 and _SHA256.fullmatch(digest):
                return ContentPart(tuple(at), digest, size, entry.get("json") is True)
    raise InvalidRequest(f"an entry of _meta[{CONTENT_KEY!r}] has `at`, `sha256` and `bytes`")


def _get(value: Json, at: Path) -> Json:
    for each in at:
        if isinstance(value, dict) and isinstance(each, str):
            value = value.get(each)
        elif isinstance(value, list) and isinstance(each, int) and 0 <= each < len(value):
            value = value[each]
        else:
            return None
    return value


def _set(value: Json, at: Path, new: Json) -> Json:
    """The same value with another one at a place; raises LookupError if there is no such place."""
    if not at:
        return new
    first, rest = at[0], at[1:]
    if isinstance(value, dict) and isinstance(first, str):
        return {**value, first: _set(value[first], rest, new)}
    if isinstance(value, list) and isinstance(first, int) and 0 <= first < len(value):
        return [*value[:first], _set(value[first], rest, new), *value[first + 1 :]]
    raise LookupError(first)
