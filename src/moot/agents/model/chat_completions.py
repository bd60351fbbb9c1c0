"""OpenAI's chat completions, as the many endpoints speak it that call themselves compatible."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from moot.agents.model.agent_settings import ModelSettings
from moot.agents.model.model_reply import (
    Message,
    ModelEndpointFault,
    ModelReply,
    ToolCall,
    as_arguments,
    new_id_numbers,
    unique_ids,
)


@dataclass(slots=True)
class _CallParts:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    # Fields that we do not know and that the endpoint may want back (Gemini signs its calls).
    extra: dict[str, Any] = field(default_factory=dict)
    function_extra: dict[str, Any] = field(default_factory=dict)


class ToolCallParts:
    """The tool calls of one answer, put together from the parts of a stream.

    By the book every part has an `index`, and the first part of a call its id and name. Real endpoints leave
    out the index (Gemini), give all calls index 0 (Ollama, several proxies), repeat id and name with every
    part, repeat one id for several calls, send no id, or send arguments as an object. A part belongs to

    - the call with its id and index, if it has an id that is known under that index,
    - otherwise the last call under its index (or the last one at all, if it has no index),

    unless it begins a new one: another id, a name after arguments that are complete, or another name than
    that of a call without arguments.
    """

    def __init__(self) -> None:
        self._calls: list[_CallParts] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: list[dict[str, Any]]) -> None:
        """Add the `tool_calls` of one delta, or of a whole message."""
        # A list never holds two parts of one call that both have a name.
        begun: list[_CallParts] = []
        for position, piece in enumerate(pieces):
            function = piece.get("function") or {}
            index = piece.get("index")
            index = index if isinstance(index, int) else None
            id, name = _text(piece.get("id")), _text(function.get("name"))
            arguments = function.get("arguments")
            call = self._find(index, id, position if len(pieces) > 1 and not name else -1)
            # Part of a name comes alone; what says what it is, or has arguments, is a call.
            is_whole = "type" in piece or arguments is not None
            if call is None or _begins(call, id, name, arguments, call in begun, is_whole):
                call = _CallParts(index)
                self._calls.append(call)
            if name:
                begun.append(call)
            _extend(call, id, name, arguments)
            call.extra |= {key: piece[key] for key in piece.keys() - {"index", "id", "type", "function"}}
            call.function_extra |= {key: function[key] for key in function.keys() - {"name", "arguments"}}

    def _find(self, index: int | None, id: str, position: int) -> _CallParts | None:
        calls = [call for call in self._calls if index is None or call.index == index]
        if id and (same := [call for call in calls if call.id == id]):
            return same[-1]
        if index is None and not id and 0 <= position < len(calls):
            return calls[position]
        return calls[-1] if calls else None

    def finish(self, fresh: Iterator[int]) -> tuple[list[ToolCall], list[dict[str, Any]]]:
        """The calls, and the same as the endpoint wants them back."""
        named = [call for call in self._calls if call.name]
        if any(call.index is not None for call in named):
            named.sort(key=lambda call: call.index or 0)
        ids = unique_ids([call.id for call in named], fresh)
        calls = [
            ToolCall(id, call.name, as_arguments(call.arguments)) for id, call in zip(ids, named, strict=True)
        ]
        native = [
            {
                **parts.extra,
                "id": call.id,
                "type": "function",
                "function": {**parts.function_extra, "name": call.name, "arguments": call.arguments},
            }
            for call, parts in zip(calls, named, strict=True)
        ]
        return calls, native


def _begins(
    call: _CallParts, id: str, name: str, arguments: Any, begun_in_this_delta: bool, is_whole: bool
) -> bool:
    """Whether a part begins another call than the one that was found for it."""
    if id and call.id and id != call.id:
        return True
    if not name or not call.name:
        return False
    if begun_in_this_delta or (is_whole and not call.arguments and name != call.name):
        return True
    if not call.arguments or arguments in (None, ""):
        return False
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    # The same once more is the whole call, sent again at the end.
    return _is_complete(call.arguments) and not (id and name == call.name and written == call.arguments)


def _extend(call: _CallParts, id: str, name: str, arguments: Any) -> None:
    call.id = call.id or id
    if name != call.name:
        # Names come whole; only before any argument may the rest of one follow.
        call.name = call.name + name if not call.arguments else call.name or name
    if arguments is None:
        return
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if not (written == call.arguments and _is_complete(written)):
        call.arguments += written


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Fields in which endpoints send the reasoning of a model.
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
# What an endpoint wants back together with the calls that followed it, if it sent it (DeepSeek, OpenRouter).
_ECHOED_FIELDS: Final = ("reasoning_content", "reasoning_details")
_ENDED_EARLY: Final = {
    "length": "its answer reached the limit of tokens: raise --max-tokens",
    "content_filter": "the endpoint's content filter stopped it",
    "error": "the endpoint reported an error while it answered",
}
# Reasoning within the text, at its beginning, where an endpoint does not separate it.
_THOUGHT: Final = re.compile(r"\s*<(think|thinking|thought|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
# Some templates open the tag in the prompt, so that only its end is in the answer.
_THOUGHT_END: Final = re.compile(r"^(.*?)</(?:think|thinking|thought)>", re.DOTALL)


class ChatCompletions:
    """Requests and answers of `POST chat/completions`."""

    path: Final = "chat/completions"
    # Fields that an endpoint may refuse: what replaces them then.
    replaceable: Final[dict[str, str | None]] = {
        "stream_options": None,
        "max_tokens": "max_completion_tokens",
        "temperature": None,
    }

    def __init__(self) -> None:
        self._fresh = new_id_numbers()

    def headers(self, settings: ModelSettings) -> dict[str, str]:
        return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}

    def body(self, settings: ModelSettings, messages: list[Message], tools: list[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": settings.model, "messages": [_outgoing(each) for each in messages]}
        if tools:
            body["tools"] = tools
        if settings.max_tokens is not None:
            body["max_tokens"] = settings.max_tokens
        if settings.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def stream(self) -> ChatStream:
        return ChatStream(self._fresh)

    def read(self, answer: Any) -> ModelReply:
        """A whole answer. Raises ModelEndpointFault, and LookupError, TypeError and such for nonsense."""
        check_for_error(answer)
        stream = self.stream()
        stream.add_choice(answer["choices"][0], "message")
        stream.count(answer.get("usage"))
        return stream.reply()


class ChatStream:
    """Puts one answer together from its chunks."""

    def __init__(self, fresh: Iterator[int]) -> None:
        self.finished = False
        self._fresh = fresh
        self._reply = ModelReply()
        self._calls = ToolCallParts()
        self._echoed: dict[str, Any] = {}

    def feed(self, chunk: Any) -> str:
        """Take one chunk; returns what it adds to reasoning or text."""
        check_for_error(chunk)
        self.count(chunk.get("usage"))
        added = ""
        for choice in chunk.get("choices") or ():
            added += self.add_choice(choice, "delta")
        return added

    def add_choice(self, choice: dict[str, Any], field: str) -> str:
        if choice.get("index"):
            return ""  # one answer is enough, and one was asked for
        delta = choice.get(field) or {}
        if not delta and not (self._reply.text or self._reply.reasoning or self._calls):
            # Whole messages within a stream.
            delta = choice.get("message") or {}
        reasoning, text = _split_content(delta.get("content"))
        reasoning = next((each for name in _REASONING_FIELDS if (each := _plain(delta.get(name)))), reasoning)
        text += _plain(delta.get("refusal"))
        self._reply.reasoning += reasoning
        self._reply.text += text
        self._calls.add(list(delta.get("tool_calls") or ()))
        if isinstance(delta.get("function_call"), dict):
            self._calls.add([{"index": 0, "function": delta["function_call"]}])
        for name in _ECHOED_FIELDS:
            if (value := delta.get(name)) and isinstance(value, str | list):
                self._echoed[name] = self._echoed.get(name, type(value)()) + value
        if reason := choice.get("finish_reason"):
            self.finished = True
            self._reply.cut_short = _ENDED_EARLY.get(str(reason), "")
            if reason == "error" and choice.get("error"):
                check_for_error(choice)
        return reasoning or text

    def count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._reply.prompt_tokens = int(usage.get("prompt_tokens") or 0)
            self._reply.completion_tokens = int(usage.get("completion_tokens") or 0)

    def reply(self) -> ModelReply:
        reply = self._reply
        reasoning, reply.text = split_thoughts(reply.text)
        reply.reasoning = "\n".join(each for each in (reply.reasoning, reasoning) if each)
        reply.calls, native = self._calls.finish(self._fresh)
        if reply.calls:
            reply.native = {**self._echoed, "tool_calls": native}
        return reply


def check_for_error(answer: Any) -> None:
    """Raises ModelEndpointFault for an error that comes with status 200."""
    error = answer.get("error")
    if not error:
        return
    details = error if isinstance(error, dict) else {"message": error}
    code = details.get("code") or details.get("status") or details.get("type") or ""
    text = str(details.get("message") or error)
    raise ModelEndpointFault(f"{text} ({code})" if code else text, retryable=is_passing(code))


def is_passing(code: Any) -> bool:
    """Whether an error code within an answer is one that passes by itself."""
    text = str(code).lower()
    if text.isdigit():
        return text == "429" or text.startswith("5")
    return any(word in text for word in ("overloaded", "rate_limit", "server_error", "api_error", "timeout"))


def split_thoughts(text: str) -> tuple[str, str]:
    """Reasoning within tags at the beginning of a text, and the rest of the text."""
    thoughts = []
    while found := _THOUGHT.match(text):
        thoughts.append(found[2].strip())
        text = text[found.end() :].lstrip()
    if not thoughts and "<think" not in text and (found := _THOUGHT_END.match(text)):
        thoughts.append(found[1].strip())
        text = text[found.end() :].lstrip()
    return "\n".join(filter(None, thoughts)), text


def _split_content(content: Any) -> tuple[str, str]:
    """Content as reasoning and text: a string, or a list of parts (Mistral, some proxies)."""
    if not isinstance(content, list):
        return "", _plain(content)
    reasoning, text = "", ""
    for part in content:
        if isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
            reasoning += _plain(part.get("thinking") or part.get("reasoning") or part.get("text"))
        else:
            text += _plain(part)
    return reasoning, text


def _plain(value: Any) -> str:
    """The text in a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_plain, value))
    return _plain(value.get("text") or value.get("content")) if isinstance(value, dict) else ""


def _outgoing(message: Message) -> Message:
    native = message.get("native")
    if native is None:
        return message
    return {**{name: value for name, value in message.items() if name != "native"}, **native}
