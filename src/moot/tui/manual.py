"""The help of the full screen: its keys, its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.errors import UsageError
from moot.tui.operations.operation import UserOperation
from moot.tui.row_layout import Line, line

KEYS: Final = (
    ("Anywhere", ""),
    ("Esc", "from the line to the panes and back; closes what is open"),
    ("1 to 7, F2 to F8", "timeline, approvals, people, thoughts, streams, chats, rules"),
    ("/", "a command; Tab completes it, ↑ ↓ choose or call earlier lines back"),
    ("? or F1", "this help"),
    ("q or Ctrl-C", "leave"),
    ("In a pane", ""),
    ("↑ ↓ j k PgUp PgDn Home End", "move; Enter or a click on the chosen one opens it"),
    ("Timeline", ""),
    ("c, e", "to what this refers to; to what refers to this"),
    ("f", "filter: from:NAME kind:mcp/* words, - before one excludes"),
    ("End", "follow what comes"),
    ("Approvals", ""),
    ("a", "approve once: shows all of it, y approves"),
    ("r", "reject with a reason"),
    ("g", "approve and grant: 1 this very call, 2 this tool, 3 a pattern; y does it"),
    ("v", "vote, where a space asks for several votes"),
    ("x", "in a dialog: the very bytes that are approved"),
    ("People", ""),
    ("p u s t", "pause, resume, status, tools"),
    ("+ - x S n", "grant, revoke, kick, shut down, invite"),
    ("m", "talk to this one"),
    ("Thoughts", ""),
    ("s", "ask them to stop"),
    ("Streams", ""),
    ("Enter", "follow what it says; n opens one, w writes, x closes"),
    ("Chats", ""),
    ("Space", "acknowledge; o replies, x tells all that no answer is needed"),
    ("Rules", ""),
    ("a n e d", "a suggestion: accept, accept less, grant instead, dismiss; Enter shows all of it"),
    ("l x S u", "lift a rule, suspend it, stop all rules, let them go on"),
)


def about(commands: Mapping[str, UserOperation], command: str | None) -> list[Line]:
    """The lines of the help; raises UsageError for a command that there is not."""
    if command is not None:
        operation = commands.get(command.removeprefix("/"))
        if operation is None:
            raise UsageError(f"there is no /{command}: /help lists what there is")
        text = operation.slash_parser().format_help().rstrip()
        examples = operation.examples.replace("  moot ", "  /").rstrip()
        return [line(each) for each in f"{text}\n\n{examples}".rstrip().split("\n")]
    width = max(len(keys) for keys, words in KEYS if words)
    lines: list[Line] = []
    for keys, words in KEYS:
        if words:
            lines.append(line((f"  {keys:<{width}}  ", "strong"), words))
        else:
            lines += [(), line((keys, "note"))]
    lines += [(), line(("Commands", "note"), (" (/help COMMAND tells more)", "dim"))]
    width = max(len(name) for name in commands) + 1
    lines += [line((f"  /{name:<{width}} ", "strong"), each.help) for name, each in commands.items()]
    return lines
