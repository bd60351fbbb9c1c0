"""OpenAI's Responses API: `POST responses`, an answer as items. Nothing is stored at the endpoint."""

from __future__ import annotations

from typing import Any, Final

from moot.agents.model.agent_settings import ModelSettings
from moot.agents.model.chat_completions import check_for_error, is_passing
from moot.agents.model.model_reply import (
    Message,
    ModelEndpointFault,
    ModelReply,
    ToolCall,
    as_arguments,
    new_id_numbers,
    unique_ids,
)

_ENDED_EARLY: Final = {
    "max_output_tokens": "its answer reached the limit of tokens: raise --max-tokens",
    "content_filter": "the endpoint's content filter stopped it",
}
_TEXT_DELTAS: Final = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
    }
)


class OpenAIResponses:
    """Requests and answers of the Responses API."""

    path: Final = "responses"
    replaceable: Final[dict[str, str | None]] = {"temperature": None, "max_output_tokens": None}

    def __init__(self) -> None:
        self._fresh = new_id_numbers()

    def headers(self, settings: ModelSettings) -> dict[str, str]:
        return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}

    def body(self, settings: ModelSettings, messages: list[Message], tools: list[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": settings.model, "store": False, "input": _outgoing(messages)}
        if tools:
            # `strict` would refuse most schemas of MCP tools.
            body["tools"] = [{"type": "function", "strict": False, **each["function"]} for each in tools]
        if settings.max_tokens is not None:
            body["max_output_tokens"] = settings.max_tokens
        if settings.stream:
            body["stream"] = True
        return body

    def stream(self) -> ResponsesStream:
        return ResponsesStream(self)

    def read(self, answer: Any) -> ModelReply:
        check_for_error(answer)
        return self.reply_of(answer, answer["output"])

    def reply_of(self, response: dict[str, Any], items: list[dict[str, Any]]) -> ModelReply:
        """The answer that these items are."""
        calls = [item for item in items if item["type"] == "function_call"]
        ids = unique_ids([call.get("call_id") or call.get("id") or "" for call in calls], self._fresh)
        for call, id in zip(calls, ids, strict=True):
            call["call_id"], call["arguments"] = id, as_arguments(call.get("arguments"))
        usage = response.get("usage") or {}
        reply = ModelReply(
            text="".join(_texts(items, "message", "content")),
            reasoning="\n".join(
                _texts(items, "reasoning", "summary") or _texts(items, "reasoning", "content")
            ),
            calls=[ToolCall(call["call_id"], call["name"], call["arguments"]) for call in calls],
            prompt_tokens=int(usage.get("input_tokens") or 0),
            completion_tokens=int(usage.get("output_tokens") or 0),
        )
        if response.get("status") == "incomplete":
            reason = str((response.get("incomplete_details") or {}).get("reason") or "")
            reply.cut_short = _ENDED_EARLY.get(reason, "the endpoint ended its answer early")
        if reply.calls:
            reply.native = [each for item in items if (each := _returned(item))]
        return reply


class ResponsesStream:
    """Puts one answer together from its events."""

    def __init__(self, api: OpenAIResponses) -> None:
        self.finished = False
        self._api = api
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}

    def feed(self, chunk: Any) -> str:
        kind = chunk["type"]
        match kind:
            case "response.output_item.added" | "response.output_item.done":
                self._items[int(chunk["output_index"])] = dict(chunk["item"])
            case "response.function_call_arguments.delta":
                item = self._items[int(chunk["output_index"])]
                item["arguments"] = (item.get("arguments") or "") + chunk["delta"]
            case "response.function_call_arguments.done":
                self._items[int(chunk["output_index"])]["arguments"] = chunk["arguments"]
            case "response.completed" | "response.incomplete":
                self._response, self.finished = chunk["response"], True
            case "response.failed" | "response.cancelled":
                check_for_error(chunk["response"])
                raise ModelEndpointFault(f"the endpoint says: {kind}")
            case "error":
                details = chunk.get("error") if isinstance(chunk.get("error"), dict) else chunk
                code = details.get("code") or ""
                raise ModelEndpointFault(f"{details.get('message')} ({code})", retryable=is_passing(code))
        return str(chunk["delta"]) if kind in _TEXT_DELTAS else ""

    def reply(self) -> ModelReply:
        items = self._response.get("output") or [item for _, item in sorted(self._items.items())]
        return self._api.reply_of(self._response, items)


def _texts(items: list[dict[str, Any]], kind: str, field: str) -> list[str]:
    parts = [part for item in items if item["type"] == kind for part in item.get(field) or ()]
    return [part.get("text") or part.get("refusal") or "" for part in parts]


def _returned(item: dict[str, Any]) -> dict[str, Any] | None:
    """An item for the next request, without the ids of what the endpoint does not store."""
    match item["type"]:
        case "reasoning":
            # Only what is encrypted can be continued.
            kept = ("type", "id", "summary", "encrypted_content")
            return {name: item[name] for name in kept} if item.get("encrypted_content") else None
        case "function_call":
            return {name: value for name, value in item.items() if name not in ("id", "status")}
        case "message":
            text = "".join(_texts([item], "message", "content"))
            phase = {"phase": item["phase"]} if item.get("phase") else {}
            return {"role": "assistant", "content": text, **phase} if text else None
        case _:
            return None


def _outgoing(messages: list[Message]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            written.append({**output, "output": message["content"]})
        elif message.get("native"):
            written += message["native"]
        elif message["content"]:
            written.append({"role": message["role"], "content": message["content"]})
    return written
