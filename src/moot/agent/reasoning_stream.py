"""Thinking aloud at length: a stream for what is too long for one thought (MEW 3.10.1)."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from moot.errors import MootError
from moot.participant import JoinedSpace, Reasoning


class ReasoningStream:
    """Long reasoning as a stream while it grows; short answers open none."""

    def __init__(self, space: JoinedSpace, reasoning: Reasoning | None, most: int) -> None:
        self._space = space
        self._reasoning = reasoning
        self._most = most
        self._held = ""
        self._stack = AsyncExitStack()
        self._write = None if reasoning is None else self._hold

    async def hear(self, text: str) -> None:
        if self._write is not None:
            await self._write(text)

    async def _hold(self, text: str) -> None:
        self._held += text
        if len(self._held) <= self._most or self._reasoning is None:
            return
        try:
            opening = self._space.stream(
                description="reasoning",
                content_type="text/plain",
                format="reasoning",
                about=self._reasoning.id,
            )
            stream = await self._stack.enter_async_context(opening)
            await stream.write(self._held)
        except MootError:
            # No right to stream, or paused: the thought itself is still told when it is complete.
            self._write = None
            return

        async def write(text: str) -> None:
            try:
                await stream.write(text)
            except MootError:
                self._write = None

        self._write = write

    async def end(self) -> None:
        with suppress(MootError):
            await self._stack.aclose()
