"""Prints events as lines for people (XP 10): time, kind, sender and recipient, size; colored on a terminal.

    09:24:01  com.demo.files.read            client → adapter      612 B  4f1c09ab
    09:24:01  com.demo.files.read.result     adapter → client    1.4 KiB  4f1c09ab
        {"content": "…"}

The payload of a sealed event is shown only on request, and only if its recipient's key is ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moot.errors import MootError
from moot.logs import escape
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.events.event_composer import open_payload
from moot.xprotocol.events.events import ANNOUNCE, Signed, SignedDirected
from moot.xprotocol.identity.keys import Identity

# Of a payload, as one line.
MAX_PAYLOAD_CHARS: Final = 600
_KEY_CHARS: Final = 16
_ID_CHARS: Final = 8
_RED, _GREEN, _BLUE, _DIM, _PLAIN = "\033[31m", "\033[32m", "\033[34m", "\033[2m", "\033[0m"


class EventLog:
    """Writes a line per event, from `start` on. `decryption_keys` opens the payloads that are shown."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        colour: bool = False,
    ) -> None:
        self._write = write
        self._colour = colour
        self._names: Mapping[str, str] = {}
        # Events before `start`; None: it was called.
        self._buffered: list[Signed] | None = []
        # Identities by key; empty: payloads are not shown.
        self.decryption_keys: Mapping[str, Identity] = {}

    def start(self, names: Mapping[str, str]) -> None:
        """Set the names of keys and write the buffered events."""
        self._names = names
        buffered, self._buffered = self._buffered, None
        for signed in buffered or ():
            self.log_event(signed)

    def log_event(self, signed: Signed) -> None:
        if self._buffered is not None:
            self._buffered.append(signed)
            return
        event = signed.event
        when = time.strftime("%H:%M:%S", time.localtime(time.time()))
        to = "everyone" if event.recipient is None else self._name(event.recipient)
        route = f"{self._name(event.sender)} → {to}"
        about = (event.correlation_id or event.id)[:_ID_CHARS]
        kind = self._colored(f"{escape(event.kind):40}", _color_of(event.kind))
        dimmed = self._colored(escape(about), _DIM)
        self._write(f"{when}  {kind} {route:24} {_format_size(len(signed.raw)):>9}  {dimmed}")
        if self.decryption_keys:
            self._write_payload(signed)

    def _write_payload(self, signed: Signed) -> None:
        payload: Json
        if isinstance(signed, SignedDirected):
            identity = self.decryption_keys.get(signed.event.recipient)
            if identity is None:
                return
            try:
                payload = open_payload(signed, identity)
            except MootError as fault:
                self._write(f"    {self._colored(f'cannot be decrypted: {fault}', _RED)}")
                return
        else:
            payload = signed.event.payload
        text = escape(encode(payload).decode("utf-8", "replace"))
        cut = text if len(text) <= MAX_PAYLOAD_CHARS else text[:MAX_PAYLOAD_CHARS] + "…"
        self._write(f"    {self._colored(cut, _DIM)}")

    def _name(self, key: str) -> str:
        return self._names.get(key) or key[:_KEY_CHARS] + "…"

    def _colored(self, text: str, color: str) -> str:
        return f"{color}{text}{_PLAIN}" if self._colour and color else text


def _color_of(kind: str) -> str:
    if kind == "xp.error" or kind.endswith(".error"):
        return _RED
    if kind.endswith(".result"):
        return _GREEN
    return _BLUE if kind == ANNOUNCE else ""


def _format_size(count: int) -> str:
    return f"{count} B" if count < 1_024 else f"{count / 1_024:.1f} KiB"
