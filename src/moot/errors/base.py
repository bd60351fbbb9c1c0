"""What everything that Moot raises on purpose is one of."""

from __future__ import annotations


class MootError(Exception):
    """Anything Moot raises on purpose."""


class UsageError(MootError):
    """Moot was called or configured in a way that cannot work; the text says what to change."""
