"""Keeps the key of an endpoint out of everything that comes from that endpoint.

Endpoints repeat a key in errors ("invalid key sk-…"), proxies in debugging texts, and a hostile one asks its
model to print it. What the agent passes on goes to chat, reasoning, proposals and logs, so it is filtered
where it comes in. Letters and digits are compared, without case and whatever stands between them; so spaces,
line breaks and dashes hide nothing. Compared are the key itself and its encodings (base64 at every offset,
hex and percent codes, JSON escapes, reversed), and parts of them from eight characters on.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

WITHHELD: Final = "[key withheld]"
# Parts of a key that are withheld. Shorter ones occur in ordinary text; of a short key, half of it counts.
_PART_CHARS: Final = 8
_MIN_PART_CHARS: Final = 4
# Held back while a stream may be within a key; more than any real key needs.
_MAX_HELD_CHARS: Final = 4_096
# Letters that are so far apart while no key has been found are no key: text in other scripts has few of them.
_MAX_GAP_CHARS: Final = 256
# What people set where an endpoint wants no key: no secrets, but words that an answer may contain.
_PLACEHOLDERS: Final = frozenset(
    {"dummy", "empty", "fake", "key", "lmstudio", "local", "nokey", "nokeyrequired", "none", "notneeded",
     "null", "ollama", "placeholder", "sknokeyrequired", "test", "token", "unused", "xxx"}
)  # fmt: skip


class SecretFilter:
    """Replaces every trace of some secrets in text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # By length, so that a text is looked through once for each length.
        self._parts: dict[int, set[str]] = {}
        for secret in secrets:
            for word in {secret, *secret.split()}:
                self._learn(word)
        self.max_part_chars = max(self._parts, default=0)

    def _learn(self, secret: str) -> None:
        plain = _letters(secret)
        if len(plain) < _MIN_PART_CHARS or plain in _PLACEHOLDERS:
            return
        length = min(_PART_CHARS, max(_MIN_PART_CHARS, len(plain) // 2))
        for form in (plain, plain[::-1]):
            self._add(form, length)
        for form in _encodings(secret):
            self._add(_letters(form), _PART_CHARS)

    def _add(self, form: str, length: int) -> None:
        grams = self._parts.setdefault(length, set())
        grams.update(form[at : at + length] for at in range(len(form) - length + 1))

    def clean(self, text: str) -> str:
        """The text without any trace of a secret."""
        found, pieces, end = self.spans(text), [], 0
        for start, stop in found:
            pieces += [text[end:start], WITHHELD]
            end = stop
        return "".join([*pieces, text[end:]]) if found else text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the text contains secrets, in order, without overlaps."""
        if not self._parts:
            return []
        places = [at for at, char in enumerate(text) if _is_compared(char)]
        letters = "".join(text[at] for at in places).lower()
        hits = sorted(
            (at, at + length)
            for length, grams in self._parts.items()
            for at in range(len(letters) - length + 1)
            if letters[at : at + length] in grams
        )
        merged: list[tuple[int, int]] = []
        for start, stop in hits:
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((start, stop))
        return [(places[start], places[stop - 1] + 1) for start, stop in merged]


class FilteredStream:
    """A text that comes in pieces; holds back what may be the beginning of a secret."""

    def __init__(self, secrets: SecretFilter) -> None:
        self._secrets = secrets
        self._held = ""

    def write(self, text: str) -> str:
        """What can be passed on now."""
        tail = self._secrets.max_part_chars - 1
        if tail < 0:
            return text
        self._held += text
        if len(self._held) > _MAX_HELD_CHARS:
            return self.end()
        cut = len(self._held)
        if places := [at for at, char in enumerate(self._held) if _is_compared(char)]:
            cut = places[max(0, len(places) - tail)]
        found = self._secrets.spans(self._held)
        if found and cut <= found[-1][1]:
            cut = min(cut, found[-1][0])
        elif len(self._held) - cut > _MAX_GAP_CHARS:
            cut = len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._secrets.clean(ready)

    def end(self) -> str:
        """What is left."""
        ready, self._held = self._held, ""
        return self._secrets.clean(ready)


def _is_compared(char: str) -> bool:
    return char.isascii() and char.isalnum()


def _letters(text: str) -> str:
    return "".join(filter(_is_compared, text)).lower()


def _encodings(secret: str) -> Iterator[str]:
    data = secret.encode()
    for offset in range(3):
        # The first and the last group mix with what stands beside the key.
        encoded = base64.b64encode(bytes(offset) + data)[4 if offset else 0 :].rstrip(b"=")
        yield (encoded if (offset + len(data)) % 3 == 0 else encoded[:-1]).decode()
    yield data.hex()
    yield quote(secret, safe="")
    yield "".join(f"\\u{ord(char):04x}" for char in secret)
    yield "".join(f"&#{ord(char)};" for char in secret)
