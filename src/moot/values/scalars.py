"""E-mail addresses, ids, versions, amounts with a currency, dates and times, days from now, and prose."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from moot.values.atoms import Atom, Role, fixed, name_atom
from moot.values.templates import MAX_TEXT_CHARS, is_prose, is_visible

_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)(?P<tag>\+[A-Za-z0-9._-]+)?"
    r"@(?P<domain>[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+)",
    re.ASCII,
)
_ID: Final = re.compile(
    r"(?=[^0-9]*[0-9])#?[A-Za-z0-9]{1,40}(?:[-_#:.][A-Za-z0-9]{1,40}){0,5}|v?[0-9]{1,6}(?:\.[0-9]{1,6}){1,3}",
    re.ASCII,
)
_AMOUNT: Final = re.compile(
    r"(?P<before>[$€£¥]|[A-Z]{3} )?(?P<number>0|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]{0,11})"
    r"(?P<cents>\.[0-9]{2})?(?P<after> ?[$€£¥]| ?[A-Z]{3})?"
)
_TIME: Final = re.compile(
    r"([12][0-9]{3}-[01][0-9]-[0-3][0-9])(?:([T ])([0-2][0-9]):([0-5][0-9])(?::([0-5][0-9])(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-2][0-9]:[0-5][0-9])?)?",
    re.ASCII,
)


def email_atoms(text: str) -> list[Atom] | None:
    """One address, or several with commas between them; None if it is anything else.

    The whole domain is fixed, the name before it can vary. No display names, no tags.
    """
    atoms: list[Atom] = []
    for at, part in enumerate(re.split(", ?", text)):
        found = _ADDRESS.fullmatch(part)
        if found is None or len(part) > 254:
            return None
        atoms += [fixed(", ")] if at else []
        # A tag can be a mailbox of its own; several addresses were approved as they stood together.
        role: Role = "word" if found["tag"] or "," in text else "stem"
        atoms.append(Atom(role, found["name"]))
        atoms.append(fixed((found["tag"] or "") + "@" + found["domain"].lower()))
    return atoms


def id_atoms(text: str) -> list[Atom] | None:
    """A UUID, a hash, a version, or words and numbers with signs between them, such as INV-2026-0412."""
    whole = name_atom(text, "fixed")
    if whole.role in ("uuid", "hex", "date"):
        return [whole]
    if not _ID.fullmatch(text):
        return None
    return [
        Atom(
            "digits" if piece.isdigit() and len(piece) <= 18 else "word" if piece.isalpha() else "fixed",
            piece,
        )
        for piece in re.findall("[A-Za-z]+|[0-9]+|.", text)
    ]


def amount_atoms(text: str) -> list[Atom] | None:
    """A number that is neither negative nor in powers of ten, with one currency, before or behind it."""
    found = _AMOUNT.fullmatch(text)
    if found is None or bool(found["before"]) == bool(found["after"]):
        return None
    number = found["number"].replace(",", "") + (found["cents"] or ".00")
    return [
        *([fixed(found["before"])] if found["before"] else []),
        Atom("amount", number),
        *([fixed(found["after"])] if found["after"] else []),
    ]


def time_atoms(text: str) -> list[Atom] | None:
    """A date, or a date with a time of day; the zone is fixed."""
    found = _TIME.fullmatch(text)
    if found is None or name_atom(found[1]).role != "date":
        return None
    day, gap, hour, minute, second, fraction, zone = found.groups()
    atoms = [Atom("date", day)]
    if gap:
        atoms += [fixed(gap), Atom("digits", hour), fixed(":"), Atom("digits", minute)]
        atoms += [fixed(":"), Atom("digits", second)] if second else []
        atoms += [fixed("."), Atom("digits", fraction[1:])] if fraction else []
        atoms += [fixed(zone)] if zone else []
    return atoms


_DAYS: Final = re.compile(r"0|-?[1-9][0-9]{0,3}", re.ASCII)


def day_atoms(text: str) -> list[Atom] | None:
    """How many days a date is after that of the call, as `days_until` gives it."""
    return [Atom("number", text)] if _DAYS.fullmatch(text) else None


def days_until(text: object, moment: float) -> str | None:
    """How many days a date is after that of a moment (in UTC), as a number; None if it is no plain date."""
    if not isinstance(text, str) or len(text) != len("2026-01-31") or time_atoms(text) is None:
        return None
    try:
        return str((date.fromisoformat(text) - datetime.fromtimestamp(moment, UTC).date()).days)
    except (ValueError, OverflowError, OSError):
        # Also a moment of no year that a calendar has.
        return None


def date_after(days: str, moment: float) -> str:
    """The date that is so many days after that of a moment; what is no number stays as it is."""
    if day_atoms(days) is None:
        return days
    try:
        return (datetime.fromtimestamp(moment, UTC).date() + timedelta(int(days))).isoformat()
    except OverflowError:
        return days


def text_atoms(text: str) -> list[Atom] | None:
    """A text as one atom: prose, or any text."""
    if is_prose(text):
        return [Atom("prose", text)]
    return [Atom("text", text)] if len(text) <= MAX_TEXT_CHARS and is_visible(text) else None
