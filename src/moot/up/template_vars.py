"""`${NAME}` placeholders in the configuration of a member: its arguments, variables, headers and folder.

    ${PORT} ${SPACE} ${TOKEN}     as in the reference implementation
    ${GATEWAY}                    the gateway's address, http://…
    ${NAME}                       the participant's name
    ${TOKEN_FILE}                 the file that holds its token, when there is one
    ${FOLDER}                     the folder of the configuration
    ${ANYTHING_ELSE}              the variable of that name in the environment of `moot up`
    ${env:NAME}                   the same, also for a variable that is called PORT or TOKEN
    ${env:NAME:-TEXT}             the same, or TEXT if it is not set

`$${` is a literal `${`. Nothing is passed to a shell, so nothing else is special.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moot.config.secrets.secret import Secret
from moot.errors import UsageError

_PLACEHOLDER = re.compile(r"\$?\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class VariableNotSet(UsageError):
    """A placeholder for a variable that the environment of `moot up` does not have."""

    def __init__(self, variable: str, env_file: Path | None = None) -> None:
        elsewhere = f", or write {variable}=… into {env_file}" if env_file is not None else ""
        super().__init__(
            f"the environment variable {variable} is not set: set it before `moot up`{elsewhere}"
        )
        self.variable = variable


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVars:
    """The values of the placeholders of one member."""

    gateway: str
    port: int
    space: str
    name: str
    folder: Path
    token: Secret
    token_file: Path | None
    # May hold anything: not shown.
    environ: Mapping[str, str] = field(repr=False)
    # Where variables can be written that the environment does not have.
    env_file: Path | None = None

    def fill(self, text: str) -> str:
        """The text with every placeholder replaced; raises VariableNotSet or another UsageError."""
        return _PLACEHOLDER.sub(self._replacement, text)

    def resolve_env(self, env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Variables with their placeholders replaced, and the names of those that are not set.

        A variable may be optional: the member itself knows which it needs.
        """
        given: dict[str, str] = {}
        unset: list[str] = []
        for name, value in env.items():
            try:
                given[name] = self.fill(value)
            except VariableNotSet:
                unset.append(name)
        return given, unset

    def _replacement(self, found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        name = found[1]
        if name.startswith("env:"):
            return self._variable(name.removeprefix("env:"))
        match name:
            case "PORT":
                return str(self.port)
            case "SPACE":
                return self.space
            case "NAME":
                return self.name
            case "GATEWAY":
                return self.gateway
            case "FOLDER":
                return str(self.folder)
            case "TOKEN":
                return self.token.reveal()
            case "TOKEN_FILE":
                if self.token_file is None:
                    raise UsageError(f"{self.name} has no token file: use ${{TOKEN}}")
                return str(self.token_file)
        return self._variable(name)

    def _variable(self, text: str) -> str:
        name, has_default, default = text.partition(":-")
        if _VARIABLE.fullmatch(name) is None:
            raise UsageError("a placeholder holds one name, as in ${PORT}; write $${ for a literal ${")
        if has_default and not self.environ.get(name):
            return default
        if name not in self.environ:
            raise VariableNotSet(name, self.env_file)
        return self.environ[name]
