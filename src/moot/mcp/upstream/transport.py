"""What carries messages to an MCP server and back, whatever it is made of: messages are JSON objects.

A `Transport` sends messages without waiting; a `MessageSink` is given what arrives. Opening, closing and
everything between happens in the one task that opened the transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from moot.mcp.eras import JsonObject

TransportName = Literal["stdio", "http", "sse"]


class TransportClosed(Exception):
    """Nothing can be sent; the text says why, as the end of a sentence about the server."""


class MessageSink(Protocol):
    """Takes what arrives from a server."""

    def on_message(self, message: JsonObject) -> None:
        """A JSON object arrived."""

    def on_unreadable(
        self, fault: str, *, answer_to: int | None = None, too_large: tuple[int, int] | None = None
    ) -> None:
        """Something arrived that is no message; `answer_to` is the request that it seems to answer.

        `too_large` are its bytes and the most that are read, where nothing else is wrong with it.
        """

    def close(self, reason: str) -> None:
        """Nothing will arrive any more. Later calls have no effect."""


class Transport(Protocol):
    """Sends messages to a server."""

    @property
    def name(self) -> TransportName: ...

    @property
    def refusal(self) -> str | None:
        """The last refusal by something in front of the server: an HTTP status."""

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        """Send one message without waiting; raises TransportClosed."""

    def pause_reading(self, seconds: float) -> None:
        """Read nothing from the server for a while, where that is possible."""
