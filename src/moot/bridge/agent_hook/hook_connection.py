"""One call of a coding agent, over a connection of its own: decided in the space, or told there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.bridge.agent_hook.hook_call import HookCall
from moot.bridge.agent_hook.hook_gate import HookGate
from moot.participant import JoinedSpace, ParticipantLimits, connect

# A gateway that does not answer by then counts as gone.
CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMember:
    """The agent's member, and the folder that all its hooks share."""

    gateway: str
    space: str
    token: str = field(repr=False)
    # The member's name, for gateways that do not know whose token it is.
    name: str | None = None
    state_folder: Path

    async def wait_for_release(self, call: HookCall, wait_seconds: float) -> str:
        """Who released the call; raises MootError if nobody did."""
        with ExitStack() as stack:
            async with self._joined() as space:
                gate = HookGate(space, self.state_folder, stack)
                return await gate.wait_for_release(call.params, wait_seconds)

    async def tell(self, text: str) -> None:
        """Say something in the space, as the agent's member; raises MootError."""
        async with self._joined() as space:
            await space.chat(text)

    @asynccontextmanager
    async def _joined(self) -> AsyncIterator[JoinedSpace]:
        # Passive: several hooks of one agent run at once, and each answers for its own call only.
        async with connect(
            self.gateway,
            self.space,
            self.token,
            name=self.name,
            passive=True,
            limits=ParticipantLimits(connect_seconds=CONNECT_SECONDS),
        ) as space:
            yield space
