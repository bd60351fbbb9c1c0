"""What an editor is shown of a space: envelopes as updates of a session, proposals as permission requests.

chat                 agent_message_chunk, with who wrote it
reasoning/*          agent_thought_chunk
mcp/request          tool_call; mcp/response its end
mcp/proposal         tool_call, and a permission request to the person at the editor
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from moot.agents.acp.call_contents import commands_in
from moot.operations.text.origin_text import OriginNotes, caution_lines
from moot.participant.calls.outcome import text_of
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.envelope import Envelope
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json
from moot.protocol.origin_report import AgainOffer

APPROVE: Final = "approve"
REJECT: Final = "reject"
AGAIN: Final = "again"
# What a tool call shows of arguments and results; the console has all of it.
MAX_CHARS: Final = 20_000


def options_of(offer: AgainOffer | None) -> list[Json]:
    """What the editor offers. "Always" is a rule in the space: for exactly this call, limited, seen by
    everybody, and it can be revoked.
    """
    again: Json = {
        "optionId": AGAIN,
        "name": f"Approve, and the same call again ({'' if offer is None else offer.text})",
        "kind": "allow_always",
    }
    return [
        {"optionId": APPROVE, "name": "Approve once", "kind": "allow_once"},
        *([] if offer is None else [again]),
        {"optionId": REJECT, "name": "Reject", "kind": "reject_once"},
    ]


def text_block(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def message(sender: str, text: str) -> dict[str, Json]:
    """A chat of somebody. Editors show one agent, so the name stands in the text."""
    shown = f"**{show_hidden(sender)}:** {text}\n\n"
    return {"sessionUpdate": "agent_message_chunk", "content": text_block(shown)}


def note(text: str) -> dict[str, Json]:
    """Words of our own."""
    return {"sessionUpdate": "agent_message_chunk", "content": text_block(f"*{text}*\n\n")}


def update_of(envelope: Envelope) -> dict[str, Json] | None:
    """The update for an envelope of somebody else; None for what an editor need not show."""
    payload, sender = envelope.payload, show_hidden(envelope.sender)
    match envelope.kind:
        case "chat":
            return message(envelope.sender, str(payload.get("text", "")))
        case "reasoning/start" | "reasoning/thought" | "reasoning/conclusion":
            text = f"{sender}: {payload.get('message', '')}\n\n"
            return {"sessionUpdate": "agent_thought_chunk", "content": text_block(text[:MAX_CHARS])}
        case "mcp/request" if payload.get("method") == "tools/call" and not envelope.correlation_id:
            params = payload.get("params")
            given = params if isinstance(params, dict) else {}
            return {
                "sessionUpdate": "tool_call",
                "toolCallId": envelope.id,
                "status": "in_progress",
                **describe_call(envelope.sender, envelope.to, given),
            }
        case "mcp/response" if envelope.correlation_id:
            return result_update(envelope.correlation_id[0], payload.get("result"), payload.get("error"))
    return None


def result_update(id: str, result: Any, error: Any = None) -> dict[str, Json]:
    """The end of a tool call."""
    given = result if isinstance(result, dict) else {}
    failed = error is not None or given.get("isError") is True
    text = str(error.get("message", "")) if isinstance(error, dict) else text_of(given)
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": "failed" if failed else "completed",
        "content": [{"type": "content", "content": text_block(text[:MAX_CHARS])}],
    }


def describe_call(sender: str, to: Sequence[str], params: Mapping[str, Any]) -> dict[str, Json]:
    """Title, kind, input and diffs of a call."""
    name, arguments = str(params.get("name", "")), params.get("arguments")
    hosts = ", ".join(show_hidden(each) for each in to)
    shown: dict[str, Json] = {
        "title": f"{show_hidden(sender)} → {hosts}: {show_hidden(name)}",
        # A tool's name says nothing about what it does, and editors approve some kinds by themselves.
        "kind": "execute" if commands_in(arguments if isinstance(arguments, dict) else {}) else "other",
        "rawInput": arguments if isinstance(arguments, dict) else {},
    }
    content = [*_diffs(arguments)]
    if not content:
        text = orjson.dumps(arguments, option=orjson.OPT_INDENT_2, default=str).decode()
        content = [_code(text[:MAX_CHARS], "json")]
    return {**shown, "content": content}


def _code(text: str, language: str) -> dict[str, Json]:
    return {"type": "content", "content": text_block(f"```{language}\n{text}\n```")}


def permission_of(seen: SeenProposal, viewers: Collection[str] = ()) -> dict[str, Json]:
    """The tool call of a permission request: what is known and said of it, and exactly what was proposed."""
    call = describe_call(seen.proposer, seen.to, seen.params)
    notes = OriginNotes(seen.origins, viewers, with_places=False)
    lines = [
        *(f"! {text}" for text in caution_lines(seen)),
        *(text for _, found in notes.take_rest() for text in found),
        *(f"{each.by} says: {each.text}" for each in seen.comments),
    ]
    if lines:
        # As code: an editor reads markup in all other text.
        text = show_hidden("\n".join(lines)).replace("`", "'")
        call["content"] = [_code(text[:MAX_CHARS], "text"), *call["content"]]
    return {"toolCallId": seen.id, "status": "pending", **call}


def _diffs(arguments: Any) -> list[Json]:
    changes = arguments.get("changes") if isinstance(arguments, dict) else None
    return [
        {
            "type": "diff",
            "path": str(change.get("path", "")),
            "oldText": change.get("old_text") if isinstance(change.get("old_text"), str) else None,
            "newText": str(change.get("new_text", "")),
        }
        for change in (changes if isinstance(changes, list) else ())
        if isinstance(change, dict)
    ]


def prompt_text(prompt: Any) -> str:
    """What a person wrote in the editor, with the files that they named."""
    parts = []
    for block in prompt if isinstance(prompt, list) else ():
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                parts.append(str(block.get("text", "")))
            case "resource_link":
                parts.append(f"[{block.get('name', 'file')}]({block.get('uri', '')})")
            case "resource":
                resource = block.get("resource")
                given = resource if isinstance(resource, dict) else {}
                parts.append(f"{given.get('uri', '')}\n```\n{given.get('text', '')}\n```")
            case other:
                parts.append(f"[{other} left out: a space has text]")
    return "\n".join(part for part in parts if part.strip())
