"""What a person can do in a space, defined once for the shell and for slash commands.

An operation declares its arguments and what it does with a `ClientContext`; its result is a value for
programs and lines for people. Whoever prints the lines escapes them (D-86): they may
contain what others wrote.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from moot.errors import MootError, Refused, UsageError
from moot.operations.text.text_table import TextTable
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, Proposal, SeenProposal
    from moot.protocol.envelope import Envelope

# How much of an id is shown, and how much of one has to be typed.
SHORT_ID_CHARS: Final = 8
MIN_PREFIX_CHARS: Final = 4
# How many ambiguous matches are listed.
_MAX_LISTED: Final = 8
# Of a gateway that others wrote; asking again would not help.
NOT_TOLD: Final = "this gateway does not tell which proposals are pending"
# A kind as a person types it: names, slashes, and stars for anything.
_KIND: Final = re.compile(r"[A-Za-z0-9_*.-]+(/[A-Za-z0-9_*.-]+)*")


class OperationResult(msgspec.Struct, frozen=True):
    """The result of an operation: a value for programs, lines for people, and an exit code."""

    value: Json
    lines: Sequence[str] = ()
    code: int = 0
    # The same as the lines, where the output has a width of its own to fit.
    table: TextTable | None = None


def list_result(value: Json, table: TextTable, empty: str) -> OperationResult:
    """What an operation that lists gives back; `empty` is said of an empty list."""
    if not table.rows:
        return OperationResult(value, [empty])
    return OperationResult(value, table.lines(), table=table)


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to the console that signs somebody in, once."""

    address: str
    minutes: int
    # Whether no browser on another machine can open it.
    only_here: bool

    def lines(self) -> list[str]:
        """How long it works and where, for whoever passes it on."""
        lines = [f"(signs in once, within {self.minutes} minutes)"]
        if self.only_here:
            lines.append(
                "note: only a browser on this machine can open this link. For other machines set"
                " gateway.public_url, or gateway.host to an address of this machine"
                " (docs/how-to/work-as-a-team.md)"
            )
        return lines


class ClientContext(msgspec.Struct):
    """A person's connection to a space, with their defaults and the numbers of listed proposals."""

    space: JoinedSpace
    default_to: tuple[str, ...] = ()
    # For calls without a timeout of their own; None: the SDK's default.
    timeout_seconds: float | None = None
    # Whether the connection stays open between commands. Only then proposals have numbers: between separate
    # commands a number could come to mean another proposal.
    is_interactive: bool = False
    # The ids of proposals in the order in which they were shown; `/approve 1` means the first.
    numbered: list[str] = msgspec.field(default_factory=list)
    # Recent messages that the gateway sent when a single command joined; empty if not requested.
    history: Sequence[Envelope] = ()
    # Called when a call was proposed and its decision is waited for; None where proposals are shown anyway.
    on_proposed: Callable[[Proposal], None] | None = None
    # Asks for a link to the console for the holder of a token, and draws its QR code; None where that is not
    # offered.
    make_link: Callable[[str], Awaitable[tuple[SignInLink, str]]] | None = None
    # Where the console is, and says for what somebody is waited for; None where nobody can wait.
    console_url: str = ""
    on_waiting: Callable[[str], None] | None = None
    # Lets a person edit a text in an editor; None where none can be opened.
    edit_text: Callable[[str], Awaitable[str]] | None = None

    def number(self, id: str) -> int:
        """The number of a proposal, assigned when it is first shown."""
        if id not in self.numbered:
            self.numbered.append(id)
        return self.numbered.index(id) + 1

    def proposal(self, named: str) -> SeenProposal:
        """Find a proposal by its number, its id, or the start of its id; raises UsageError."""
        ledger, is_typed = self.space.proposals, True
        if named.removeprefix("#").isdigit() and 0 < int(named.removeprefix("#")) <= len(self.numbered):
            named, is_typed = self.numbered[int(named.removeprefix("#")) - 1], False
        like = [seen for seen in ledger if seen.id.startswith(named)] if named else []
        found = ledger.get(named)
        # Members choose ids: one may be what lists show of another's, and is not what was meant.
        is_shown = is_typed and len(named) == SHORT_ID_CHARS
        if found is not None and (len(like) == 1 or not is_shown):
            return found
        if len(like) == 1 and len(named) >= MIN_PREFIX_CHARS:
            return like[0]
        if like:
            raise UsageError(_ambiguous_text(named, like))
        waiting = ", ".join(short_id(seen.id) for seen in ledger.open())
        nothing = {
            "known": "none is pending",
            "not_told": f"{NOT_TOLD}. Decide in `moot join` on those that are made while you are connected",
        }.get(ledger.knowledge, "the gateway did not say what is pending: try again")
        raise UsageError(f"unknown proposal {named}: {'pending: ' + waiting if waiting else nothing}")

    def chat(self, named: str) -> str:
        """The id of a chat message by its id or the start of it; raises UsageError."""
        if not self.history:
            return named
        chats = [each.id for each in self.history if each.kind == "chat"]
        like = [id for id in chats if id.startswith(named)] if len(named) >= MIN_PREFIX_CHARS else []
        if named in chats:
            return named
        if len(like) != 1:
            what = "several chat messages start with" if like else "the gateway has no recent chat message"
            raise UsageError(
                f"{what} {named}: `moot tail -n 50 --json --kind chat` shows them with their ids"
            )
        return like[0]

    def check_member(self, member: str, *, may_join_later: bool = False) -> None:
        """Raises UsageError if no member of that name is in the space.

        With `may_join_later` only what looks like a typing error is refused.
        """
        space = self.space
        here = {space.me, space.name, *space.roster, *(each.name for each in space.roster.values())}
        if member in here:
            return
        others = sorted(space.roster)
        close = difflib.get_close_matches(member, others, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        if may_join_later and not close:
            return
        raise UsageError(f"{member} is not in the space.{hint} Members: {', '.join(others) or 'only you'}")

    def stream(self, named: str) -> str:
        """The id of a stream by its id, the start of it, or - for our latest own one; raises UsageError."""
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


def _ambiguous_text(named: str, like: Sequence[SeenProposal]) -> str:
    """The error for a start of an id that fits several proposals."""
    many = f"{len(like)} proposals start" if len(like) > 1 else "only one proposal starts"
    # Pending ones first: whoever types this wants to decide.
    shown = sorted(like, key=lambda seen: seen.status != "pending")[:_MAX_LISTED]
    chars = max(SHORT_ID_CHARS, 2 * len(named))
    lines = [f"  {seen.id[:chars]}  {seen.status}  {_call_of(seen)}" for seen in shown]
    more = [f"  and {len(like) - len(shown)} more"] if len(like) > len(shown) else []
    least = f"type more of the id, at least {MIN_PREFIX_CHARS} characters"
    return "\n".join([f"{many} with {named}: {least}", *lines, *more])


def _call_of(seen: SeenProposal) -> str:
    name = seen.params.get("name") or seen.params.get("uri")
    what = f"{seen.method} {name}" if isinstance(name, str) else seen.method
    return f"{seen.proposer} proposes {what} on {', '.join(seen.to) or 'anyone'}"


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[ClientContext, argparse.Namespace], Awaitable[OperationResult]]


class UserOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `needs_history`: it needs earlier messages; `interactive_only`: a slash command only.

    `waits`: for somebody's answer, and `--timeout` says how long.
    """

    name: str
    help: str
    description: str = ""
    examples: str = ""
    arguments: Arguments
    run: Run
    waits: bool = False
    needs_history: bool = False
    interactive_only: bool = False

    def slash_parser(self) -> SlashParser:
        description = self.description or f"{self.help[:1].upper()}{self.help[1:]}."
        parser = SlashParser(prog=f"/{self.name}", description=description, add_help=False)
        self.arguments(parser)
        return parser


def split_words(line: str) -> list[str]:
    """The words of a command, split like a shell does; raises UsageError."""
    try:
        return shlex.split(line)
    except ValueError as fault:
        raise UsageError(f"{fault}: put quotes around text with spaces, and close them") from None


def find_command(name: str, commands: Mapping[str, UserOperation]) -> UserOperation:
    """The slash command of a name; raises UsageError that offers similar ones."""
    found = commands.get(name.removeprefix("/"))
    if found is None:
        # No abbreviations, which are for Tab: /k must not remove anyone.
        like = ", ".join(f"/{each}" for each in commands if each.startswith(name[:2]))
        hint = f"did you mean {like}?" if like else "/help lists the commands"
        raise UsageError(f"unknown command /{name}: {hint}")
    return found


class SlashParser(argparse.ArgumentParser):
    """Parses the arguments of a slash command; a mistake raises UsageError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. {' '.join(self.format_usage().split())}")


def short_id(id: str) -> str:
    """As much of an id as people need to see."""
    return id[:SHORT_ID_CHARS]


def error_code(fault: MootError) -> str:
    """The wire's code of a refusal, else the name of the error class in snake case."""
    if isinstance(fault, Refused):
        return fault.code
    name = type(fault).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


# Arguments that several operations take


def add_reason(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add `--reason`, of what everyone in the space hears."""
    parser.add_argument("--reason", default=default, metavar="TEXT", help="the reason, shown to everyone")


def add_wait_for_others(parser: argparse.ArgumentParser) -> None:
    """Add `--wait-for-others`."""
    help = "after a rejection, wait for others to approve"
    parser.add_argument("--wait-for-others", action="store_true", help=help)


def no_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def read_json(text: str, what: str) -> Any:
    """Read a JSON value; raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as fault:
        raise UsageError(f"{what} is not valid JSON: {fault}") from None


def read_tool_arguments(words: Sequence[str]) -> dict[str, Json]:
    """`name=text`, `name:=JSON`, or one JSON object; raises UsageError."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        value = read_json(words[0], "the arguments")
        if not isinstance(value, dict):
            raise UsageError("the arguments of a tool must be one JSON object")
        return value
    arguments: dict[str, Json] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.rstrip(":"):
            raise UsageError(f"{word!r} is not an argument: write name=text, name:=JSON, or one JSON object")
        if name.endswith(":"):
            arguments[name[:-1]] = read_json(value, f"the argument {name[:-1]}")
        else:
            arguments[name] = value
    return arguments


def read_capability_text(text: str) -> Json:
    """KIND, KIND:METHOD, KIND:METHOD:NAME, or a capability as JSON; raises UsageError.

    What looks like a typing error is refused, since it would grant something that is never sent. It can
    still be written as JSON.
    """
    if text.lstrip().startswith("{"):
        return read_json(text, "a capability")
    from moot.protocol.kinds import OPERATION_KINDS
    from moot.protocol.operation import CONTEXT_PATHS
    from moot.protocol.patterns.capability_typos import looks_like_tool, misspelt_kind, misspelt_method

    kind, *parts = text.split(":", 2)
    if not all((kind, *parts)) or _KIND.fullmatch(kind) is None:
        raise UsageError(f"{text!r} is not a capability. {CAPABILITIES}")
    if meant := misspelt_kind(kind):
        raise UsageError(_typo(text, "kind", kind, meant))
    if looks_like_tool(kind):
        raise UsageError(
            f"{text!r} is no kind of message, so it would allow nothing. For the tool {kind}: did you mean"
            f" mcp/request:tools/call:{kind}? If it is a kind of your own, write the capability as JSON"
        )
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
        # Where a method has the name of its target: tools/call in name, resources/read in uri.
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
