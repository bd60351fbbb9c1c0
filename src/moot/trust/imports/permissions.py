"""Permissions of coding agents in one form, whichever client they were written for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.trust.rules.rule import RuleDecision

# Within one command: any text at this place; any further words behind it; one further word at least.
ANY_TEXT: Final = "\0text"
ANY_WORDS: Final = "\0words"
MORE_WORDS: Final = "\0more"


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """A shell command: at each place one of some texts, or one of the signs above."""

    places: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Files, as .gitignore writes them. `base` is what the glob starts from; without a slash, any folder."""

    glob: str
    base: str
    writes: bool


@dataclass(frozen=True, slots=True)
class HostPattern:
    """Web addresses at a host; None is any host."""

    host: str | None


@dataclass(frozen=True, slots=True)
class ServerToolPattern:
    """Tools of an MCP server; `*` in either is any text."""

    server: str
    tool: str


Subject = CommandPattern | PathPattern | HostPattern | ServerToolPattern


@dataclass(frozen=True, slots=True)
class Permission:
    """One entry of a file. Without a subject, `note` says why it cannot be imported."""

    text: str
    decision: RuleDecision
    subject: Subject | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PermissionFile:
    """The permissions of a file, and what else in it people should know."""

    client: str
    permissions: tuple[Permission, ...]
    notes: tuple[str, ...] = ()


def command_pattern(text: str) -> CommandPattern:
    """Read a command in which `*` is any text, a last ` *` more words, and a last `:*` any words or none."""
    rest: tuple[tuple[str, ...], ...] = ()
    for ending, sign in ((":*", ANY_WORDS), (" *", MORE_WORDS)):
        if not rest and text.endswith(ending) and text != ending:
            text, rest = text.removesuffix(ending), ((sign,),)
    places: list[tuple[str, ...]] = []
    for at, part in enumerate(text.split("*")):
        if at:
            places.append((ANY_TEXT,))
        if part:
            places.append((part,))
    return CommandPattern((*places, *rest))
