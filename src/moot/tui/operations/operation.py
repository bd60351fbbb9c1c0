"""What a person can do in a space, each defined once: as a command of the shell, and as a slash command.

An operation says which arguments it takes and what it does with a `Seat`; its answer is a value for machines
and lines for people. Whoever shows the lines escapes them (D-86), so they may hold what others wrote.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from moot.errors import MootError, Refused, UsageError
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SeenProposal
    from moot.protocol.envelope import Envelope

# How much of an id is shown, and how little of one is enough to name it.
SHORT_ID: Final = 8
_LEAST_PREFIX: Final = 4
# How many of those that could be meant are listed.
_LISTED: Final = 8
# A kind as a person types it: words, slashes, and stars for anything.
_WORD: Final = re.compile(r"[A-Za-z0-9_*.-]+(/[A-Za-z0-9_*.-]+)*")


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What came of an operation."""

    value: Json
    lines: Sequence[str] = ()
    code: int = 0


@dataclass(slots=True)
class ClientContext:
    """A person's place in a space: the connection, and what was numbered for them."""

    space: JoinedSpace
    default_to: tuple[str, ...] = ()
    # Seconds for what has no bound of its own; None: as the SDK has it.
    timeout: float | None = None
    # What /approve 1 means: ids of proposals in the order in which they were shown. Only who stays has
    # numbers: from one command to the next they could come to mean another proposal.
    stays: bool = False
    numbered: list[str] = field(default_factory=list)
    # What the gateway remembered when a command came in for a moment; empty where that is not known.
    recalled: Sequence[Envelope] = ()

    def number(self, id: str) -> int:
        """The number under which something is shown, given at first sight."""
        if id not in self.numbered:
            self.numbered.append(id)
        return self.numbered.index(id) + 1

    def proposal(self, named: str) -> SeenProposal:
        """The proposal of a number, an id, or the beginning of one; raises UsageError."""
        ledger = self.space.proposals
        if named.removeprefix("#").isdigit() and 0 < int(named.removeprefix("#")) <= len(self.numbered):
            named = self.numbered[int(named.removeprefix("#")) - 1]
        found = ledger.get(named)
        if found is not None:
            return found
        like = [seen for seen in ledger if seen.id.startswith(named)] if named else []
        if len(like) == 1 and len(named) >= _LEAST_PREFIX:
            return like[0]
        if like:
            raise UsageError(_several(named, like))
        waiting = ", ".join(short(seen.id) for seen in ledger.open())
        raise UsageError(
            f"unknown proposal {named}: {'pending: ' + waiting if waiting else 'none is pending'}"
        )

    def chat(self, named: str) -> str:
        """The id of a chat: all of it, or its beginning; raises UsageError if the gateway knows of none."""
        if not self.recalled:
            return named
        chats = [each.id for each in self.recalled if each.kind == "chat"]
        like = [id for id in chats if id.startswith(named)] if len(named) >= _LEAST_PREFIX else []
        if named in chats:
            return named
        if len(like) != 1:
            what = "several chat messages start with" if like else "the gateway has no recent chat message"
            raise UsageError(
                f"{what} {named}: `moot tail -n 50 --json --kind chat` shows them with their ids"
            )
        return like[0]

    def check_here(self, member: str, *, may_come: bool = False) -> None:
        """Raises UsageError if nobody of that name is in the space, with who is.

        Where somebody who `may_come` later will do, only what looks like a typing error is refused.
        """
        space = self.space
        here = {space.me, space.name, *space.roster, *(each.name for each in space.roster.values())}
        if member in here:
            return
        others = sorted(space.roster)
        close = difflib.get_close_matches(member, others, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        if may_come and not close:
            return
        raise UsageError(f"{member} is not in the space.{hint} Members: {', '.join(others) or 'only you'}")

    def stream(self, named: str) -> str:
        """The id of an open stream: all of it, its beginning, or - for our own latest; raises UsageError."""
        streams = self.space.streams
        if named == "-":
            own = streams.owned()
            if not own:
                raise UsageError("you have no open stream: /open opens one")
            return own[-1].id
        like = [info.id for info in streams if info.id.startswith(named)]
        if named in like or len(like) != 1:
            return named
        return like[0]


def _several(named: str, like: Sequence[SeenProposal]) -> str:
    """What to say when the beginning of an id does not tell which one is meant."""
    many = f"{len(like)} proposals start" if len(like) > 1 else "only one proposal starts"
    # Open ones first: somebody who types this wants to decide.
    shown = sorted(like, key=lambda seen: seen.status != "pending")[:_LISTED]
    lines = [f"  {short(seen.id)}  {seen.status}  {_call_of(seen)}" for seen in shown]
    more = [f"  and {len(like) - len(shown)} more"] if len(like) > len(shown) else []
    least = f"type more of the id, at least {_LEAST_PREFIX} characters"
    return "\n".join([f"{many} with {named}: {least}", *lines, *more])


def _call_of(seen: SeenProposal) -> str:
    name = seen.params.get("name") or seen.params.get("uri")
    what = f"{seen.method} {name}" if isinstance(name, str) else seen.method
    return f"{seen.proposer} proposes {what} on {', '.join(seen.to) or 'anyone'}"


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[ClientContext, argparse.Namespace], Awaitable[OperationResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserOperation:
    """One thing to do. `recalls`: needs what was said before; `only_joined`: makes no sense for a moment."""

    name: str
    help: str
    about: str = ""
    examples: str = ""
    arguments: Arguments
    run: Run
    recalls: bool = False
    only_joined: bool = False

    def slash_parser(self) -> SlashParser:
        about = self.about or f"{self.help[:1].upper()}{self.help[1:]}."
        parser = SlashParser(prog=f"/{self.name}", description=about, add_help=False)
        self.arguments(parser)
        return parser


class SlashParser(argparse.ArgumentParser):
    """Reads the words behind a slash command; a mistake is a UsageError and ends nothing."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. {' '.join(self.format_usage().split())}")


def short(id: str) -> str:
    """As much of an id as a person needs."""
    return id[:SHORT_ID]


def word_of(fault: MootError) -> str:
    """The wire's word for a refusal, else the name of the error in the same spelling."""
    if isinstance(fault, Refused):
        return fault.code
    name = type(fault).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


# Arguments that several operations take


def json_argument(text: str, what: str) -> Any:
    """A JSON value; raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as fault:
        raise UsageError(f"{what} is not valid JSON: {fault}") from None


def tool_arguments(words: Sequence[str]) -> dict[str, Json]:
    """`name=text`, `name:=JSON`, or one JSON object; raises UsageError."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        value = json_argument(words[0], "the arguments")
        if not isinstance(value, dict):
            raise UsageError("the arguments of a tool must be one JSON object")
        return value
    arguments: dict[str, Json] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.rstrip(":"):
            raise UsageError(f"{word!r} is not an argument: write name=text, name:=JSON, or one JSON object")
        if name.endswith(":"):
            arguments[name[:-1]] = json_argument(value, f"the argument {name[:-1]}")
        else:
            arguments[name] = value
    return arguments


def capability(text: str) -> Json:
    """KIND, KIND:METHOD, KIND:METHOD:NAME, or a capability as JSON; raises UsageError.

    What looks like a typing error is refused: it would give a right to something that nobody ever says.
    Whoever means it writes it as JSON.
    """
    if text.lstrip().startswith("{"):
        return json_argument(text, "a capability")
    from moot.protocol.kinds import OPERATION_KINDS
    from moot.protocol.operation import CONTEXT_PATHS
    from moot.protocol.patterns.capability_typos import misspelt_kind, misspelt_method

    kind, *parts = text.split(":", 2)
    if not all((kind, *parts)) or _WORD.fullmatch(kind) is None:
        raise UsageError(f"{text!r} is not a capability. {CAPABILITIES}")
    if meant := misspelt_kind(kind):
        raise UsageError(_typo(text, "kind", kind, meant))
    found: dict[str, Json] = {"kind": kind}
    if not parts:
        return found
    if kind not in OPERATION_KINDS and kind != "mcp/*":
        known = ", ".join(sorted(OPERATION_KINDS))
        raise UsageError(f"{text!r} is not a capability: only {known} take a METHOD, {kind} does not")
    method = parts[0]
    if meant := misspelt_method(method):
        raise UsageError(_typo(text, "method", method, meant))
    found["payload"] = {"method": method}
    if len(parts) > 1:
        # Where a method keeps what it is done to: tools/call its name, resources/read its uri.
        inner: Json = parts[1]
        for key in reversed(CONTEXT_PATHS.get(method, (("params", "name"),))[0][1:]):
            inner = {key: inner}
        found["payload"]["params"] = inner
    return found


def _typo(text: str, what: str, word: str, meant: str) -> str:
    return (
        f"{text!r}: unknown {what} {word}; did you mean {meant}?"
        f" If it is a {what} of your own, write the capability as JSON"
    )


CAPABILITIES: Final = """\
A capability is written KIND (chat, 'reasoning/*'), KIND:METHOD (mcp/request:tools/list), KIND:METHOD:NAME
(mcp/request:tools/call:read_file), or as JSON ('{"kind": "mcp/request", "to": ["files"]}')."""
