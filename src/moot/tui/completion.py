"""Completion of slash commands: commands, options, and names.

What a word can be is read from the command's own arguments, so a new operation needs no change here. Names
with control characters are never offered: what is inserted into the line is what was seen.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from moot.operations.operation import SlashParser, UserOperation
from moot.operations.text.terminal_escape import printable
from moot.participant import REJECT_REASONS
from moot.protocol.kinds import KINDS

# More than a screen of candidates does not help.
MAX_CANDIDATES: Final = 50

METHODS: Final = (
    "tools/list", "tools/call", "resources/list", "resources/read", "resources/templates/list",
    "prompts/list", "prompts/get", "completion/complete", "ping",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible word, with a short description."""

    text: str
    help: str = ""
    # Whether the word is unfinished, so that no space follows.
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """Candidates for the word that begins at `start`."""

    start: int
    candidates: tuple[Candidate, ...] = ()

    def apply(self, line: str, candidate: Candidate) -> str:
        """The line with the candidate in place of the word."""
        text = candidate.text if candidate.is_partial else f"{_quoted(candidate.text)} "
        return line[: self.start] + text


class NameSource(Protocol):
    """The names that exist, by what they name."""

    def members(self) -> Iterable[Candidate]: ...
    def tools(self, member: str) -> Iterable[Candidate]: ...
    def arguments(self, member: str, tool: str) -> Iterable[Candidate]: ...
    def proposals(self) -> Iterable[Candidate]: ...
    def streams(self) -> Iterable[Candidate]: ...
    def sequences(self) -> Iterable[Candidate]: ...
    def chats(self) -> Iterable[Candidate]: ...
    def suggestions(self) -> Iterable[Candidate]: ...
    def rules(self) -> Iterable[Candidate]: ...
    def envelopes(self) -> Iterable[Candidate]: ...
    def themes(self) -> Iterable[Candidate]: ...


def complete(line: str, commands: Mapping[str, UserOperation], names: NameSource) -> Completion:
    """Completions for the last word of a line; none for chat."""
    if not line.startswith("/") or line.startswith("//"):
        return Completion(0)
    start, words, typed = _split(line)
    if not words:
        found = [Candidate(f"/{name}", operation.help) for name, operation in commands.items()]
        return Completion(0, _matching(found, line[start:]))
    operation = commands.get(words[0].removeprefix("/"))
    if operation is None:
        return Completion(start)
    parser = operation.slash_parser()
    return Completion(start, _matching(_word_candidates(parser, words[1:], typed, commands, names), typed))


def _split(line: str) -> tuple[int, list[str], str]:
    """Where the last word begins, the words before it, and the word itself."""
    start, quote, at_word = 0, "", False
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote, at_word = character, True
        elif character == " ":
            start, at_word = place + 1, False
        elif not at_word:
            start, at_word = place, True
    before = line[:start]
    try:
        words = shlex.split(before)
    except ValueError:
        words = before.split()
    return start, words, line[start:].strip("'\"")


def _word_candidates(
    parser: SlashParser,
    words: Sequence[str],
    typed: str,
    commands: Mapping[str, UserOperation],
    names: NameSource,
) -> Iterable[Candidate]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    if words and words[-1] in options and options[words[-1]].nargs != 0:
        return _action_candidates(options[words[-1]], [], commands, names)
    given = _positionals(words, options)
    if typed.startswith("-"):
        return [Candidate(name, action.help or "") for name, action in options.items()]
    action = _positional_at(parser, len(given))
    found = list(_action_candidates(action, given, commands, names)) if action is not None else []
    if not typed:
        found += [Candidate(name, action.help or "") for name, action in options.items() if name not in words]
    return found


def _positionals(words: Sequence[str], options: Mapping[str, argparse.Action]) -> list[str]:
    given: list[str] = []
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in options:
            takes_value = options[word].nargs != 0
        else:
            given.append(word)
    return given


def _positional_at(parser: SlashParser, place: int) -> argparse.Action | None:
    """The argument that a further word belongs to."""
    for action in parser._actions:
        if action.option_strings:
            continue
        if action.nargs in ("*", "+", argparse.REMAINDER) or place == 0:
            return action
        place -= 1
    return None


def _action_candidates(
    action: argparse.Action, given: Sequence[str], commands: Mapping[str, UserOperation], names: NameSource
) -> Iterable[Candidate]:
    if action.choices is not None:
        return [Candidate(str(choice)) for choice in action.choices]
    match action.dest:
        case "member" | "to" | "members" | "sender":
            return names.members()
        case "tool":
            return names.tools(given[0]) if given else ()
        case "arguments":
            return names.arguments(given[0], given[1]) if len(given) > 1 else ()
        case "proposal":
            return names.proposals()
        case "stream":
            return names.streams()
        case "sequence":
            return names.sequences()
        case "chat":
            return names.chats()
        case "suggestion":
            return names.suggestions()
        case "rule":
            return names.rules()
        case "about" | "envelope":
            return names.envelopes()
        case "theme":
            return names.themes()
        case "command":
            return [Candidate(name, operation.help) for name, operation in commands.items()]
        case "capabilities" | "kind":
            return [Candidate(kind) for kind, row in KINDS.items() if row.sender == "member"]
        case "method":
            return [Candidate(method) for method in METHODS]
        case "conditions":
            return [Candidate(f"{field}:", is_partial=True) for field in ("from", "to", "kind")]
        case "reason" if "disagree" in (action.help or ""):
            return [Candidate(reason) for reason in REJECT_REASONS]
        case _:
            return ()


def _matching(candidates: Iterable[Candidate], typed: str) -> tuple[Candidate, ...]:
    """Candidates that start with what was typed, then those that contain it."""
    wanted = typed.casefold()
    first: list[Candidate] = []
    then: list[Candidate] = []
    for each in candidates:
        text = each.text.casefold()
        if printable(each.text) != each.text or text == wanted:
            continue
        if text.startswith(wanted):
            first.append(each)
        elif wanted.removeprefix("/") in text:
            then.append(each)
    return tuple([*first, *then][:MAX_CANDIDATES])


def _quoted(text: str) -> str:
    return text if text.startswith("/") else shlex.quote(text)
