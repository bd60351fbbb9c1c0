"""Texts as capability patterns that match nothing else."""

from __future__ import annotations

from moot.protocol.patterns.compiler import MAX_STRING_BYTES
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex


def literal(text: str) -> str | None:
    """The pattern that matches this text alone; None if it is too long or has half a character."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return None
    if not (is_wild(text) or text.startswith("!") or is_regex(text)):
        return text if len(text.encode(errors="surrogatepass")) <= MAX_STRING_BYTES else None
    return anchored(quoted(text))


def anchored(expression: str) -> str | None:
    pattern = f"^{expression}$"
    return f"/{pattern}/" if len(pattern.encode(errors="surrogatepass")) <= MAX_STRING_BYTES else None


def quoted(text: str) -> str:
    """The text as an RE2 expression; signs stand in brackets, which reads better than backslashes."""
    return "".join(_quoted(char) for char in text)


def _quoted(char: str) -> str:
    if char.isalnum() or char in "/-_ :,=@~#\"'<>&%;`" or not char.isascii():
        return char
    return f"[{char}]" if char not in "^[]\\\n\r\t\0" and char.isprintable() else f"\\x{{{ord(char):x}}}"
