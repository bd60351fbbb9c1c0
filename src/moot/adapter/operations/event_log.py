"""Events as lines for people (XP 10): when, what kind, from whom to whom, how large; in colour on a terminal.

    09:24:01  com.demo.files.read            client → adapter      612 B  4f1c09ab
    09:24:01  com.demo.files.read.result     adapter → client    1.4 KiB  4f1c09ab
        {"content": "…"}

What a sealed event holds is shown only where it was asked for, and only where its recipient's key is ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moot.errors import MootError
from moot.identity.keys import Identity
from moot.logs import escaped
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.events import ANNOUNCE, Signed, SignedDirected
from moot.xprotocol.payload_seal import open_payload

# Of a payload, as one line; the store has all of it.
PAYLOAD_CHARS: Final = 600
_KEY_CHARS: Final = 16
_ID_CHARS: Final = 8
_RED, _GREEN, _BLUE, _DIM, _PLAIN = "\033[31m", "\033[32m", "\033[34m", "\033[2m", "\033[0m"


class EventLog:
    """Writes lines by `write`, from `begin` on. `opening` holds the keys that open what is shown."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        colour: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._write = write
        self._colour = colour
        self._clock = clock
        self._names: Mapping[str, str] = {}
        # What came before the beginning; None: it has begun.
        self._early: list[Signed] | None = []
        # By key; empty: payloads are not shown.
        self.opening: Mapping[str, Identity] = {}

    def begin(self, names: Mapping[str, str]) -> None:
        """Now it is known what whose key is called; events that came before are shown, too."""
        self._names = names
        early, self._early = self._early, None
        for signed in early or ():
            self.event(signed)

    def event(self, signed: Signed) -> None:
        if self._early is not None:
            self._early.append(signed)
            return
        event = signed.event
        when = time.strftime("%H:%M:%S", time.localtime(self._clock()))
        to = "everybody" if event.recipient is None else self._name(event.recipient)
        way = f"{self._name(event.sender)} → {to}"
        about = (event.correlation_id or event.id)[:_ID_CHARS]
        kind = self._tinted(f"{escaped(event.kind):40}", _tint(event.kind))
        faint = self._tinted(escaped(about), _DIM)
        self._write(f"{when}  {kind} {way:24} {_size(len(signed.raw)):>9}  {faint}")
        if self.opening:
            self._show(signed)

    def _show(self, signed: Signed) -> None:
        payload: Json
        if isinstance(signed, SignedDirected):
            identity = self.opening.get(signed.event.recipient)
            if identity is None:
                return
            try:
                payload = open_payload(signed, identity)
            except MootError as fault:
                self._write(f"    {self._tinted(f'cannot be opened: {fault}', _RED)}")
                return
        else:
            payload = signed.event.payload
        text = escaped(encode(payload).decode("utf-8", "replace"))
        cut = text if len(text) <= PAYLOAD_CHARS else text[:PAYLOAD_CHARS] + "…"
        self._write(f"    {self._tinted(cut, _DIM)}")

    def _name(self, key: str) -> str:
        return self._names.get(key) or key[:_KEY_CHARS] + "…"

    def _tinted(self, text: str, tint: str) -> str:
        return f"{tint}{text}{_PLAIN}" if self._colour and tint else text


def _tint(kind: str) -> str:
    if kind == "xp.error" or kind.endswith(".error"):
        return _RED
    if kind.endswith(".result"):
        return _GREEN
    return _BLUE if kind == ANNOUNCE else ""


def _size(count: int) -> str:
    return f"{count} B" if count < 1_024 else f"{count / 1_024:.1f} KiB"
