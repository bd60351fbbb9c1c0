"""Controls of an agent's member, as ACP's own acts (MEW 3.9).

pause      session/cancel; no prompt until the pause is over, then it is told to go on
resume     the prompts go on by themselves
clear      a new session
compact    the agent's own command `compact`, if it has one
restart    the agent's process is started anew, with the same session where it can be restored
shutdown   session/cancel, then the process ends
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moot.participant import Control, Controls
from moot.participant.conversation.transcript import CompactionResult
from moot.protocol.operation import Json


class ControlledAgent(Protocol):
    """What the controls need of a member."""

    def metrics(self) -> Mapping[str, Json]: ...
    def pause(self, by: str) -> None: ...
    async def clear(self, by: str) -> None: ...
    async def compact(self) -> bool: ...
    def restart(self, by: str) -> None: ...
    async def shut_down(self, by: str) -> None: ...


class AcpControls(Controls):
    """Passes controls on to the agent."""

    def __init__(self, agent: ControlledAgent) -> None:
        self._agent = agent

    async def on_status(self, control: Control | None) -> Mapping[str, Json]:
        return {**await super().on_status(control), **self._agent.metrics()}

    async def on_pause(self, control: Control) -> None:
        self._agent.pause(control.sender)

    async def on_clear(self, control: Control) -> None:
        await self._agent.clear(control.sender)

    async def on_compact(self, control: Control | None, target_tokens: int | None) -> CompactionResult | None:  # noqa: ARG002
        return CompactionResult(0, 0) if await self._agent.compact() else None

    async def on_restart(self, control: Control) -> None:
        self._agent.restart(control.sender)

    async def on_shutdown(self, control: Control) -> None:
        await self._agent.shut_down(control.sender)
