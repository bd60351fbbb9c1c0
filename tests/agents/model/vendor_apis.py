"""Answers in the shape of Anthropic's Messages and OpenAI's Responses; the vendors' own SDKs judge them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import JSONResponse, Response

Said = dict[str, Any]
Events = list[dict[str, Any]]


def _stream(events: Events) -> Response:
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Response(body, media_type="text/event-stream")


def _pieces(text: str, size: int = 5) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# Anthropic


def write_message(answer: Said, stream: bool) -> Response:
    blocks: list[dict[str, Any]] = []
    if answer.get("thoughts"):
        blocks.append({"type": "thinking", "thinking": answer["thoughts"], "signature": "signed"})
    if answer.get("text"):
        blocks.append({"type": "text", "text": answer["text"], "citations": None})
    for number, (name, arguments) in enumerate(answer.get("calls") or ()):
        blocks.append({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments})
    stop = answer.get("stop") or ("tool_use" if answer.get("calls") else "end_turn")
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 6, "cache_read_input_tokens": 5, "output_tokens": 7},
    }
    return _stream(message_events(message)) if stream else JSONResponse(message)


def message_events(message: dict[str, Any]) -> Events:
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    events: Events = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "thinking":
                empty = {**block, "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": each} for each in _pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                empty = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": each} for each in _pieces(block["text"])]
            case _:
                empty = {**block, "input": {}}
                written = json.dumps(block["input"]) if block["input"] else ""
                deltas = [
                    {"type": "input_json_delta", "partial_json": each} for each in ["", *_pieces(written)]
                ]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
    return [*events, {"type": "message_stop"}]


# OpenAI


def write_response(answer: Said, stream: bool) -> Response:
    items: list[dict[str, Any]] = []
    if answer.get("thoughts"):
        summary = [{"type": "summary_text", "text": answer["thoughts"]}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"})
    if answer.get("text"):
        content = [{"type": "output_text", "text": answer["text"], "annotations": [], "logprobs": []}]
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for number, (name, arguments) in enumerate(answer.get("calls") or ()):
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
        items.append({**call, "arguments": json.dumps(arguments), "status": "completed"})
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if answer.get("stop") else "completed",
        "incomplete_details": {"reason": answer["stop"]} if answer.get("stop") else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": "m",
        "output": items,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 18,
        },
    }
    return _stream(response_events(response)) if stream else JSONResponse(response)


def response_events(response: dict[str, Any]) -> Events:
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: Events = [{"type": "response.created", "response": begun}]
    events.append({"type": "response.in_progress", "response": begun})
    for index, item in enumerate(response["output"]):
        at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        kind = item["type"]
        empty: dict[str, dict[str, Any]] = {
            "reasoning": {"summary": []},
            "message": {"content": []},
            "function_call": {"arguments": ""},
        }
        added = {**item, **empty[kind]}
        if kind != "reasoning":
            added["status"] = "in_progress"
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if kind == "reasoning":
            part = {**at, "summary_index": 0}
            text = item["summary"][0]["text"]
            start = {"type": "summary_text", "text": ""}
            events.append({"type": "response.reasoning_summary_part.added", **part, "part": start})
            for each in _pieces(text):
                events.append({"type": "response.reasoning_summary_text.delta", **part, "delta": each})
            events.append({"type": "response.reasoning_summary_text.done", **part, "text": text})
            whole = {"type": "summary_text", "text": text}
            events.append({"type": "response.reasoning_summary_part.done", **part, "part": whole})
        elif kind == "message":
            part = {**at, "content_index": 0}
            content = item["content"][0]
            events.append({"type": "response.content_part.added", **part, "part": {**content, "text": ""}})
            for each in _pieces(content["text"]):
                events.append({"type": "response.output_text.delta", **part, "delta": each, "logprobs": []})
            done = {"text": content["text"], "logprobs": []}
            events.append({"type": "response.output_text.done", **part, **done})
            events.append({"type": "response.content_part.done", **part, "part": content})
        else:
            for each in _pieces(item["arguments"]):
                events.append({"type": "response.function_call_arguments.delta", **at, "delta": each})
            arguments = {"arguments": item["arguments"], "name": item["name"]}
            events.append({"type": "response.function_call_arguments.done", **at, **arguments})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


VENDOR_APIS: Final[dict[str, Callable[[Said, bool], Response]]] = {
    "messages": write_message,
    "responses": write_response,
}
