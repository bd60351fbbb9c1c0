"""Expressions for imported permissions: what may be approved at most, and what is kept from being approved.

What is approved is never more than the permission allows: plain words without quotes, variables, wildcards or
operators, plain paths without `.` and `..`, addresses whose host is certain. What is rejected or asked
matches at least what the permission names, wherever it stands in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.values.quoting import quoted

# Within one command: any text at this place; any further words behind it; one further word at least.
ANY_TEXT: Final = "\0text"
ANY_WORDS: Final = "\0words"
MORE_WORDS: Final = "\0more"
_WORD: Final = "[A-Za-z0-9_./:@,+-][A-Za-z0-9_./:@,+=-]*"
_PLAIN_PART: Final = re.compile("[A-Za-z0-9_./:@,+= -]*")
_NAME_SIGNS: Final = "[A-Za-z0-9_.@+=-]"
_SEGMENT: Final = f"[.]?[A-Za-z0-9_@+=-]{_NAME_SIGNS}*"
_URL_REST: Final = "(?:[/?][A-Za-z0-9_.~/?&=+,:;@!$'()*-]*)?"
_NOT_IN_A_WORD: Final = "(?:^|[^A-Za-z0-9_-])"


class Expressions(NamedTuple):
    """`approved` is None, with the reason in `why`, if nothing can be approved for certain."""

    approved: str | None
    # What the permission names, and wherever else that may be hidden.
    named: str
    nearby: str
    why: str = ""


# What says them, given the project's folder as the tools name it: `.` if their own, None if nobody said.
ReadExpressions = Callable[[str | None], Expressions]


def command_places(text: str) -> tuple[tuple[str, ...], ...]:
    """A command as one of some texts, or a sign, at each place: `*` is any text, a last ` *` more words, and
    a last `:*` any words or none.
    """
    rest: tuple[tuple[str, ...], ...] = ()
    for ending, sign in ((":*", ANY_WORDS), (" *", MORE_WORDS)):
        if not rest and text.endswith(ending) and text != ending:
            text, rest = text.removesuffix(ending), ((sign,),)
    parts = ((ANY_TEXT,) if part == "*" else (part,) for part in re.split(r"(\*)", text) if part)
    return (*parts, *rest)


def command_expressions(places: Sequence[tuple[str, ...]], _root: str | None = None) -> Expressions:
    """The expressions for the text of a command."""
    approved, named = "", ""
    is_plain = True
    for options in places:
        match options:
            case (sign,) if sign == ANY_TEXT:
                approved, named = approved + "[A-Za-z0-9_./:@,+= -]*", named + ".*"
            case (sign,) if sign in (ANY_WORDS, MORE_WORDS):
                count = "*" if sign == ANY_WORDS else "+"
                approved, named = f"{approved}(?: {_WORD}){count}", rf"{named}(?:\s.*)?"
            case _:
                is_plain = is_plain and all(_PLAIN_PART.fullmatch(text) for text in options)
                approved += _one_of([quoted(text) for text in options])
                named += _one_of([_spaced(text) for text in options])
    why = "" if is_plain else "it has quotes, variables, operators or the like, which are not compared"
    return Expressions(
        f"^{approved}$" if is_plain else None,
        rf"(?i)^\s*{named}\s*$",
        f"(?i){_NOT_IN_A_WORD}{named}",
        why,
    )


def path_expressions(glob: str, base: str, root: str | None) -> Expressions:
    """The expressions for files as .gitignore writes them; `base` is what the glob starts from."""
    if any(sign in glob for sign in "[]{}!\\") or not glob:
        raise UsageError("its pattern has signs ([ ] { } ! \\) that cannot be said here")
    segments = [segment for segment in glob.split("/") if segment]
    named = _join([".*" if segment == "**" else _wild(segment, "[^/]") for segment in segments])
    named += "(?:/.*)?$"
    prefix: str | None
    approved, why = None, ""
    match base:
        case "absolute":
            prefix, literal = "/", "/"
        case "anywhere":
            prefix, literal = "/?", ""
        case "home":
            prefix, literal = None, "~/"
            why = "it is about a home folder, and whose that is depends on the tool's server"
        case _:
            folder = "" if root in (None, ".") else f"{(root or '').rstrip('/')}/"
            prefix, literal = None if root is None else quoted(folder), folder
            why = "it is about the folder of the project; say what the tool calls it with --root"
    is_deep = base in ("any folder", "anywhere")
    start = "(?:^|.*/)" if is_deep else f"^(?:{quoted(literal)}|[.]/)?"
    if prefix is not None:
        plain = [_plain_segment(segment) for segment in segments]
        why = "its wildcards could stand for `..`" if None in plain else ""
        if not why:
            below = f"(?:{_SEGMENT}/)*" if base == "any folder" else ""
            approved = f"^{prefix}{below}{_join([segment or '' for segment in plain])}$"
    return Expressions(approved, f"(?i){start}{named}", f"(?i)(?:^|/){named}", why)


def host_expressions(host: str | None, _root: str | None = None) -> Expressions:
    """The expressions for a web address; None is any host. Only https is approved: nobody on the way can
    change what comes.
    """
    if host is None:
        anyone = "[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)*"
        return Expressions(f"^https://{anyone}(?::[0-9]+)?{_URL_REST}$", ".*", ".*")
    name = host.removeprefix("*.")
    exact, below = ("(?:[a-z0-9-]+[.])+", "(?:[^/?#]*[.])") if name != host else ("", "")
    name = quoted(name)
    named = rf"(?i)^\s*[a-z][a-z0-9+.-]*:[/\\]*(?:[^/?#]*@)?{below}{name}[.]?(?:[:/?#\\]|\s*$)"
    return Expressions(f"^https://{exact}{name}(?::443)?{_URL_REST}$", named, f"(?i){name}")


def _one_of(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _spaced(text: str) -> str:
    """The text, with any white space where it has some."""
    return r"\s+".join(quoted(part) for part in re.split(r"\s+", text))


def _wild(segment: str, any_sign: str) -> str:
    return "".join(
        f"{any_sign}*" if part.startswith("*") else any_sign if part == "?" else quoted(part)
        for part in re.findall(r"\*+|\?|[^*?]+", segment)
    )


def _plain_segment(segment: str) -> str | None:
    """What a segment may be; None if that could be `.` or `..`."""
    if segment == "**":
        return f"{_SEGMENT}(?:/{_SEGMENT})*"
    if segment == "*":
        return _SEGMENT
    found = _wild(segment, _NAME_SIGNS)
    # What has another sign than these is neither.
    is_short = not segment.strip("*?.")
    return None if is_short and (re.fullmatch(found, "..") or re.fullmatch(found, ".")) else found


def _join(segments: list[str]) -> str:
    """Segments with slashes between them; `**` between two may also be nothing."""
    joined = ""
    deep = (".*", f"{_SEGMENT}(?:/{_SEGMENT})*")
    for at, segment in enumerate(segments):
        if segment in deep and at + 1 < len(segments):
            joined += f"(?:{segment}/)?"
        else:
            joined += segment + ("/" if at + 1 < len(segments) else "")
    return joined
