"""Comments on proposals from an editor: `/comment which folder is that?`.

ACP has no field for words at a permission request. What others say is content of its tool call
(`editor_view`); what the person says is a prompt, so it is a command, which editors complete. It needs no
turn of an agent, so it is taken while a prompt is under way, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json

COMMANDS: Final[dict[str, Json]] = {
    "sessionUpdate": "available_commands_update",
    "availableCommands": [
        {
            "name": "comment",
            "description": "Say something about the proposal that you were asked about last. "
            "Everybody sees it; its proposer, or whom you mention (@name), is told.",
            "input": {"hint": "which folder is that?"},
        }
    ],
}
# Enough of an id to name one of a few.
_ID: Final = re.compile(r"([0-9a-f]{6,})\s+(?=\S)")
_COMMAND: Final = re.compile(r"/comment(?:\s+|$)(.*)", re.DOTALL)


def comment_in(prompt: str) -> str | None:
    """What a prompt says about a proposal; None if it is another prompt."""
    found = _COMMAND.fullmatch(prompt.strip())
    return None if found is None else found[1].strip()


async def comment(space: JoinedSpace, asked: Collection[str], text: str) -> str:
    """Say it about the pending one whose id it begins with, or about the last; what to tell the person."""
    pending = [seen for id in asked if (seen := space.proposals.get(id)) is not None and _is_open(seen)]
    if not pending:
        return "You are asked about no proposal at the moment, so there is none to comment on."
    named = _ID.match(text)
    chosen = [seen for seen in pending if named is not None and seen.id.startswith(named[1])]
    if named is not None and len(chosen) == 1:
        text = text[named.end() :]
    if not text:
        return "Write what you want to say after /comment."
    seen = chosen[0] if len(chosen) == 1 else pending[-1]
    await space.comment(seen, text)
    others = [f"{_name(each)} ({each.id[:8]})" for each in pending if each is not seen]
    more = f" For another one begin with its id: {', '.join(others)}." if others else ""
    return f"Said about {_name(seen)} by {show_hidden(seen.proposer)}.{more}"


def _is_open(seen: SeenProposal) -> bool:
    return seen.status == "pending"


def _name(seen: SeenProposal) -> str:
    return show_hidden(str(seen.params.get("name") or seen.method))[:100]
