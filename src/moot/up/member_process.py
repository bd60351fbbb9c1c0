"""A member that is a process: what it is started with, and when it is started again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.config import connect_settings
from moot.config.configuration import McpServerConfig, MemberConfig
from moot.errors import UsageError
from moot.resilience import restart_loop
from moot.resilience.child_process import ChildExit, ChildProcess, child_environment, start_child
from moot.up.supervised_process import MemberLog, RunEnd, SupervisedProcess
from moot.up.template_vars import TemplateVars

# The exit code of our own commands for a mistake in the call; only an edit mends it.
_MISUSED: Final = 2


# What a member is started with: its argument list, its environment and its folder.
#
# A member gets an argument list, never a shell, and the variables that are listed for it and a few harmless
# ones (D-87).
@dataclass(frozen=True, slots=True)
class MemberCommand:
    """A command with its placeholders replaced."""

    argv: tuple[str, ...]
    # May hold tokens: not shown.
    environment: dict[str, str] = field(repr=False)
    cwd: Path
    # Variables that were left out because the environment of `moot up` does not have them.
    unset: tuple[str, ...]


def resolve_command(
    config: MemberConfig | McpServerConfig, variables: TemplateVars, own: Mapping[str, str] = {}
) -> MemberCommand:
    """Replace placeholders and find the program; raises UsageError. `own` variables may be overridden."""
    assert config.command is not None  # noqa: S101  # the caller has looked
    listed, unset = variables.resolve_env(config.env)
    environment = member_environment({**own, **listed}, variables.environ)
    cwd = variables.folder / (variables.fill(config.cwd) if config.cwd is not None else "")
    args = tuple(variables.fill(arg) for arg in config.args)
    argv = argument_list(variables.fill(config.command), args, environment, cwd)
    return MemberCommand(tuple(argv), environment, cwd, tuple(unset))


def member_environment(listed: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a member. Its PATH begins with this installation: its `python3` and its `moot`."""
    environment = child_environment(listed, inherited)
    if "PATH" not in listed:
        here = str(Path(sys.executable).parent)
        others = [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part != here]
        environment["PATH"] = os.pathsep.join([here, *others])
    return environment


def argument_list(
    command: str, args: tuple[str, ...], environment: Mapping[str, str], cwd: Path
) -> list[str]:
    """What is run; raises UsageError when there is no such program. `moot` is always this installation."""
    if any("\0" in part for part in (command, *args)):
        raise UsageError("a command and its arguments must not contain a NUL byte")
    if command == "moot":
        return [sys.executable, "-m", "moot.cli", *args]
    # A path is relative to the member's folder.
    wanted = str(cwd / command) if os.sep in command else command
    program = shutil.which(wanted, path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no such program: {command!r}; install it, or give its full path (PATH is what `moot up` has)"
        )
    return [program, *args]


def member_process(
    config: MemberConfig,
    variables: TemplateVars,
    logs: Path,
    *,
    on_change: Callable[[], None],
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
        return is_misused and config.restart == "on-failure" and end.seconds < restart_loop.STEADY_SECONDS

    return SupervisedProcess(
        variables.name,
        start,
        output,
        kind="member",
        on_change=on_change,
        space=variables.space,
        should_restart=should_restart,
        gives_up=gives_up,
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
