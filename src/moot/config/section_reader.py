"""Reading a section strictly: every mistake is a UsageError that names the path of what is wrong.

After a mistake reading goes on, and all of them are raised together (`MistakeList`). No message shows a
value, only keys, paths and what may stand there: a value can be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from moot.errors import UsageError
from moot.protocol.operation import Json

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
Reader = Callable[[Json, str], Any]

# How alike two keys are before one is offered for the other: a letter or two, not another word.
_ALIKE: Final = 0.75
_AFFIXES: Final = re.compile(r"^(max|min)_|_(seconds|bytes|messages|events)$")
_KINDS: Final = {
    str: "text",
    list: "a list",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "empty",
}
_TYPES: Final = {
    "str": "text",
    "array": "a list",
    "object": "a mapping",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "null": "nothing",
}
_RANGES: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_WRONG_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_OUT_OF_RANGE: Final = re.compile(r"Expected `([^`]+)` (<=|>=|<|>) (\S+)")
_LENGTH: Final = re.compile(r"Expected `(str|array)` of length (<=|>=) (\d+)")
# An address without a user, a question or a fragment.
WEB_ADDRESS: Final = r"^https?://[^\s/?#@,]+(/[^\s?#,]*)?$"
# One word of a NATS subject.
WORD: Final = r"^[A-Za-z0-9_-]{1,64}$"
_PATTERNS: Final = {
    f"Expected `str` matching regex {WEB_ADDRESS!r}": "must be an address such as https://a.example:8080",
    f"Expected `str` matching regex {WORD!r}": "must be text of at most 64 letters, digits, - and _",
}
# A key is a word or a name; longer ones are cut in messages.
_KEY_CHARS: Final = 64


class SeveralMistakes(UsageError):
    """Mistakes of one file, a line each."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        super().__init__("\n".join(self.texts))


def texts_of(fault: UsageError) -> tuple[str, ...]:
    """Each mistake by itself."""
    return fault.texts if isinstance(fault, SeveralMistakes) else (str(fault),)


class MistakeList:
    """The mistakes of a file, which is read on after each: whoever wrote it mends them all at once."""

    def __init__(self) -> None:
        self._faults: list[UsageError] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    @contextmanager
    def catching(self) -> Iterator[None]:
        try:
            yield
        except UsageError as fault:
            self._faults.append(fault)

    def check(self) -> None:
        """Raise what was caught."""
        if not self._faults:
            return
        texts = [text for fault in self._faults for text in texts_of(fault)]
        if len(texts) == 1:
            raise self._faults[0]
        raise SeveralMistakes(texts)


def at(path: str, key: str) -> str:
    """The path of a key under a path; the top of a file is the empty path."""
    shown = "".join(character if character.isprintable() else "?" for character in key[:_KEY_CHARS])
    return f"{path}.{shown}" if path else shown


def mapping(value: Json, path: str) -> Mapping[str, Json]:
    """A mapping whose keys are text."""
    if not isinstance(value, dict):
        what = _KINDS.get(type(value), "something else")
        raise UsageError(f"{path or 'the file'}: must be a mapping (lines of `name: value`), not {what}")
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


def unknown_key(path: str, key: str, known: Collection[str], what: str = "key") -> UsageError:
    """What to raise for a key that is not known; offers the one that was probably meant."""
    meant = probably(key, known)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(known))}"
    return UsageError(f"{at(path, key)}: unknown {what}; {hint}")


def probably(key: str, known: Collection[str]) -> str | None:
    """The known key that was probably meant by another."""
    close = difflib.get_close_matches(key.casefold(), known, n=1, cutoff=_ALIKE)
    if close:
        return close[0]
    # Without prefix and unit: `calls` is near `max_calls`, `gone` near `gone_seconds`.
    stems = {_AFFIXES.sub("", each): each for each in known}
    close = difflib.get_close_matches(_AFFIXES.sub("", key.casefold()), stems, n=1, cutoff=_ALIKE)
    if close:
        return stems[close[0]]
    # The beginning of one name alone: `separation` is `separation_of_duties`.
    longer = [each for each in known if each.startswith(f"{key.casefold()}_")]
    return longer[0] if len(longer) == 1 else None


def check_keys(section: Mapping[str, Json], known: Collection[str], path: str) -> None:
    mistakes = MistakeList()
    for key in section:
        with mistakes.catching():
            if key not in known:
                raise unknown_key(path, key, known)
    mistakes.check()


@cache
def fields_of(kind: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Worked out once: annotations are texts, and each is compiled for it."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def read_struct(
    kind: type[_Struct], value: Json, path: str, readers: Mapping[str, Reader] | None = None
) -> _Struct:
    """A struct filled from a mapping, field by field; `readers` take the fields that are no plain values."""
    section = mapping(value, path)
    readers = readers or {}
    fields, mistakes = fields_of(kind), MistakeList()
    with mistakes.catching():
        check_keys(section, fields, path)
    values = {}
    for key, field in fields.items():
        place = at(path, key)
        with mistakes.catching():
            if key in section:
                reader = readers.get(key)
                values[field.name] = (
                    reader(section[key], place) if reader else read_plain(field.type, section[key], place)
                )
            elif field.required:
                raise UsageError(f"{place}: is missing")
    mistakes.check()
    return kind(**values)


def read_plain(kind: Any, value: Json, path: str) -> Any:
    """A number, text, path, switch, closed word or a list of them."""
    if get_origin(kind) is Literal:
        return one_of(value, get_args(kind), path)
    try:
        return msgspec.convert(value, kind, dec_hook=_other)
    except msgspec.ValidationError as fault:
        words, _, inner = str(fault).partition(" - at `$")
        raise UsageError(f"{path}{inner.rstrip('`')}: {_in_words(words)}") from None


def _in_words(fault: str) -> str:
    """What msgspec says, for whoever writes YAML and knows no Python."""
    if found := _WRONG_TYPE.fullmatch(fault):
        wanted = " or ".join(_TYPES.get(each, each) for each in found[1].split(" | ") if each != "null")
        return f"must be {wanted}, not {_TYPES.get(found[2], found[2])}"
    if found := _OUT_OF_RANGE.fullmatch(fault):
        return f"must be {_TYPES.get(found[1], found[1])}, {_RANGES[found[2]]} {found[3]}"
    if found := _LENGTH.fullmatch(fault):
        part = "character" if found[1] == "str" else "item"
        return f"must be {_TYPES[found[1]]} of {_RANGES[found[2]]} {found[3]} {part}{'s' * (found[3] != '1')}"
    return _PATTERNS.get(fault, f"{fault[:1].lower()}{fault[1:]}")


def _other(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value).expanduser()
    raise ValueError("expected a path")
