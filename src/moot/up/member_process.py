"""A member that is a process of ours: started, watched, restarted with back-off, and certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moot.config import connect_settings
from moot.config.configuration import MemberConfig
from moot.errors import UsageError
from moot.resilience.child_process import ChildExit, ChildProcess, start_child
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy, keep_running
from moot.up.member_command import resolve_command
from moot.up.member_log import MemberLog
from moot.up.part_status import PartState, PartStatus
from moot.up.template_vars import TemplateVars

log = logging.getLogger(__name__)


class MemberProcess:
    """One member. `run` keeps it running until cancelled; `status` says how it is doing."""

    kind: Final = "member"

    def __init__(
        self,
        config: MemberConfig,
        variables: TemplateVars,
        logs: Path,
        *,
        on_change: Callable[[], None],
        restart: RestartPolicy = DEFAULT_RESTART,
    ) -> None:
        self.config = config
        self.name = variables.name
        self.space = variables.space
        self.pid: int | None = None
        self.log = MemberLog(logs, variables.token)
        self._variables = variables
        self._restart = restart
        self._state = PartState(on_change)

    def status(self) -> PartStatus:
        state, message = self._state.state, self._state.message
        return PartStatus(
            space=self.space,
            name=self.name,
            kind="member",
            state=state,
            pid=self.pid,
            since=self._state.since,
            restarts=self._state.restarts,
            message=message or self.log.last_line if state == "running" else message,
        )

    async def run(self) -> None:
        """Run until cancelled, or until it has ended and is not to be restarted. Leaves no process behind."""
        try:
            _, reason = await keep_running(
                self._run_once,
                self._restart,
                should_restart=lambda end: self._should_restart(end[0]),
                on_delay=lambda end, seconds: self._state.wait_for_restart(end[1], seconds),
            )
            self._state.change("ended", reason)
        finally:
            self.log.close()

    def _should_restart(self, ended: ChildExit | None) -> bool:
        match self.config.restart:
            case "always":
                return True
            case "never":
                return False
            case "on-failure":
                return ended is None or ended.code != 0

    async def _run_once(self) -> tuple[ChildExit | None, str]:
        """One run of the process; how it ended, and that as text."""
        self._state.start()
        try:
            child, message = await self._start()
        except UsageError as fault:
            self.log.note(f"cannot be started: {fault}")
            return None, str(fault)
        self.pid = child.pid
        self._state.change("running", message)
        log.info("member started", extra={"space": self.space, "participant": self.name, "pid": self.pid})
        try:
            # Not awaited itself: cancelling this task would cancel the future for everybody.
            await asyncio.wait([child.ended])
        except asyncio.CancelledError:
            self._state.change("stopping")
            await child.stop()
            raise
        finally:
            child.kill()
            self.log.flush()
            self.pid = None
        ended = child.ended.result()
        self.log.note(str(ended))
        log.info("member ended", extra={"space": self.space, "participant": self.name, "how": str(ended)})
        return ended, str(ended)

    async def _start(self) -> tuple[ChildProcess, str]:
        """The started process, and a message about variables that it does not get; raises UsageError."""
        command = resolve_command(self.config, self._variables, own_variables(self._variables))
        child = await start_child(
            list(command.argv),
            environment=command.environment,
            cwd=command.cwd,
            on_stdout=self.log.feed,
            on_stderr=self.log.feed,
        )
        return child, f"without {', '.join(command.unset)}: not set" if command.unset else ""


def own_variables(variables: TemplateVars) -> dict[str, str]:
    """The variables that a member gets unless the configuration sets them otherwise."""
    own = {
        connect_settings.URL: variables.gateway,
        connect_settings.SPACE: variables.space,
        connect_settings.PARTICIPANT: variables.name,
        connect_settings.TOKEN: variables.token.reveal(),
        # So that its output is read as it comes.
        "PYTHONUNBUFFERED": "1",
    }
    if variables.token_file is not None:
        own[connect_settings.TOKEN_FILE] = str(variables.token_file)
    return own
