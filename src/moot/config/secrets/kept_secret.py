"""Secrets that a configuration names: their text never stands in it, only where it is kept.

A field `url` of one of these types is read from `url_env`, the variable that holds it, or, where that is
possible, from `url_file`: a file that its owner alone can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec

from moot.config.secrets.secret import Secret
from moot.config.section_reader import Reader, at, check_keys, fields_of, mapping, read_plain, read_struct
from moot.errors import UsageError
from moot.protocol.operation import Json

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_PLACES: Final = "secret_is_in"
InEnvironment = Annotated[Secret, msgspec.Meta(extra={_PLACES: ("env",)})]
InFileOrEnvironment = Annotated[Secret, msgspec.Meta(extra={_PLACES: ("file", "env")})]

# The name of a variable, or of a file, and the path of the setting that names it → what is there.
Lookup = Callable[[Json, str], str]


def keys_of(field: msgspec.structs.FieldInfo) -> Sequence[str]:
    """The keys that a field is read from: its own name, unless it is a secret."""
    for part in (field.type, *get_args(field.type)):
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.extra and _PLACES in meta.extra:
                return [f"{field.encode_name}_{place}" for place in meta.extra[_PLACES]]
    return [field.encode_name]


def read_with_secrets(
    kind: type[_Struct],
    value: Json,
    path: str,
    *,
    variable: Lookup,
    file: Callable[[Path, str], str] | None = None,
    readers: Mapping[str, Reader] | None = None,
) -> _Struct:
    """As `read_struct`, with what is in the files and variables that are named."""

    def looked_up(named: Json, place: str) -> Secret:
        key, given = next(iter(named.items()))
        place = f"{place.rpartition('.')[0]}.{key}"
        if file is None or not key.endswith("_file"):
            return Secret(variable(given, place))
        return Secret(file(read_plain(Path, given, place), place))

    section, all_readers = dict(mapping(value, path)), dict(readers or {})
    fields = fields_of(kind)
    secrets = {name: keys for name, field in fields.items() if (keys := keys_of(field)) != [name]}
    for name, keys in secrets.items():
        if name in section:
            raise UsageError(f"{at(path, name)}: never in this file; {_where(keys)}")
    check_keys(section, [key for field in fields.values() for key in keys_of(field)], path)
    for name, keys in secrets.items():
        given = {key: found for key in keys if (found := section.pop(key, None)) is not None}
        if len(given) > 1:
            raise UsageError(f"{at(path, keys[-1])}: stands beside {keys[0]}; give one of them")
        if given:
            section[name] = given
            all_readers[name] = looked_up
        elif fields[name].required:
            raise UsageError(f"{at(path, keys[0])}: is missing")
    return read_struct(kind, section, path, all_readers)


def _where(keys: Sequence[str]) -> str:
    holds: dict[str, Any] = {"env": "the variable", "file": "the file"}
    return " or ".join(f"{key} names {holds[key.rpartition('_')[2]]}" for key in keys) + " that holds it"
