"""What a member is started with: its argument list, its environment and its folder.

A member gets an argument list, never a shell, and the variables that are listed for it and a few harmless
ones (D-87).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moot.config.configuration import McpServerConfig, MemberConfig
from moot.errors import UsageError
from moot.resilience.child_process import child_environment
from moot.up.template_vars import TemplateVars


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
