"""Runs a program as a member of a space: started first, then joined, and ended whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from moot.participant.connect import connect
from moot.participant.connection.envelope_sender import CloseReason
from moot.participant.control.controls import Controls
from moot.participant.joined_space import JoinedSpace
from moot.participant.programs.join_target import MemberSettings
from moot.private_files import use_folder

log = logging.getLogger(__name__)


class MemberProgram(Protocol):
    """An agent that is started before it joins, so that a space sees no member that cannot work."""

    @property
    def controls(self) -> Controls: ...
    async def start(self) -> None: ...
    async def run(self, space: JoinedSpace) -> CloseReason: ...
    async def stop(self) -> None: ...


Program = TypeVar("Program", bound=MemberProgram)


async def run_member(
    make: Callable[[], Program],
    settings: MemberSettings,
    *,
    on_joined: Callable[[Program, str], None] | None = None,
) -> CloseReason:
    """Make a program once its folder is there, start it, join with it and stay until that ends.

    Raises what `start` raises, and NotAdmitted or Unreachable if the space cannot be joined.
    """
    use_folder(settings.state_folder, what="the state folder", option="--state DIR")
    program = make()
    try:
        await program.start()
        async with connect(
            settings.gateway,
            settings.space,
            settings.token,
            name=settings.name,
            limits=settings.member,
            controls=program.controls,
        ) as space:
            log.info("joined", extra={"space": settings.space, "participant": space.me})
            if on_joined is not None:
                on_joined(program, space.me)
            return await program.run(space)
    finally:
        await program.stop()
