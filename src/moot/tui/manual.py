"""The help of the full screen: its keys, its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.operations.operation import UserOperation, find_command
from moot.tui.row_layout import Line, line

KEYS: Final = (
    ("Anywhere", ""),
    ("Esc", "switch between the input line and the panes; close a dialog"),
    ("1 to 7, F2 to F8", "timeline, approvals, members, reasoning, streams, chats, rules"),
    ("/", "start a command; Tab completes it, ↑ ↓ choose a completion or recall earlier lines"),
    ("? or F1", "this help"),
    ("q or Ctrl-C", "leave the space"),
    ("In a pane", ""),
    ("↑ ↓ j k PgUp PgDn Home End", "move; Enter, or a click on the selected row, opens it"),
    ("C", "copy the selected row, or all of a dialog; Shift and the mouse select text in most terminals"),
    ("Timeline", ""),
    ("c, e", "go to the message it refers to; go to the message that refers to it"),
    ("f", "filter: from:NAME kind:mcp/* TEXT; a leading - excludes"),
    ("End", "jump to the end and follow new messages"),
    ("Approvals", ""),
    ("a or Enter", "decide: shows the proposal in full; y yes, n no, r no with words, Esc leaves it open"),
    ("r", "reject with a reason"),
    (
        "g",
        "approve and grant: 1 exactly these arguments, 2 this tool, 3 a pattern; t for how long; y does it",
    ),
    ("e", "edit and call: writes the call into the input line"),
    ("z", "take the latest decision back before it is sent (/take-back --seconds 10)"),
    ("v", "vote, in spaces that require several votes"),
    ("x", "in a dialog: show the raw bytes that are approved"),
    ("o", "in a dialog: show the messages in which its values were said"),
    ("e", "in a dialog: endorse a value that nobody here confirmed, or revoke that"),
    ("v", "in a dialog: show the large values that a proposal names by their hash"),
    ("Members", ""),
    ("p u s t", "pause, resume, ask for status, list tools"),
    ("+ - x S n", "grant, revoke, kick, shut down, invite"),
    ("m", "address your messages to this member"),
    ("Reasoning", ""),
    ("s", "ask the member to stop"),
    ("Streams", ""),
    ("Enter", "follow the stream; n opens one, w writes, x closes"),
    ("Chats", ""),
    ("Space", "acknowledge; o replies, x marks that no reply is needed"),
    ("Rules", ""),
    ("a n e d", "a suggestion: accept, narrow and accept, grant instead, dismiss; Enter shows it in full"),
    ("l x S u", "resume a rule, suspend a rule, stop all rules, resume all rules"),
)


def help_lines(commands: Mapping[str, UserOperation], command: str | None) -> list[Line]:
    """The lines of the help; raises UsageError for an unknown command."""
    if command is not None:
        operation = find_command(command, commands)
        text = operation.slash_parser().format_help().rstrip()
        examples = operation.examples.replace("  moot ", "  /").rstrip()
        return [line(each) for each in f"{text}\n\n{examples}".rstrip().split("\n")]
    width = max(len(keys) for keys, text in KEYS if text)
    lines: list[Line] = []
    for keys, text in KEYS:
        if text:
            lines.append(line((f"  {keys:<{width}}  ", "strong"), text))
        else:
            lines += [(), line((keys, "note"))]
    lines += [(), line(("Commands", "note"), (" (/help COMMAND explains one)", "dim"))]
    width = max(len(name) for name in commands) + 1
    lines += [line((f"  /{name:<{width}} ", "strong"), each.help) for name, each in commands.items()]
    return lines
