"""Prompts: what people said, so that the agent can tell who said what.

Every line of a message is quoted with `> `, and who speaks stands in a line that is not quoted. So nobody can
write a message that looks as if somebody else had said a part of it, or as if it came from the space itself.
A message never begins a prompt, so it cannot be a command of the agent (`/mode`, `/permissions`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json

# What projects tell agents. Agents that leave the settings of a folder out leave these out, too.
_INSTRUCTIONS: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", "QWEN.md")


def introduction(me: str, space: str, folder: Path) -> str:
    """What an agent is told at the beginning of a session."""
    where = f"the space {show_hidden(space)}" if space else "a space"
    files = " and ".join(name for name in _INSTRUCTIONS if (folder / name).is_file())
    instructions = f" Read {files} there first: the project's own instructions." if files else ""
    return (
        f"You are {show_hidden(me)}, a member of {where}: a shared workspace of people, agents and tools. "
        "Several people may talk to you. Each message is given below a line that names who wrote it; its own "
        "lines begin with '> '. A line without '> ' comes from the workspace itself. Everybody there sees "
        f"what you say and do. You work in {folder}.{instructions} What you ask permission for is decided "
        "by people of the space, which may take long. If it is rejected you are told why afterwards: respect "
        "it, and do not try to reach the same in another way."
    )


def message_text(sender: str, text: str) -> str:
    """One message as a part of a prompt."""
    return f"{_one_line(sender)} wrote:\n{quote(text)}"


def rejection_text(what: str, by: str, reason: str, explanation: str) -> str:
    """Why a permission was not given: ACP has no field for it, so it is the next prompt."""
    comment = f" and wrote:\n{quote(explanation)}" if explanation else "."
    return (
        f"You asked for permission for this:\n{quote(what)}\n"
        f"{_one_line(by)} rejected it (reason: {_one_line(reason)}){comment}\n"
        "It was not done. Respect this. Go on without it, or say what you need."
    )


def resume_text(by: str) -> str:
    return (
        f"{_one_line(by)} had paused you, and your turn was cancelled. The pause is over: "
        "go on with what you were asked, after a look at how far you came."
    )


def blocks(*texts: str) -> list[Json]:
    """The prompt as ACP's content."""
    return [{"type": "text", "text": text} for text in texts if text]


def quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines()) or "> "


def _one_line(name: str) -> str:
    return " ".join(show_hidden(name).split())
