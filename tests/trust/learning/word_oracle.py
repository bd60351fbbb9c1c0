"""Judges a call by the words of a suggestion alone, as a person who reads them would.

It takes the templates out of the sentence (“git log -n <3..40>”), reads the text by Python's own means, and
compares part by part. Nothing of the product's readers, templates or matching is used here.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from decimal import Decimal, InvalidOperation
from typing import Final
from urllib.parse import urlsplit

# Of those that people should look at, the words that the probes try.
_WATCHED: Final = frozenset({"secrets", "main", "admin"})
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
_SHELL_SIGNS: Final = re.compile(r"[;&|<>$`\\\n\r\0*?\[\]{}()!#~]")


def allowed_by_words(words: str, argument: str, text: str) -> bool:
    """Whether one of the templates in the sentence says this text."""
    read = _read_as(argument, text)
    templates = re.findall("“([^”]*)”", words)
    return read is not None and any(_says(template, read) for template in templates)


def _read_as(argument: str, text: str) -> str | None:
    """The text as it is meant, by what the argument is called; None if that is not certain."""
    match argument:
        case "command":
            if _SHELL_SIGNS.search(text) or not text.isascii():
                return None
            try:
                words = shlex.split(text)
            except ValueError:
                return None
            return " ".join(words) if all(re.fullmatch(r"\S+", word) for word in words) else None
        case "path":
            return text if posixpath.normpath(text) == text else None
        case "url":
            if not text.isascii() or not text.isprintable() or "?" in text or "#" in text:
                return None
            parts = urlsplit(text)
            return f"{parts.scheme}://{parts.netloc}{parts.path}"
        case "to":
            local, at, domain = text.partition("@")
            return f"{local}@{domain.lower()}" if at else None
        case "amount":
            found = re.fullmatch(r"([0-9]+(?:\.[0-9]{2})?) ([A-Z]{3})", text, re.ASCII)
            return text if found else None
    return None


def _says(template: str, text: str) -> bool:
    slots = re.findall("<([^<>]*)>", template)
    literals = re.split("<[^<>]*>", template)
    expression = "(.*)".join(re.escape(each) for each in literals)
    found = re.fullmatch(expression, text, re.ASCII)
    return found is not None and all(_fits(*pair) for pair in zip(slots, found.groups(), strict=True))


def _fits(slot: str, text: str) -> bool:
    """What a slot means, in the words of the documentation."""
    runs = set(re.findall("[a-z]+", text.lower()))
    if slot == "name":
        return re.fullmatch(_NAME, text, re.ASCII) is not None and not runs & _WATCHED
    if slot == "file":
        return re.fullmatch(_NAME, text, re.ASCII) is not None and "secrets" not in runs
    if slot == "hex":
        return re.fullmatch("[0-9a-f]{7,64}", text) is not None
    if digits := re.fullmatch(r"(\d+)(?:-(\d+))? digits?", slot):
        low, high = int(digits[1]), int(digits[2] or digits[1])
        return re.fullmatch("[0-9]+", text) is not None and low <= len(text) <= high
    if ".." in slot:
        lowest, highest = slot.split("..")
        try:
            plain = re.fullmatch(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", text) is not None
            return plain and Decimal(lowest) <= Decimal(text) <= Decimal(highest)
        except InvalidOperation:
            return False
    raise AssertionError(f"the oracle does not know <{slot}>: say what it means here first")
