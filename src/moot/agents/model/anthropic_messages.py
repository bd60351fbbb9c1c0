"""Anthropic's Messages API: `POST messages`, an answer as blocks of text, thinking and tool use."""

from __future__ import annotations

import json
from typing import Any, Final

from moot.agents.model.agent_settings import ModelSettings
from moot.agents.model.chat_completions import check_for_error
from moot.agents.model.model_reply import (
    Message,
    ModelReply,
    ToolCall,
    as_arguments,
    new_id_numbers,
    unique_ids,
)

_VERSION: Final = "2023-06-01"
# The API wants a number. Enough for a long answer, and within what every model can write.
_DEFAULT_MAX_TOKENS: Final = 8_192
_ENDED_EARLY: Final = {
    "max_tokens": "its answer reached the limit of tokens: raise --max-tokens",
    "model_context_window_exceeded": "the conversation is too long for the model: lower --context-tokens",
    "refusal": "the model refused to go on",
}
# Which field of a block each kind of delta continues.
_DELTA_FIELDS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicMessages:
    """Requests and answers of Anthropic's API."""

    path: Final = "messages"
    replaceable: Final[dict[str, str | None]] = {"temperature": None}

    def __init__(self) -> None:
        self._fresh = new_id_numbers()

    def headers(self, settings: ModelSettings) -> dict[str, str]:
        key = {"x-api-key": settings.api_key} if settings.api_key else {}
        return {"anthropic-version": _VERSION, **key}

    def body(self, settings: ModelSettings, messages: list[Message], tools: list[Message]) -> dict[str, Any]:
        system = "\n\n".join(each["content"] for each in messages if each["role"] == "system")
        body: dict[str, Any] = {
            "model": settings.model,
            "max_tokens": settings.max_tokens or _DEFAULT_MAX_TOKENS,
            "messages": _outgoing(messages),
        }
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [_tool(each["function"]) for each in tools]
        if settings.stream:
            body["stream"] = True
        return body

    def stream(self) -> MessagesStream:
        return MessagesStream(self)

    def read(self, answer: Any) -> ModelReply:
        check_for_error(answer)
        return self.reply_of(answer["content"], answer.get("stop_reason"), answer.get("usage") or {})

    def reply_of(self, blocks: list[dict[str, Any]], stop: Any, usage: dict[str, Any]) -> ModelReply:
        """The answer that these blocks are."""
        uses = [block for block in blocks if block["type"] == "tool_use"]
        for block, id in zip(
            uses, unique_ids([use.get("id") or "" for use in uses], self._fresh), strict=True
        ):
            block["id"] = id
        reply = ModelReply(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            reasoning="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            calls=[ToolCall(use["id"], use["name"], as_arguments(use["input"])) for use in uses],
            prompt_tokens=sum(
                int(usage.get(name) or 0)
                for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
            ),
            completion_tokens=int(usage.get("output_tokens") or 0),
            cut_short=_ENDED_EARLY.get(str(stop), ""),
        )
        if reply.calls:
            # Thinking is signed, and goes back unchanged with the calls that followed it.
            reply.native = [_returned(block) for block in blocks if block["type"] != "text" or block["text"]]
        return reply


class MessagesStream:
    """Puts one answer together from its events."""

    def __init__(self, api: AnthropicMessages) -> None:
        self.finished = False
        self._api = api
        self._blocks: dict[int, dict[str, Any]] = {}
        self._stop: Any = None
        self._usage: dict[str, Any] = {}

    def feed(self, chunk: Any) -> str:
        match chunk["type"]:
            case "error":
                check_for_error(chunk)
            case "message_start":
                self._usage |= chunk["message"].get("usage") or {}
            case "content_block_start":
                block = dict(chunk["content_block"])
                if block["type"] == "tool_use":
                    # What is here now is a place holder; the input comes as text.
                    block["input"] = json.dumps(block["input"]) if block.get("input") else ""
                self._blocks[int(chunk["index"])] = block
                return str(block.get("text") or block.get("thinking") or "")
            case "content_block_delta":
                return self._extend(self._blocks[int(chunk["index"])], chunk["delta"])
            case "message_delta":
                self._stop = chunk["delta"].get("stop_reason") or self._stop
                self._usage |= {name: value for name, value in (chunk.get("usage") or {}).items() if value}
            case "message_stop":
                self.finished = True
        # Others (ping, and what may be added) say nothing that is needed here.
        return ""

    def _extend(self, block: dict[str, Any], delta: dict[str, Any]) -> str:
        if delta["type"] == "input_json_delta":
            block["input"] += delta["partial_json"]
            return ""
        field = _DELTA_FIELDS.get(delta["type"])
        if field is None:
            return ""
        block[field] = (block.get(field) or "") + delta[field]
        return str(delta[field]) if field != "signature" else ""

    def reply(self) -> ModelReply:
        blocks = [block for _, block in sorted(self._blocks.items())]
        return self._api.reply_of(blocks, self._stop, self._usage)


def _returned(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] != "tool_use":
        return block
    given = block["input"]
    if isinstance(given, str):
        try:
            given = json.loads(as_arguments(given))
        except ValueError:
            given = {}  # cut off; its result tells the model
    return {**block, "input": given if isinstance(given, dict) else {}}


def _outgoing(messages: list[Message]) -> list[dict[str, Any]]:
    """Chat messages as this API wants them: a user's first, and results of tools within a user's message."""
    written: list[dict[str, Any]] = []
    for message in messages:
        match message["role"]:
            case "user":
                written.append({"role": "user", "content": message["content"]})
            case "assistant" if content := message.get("native") or message["content"]:
                written.append({"role": "assistant", "content": content})
            case "tool":
                result = {
                    "type": "tool_result",
                    "tool_use_id": message["tool_call_id"],
                    "content": message["content"],
                }
                if written and isinstance(written[-1]["content"], list) and written[-1]["role"] == "user":
                    written[-1]["content"].append(result)
                else:
                    written.append({"role": "user", "content": [result]})
    if not written or written[0]["role"] != "user":
        written.insert(0, {"role": "user", "content": "(The conversation goes on.)"})
    return written


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": {"type": "object", **function["parameters"]},
    }
