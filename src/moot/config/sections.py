"""Reading a section strictly: every mistake is a UsageError that names the path of what is wrong.

No message shows a value, only keys, paths and what may stand there: a value can be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from moot.errors import UsageError
from moot.protocol.operation import Json

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
Reader = Callable[[Json, str], Any]

# How alike two keys are before one is offered for the other: a letter or two, not another word.
_ALIKE: Final = 0.75
# A key is a word or a name; longer ones are cut in messages.
_KEY_CHARS: Final = 64


def at(path: str, key: str) -> str:
    """The path of a key under a path; the top of a file is the empty path."""
    shown = "".join(character if character.isprintable() else "?" for character in key[:_KEY_CHARS])
    return f"{path}.{shown}" if path else shown


def mapping(value: Json, path: str) -> Mapping[str, Json]:
    """A mapping whose keys are text."""
    if not isinstance(value, dict):
        raise UsageError(f"{path or 'the file'}: must be a mapping")
    for key in value:
        if not isinstance(key, str):
            # YAML 1.1 reads `on`, `no` and `1` as other things than text.
            raise UsageError(f"{path or 'the file'}: the key {key!r} is not text; put it in quotes")
    return value


def optional(value: Json, path: str) -> Mapping[str, Json]:
    """A mapping, empty where nothing stands behind the colon."""
    return {} if value is None else mapping(value, path)


def checked(value: Json, wanted: type, words: str, path: str) -> Any:
    """The value if it is of the type; `words` say what it must be."""
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise UsageError(f"{path}: must be {words}")
    return value


def one_of(value: Json, words: Collection[str], path: str) -> str:
    if not isinstance(value, str) or value not in words:
        raise UsageError(f"{path}: must be one of {', '.join(sorted(words))}")
    return value


def strings(value: Json, path: str) -> list[str]:
    return [
        checked(item, str, "text", f"{path}[{index}]")
        for index, item in enumerate(checked(value, list, "a list", path))
    ]


def unknown_key(path: str, key: str, known: Collection[str]) -> UsageError:
    """What to raise for a key that is not known; offers the one that was probably meant."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
    return UsageError(f"{at(path, key)}: unknown key; {hint}")


def check_keys(section: Mapping[str, Json], known: Collection[str], path: str) -> None:
    for key in section:
        if key not in known:
            raise unknown_key(path, key, known)


def read_struct(
    kind: type[_Struct], value: Json, path: str, readers: Mapping[str, Reader] | None = None
) -> _Struct:
    """A struct filled from a mapping, field by field; `readers` take the fields that are no plain values."""
    section = mapping(value, path)
    readers = readers or {}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    check_keys(section, fields, path)
    values = {}
    for key, field in fields.items():
        here = at(path, key)
        if key in section:
            reader = readers.get(key)
            values[field.name] = (
                reader(section[key], here) if reader else read_plain(field.type, section[key], here)
            )
        elif field.required:
            raise UsageError(f"{here}: is missing")
    return kind(**values)


def read_plain(kind: Any, value: Json, path: str) -> Any:
    """A number, text, path, switch, closed word or a list of them."""
    if get_origin(kind) is Literal:
        return one_of(value, get_args(kind), path)
    try:
        return msgspec.convert(value, kind, dec_hook=_other)
    except msgspec.ValidationError as fault:
        words, _, inner = str(fault).partition(" - at `$")
        raise UsageError(f"{path}{inner.rstrip('`')}: {words[:1].lower()}{words[1:]}") from None


def _other(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value).expanduser()
    raise ValueError("expected a path")
