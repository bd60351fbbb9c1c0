"""What goes to a model and what comes back, independent of the API that carries it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from moot.errors import MootError

# In the shape of chat completions. An answer of the model carries what its API wants back under `native`.
Message = dict[str, Any]
TextHandler = Callable[[str], Awaitable[None]]


class ModelFailed(MootError):
    """The model gave no answer; the text says what to check."""


class ModelEndpointFault(Exception):
    """The endpoint reported an error within its answer, or its answer makes no sense."""

    def __init__(self, text: str, *, retryable: bool = False) -> None:
        super().__init__(text)
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model. `arguments` is as the model wrote it and may not be valid JSON."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class ModelReply:
    """One answer of the model."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Why it ended early, for people; "" if it ended by itself.
    cut_short: str = ""
    # Parts that the endpoint wants back with the next request, such as signatures of reasoning.
    native: Any = None

    def as_message(self) -> Message:
        message: Message = {"role": "assistant", "content": self.text or None}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.native is not None:
            message["native"] = self.native
        return message


def unique_ids(ids: list[str], fresh: Iterator[int]) -> list[str]:
    """These ids, with new ones for those that are missing or repeated, so that results find their calls.

    New ones are nine letters and digits, because some endpoints refuse everything else.
    """
    taken: set[str] = set()
    found = []
    for id in ids:
        while not id or id in taken:
            id = f"c{next(fresh):08d}"
        taken.add(id)
        found.append(id)
    return found


def as_arguments(value: Any) -> str:
    """Arguments as text: endpoints send a string, an object, nothing, or JSON within a string."""
    if value is None or value == "":
        return "{}"
    if not isinstance(value, str):
        return json.dumps(value)
    # Some begin with an empty object and then send the real one.
    text = value.strip()
    if text.startswith("{}") and len(text) > 2:
        text = text[2:].strip()
    try:
        decoded = json.loads(text)
    except ValueError:
        return text
    if decoded is None:
        return "{}"
    return as_arguments(decoded) if isinstance(decoded, str) else text


def new_id_numbers() -> Iterator[int]:
    """Numbers for `unique_ids`, one after the other as long as an agent runs."""
    return itertools.count(1)
