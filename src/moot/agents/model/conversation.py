"""Prompts: the transcript of an agent as chat messages for a model.

Everything comes from the transcript, so forgetting, compacting and clearing (MEW 3.9) change what the model
sees. Reasoning of other agents stays out of the prompt (MEW 3.5.6).
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from moot.agents.model.model_reply import Message
from moot.participant import Transcript
from moot.participant.conversation.contexts import reasoning_text
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

# Kinds that belong to the conversation.
_DESCRIBED: Final = frozenset(
    {"chat", "mcp/request", "mcp/response", "mcp/proposal", "mcp/reject", "reasoning/conclusion"}
)
# Of one result or arguments in the history; the turn in which they came got them whole.
_HISTORY_CHARS: Final = 2_000


def prompt_of(
    transcript: Transcript,
    me: str,
    instructions: str,
    present: str,
    *,
    late: str = "",
    question: Envelope | None = None,
) -> list[Message]:
    """The system message, the summary of earlier compactions, what happened since, and the question.

    `late`: the members who have not told yet which tools they offer.
    """
    system = f"{instructions}\n\nYou are {me}. Present now: {present}."
    if late:
        system += f" Not known yet, and perhaps there in a moment: which tools these offer: {late}."
    if transcript.summary:
        system += f"\n\nWhat happened before, in short:\n{transcript.summary}"
    messages: list[Message] = [{"role": "system", "content": system}]
    last = ""
    for envelope in transcript.prompt(me):
        text = describe(envelope)
        if not text:
            continue
        last, own = envelope.id, envelope.sender == me
        role = "assistant" if own and envelope.kind == "chat" else "user"
        # Only its chats are the agent's own words; its actions are described.
        content = text if role == "assistant" else f"{'You' if own else envelope.sender}: {text}"
        if messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n{content}"
        else:
            messages.append({"role": role, "content": content})
    if question is not None and last != question.id:
        # It waited, was forgotten, or others spoke since: a model answers what stands last.
        again = f"Now answer {question.sender}, who said: {_text(question.payload.get('text'))}"
        if messages[-1]["role"] == "user":
            messages[-1]["content"] += f"\n{again}"
        else:
            messages.append({"role": "user", "content": again})
    return messages


def describe(envelope: Envelope) -> str:
    """One envelope as text, "" for what a model need not know."""
    payload = envelope.payload
    if envelope.kind not in _DESCRIBED:
        return ""
    match envelope.kind:
        case "chat":
            return _text(payload.get("text"))
        case "reasoning/conclusion":
            return f"[concluded] {reasoning_text(payload)}"
        case "mcp/request" | "mcp/proposal":
            if payload.get("method") != "tools/call":
                return ""
            verb = "calls" if envelope.kind == "mcp/request" else "proposes"
            return f"[{verb} {_describe_call(payload.get('params'))}{_recipients(envelope)}]"
        case "mcp/reject":
            return f"[rejects a proposal: {_text(payload.get('reason'))}]"
        case _:
            return _describe_answer(payload)


def _describe_call(params: Json) -> str:
    if not isinstance(params, dict):
        return "?"
    return f"{_text(params.get('name'))} {_short(orjson.dumps(params.get('arguments', {})).decode())}"


def _describe_answer(payload: Any) -> str:
    if "error" in payload:
        return f"[answers an error: {_short(orjson.dumps(payload['error']).decode())}]"
    result = payload.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return ""
    texts = [block.get("text", "") for block in content if isinstance(block, dict)]
    return f"[answers: {_short(' '.join(text for text in texts if isinstance(text, str)))}]"


def _recipients(envelope: Envelope) -> str:
    return f" of {', '.join(envelope.to)}" if envelope.to else ""


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _short(text: str) -> str:
    return text if len(text) <= _HISTORY_CHARS else f"{text[:_HISTORY_CHARS]} …"


def summary_prompt(envelopes: list[Envelope]) -> list[Message]:
    """Asks for a summary of what a compaction drops."""
    lines = [f"{envelope.sender}: {text}" for envelope in envelopes if (text := describe(envelope))]
    return [
        {
            "role": "system",
            "content": "Summarise this part of a workspace's conversation for somebody who goes on with it: "
            "what was asked, done, decided and rejected, names and values that matter, what is still open. "
            "At most 200 words.",
        },
        {"role": "user", "content": "\n".join(lines) or "(nothing that was said)"},
    ]
