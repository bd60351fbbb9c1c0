"""Long reasoning as a stream (MEW 3.10.1)."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from moot.errors import MootError
from moot.participant import JoinedSpace, Reasoning


class ReasoningStream:
    """Streams reasoning once it is longer than `max_chars`; shorter reasoning opens no stream."""

    def __init__(self, space: JoinedSpace, reasoning: Reasoning | None, max_chars: int) -> None:
        self._space = space
        self._reasoning = reasoning
        self._max_chars = max_chars
        self._buffered = ""
        self._stack = AsyncExitStack()
        self._write = None if reasoning is None else self._buffer

    async def write(self, text: str) -> None:
        if self._write is not None:
            await self._write(text)

    async def _buffer(self, text: str) -> None:
        self._buffered += text
        if len(self._buffered) <= self._max_chars or self._reasoning is None:
            return
        try:
            opening = self._space.streams.open(
                description="reasoning",
                content_type="text/plain",
                format="reasoning",
                about=self._reasoning.id,
            )
            stream = await self._stack.enter_async_context(opening)
            await stream.write(self._buffered)
        except MootError:
            # No right to stream, or paused: the thought itself is still sent when it is complete.
            self._write = None
            return

        async def write(text: str) -> None:
            try:
                await stream.write(text)
            except MootError:
                self._write = None

        self._write = write

    async def end(self, fault: BaseException | None = None) -> None:
        """Close the stream, as cancelled where something ended the turn."""
        with suppress(MootError):
            await self._stack.__aexit__(None if fault is None else type(fault), fault, None)
