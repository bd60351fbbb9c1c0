"""Expressions for imported permissions: what may be approved at most, and what is kept from being approved.

What is approved is never more than the permission allows: plain words without quotes, variables, wildcards or
operators, plain paths without `.` and `..`, addresses whose host is certain. What is rejected or asked
matches at least what the permission names, wherever it stands in the text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.trust.imports.permissions import (
    ANY_TEXT,
    ANY_WORDS,
    MORE_WORDS,
    CommandPattern,
    HostPattern,
    PathPattern,
)
from moot.values.quoting import quoted

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


def command_expressions(pattern: CommandPattern) -> Expressions:
    """The expressions for the text of a command."""
    approved, named = "", ""
    is_plain = True
    for options in pattern.places:
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


def path_expressions(pattern: PathPattern, root: str | None) -> Expressions:
    """The expressions for a path. `root` is the project's folder as the tool names it, `.` if its own."""
    if any(sign in pattern.glob for sign in "[]{}!\\") or not pattern.glob:
        raise UsageError("its pattern has signs ([ ] { } ! \\) that cannot be said here")
    segments = [segment for segment in pattern.glob.split("/") if segment]
    open_named = _path_expression(segments, any_sign="[^/]", deep=".*")
    below = "(?:/.*)?$"
    deep = pattern.base in ("any folder", "anywhere")
    prefix, why = _prefix(pattern.base, root)
    approved = None
    if prefix is not None:
        plain = [_plain_segment(segment) for segment in segments]
        if None in plain:
            why = "its wildcards could stand for `..`"
        else:
            inner = _join([segment or "" for segment in plain])
            start = f"(?:{_SEGMENT}/)*" if pattern.base == "any folder" else ""
            approved = f"^{prefix}{start}{inner}$"
    named_prefix = "(?:^|.*/)" if deep else f"^(?:{quoted(_literal_prefix(pattern.base, root))}|[.]/)?"
    return Expressions(
        approved, f"(?i){named_prefix}{open_named}{below}", f"(?i)(?:^|/){open_named}{below}", why
    )


def host_expressions(pattern: HostPattern) -> Expressions:
    """The expressions for a web address. Only https is approved: nobody on the way can change what comes."""
    if pattern.host is None:
        host = "[A-Za-z0-9-]+(?:[.][A-Za-z0-9-]+)*"
        return Expressions(f"^https://{host}(?::[0-9]+)?{_URL_REST}$", ".*", ".*")
    name = pattern.host.removeprefix("*.")
    below = name != pattern.host
    exact = ("(?:[a-z0-9-]+[.])+" if below else "") + quoted(name)
    start = rf"(?i)^\s*[a-z][a-z0-9+.-]*:[/\\]*(?:[^/?#]*@)?{'(?:[^/?#]*[.])' if below else ''}"
    named = rf"{start}{quoted(name)}[.]?(?:[:/?#\\]|\s*$)"
    return Expressions(f"^https://{exact}(?::443)?{_URL_REST}$", named, f"(?i){quoted(name)}")


def _one_of(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _spaced(text: str) -> str:
    """The text, with any white space where it has some."""
    return r"\s+".join(quoted(part) for part in re.split(r"\s+", text))


def _prefix(base: str, root: str | None) -> tuple[str | None, str]:
    match base:
        case "absolute":
            return "/", ""
        case "anywhere":
            return "/?", ""
        case "home":
            return None, "it is about a home folder, and whose that is depends on the tool's server"
    if root is None:
        return None, "it is about the folder of the project; say what the tool calls it with --root"
    return ("" if root == "." else quoted(root.rstrip("/") + "/")), ""


def _literal_prefix(base: str, root: str | None) -> str:
    match base:
        case "absolute":
            return "/"
        case "home":
            return "~/"
    return "" if root in (None, ".") else f"{(root or '').rstrip('/')}/"


def _path_expression(segments: list[str], *, any_sign: str, deep: str) -> str:
    return _join([deep if segment == "**" else _wild(segment, any_sign) for segment in segments])


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
    return None if re.fullmatch(found, "..") or re.fullmatch(found, ".") else found


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
