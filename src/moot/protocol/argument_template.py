"""Templates over the arguments of a call, as in `{invoice}/{payee}`: for keys, and for other calls.

`{lines.0.id}` is a place in lists and objects, `{lines.*.id}` all of them. In `fill` a text that is one
placeholder takes the value as it is, any other text takes it as text. `{{` and `}}` stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moot.errors import MootError
from moot.protocol import strict_json
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Json

_PLACE: Final = re.compile(r"(?<!\{)\{([^{}\s.]+(?:\.[^{}\s.]+)*)\}(?!\})")
# Placeholders of one text.
MAX_PLACES: Final = 16

ArgumentPath = tuple[str, ...]


class NotThere(Exception):
    """A template names what is not there, or what cannot be seen; says which and why."""


def places_in(template: str) -> tuple[ArgumentPath, ...]:
    """The places that a text names, in their order."""
    return tuple(tuple(found[1].split(".")) for found in _PLACE.finditer(template))


def values_at(value: Json, path: ArgumentPath) -> Iterator[Any]:
    """The values at a place; raises NotThere for one that is missing or kept elsewhere."""
    for at, step in enumerate(path):
        if isinstance(value, dict) and CONTENT_KEY in value:
            raise NotThere(f"{'.'.join(path)} is not in the message: it is kept beside it")
        if step == "*" and isinstance(value, list):
            if not value:
                raise NotThere(f"{'.'.join(path[:at])} is an empty list")
            for each in value:
                yield from values_at(each, path[at + 1 :])
            return
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise NotThere(f"{'.'.join(path)} is missing")
    yield value


def render(template: str, shown: Mapping[ArgumentPath, str]) -> str:
    """The text with what is to be shown at each place."""
    return _PLACE.sub(lambda found: shown[tuple(found[1].split("."))], template)


def fill(template: Json, source: Json) -> Json:
    """The template with the values of `source` in its places; raises NotThere."""
    if isinstance(template, dict):
        return {name: fill(value, source) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(each, source) for each in template]
    if not isinstance(template, str):
        return template
    whole = _PLACE.fullmatch(template)
    if whole is not None:
        return _one(source, tuple(whole[1].split(".")))
    return _PLACE.sub(lambda found: _text(_one(source, tuple(found[1].split(".")))), template)


def data_of(result: Json) -> Json:
    """What a tool answered, as data: structured, or the JSON that its text is; None for neither."""
    if not isinstance(result, dict) or result.get("isError") is True:
        return None
    if "structuredContent" in result:
        return result["structuredContent"]
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    try:
        return strict_json.parse_any_depth(text.encode()) if isinstance(text, str) else None
    except (MootError, ValueError):
        return None


def _one(source: Json, path: ArgumentPath) -> Any:
    found = list(values_at(source, path))
    value = found if "*" in path else found[0]
    if value is None:
        raise NotThere(f"{'.'.join(path)} is null")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
