"""A member that is a process of ours: started, watched, started again with back-off, ended for certain."""

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
from moot.up.member_command import argument_list, member_environment
from moot.up.member_log import MemberLog
from moot.up.part_status import PartStatus, State
from moot.up.template_vars import TemplateVars

log = logging.getLogger(__name__)

# Lines of a member's output that are shown when it fails.
LAST_WORDS: Final = 5


class MemberProcess:
    """One member. `run` keeps it going until cancelled; `standing` tells how it does."""

    kind: Final = "member"

    def __init__(
        self,
        config: MemberConfig,
        words: TemplateVars,
        logs: Path,
        *,
        on_change: Callable[[], None],
        restart: RestartPolicy = DEFAULT_RESTART,
    ) -> None:
        self.config = config
        self.name = words.name
        self.space = words.space
        self._starts = 0
        self.pid: int | None = None
        self.book = MemberLog(logs, words.token)
        self._words = words
        self._on_change = on_change
        self._restart = restart
        self._state: State = "starting"
        self._since = asyncio.get_running_loop().time()
        self._said = ""

    def standing(self) -> PartStatus:
        words = self._said or self.book.last_line if self._state == "running" else self._said
        return PartStatus(
            space=self.space,
            name=self.name,
            kind="member",
            state=self._state,
            pid=self.pid,
            since=self._since,
            restarts=max(0, self._starts - 1),
            words=words,
        )

    async def run(self) -> None:
        """Until cancelled, or until it has ended and shall not be started again. Leaves no process behind."""
        try:
            _, why = await keep_running(
                self._live,
                self._restart,
                should_restart=lambda end: self._goes_on(end[0]),
                on_delay=lambda end, seconds: self._will_restart(end[1], seconds),
            )
            self._moved("ended", why)
        finally:
            self.book.close()

    def _will_restart(self, why: str, seconds: float) -> None:
        self._moved("waiting", f"{why}; again in {seconds:.1f} s")

    def _goes_on(self, ended: ChildExit | None) -> bool:
        match self.config.restart:
            case "always":
                return True
            case "never":
                return False
            case "on-failure":
                return ended is None or ended.code != 0

    async def _live(self) -> tuple[ChildExit | None, str]:
        """One life; how it ended, and that in words."""
        self._starts += 1
        self._moved("starting", "")
        try:
            running = await self._start()
        except UsageError as fault:
            self.book.note(f"cannot be started: {fault}")
            return None, str(fault)
        self.pid = running.pid
        self._moved("running", self._said)
        log.info("member started", extra={"space": self.space, "participant": self.name, "pid": self.pid})
        try:
            # Not awaited itself: cancelling this task would cancel it for everybody.
            await asyncio.wait([running.ended])
        except asyncio.CancelledError:
            self._moved("stopping", "")
            await running.stop()
            raise
        finally:
            running.kill()
            self.book.flush()
            self.pid = None
        ended = running.ended.result()
        self.book.note(str(ended))
        log.info("member ended", extra={"space": self.space, "participant": self.name, "how": str(ended)})
        return ended, str(ended)

    async def _start(self) -> ChildProcess:
        words, config = self._words, self.config
        assert config.command is not None  # noqa: S101  # who has none is not made a Member
        listed, left_out = words.variables(config.env)
        environment = member_environment(own_variables(words) | listed, words.environ)
        cwd = words.folder / (words.filled(config.cwd) if config.cwd is not None else "")
        args = tuple(words.filled(arg) for arg in config.args)
        argv = argument_list(words.filled(config.command), args, environment, cwd)
        self._said = f"without {', '.join(left_out)}: not set" if left_out else ""
        feed = self.book.feed
        return await start_child(argv, environment=environment, cwd=cwd, on_stdout=feed, on_stderr=feed)

    def _moved(self, state: State, words: str) -> None:
        self._state, self._said = state, words
        self._since = asyncio.get_running_loop().time()
        self._on_change()


def own_variables(words: TemplateVars) -> dict[str, str]:
    """What a member finds in its environment unless the configuration lists something else."""
    variables = {
        connect_settings.URL: words.gateway,
        connect_settings.SPACE: words.space,
        connect_settings.PARTICIPANT: words.name,
        connect_settings.TOKEN: words.token.reveal(),
        # What a member prints is read as it comes.
        "PYTHONUNBUFFERED": "1",
    }
    if words.token_file is not None:
        variables[connect_settings.TOKEN_FILE] = str(words.token_file)
    return variables
