"""The formats of JSON Schema as languages, from the documents that define them.

Those marked exact say all of the format. The others say its shape; the note says what they leave out.
Formats that are not listed here mean nothing to validators and nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from moot.xprotocol.grammar.language.languages import Language
from moot.xprotocol.grammar.language.pattern_search import search_language

# RFC 3339 5.6 and 5.7: months have their lengths, February 29 comes in leap years.
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_OFFSET = f"(?:[Zz]|[+-]{_CLOCK})"


# 5.7: second 60 ends a day in UTC. Other clocks would add 2,800 ways to write one second a year.
_LEAP_SECOND = f"23:59:60{_FRACTION}(?:[Zz]|[+-]00:00)"
_TIME = f"(?:{_CLOCK}:[0-5][0-9]{_FRACTION}{_OFFSET}|{_LEAP_SECOND})"

# RFC 3339 appendix A. Weeks stand alone; a unit is only followed by the next smaller one.
_TIMES = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:{_DAYS}(?:{_TIMES})?|{_TIMES}|[0-9]+W)"

_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

# RFC 2673 3.2 and RFC 4291 2.2.
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = "[0-9a-fA-F]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = (
    f"(?:(?:{_H16}:){{6}}{_LS32}"
    f"|::(?:{_H16}:){{5}}{_LS32}"
    f"|(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}"
    f"|(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}"
    f"|(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}"
    f"|(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}"
    f"|(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}"
    f"|(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}"
    f"|(?:(?:{_H16}:){{0,6}}{_H16})?::)"
)

# RFC 1123 2.1: labels of letters, digits and inner dashes, 63 at most.
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

# RFC 5321 4.1.2.
_ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_EMAIL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_HOSTNAME}|\[(?:{_IPV4}|IPv6:{_IPV6})\])"

# RFC 3986 appendix A.
_PERCENT = "%[0-9a-fA-F]{2}"
_UNRESERVED = r"a-zA-Z0-9._~\-"
_SUB = "!$&'()*+,;="
_BEYOND = (
    r"\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD}\u{30000}-\u{3FFFD}"
    r"\u{40000}-\u{4FFFD}\u{50000}-\u{5FFFD}\u{60000}-\u{6FFFD}\u{70000}-\u{7FFFD}\u{80000}-\u{8FFFD}"
    r"\u{90000}-\u{9FFFD}\u{A0000}-\u{AFFFD}\u{B0000}-\u{BFFFD}\u{C0000}-\u{CFFFD}\u{D0000}-\u{DFFFD}"
    r"\u{E1000}-\u{EFFFD}"
)
_PRIVATE = r"\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}"


def _uri(*, beyond: str = "", private: str = "", relative: bool = False) -> str:
    letters = f"{_UNRESERVED}{beyond}{_SUB}"
    char = f"(?:[{letters}:@]|{_PERCENT})"
    literal = rf"\[(?:{_IPV6}|[vV][0-9a-fA-F]+\.[{_UNRESERVED}{_SUB}:]+)\]"
    authority = f"(?:(?:[{letters}:]|{_PERCENT})*@)?(?:{literal}|(?:[{letters}]|{_PERCENT})*)(?::[0-9]*)?"
    after = f"(?:/{char}*)*"
    absolute = f"/(?:{char}+{after})?"
    path = f"(?://{authority}{after}|{absolute}|{char}+{after}|)"
    rest = rf"(?:\?(?:[{letters}:@/?{private}]|{_PERCENT})*)?(?:#(?:[{letters}:@/?]|{_PERCENT})*)?"
    whole = f"[a-zA-Z][a-zA-Z0-9+.-]*:{path}{rest}"
    if not relative:
        return whole
    no_colon = f"(?:[{letters}@]|{_PERCENT})+"
    return f"(?:{whole}|(?://{authority}{after}|{absolute}|{no_colon}{after}|){rest})"


_POINTER = "(?:/(?:[^~/]|~[01])*)*"

# Name, its pattern, and what the pattern leaves out.
_FORMATS: dict[str, tuple[Callable[[], str], str | None]] = {
    "date": (lambda: _DATE, None),
    "time": (lambda: _TIME, None),
    "date-time": (lambda: f"{_DATE}[Tt]{_TIME}", None),
    "duration": (lambda: _DURATION, None),
    "uuid": (lambda: _UUID, None),
    "ipv4": (lambda: _IPV4, None),
    "ipv6": (lambda: _IPV6, None),
    "hostname": (
        lambda: _HOSTNAME,
        "253 characters at most, and what internationalised labels must decode to",
    ),
    "email": (
        lambda: _EMAIL,
        "64 characters before the @, 254 in all, and some forms that validators refuse",
    ),
    "uri": (_uri, None),
    "uri-reference": (lambda: _uri(relative=True), None),
    "iri": (lambda: _uri(beyond=_BEYOND, private=_PRIVATE), None),
    "iri-reference": (lambda: _uri(beyond=_BEYOND, private=_PRIVATE, relative=True), None),
    "json-pointer": (lambda: _POINTER, None),
    "relative-json-pointer": (lambda: f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", None),
}
# Formats that validators know and no pattern of ours describes.
_UNSAID = frozenset({"idn-email", "idn-hostname", "uri-template", "regex"})


def format_language(name: str) -> Language | None:
    """The language of a format, or `None` if it is not written here."""
    return _language(name) if name in _FORMATS else None


def format_note(name: str) -> str | None:
    """What of the format is not enforced, in words; `None` if nothing is missing."""
    if name in _UNSAID:
        return f"format {name} is not enforced"
    missing = _FORMATS[name][1] if name in _FORMATS else None
    return f"format {name} is enforced but for: {missing}" if missing else None


@lru_cache(maxsize=64)
def _language(name: str) -> Language:
    return search_language(f"^(?:{_FORMATS[name][0]()})$")
