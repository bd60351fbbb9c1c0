"""Texts that a regular expression may match, made from the expression; the caller checks them with it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

# The parser of the standard library; its grammar includes nearly all that RE2 knows.
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

_LIKELY: Final = "ax0A9-_./ @:=,;$"
_MAX_BRANCHES: Final = 4


def regex_examples(source: str, *, filling: str | None = None) -> Iterator[str]:
    """A few texts; with `filling`, that stands in place of what repeats an open class such as `.*`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parser.parse(source)
    except (re.error, RecursionError, OverflowError):
        return
    for branch in range(_MAX_BRANCHES if "|" in source else 1):
        yield "".join(_texts(tree, branch, filling))


def _texts(tree: Any, branch: int, filling: str | None) -> Iterator[str]:
    for kind, value in tree:
        if kind is sre.LITERAL:
            yield chr(value)
        elif kind in (sre.NOT_LITERAL, sre.ANY, sre.IN):
            yield _one_of((kind, value))
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, high, inner = value
            if filling is not None and len(inner) == 1 and inner[0][0] in (sre.ANY, sre.IN, sre.NOT_LITERAL):
                # Only what the class takes, so that `[a-z]+` is tried with nothing that it cannot be.
                fits = all(map(_class_of(inner[0]).fullmatch, filling))
                yield filling if fits and low <= len(filling) <= high else _one_of(inner[0]) * max(low, 1)
            else:
                yield "".join(_texts(inner, branch, filling)) * max(int(low), min(1, int(high)))
        elif kind is sre.SUBPATTERN:
            yield from _texts(value[-1], branch, filling)
        elif kind is sre.BRANCH:
            yield from _texts(value[1][branch % len(value[1])], branch, filling)


def _one_of(item: Any) -> str:
    one = _class_of(item)
    likely = (*_LIKELY, *(chr(code) for code in range(32, 0x250)))
    return next((char for char in likely if one.fullmatch(char)), "")


def _class_of(item: Any) -> re.Pattern[str]:
    """One class of characters, from its parsed form."""
    found: re.Pattern[str] = compiler.compile(parser.SubPattern(parser.State(), [item]))
    return found
