"""The status of an agent, and how it reacts to controls (MEW 3.9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from moot.participant import Control, Controls, Transcript
from moot.protocol.operation import Json


@dataclass(slots=True)
class AgentStatus:
    """The metrics of an agent beyond its transcript (MEW 3.9.4)."""

    turns: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0


class AgentControls(Controls):
    """Adds `metrics` of the agent to its status, and drops its turns before it clears, restarts or ends."""

    def __init__(
        self,
        transcript: Transcript,
        metrics: Callable[[], Mapping[str, Json]],
        drop_turns: Callable[[str], Awaitable[None]],
    ) -> None:
        self.transcript = transcript
        self._metrics = metrics
        self._drop_turns = drop_turns

    async def on_status(self, control: Control | None) -> Mapping[str, Json]:
        return {**await super().on_status(control), **self._metrics()}

    async def on_clear(self, control: Control) -> None:
        await self._drop_turns("cleared")
        await super().on_clear(control)

    async def on_restart(self, control: Control) -> None:
        await self._drop_turns("restarted")
        await super().on_restart(control)

    async def on_shutdown(self, control: Control) -> None:
        await self._drop_turns("shut down")
        await super().on_shutdown(control)
