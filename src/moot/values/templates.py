"""Templates: a text with slots, as rules say what they allow: `git log -n <1..50>`, `/srv/<name>.txt`.

    <name>           letters, digits, `-` and `_`, none of the guarded words, up to 64 characters
    <file>           the same for the name of a file, which may be called `main` but not `secrets`
    <path>           one to eight names with slashes between them
    <3 digits>       exactly so many digits; <1-4 digits> from one to four
    <1..50>          a whole number in this range; <0.50..20.00> an amount
    <.csv|.txt>      one of these
    <hex> <uuid> <date>
    <prose>          words of a language and punctuation in one line: no signs of code, options, addresses
    <lines>          the same on several lines
    <text>           any text without invisible characters, up to 20,000 characters; <text up to 900>
    <message>        words in quotes of a shell, without a quote, a key or a number of an account
    <id>             a word with a digit, such as ada_lin_4821
    <page>           one to 16 parts of an address with slashes between them, and a place in the page
    <lt> <gt>        the signs themselves

A template is anchored and is matched with the canonical text of a value of its kind, never with the raw text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import groupby, pairwise, takewhile
from typing import Final

from moot.errors import UsageError
from moot.values.quoting import quoted
from moot.values.word_lists import is_guarded, is_guarded_page, is_secret, is_told_secret

MAX_TEXT_CHARS: Final = 20_000
MAX_PROSE_CHARS: Final = 4_000
MAX_TEMPLATE_CHARS: Final = 2_000
_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
_PATTERNS: Final = {
    "name": _NAME,
    "file": _NAME,
    "path": f"{_NAME}(?:/{_NAME}){{0,7}}",
    "hex": "[0-9a-f]{7,64}",
    "uuid": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "date": "[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])",
    "prose": f"[^\\n\\t]{{1,{MAX_PROSE_CHARS}}}",
    "lines": f"(?s:.{{1,{MAX_PROSE_CHARS}}})",
    "text": f"(?s:.{{0,{MAX_TEXT_CHARS}}})",
    "message": "[^'\\n$`\\\\]{1,500}",
    "id": "#?(?=[A-Za-z_-]{0,63}[0-9])[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
    "page": "[A-Za-z0-9_~][A-Za-z0-9_~@:+,=.-]{0,99}(?:/[A-Za-z0-9_~-][A-Za-z0-9_~@:+,=.-]{0,99}){0,15}/?"
    "(?:#[A-Za-z0-9_.:-]{1,100})?",
}
_OPEN_SLOTS: Final = frozenset({"name", "file", "path", "prose", "lines", "text", "id", "page"})
_SLOT: Final = re.compile(r"<([^<>]*)>")
_CHOICE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}(?:\|[A-Za-z0-9._-]{1,64}){1,15}")
_TEXT: Final = re.compile(r"text up to ([0-9]{1,5})")
_DIGITS: Final = re.compile(r"([0-9]{1,2})(?:-([0-9]{1,2}))? digits?")
_RANGE: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,4})?)\.\.(-?[0-9]{1,18}(?:\.[0-9]{1,4})?)")
# A word of a language, a number, or a quotation: what prose is made of.
_PROSE_WORD: Final = re.compile(
    r"[\"'“‘(]*#?[^\W_]+(?:(?:['’,:-]|(?<=\d)[.](?=\d))[^\W_]+)*%?[\"'”’)]*[.,:!?…]{0,3}[\"'”’)]*|[–—-]"
)

_IP_ADDRESS: Final = re.compile(r"\d(?:\.\d+){3}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A part that may vary. `low` and `high` bound the digits or the number."""

    kind: str
    low: Decimal = Decimal(0)
    high: Decimal = Decimal(0)
    options: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        if self.kind == "choice":
            return f"(?:{'|'.join(map(quoted, self.options))})"
        if self.kind == "digits":
            return f"[0-9]{{{self.low},{self.high}}}"
        if self.kind == "range":
            return (
                r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,4})?" if self.is_amount else "-?(?:0|[1-9][0-9]{0,17})"
            )
        if self.kind == "text" and self.high:
            return f"(?s:.{{0,{self.high}}})"
        return _PATTERNS[self.kind]

    @property
    def is_amount(self) -> bool:
        exponents = (self.low.as_tuple().exponent, self.high.as_tuple().exponent)
        return any(isinstance(exponent, int) and exponent < 0 for exponent in exponents)

    def fits(self, text: str) -> bool:
        return re.fullmatch(self.expression, text, re.ASCII) is not None and self.admits(text)

    def admits(self, text: str) -> bool:
        """Whether a text that fits the expression is allowed."""
        match self.kind:
            case "name" | "id":
                return not is_guarded(text)
            case "page":
                # A place in the page is not sent to the host.
                return not any(map(is_guarded_page, text.partition("#")[0].split("/")))
            case "message":
                return is_visible(text) and not has_code_or_number(text)
            case "file" | "path":
                return not any(is_secret(segment) for segment in text.split("/"))
            case "range":
                return self.low <= Decimal(text) <= self.high
            case "prose" | "lines":
                return is_prose(text)
            case "text":
                return is_visible(text)
        return True

    def __str__(self) -> str:
        if self.kind == "choice":
            return f"<{'|'.join(self.options)}>"
        if self.kind == "digits":
            count = f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"
            return f"<{count} digit{'' if count == '1' else 's'}>"
        if self.kind == "text" and self.high:
            return f"<text up to {self.high}>"
        return f"<{self.low}..{self.high}>" if self.kind == "range" else f"<{self.kind}>"


@dataclass(frozen=True, slots=True)
class ValueTemplate:
    """A text with slots, read from its own notation."""

    parts: tuple[str | Slot, ...]
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)
    # What every match starts with: most texts are told apart by it. Without slots it is all of it.
    _start: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", tuple(part for part in self.parts if isinstance(part, Slot)))
        start = takewhile(lambda part: isinstance(part, str), self.parts)
        object.__setattr__(self, "_start", "".join(map(str, start)))

    def matches(self, canonical: str) -> bool:
        if not canonical.startswith(self._start):
            return False
        if not self.slots:
            return len(canonical) == len(self._start)
        found = _compiled(self.parts).fullmatch(canonical)
        return found is not None and all(
            slot.admits(text) and not (slot.kind == "path" and self._is_guarded_path(text))
            for slot, text in zip(self.slots, found.groups(), strict=True)
        )

    def _is_guarded_path(self, text: str) -> bool:
        """Whether a path below a host has a word that people should look at; files may be called `main`."""
        return "://" in self._start and any(map(is_guarded, text.split("/")))

    def expression(self) -> str:
        """The template as an RE2 expression, without what slots check beside it."""
        return "".join(part.expression if isinstance(part, Slot) else quoted(part) for part in self.parts)

    def __str__(self) -> str:
        return "".join(str(part) if isinstance(part, Slot) else escape(part) for part in self.parts)


@lru_cache(maxsize=4096)
def _compiled(parts: tuple[str | Slot, ...]) -> re.Pattern[str]:
    return re.compile(
        "".join(f"({part.expression})" if isinstance(part, Slot) else re.escape(part) for part in parts),
        re.ASCII,
    )


def escape(text: str) -> str:
    """A literal text in the notation of templates."""
    return re.sub("[<>]", lambda sign: "<lt>" if sign[0] == "<" else "<gt>", text)


@lru_cache(maxsize=4096)
def read_template(text: str) -> ValueTemplate:
    """Read the notation; raises UsageError."""
    if len(text) > MAX_TEMPLATE_CHARS:
        raise UsageError(f"is longer than {MAX_TEMPLATE_CHARS:,} characters")
    template = join_parts(_parts(text))
    _check_slots(template.parts)
    return template


def join_parts(parts: Iterable[str | Slot]) -> ValueTemplate:
    """The template of these parts, with texts that follow each other in one piece."""
    joined: list[str | Slot] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        some = list(group)
        joined += ["".join(map(str, some))] if is_text else some
    return ValueTemplate(tuple(joined))


def _check_slots(parts: Sequence[str | Slot]) -> None:
    """Refuse slots that would share a text in many ways: nobody could say what each of them matches."""
    open_slots = [at for at, part in enumerate(parts) if isinstance(part, Slot) and part.kind in _OPEN_SLOTS]
    for one, other in pairwise(open_slots):
        between = "".join(part for part in parts[one:other] if isinstance(part, str))
        kinds = {part.kind for part in (parts[one], parts[other]) if isinstance(part, Slot)}
        inside = (
            r"[\s\S]"
            if kinds & {"prose", "lines", "text", "page"}
            else "[A-Za-z0-9_/#-]"
            if kinds & {"path", "id"}
            else "[A-Za-z0-9_-]"
        )
        if re.fullmatch(f"{inside}*", between):
            raise UsageError(
                f"has {parts[one]} and {parts[other]} with nothing between them that tells where one ends"
            )


def _parts(text: str) -> Iterator[str | Slot]:
    end = 0
    for found in _SLOT.finditer(text):
        if found.start() > end:
            yield _literal(text[end : found.start()])
        yield _read_slot(found[1])
        end = found.end()
    if end < len(text):
        yield _literal(text[end:])


def _literal(text: str) -> str:
    if "<" in text or ">" in text:
        raise UsageError("has a < or > that is no slot; write <lt> and <gt> for the signs themselves")
    return text


def _read_slot(name: str) -> str | Slot:
    if name in ("lt", "gt"):
        return "<" if name == "lt" else ">"
    if name in _PATTERNS:
        return Slot(name)
    if _CHOICE.fullmatch(name):
        return Slot("choice", options=tuple(name.split("|")))
    if found := _DIGITS.fullmatch(name):
        low, high = int(found[1]), int(found[2] or found[1])
        if 1 <= low <= high <= 18:
            return Slot("digits", Decimal(low), Decimal(high))
    if (found := _TEXT.fullmatch(name)) and 0 < int(found[1]) <= MAX_TEXT_CHARS:
        return Slot("text", high=Decimal(found[1]))
    if found := _RANGE.fullmatch(name):
        lowest, highest = Decimal(found[1]), Decimal(found[2])
        if lowest <= highest:
            return Slot("range", lowest, highest)
    raise UsageError(
        f"has the unknown slot <{name}>; known are <name>, <file>, <path>, <4 digits>, <1-4 digits>, "
        "<1..50>, <a|b>, <hex>, <uuid>, <date>, <id>, <page>, <message>, <prose>, <lines>, <text>, "
        "<text up to 900>, and <lt> and <gt> for the signs"
    )


def is_prose(text: str) -> bool:
    """Whether a text is made of words and punctuation alone: no code, options, mentions or addresses."""
    return (
        len(text) <= MAX_PROSE_CHARS
        and has_prose_words(text)
        and not is_command_like(text)
        and not has_code_or_number(text)
    )


# Letters and digits in one run, as in keys and passwords; longer ones than any word; digits of an account.
_MIXED_CHARS: Final = 7
_JOINED_CHARS: Final = 12
_WORD_CHARS: Final = 30
_NUMBER_DIGITS: Final = 8
_DAY: Final = re.compile(r"(?<!\d)(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?!\d)")
# Digits in groups: a card, an account, a phone; four longer groups whatever stands between them.
_GROUPED: Final = re.compile(r"\d(?:[ .-]?\d){8,}|\d{3,}(?:\W{1,3}\d{3,}){3,}")


def has_code_or_number(text: str) -> bool:
    """Whether a text has what people should look at before it is sent: keys, card and account numbers, or
    words such as password.
    """
    # Digits of other scripts, and raised ones, are digits.
    text = text if text.isascii() else "".join(str(unicodedata.digit(char, char)) for char in text)
    if _GROUPED.search(_DAY.sub("", text)):
        return True
    for word in text.split():
        runs = re.findall(r"[^\W_]+", word)
        mixed = [run for run in runs if not run.isalpha() and not run.isdigit()]
        if any(len(run) >= _MIXED_CHARS for run in mixed):
            return True
        if mixed and sum(map(len, runs)) >= _JOINED_CHARS:
            return True
        if any(map(_is_odd_run, runs)):
            return True
    return False


def _is_odd_run(run: str) -> bool:
    if run.isdigit():
        return len(run) >= _NUMBER_DIGITS
    turns = sum(1 for one, other in pairwise(run) if one.islower() and other.isupper())
    return len(run) > _WORD_CHARS or turns >= 3 or is_told_secret(run)


def has_prose_words(text: str) -> bool:
    """The same for a line of a longer text, which may begin as commands do: With, Update, Create."""
    words = text.split()
    return (
        is_visible(text)
        and bool(words)
        and all(_PROSE_WORD.fullmatch(word) for word in words)
        and not _IP_ADDRESS.search(text)
    )


# What a shell or a database would run: `drop table users` is made of words, too.
_SQL_START: Final = re.compile(
    r"\s*(?:select|insert|update|delete|with|create|drop|alter|truncate|grant|copy|pragma|explain|replace|merge)\b",
    re.IGNORECASE,
)
_SHELL_START: Final = re.compile(
    r"(?:sudo|git|npm|npx|pip3?|docker|kubectl|ls|cat|rm|cp|mv|cd|curl|wget|python3?|node|make|grep|find|"
    r"echo|psql|ssh|tar|chmod|chown|pytest|cargo|go|yarn|pnpm|helm|terraform|aws|gcloud|az|gh|head|tail|"
    r"sed|awk|bash|zsh|su|doas|shutdown|reboot|halt|poweroff|systemctl|service|kill|killall|pkill|apt|apt-get|"
    r"brew|dnf|yum|dd|crontab|nohup|eval|exec|source|xargs)(?: |$)"
)


def is_sql_like(text: str) -> bool:
    return _SQL_START.match(text) is not None


def is_shell_like(text: str) -> bool:
    return _SHELL_START.match(text) is not None


def is_command_like(text: str) -> bool:
    return is_sql_like(text) or is_shell_like(text)


_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def is_visible(text: str) -> bool:
    """Whether a text has no invisible characters but line breaks and tabs."""
    if text.isascii():
        return text.isprintable() or all(char.isprintable() or char in "\n\t" for char in text)
    return not any(unicodedata.category(char) in _INVISIBLE and char not in "\n\t" for char in text)
