"""The texts of one server: placeholders of clients become ours, and what may be secret becomes a variable.

Clients have several notations for what is known only when a server is started:

    ${env:NAME} ${NAME} ${NAME:-TEXT} $NAME (Gemini)     a variable of the environment
    ${input:ID}                                          what VS Code asks a person for
    ${workspaceFolder} ${userHome} ${pathSeparator} …    a place

All become `${env:NAME}`, `${FOLDER}` or the text itself. The rest of a text is either shown in the
configuration, or hidden in a variable of the file of variables of this server.

Which text may be a secret: a mistake in one direction publishes a key, one in the other puts a harmless word
into a private file; so whatever may be one is taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WORDS = r"key|token|secret|passw|pwd|auth|credential|cookie|session|bearer|signature|private|jwt|dsn|pat"
_PREFIXES = (
    r"sk-|pk-|rk-|sk_|pk_|rk_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|npm_|pypi-|hf_|lin_|ntn_|nvapi-|gsk_"
    r"|tvly-|fc-|AIza|AKIA|ASIA|SG\.|ya29\.|eyJ"
)
_NAMED = re.compile(rf"(?:^|[^a-z])[a-z]*(?:{_WORDS})", re.IGNORECASE)
_NAMED_SHORT = re.compile(
    r"-[HupP]|--?(?:header|headers|conn\w*|connection[-_]string|database[-_]url)", re.ASCII
)
# `--token-file x`, `--key-env X`: where it is, not what it is.
_PLACE_OF_ONE = re.compile(r"(?:file|path|dir|folder|env|var|name|type|mode|method)$", re.IGNORECASE)
_SHAPES = re.compile(
    rf"""
      \b(?:bearer|basic|token)\s+\S                              # an Authorization header
    | ://[^/?\#\s]*@                                             # a user and password in a URL
    | [?&\#;][^=&\s]*(?:{_WORDS}|sig|code|access|id)[^=&\s]*=.   # … or in its query
    | (?:^|[^a-z])[a-z_-]*(?:{_WORDS})[a-z_-]*["']?\s*[=:]\s*[^\s=:]
    | \b(?:{_PREFIXES})[-_.A-Za-z0-9]{{8,}}                      # keys that say whose they are
    | -----BEGIN
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Long, and with digits among the letters: no word, no package and no path looks like that.
_RANDOM = re.compile(r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_+=-]{20,}", re.ASCII)


def names_secret(name: str) -> bool:
    """Whether an option, a header or a variable of this name may hold a secret."""
    if _PLACE_OF_ONE.search(name):
        return False
    return _NAMED.search(name) is not None or _NAMED_SHORT.fullmatch(name) is not None


def looks_secret(text: str) -> bool:
    """Whether a text may hold a secret, whatever it is called."""
    return _SHAPES.search(text) is not None or _RANDOM.search(text) is not None


_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_BARE_VARIABLE = re.compile(r"(?<!\$)\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNFIT = re.compile(r"[^A-Za-z0-9]+", re.ASCII)
# What stands before a placeholder in a header, and is no secret itself.
_BEFORE_VALUE = re.compile(r"(?:[\w-]+\s*[:=])?\s*(?:bearer\s+|basic\s+|token\s+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextContext:
    """What the placeholders of a file mean."""

    # The project that the file belongs to; None: it is a user's own file.
    workspace: Path | None
    # Where the space is made.
    folder: Path
    # What VS Code asks for, by id.
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Gemini has variables without braces.
    has_bare_variables: bool = False
    # The names of variables that are set now.
    environ: Container[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class ServerText:
    """Translates the texts of one server, and collects its variables and what to say about it."""

    context: TextContext
    # Names that the server's own variables have.
    taken: set[str] = field(default_factory=set)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    # Variables that somebody has to fill in, and what they are.
    wanted: dict[str, str] = field(default_factory=dict)
    # Placeholders that have no meaning here.
    unknown: list[str] = field(default_factory=list)

    def show(self, text: str, variable: str, *, called: str = "") -> str:
        """The text for the configuration; parts that may be secret are hidden in `variable`.

        `called` is the option or the header that it is the value of.
        """
        hint = names_secret(called)
        return self._translate(text, variable, lambda part: hint or looks_secret(part))

    def hide(self, text: str, variable: str) -> str:
        """The text for the configuration, with nothing of it but its placeholders."""
        return self._translate(text, variable, lambda _part: True)

    def keep(self, variable: str, value: str) -> str:
        """Put a value into the file of variables; the placeholder for it."""
        wanted = _UNFIT.sub("_", variable).strip("_").upper() or "VALUE"
        name, number = wanted, 2
        while name in self.taken or name in self.secrets or name in self.wanted:
            name, number = f"{wanted}_{number}", number + 1
        self.secrets[name] = value
        return f"${{env:{name}}}"

    def _translate(self, text: str, variable: str, is_hidden: Callable[[str], bool]) -> str:
        if self.context.has_bare_variables:
            text = _BARE_VARIABLE.sub(r"${\1}", text)
        parts = _PLACEHOLDER.split(text)
        made = ""
        for index, part in enumerate(parts):
            if index % 2:
                made += self._placeholder(part, variable)
                continue
            before_value = index + 1 < len(parts) and _BEFORE_VALUE.fullmatch(part) is not None
            # A dollar sign before a placeholder would make it literal.
            joins = part.endswith("$") and index + 1 < len(parts)
            if part and (joins or (is_hidden(part) and not before_value)):
                made += self.keep(variable, part)
            else:
                made += part
        return made

    def _placeholder(self, inside: str, variable: str) -> str:
        kind, _, rest = inside.partition(":")
        workspace = self.context.workspace
        match kind:
            case "env" if _VARIABLE.fullmatch(rest):
                return self.variable(rest)
            case "input":
                return self._input(rest)
            case "workspaceFolder" | "workspaceRoot" | "fileWorkspaceFolder" | "cwd":
                return self.place(workspace)
            case "workspaceFolderBasename":
                return (workspace or self.context.folder).name
            case "userHome":
                return "${env:HOME}"
            case "pathSeparator" | "/":
                return "/"
        name, has_default, default = inside.partition(":-")
        if _VARIABLE.fullmatch(name) is None:
            self.unknown.append(inside)
            return f"$${{{inside}}}"
        if not has_default:
            return self.variable(name)
        if looks_secret(default) or (default and names_secret(name)):
            return self.keep(variable, default)
        return f"${{env:{name}:-{default}}}"

    def variable(self, name: str) -> str:
        """The placeholder for a variable; somebody has to give it a value if nobody has."""
        if name not in self.context.environ and name not in self.taken and name not in self.secrets:
            self.wanted.setdefault(name, "")
        return f"${{env:{name}}}"

    def place(self, workspace: Path | None) -> str:
        """A folder as the configuration names it."""
        if workspace is None or workspace == self.context.folder:
            return "${FOLDER}"
        return str(workspace).replace("${", "$${")

    def _input(self, id: str) -> str:
        asked = self.context.inputs.get(id, {})
        name = f"INPUT_{_UNFIT.sub('_', id).strip('_').upper()}"
        default = asked.get("default")
        if isinstance(default, str) and default:
            self.secrets.setdefault(name, default)
        elif name not in self.secrets:
            text = asked.get("description")
            self.wanted[name] = " ".join(text.split()) if isinstance(text, str) else ""
        return f"${{env:{name}}}"
