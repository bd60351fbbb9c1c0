"""A member that is a process: what it is started with, and when it is started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from moot.config import connect_settings
from moot.config.configuration import MemberConfig
from moot.resilience.child_process import ChildExit, ChildProcess, start_child
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy
from moot.up.member_command import resolve_command
from moot.up.member_log import MemberLog
from moot.up.supervised_process import RunEnd, SupervisedProcess
from moot.up.template_vars import TemplateVars

# The exit code of our own commands for a mistake in the call; only an edit mends it.
_MISUSED: Final = 2


def member_process(
    config: MemberConfig,
    variables: TemplateVars,
    logs: Path,
    *,
    on_change: Callable[[], None],
    restart: RestartPolicy = DEFAULT_RESTART,
) -> SupervisedProcess:
    """The process of one member, not started yet."""
    output = MemberLog(logs, variables.token)

    async def start() -> tuple[ChildProcess, str]:
        command = resolve_command(config, variables, own_variables(variables))
        child = await start_child(
            list(command.argv),
            environment=command.environment,
            cwd=command.cwd,
            on_stdout=output.feed,
            on_stderr=output.feed,
        )
        # Variables that it does not get.
        return child, f"without {', '.join(command.unset)}: not set" if command.unset else ""

    def should_restart(ended: ChildExit | None) -> bool:
        match config.restart:
            case "always":
                return True
            case "never":
                return False
            case "on-failure":
                return ended is None or ended.code != 0

    def gives_up(end: RunEnd) -> bool:
        # At its start that is a mistake in its arguments or a missing key; later it may be a disk or a file.
        is_misused = config.command == "moot" and end.exit == ChildExit(_MISUSED)
        return is_misused and config.restart == "on-failure" and end.seconds < restart.steady_seconds

    return SupervisedProcess(
        variables.name,
        start,
        output,
        kind="member",
        on_change=on_change,
        space=variables.space,
        should_restart=should_restart,
        gives_up=gives_up,
        restart=restart,
    )


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
