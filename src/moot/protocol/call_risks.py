"""What in a call's arguments deserves a second look before it is approved.

Paths that leave their folder, commands that chain or delete, secrets, letters of another alphabet that look
alike, addresses that mislead. They are hints for the eye: that none is found does not make a call harmless,
and nothing is approved by them; a space can ask for a passkey where there are some. The console has the same
in `views/proposals/call-risks.js`; one table of cases tests both.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from moot.protocol.hidden_text import find_hidden
from moot.protocol.operation import Json, JsonValue
from moot.protocol.shell_risks import UNREADABLE, is_writer, path_risk, shell_risks, sql_risks

Severity = Literal["bad", "warn", "info"]

# Expressions are compiled when the first proposal is looked at: most programs that join never decide.

# Text beyond this is not examined.
_MAX_CHARS: Final = 200_000
_MAX_VALUES: Final = 2_000
_MAX_RISKS: Final = 8
_QUOTE_CHARS: Final = 60
_MAX_PATH_CHARS: Final = 4_096
_MAX_HIDDEN_COMMAND_CHARS: Final = 1_024
_MAX_HIDDEN_COMMAND_WORDS: Final = 8
_MAX_EXACT: Final = 2.0**53


class Risk(NamedTuple):
    severity: Severity
    text: str


_Add = Callable[[Severity, str], None]

_COMMAND_NAMES: Final = r"(?i)(command|cmd|commandline|command_line|script|shell|bash|exec|args|argv)"
_COMMAND_TOOLS: Final = r"(?i)shell|bash|terminal|command|exec"
_AMOUNT_NAMES: Final = (
    r"(?i)(amount|price|total|sum|value|budget|limit|quantity)(_?(cents|minor|eur|usd|gbp))?"
)
_AMOUNT: Final = r"[-+]?[0-9.,' ]+"
_CURRENCY_NAMES: Final = r"(?i)(currency|unit)"
_PARENT: Final = r"(?i)(?:^|[\\/]|%2f|%5c)(?:\.|%2e){2}(?:[\\/]|%2f|%5c|$)"
_ADDRESS: Final = r"(?i)[a-z][a-z0-9+.-]*://([^/?#]*)"
_ENCODED_HOST: Final = r"(?i)(?:^|\.)xn--"
SECRET: Final = (
    r"(?a)AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{30,}|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
    r"|eyJ[\w-]{10,500}\.eyJ[\w-]{10,}"
)
# A value given to a name such as API_KEY: letters and digits, not the name of a function or a variable.
NAMED_SECRET: Final = (
    r"(?ia)(?:secret|token|passw(?:or)?d|api_?key|private_?key|access_?key)\w{0,40}[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    r"(?=[^\s\"']{0,60}\d)[A-Za-z0-9+/_=-]{16,}(?![\w.(\[])"
)
_WHOLE_TEXT_NAMES: Final = r"(?i)(content|contents|text|file_text|new_content|body|data)"
_WRITERS: Final = r"(?i)write|save|overwrite|replace|update|put"
_HIDDEN_COMMAND: Final = r"[;&|`]|\$\("
_DELETERS: Final = r"(?i)(delete|drop|destroy|purge|wipe|erase|truncate|terminate)(_|-|[A-Z]|$)"
_OWN_ADDRESSES: Final = (
    r"(?i)(file:|[a-z]+://(169\.254\.169\.254|metadata\.google\.internal|\[fd00:ec2::254\])([:/]|$))"
)
# A word in one script; `привет.md` is two.
_WORD: Final = r"[^\W\d_]+"
# A unit: micrometre, microsecond.
_UNIT: Final = r"[\u00b5\u03bc][A-Za-z]{1,3}|[A-Za-z]?\u03a9"
_LATIN: Final = r"[A-Za-z]"
# Alphabets whose letters look like Latin ones, by how Unicode names their letters.
_LOOK_ALIKES: Final = (
    ("CYRILLIC", "Cyrillic"),
    ("GREEK", "Greek"),
    ("ARMENIAN", "Armenian"),
    ("CHEROKEE", "Cherokee"),
    ("FULLWIDTH LATIN", "full-width"),
    ("MATHEMATICAL", "mathematical"),
)
_ORDER: Final = ("bad", "warn", "info")


def risks_of(tool: str, arguments: Json) -> list[Risk]:
    """The risks in a call of this tool with these arguments, most serious first."""
    found: dict[str, Risk] = {}

    def add(severity: Severity, text: str) -> None:
        found.setdefault(text, Risk(severity, text))

    if re.match(_DELETERS, tool):
        add("warn", "The tool’s name says that it deletes something")
    writes = is_writer(tool)
    left = _MAX_CHARS
    for count, (name, value, siblings) in enumerate(_values_in(arguments)):
        if count >= _MAX_VALUES or left <= 0:
            break
        if _is_amount(name, value):
            shown = value if isinstance(value, str) else json.dumps(value)
            add("info", f"{name}: {shown}{_currency_in(siblings)}")
        if not isinstance(value, str):
            continue
        text = value[:left]
        left -= len(text)
        _examine_text(text, name, add, writes=writes)
        if name.lower() == "method" and text.upper() == "DELETE":
            add("warn", "The request deletes something (DELETE)")
        if not text and re.fullmatch(_WHOLE_TEXT_NAMES, name) and re.search(_WRITERS, tool):
            add("warn", f"{name} is empty: what is there now would be lost")
        if re.fullmatch(_COMMAND_NAMES, name) or re.search(_COMMAND_TOOLS, tool):
            _examine_command(text, add)
        else:
            _examine_hidden_command(text, name, add)
            _examine_sql(text, add)
    return sorted(found.values(), key=lambda each: _ORDER.index(each.severity))[:_MAX_RISKS]


def is_examined_whole(arguments: Json) -> bool:
    """Whether `risks_of` looks at all of these."""
    waiting, values, chars = [arguments], 0, 0
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            if len(each) > _MAX_VALUES:
                return False
            waiting += each.values() if isinstance(each, dict) else each
            continue
        values += 1
        chars += len(each) if isinstance(each, str) else 0
        if values > _MAX_VALUES or chars >= _MAX_CHARS:
            return False
    return True


def _examine_text(text: str, name: str, add: _Add, *, writes: bool) -> None:
    if len(text) <= _MAX_PATH_CHARS and "\n" not in text:
        if re.search(_PARENT, text):
            add("bad", f"{name} leaves its folder (..): {_quote(text)}")
        if what := path_risk(text, writes=writes):
            add("warn", f"{name} looks like {what}: {_quote(text)}")
        if re.match(_OWN_ADDRESSES, text):
            add("bad", f"{name} is an address of the machine itself: {_quote(text)}")
        address = re.match(_ADDRESS, text)
        if address and "@" in address[1]:
            host = _quote(address[1].rpartition("@")[2])
            add("bad", f"{name}: the host is {host}, not what is before the @")
        if address and re.search(_ENCODED_HOST, address[1]):
            add("warn", f"{name}: the host name is encoded (xn--…) and may look like another")
    if re.search(SECRET, text) or re.search(NAMED_SECRET, text):
        add("bad", f"{name} contains what looks like a secret")
    if hidden := find_hidden(text) or find_hidden(name):
        add("bad", f"{name} contains characters that cannot be seen ({hidden})")
    mixed = None if text.isascii() else next(_mixed_words(text), None)
    if mixed:
        add("bad", f"{name}: {_quote(mixed[0])} mixes Latin with {mixed[1]} letters")


def _mixed_words(text: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(_WORD, text):
        word = found[0]
        if word.isascii() or not re.search(_LATIN, word) or re.fullmatch(_UNIT, word):
            continue
        for alphabet in map(_look_alike, word):
            if alphabet:
                yield word, alphabet
                break


def _look_alike(character: str) -> str | None:
    if character.isascii():
        return None
    name = unicodedata.name(character, "")
    return next((words for start, words in _LOOK_ALIKES if name.startswith(start)), None)


def _examine_command(text: str, add: _Add) -> None:
    for words in shell_risks(text):
        add("bad", f"The command {words}")


def _examine_hidden_command(text: str, name: str, add: _Add) -> None:
    """A command in an argument that is none, such as a folder: "src; rm -rf /"."""
    if len(text) > _MAX_HIDDEN_COMMAND_CHARS or "\n" in text or len(text.split()) > _MAX_HIDDEN_COMMAND_WORDS:
        return
    sign = re.search(_HIDDEN_COMMAND, text)
    if sign is None:
        return
    for words in shell_risks(text[sign.start() :]):
        if words != UNREADABLE:
            add("warn", f"{name} contains a command that {words}: {_quote(text)}")


def _examine_sql(text: str, add: _Add) -> None:
    for words in sql_risks(text):
        add("bad", f"The statement {words}: {_quote(text)}")


def _is_amount(name: str, value: JsonValue) -> bool:
    if not re.fullmatch(_AMOUNT_NAMES, name) or isinstance(value, bool):
        return False
    if isinstance(value, float):
        # A larger one may have lost digits when it was read.
        return abs(value) < _MAX_EXACT
    return isinstance(value, int) or (isinstance(value, str) and bool(re.fullmatch(_AMOUNT, value)))


def _currency_in(siblings: Mapping[str, Json]) -> str:
    found = (
        value
        for name, value in siblings.items()
        if re.fullmatch(_CURRENCY_NAMES, name) and isinstance(value, str)
    )
    return "".join(f" {each[:8]}" for each in [next(found, "")] if each)


def _values_in(root: Json) -> Iterator[tuple[str, Json, Mapping[str, Json]]]:
    """Every value with the name of its argument; not recursive, because depth is the proposer's choice."""
    waiting: list[tuple[str, Json, Mapping[str, Json]]] = [("arguments", root, {})]
    while waiting:
        name, value, siblings = waiting.pop()
        if isinstance(value, list):
            waiting += [(name, item, {}) for item in reversed(value[:_MAX_VALUES])]
        elif isinstance(value, dict):
            waiting += [(key, item, value) for key, item in reversed(list(value.items())[:_MAX_VALUES])]
        else:
            yield name, value, siblings


def _quote(text: str) -> str:
    return f"“{text[:_QUOTE_CHARS]}{'…' if len(text) > _QUOTE_CHARS else ''}”"
