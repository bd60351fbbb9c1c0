"""What an agent tells of itself and how it obeys (MEW 3.9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moot.participant import Control, Controls, Transcript
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.agent.agent import Agent


@dataclass(slots=True)
class AgentStatus:
    """What a status tells beyond the transcript (MEW 3.9.4)."""

    turns: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0


class AgentControls(Controls):
    """MEW 3.9: the transcript does most; an agent adds its figures and ends what it is doing."""

    def __init__(self, agent: Agent, memory: Transcript) -> None:
        self.memory = memory
        self._agent = agent

    async def on_status(self, control: Control | None) -> Mapping[str, Json]:
        figures, toolbox = self._agent.figures, self._agent.toolbox
        return {
            **await super().on_status(control),
            **({"search": toolbox.search_mode} if toolbox is not None else {}),
            "latency_ms": figures.latency_ms,
            "turns": figures.turns,
            "turns_waiting": self._agent.waiting,
            "tool_calls": figures.tool_calls,
            "prompt_tokens": figures.prompt_tokens,
            "completion_tokens": figures.completion_tokens,
            "model": self._agent.model.settings.model,
        }

    async def on_clear(self, control: Control) -> None:
        self._agent.drop_turns("cleared")
        await super().on_clear(control)

    async def on_restart(self, control: Control) -> None:
        self._agent.drop_turns("restarted")
        await super().on_restart(control)

    async def on_shutdown(self, control: Control) -> None:
        self._agent.drop_turns("shut down")
        await super().on_shutdown(control)
