"""Which commands there are, where each is defined, and what was called otherwise before.

Only the module of the called command is loaded: loading all of them takes longer than most commands do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from moot import __version__
from moot.cli.process.program import Parser

# What `moot` alone prints: it fits on a screen of 24 lines with 80 columns.
SHORT_HELP: Final = """\
usage: moot COMMAND ...      `moot COMMAND --help` explains each with examples
run a space  init        make a space from a template
             up          run a whole space: gateway, members and MCP servers
             serve       run only the gateway; `reload` applies changes; `space`
             demo        watch a scripted space; --live starts a real one
take part    open        open the console in your browser, signed in
             join        chat, watch and decide in this terminal
             send        say something, or send any envelope
             tail        watch messages as they arrive
             members     list the members and what they may do
             call        call a tool, or propose the call; `tools` lists them
decide       proposals   list what waits; `plans`, `plan`: tasks; `budgets`
             approve     make it; `reject`, `preview`, `undo`, `compensate`
             comment     ask back; `assign`, `delegate`, `decisions`, `chat`
connect      agent       let a language model take part
             bridge      let an MCP server take part; `sign-in` where it asks
             acp         let Claude Code, Codex, … take part; `a2a`: A2A agents
             mcp         let an MCP client (Claude Code, Cursor, …) take part
manage       member      invite, grant, revoke, pause, kick, …; `passkeys`
             proposal    vote, withdraw, explain, history; `receipt`
             rules       let rules decide; `origins`: what asks; `review`: a no
             journal     read, search, export, verify it; `verify`: the setup
also         login, logout, hook, cluster, xp, message, conformance, completion
"""

_ABOUT: Final = """
A shared workspace where people, agents and MCP tools meet. Everyone in a space
sees every message; nobody does what their capabilities don't allow; whoever may
not act may propose, and someone trusted decides.

Speaks the Multi-Entity Workspace Protocol (mew/v0.4), MCPx (mcpx/v0.1) and the
dotted m3p kinds. All three are experimental: nothing is promised to stay
compatible before their v1.0, so pin a version. `moot --version` prints ours.
"""

# Command → its module below this package, in the order of the help.
COMMANDS: Final = {
    "init": "up.init",
    "up": "up.up",
    "serve": "gateway.serve",
    "reload": "gateway.reload",
    "demo": "up.demo",
    "open": "client.open_console",
    "login": "client.login",
    "logout": "client.login",
    "sign-in": "client.sign_in",
    "join": "client.join",
    "send": "client.operation_commands",
    "tail": "client.tail",
    "members": "client.operation_commands",
    "tools": "client.operation_commands",
    "call": "client.operation_commands",
    "proposals": "client.operation_commands",
    "budgets": "client.operation_commands",
    "approve": "client.operation_commands",
    "reject": "client.operation_commands",
    "compensate": "client.operation_commands",
    "preview": "client.operation_commands",
    "undo": "client.operation_commands",
    "comment": "client.operation_commands",
    "assign": "client.operation_commands",
    "delegate": "client.operation_commands",
    "decisions": "client.decisions",
    "receipt": "journal.receipt",
    "passkeys": "client.passkeys",
    "plans": "client.operation_commands",
    "plan": "client.operation_commands",
    "agent": "agents.agent",
    "acp": "agents.acp",
    "a2a": "agents.a2a",
    "hook": "agents.hook",
    "chat": "chat",
    "bridge": "bridge",
    "mcp": "mcp",
    "member": "client.operation_commands",
    "proposal": "proposal",
    "rules": "rules",
    "origins": "origins",
    "review": "agents.review",
    "journal": "journal.journal_commands",
    "verify": "verify",
    "cluster": "gateway.cluster",
    "space": "gateway.space",
    "xp": "xp",
    "message": "client.operation_commands",
    "conformance": "conformance",
    "completion": "completion",
}

# What a command was called before 0.2 → what it is called now. The longest match counts.
RENAMED: Final = {
    "invite": "member invite",
    "grant": "member grant",
    "revoke": "member revoke",
    "kick": "member kick",
    "pause": "member pause",
    "resume": "member resume",
    "status": "member status",
    "control": "member control",
    "request": "member request",
    "ack": "message ack",
    "cancel": "message cancel",
    "stop": "message stop",
    "propose": "call --propose",
    "vote": "proposal vote",
    "withdraw": "proposal withdraw",
    "explain": "proposal explain",
    "approver": "rules run",
    "trust": "rules",
    "trust rules": "rules list",
    "trust lift": "rules resume",
    "relay": "xp relay",
}


class MootParser(Parser):
    """The parser of `moot` itself: its help is written by hand, so that it loads no command."""

    def format_help(self) -> str:
        return SHORT_HELP + _ABOUT

    def format_usage(self) -> str:
        return SHORT_HELP.partition("\n")[0] + "\n"


def parser_for(words: Sequence[str]) -> Parser:
    """The parser that knows the command that the words call."""
    called = next((word for word in words if not word.startswith("-")), None)
    if called is not None and called not in COMMANDS:
        _reject_unknown(called, words)
    return make_parser([] if called is None else [called])


def make_parser(names: Iterable[str]) -> Parser:
    """A parser with these commands; `COMMANDS` for all of them, which takes a moment."""
    parser = MootParser(prog="moot")
    parser.add_argument("--version", action="version", version=f"moot {__version__} (mew/v0.4, mcpx/v0.1)")
    parser.set_defaults(run=_print_short_help)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in names:
        _module(name).add_command(commands, name)
    return parser


def _print_short_help(_: argparse.Namespace) -> int:
    print(SHORT_HELP, end="")
    return 0


def _module(name: str) -> Any:
    return import_module(f"moot.cli.{COMMANDS[name]}")


def _reject_unknown(called: str, words: Sequence[str]) -> None:
    """End with a line that says how the command is spelled."""
    from moot.cli.process.program import did_you_mean

    parser = make_parser([])
    typed = [word for word in words[words.index(called) :] if not word.startswith("-")]
    for length in (2, 1):
        before = " ".join(typed[:length])
        if before in RENAMED:
            parser.exit(2, f"moot: `moot {before}` is now `moot {RENAMED[before]}`\n")
    hint = did_you_mean(called, COMMANDS) or "`moot` lists the commands"
    parser.exit(2, f"moot: there is no command {called!r}; {hint}\n")
