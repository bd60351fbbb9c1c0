"""Contexts (MEW 3, 3.5.6) and the reasoning sequences of everybody.

A context is a path: `a/b/c` lies within `a/b` and `a`. The id of a `reasoning/start` names a sequence;
whatever carries it in its context belongs to that sequence and no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec

from moot.participant.connection.inbound_check import InboundValidator
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Payload

# Reasoning sequences of others that are kept.
MAX_CONTEXTS: Final = 256
MAX_MESSAGES_PER_CONTEXT: Final = 256
MAX_BYTES_PER_CONTEXT: Final = 256 << 10


def levels(context: str) -> tuple[str, ...]:
    """The levels of a context, outermost first."""
    return tuple(step for step in context.split("/") if step)


def is_within(context: str | None, prefix: str) -> bool:
    """Whether a context is this one or lies within it; a trailing slash changes nothing."""
    if context is None:
        return False
    outer = levels(prefix)
    return levels(context)[: len(outer)] == outer


def reasoning_text(payload: Payload) -> str:
    """What a message of a sequence says: its `message`, or what the reference's agents write (D-95).

    They start with `input`, think with `reasoning` and the `action` that they chose, and conclude with
    nothing or with the `reason` of a cancellation.
    """
    for name in ("message", "reasoning", "input", "reason"):
        text = payload.get(name)
        if isinstance(text, str) and text:
            action = payload.get("action") if name == "reasoning" else None
            return f"{text} → {action}" if isinstance(action, str) and action else text
    return ""


class ReasoningSequence(msgspec.Struct, eq=False):
    """One reasoning sequence: who reasons about what, and its messages so far."""

    id: str
    owner: str
    path: str
    message: str
    about: tuple[str, ...]
    state: Literal["active", "concluded", "cancelled"] = "active"
    # Thoughts, chats and anything else under its context, the latest of them.
    items: deque[Envelope] = msgspec.field(default_factory=deque)
    size: int = 0
    conclusion: str | None = None
    cancelled_by: str | None = None
    reason: str | None = None

    def _add(self, envelope: Envelope, max_bytes: int) -> None:
        """Add one; the oldest are dropped when there are too many, or too many bytes."""
        if len(self.items) == self.items.maxlen:
            self.size -= len(self.items[0].raw)
        self.items.append(envelope)
        self.size += len(envelope.raw)
        while self.size > max_bytes and len(self.items) > 1:
            self.size -= len(self.items.popleft().raw)

    def thoughts(self) -> list[str]:
        """The texts of its thoughts, oldest first."""
        return [reasoning_text(item.payload) for item in self.items if item.kind == "reasoning/thought"]


class Contexts:
    """The sequences that were started since we joined; those that are over are forgotten first."""

    def __init__(self, validator: InboundValidator) -> None:
        self._sequences: dict[str, ReasoningSequence] = {}
        self._validator = validator
        # Called at every cancellation: our own sequences stop.
        self.on_cancel: list[Callable[[ReasoningSequence], None]] = []

    def __iter__(self) -> Iterator[ReasoningSequence]:
        return iter(list(self._sequences.values()))

    def __len__(self) -> int:
        return len(self._sequences)

    def get(self, id: str) -> ReasoningSequence | None:
        return self._sequences.get(id)

    def active(self) -> list[ReasoningSequence]:
        return [each for each in self._sequences.values() if each.state == "active"]

    def sequence_of(self, context: str | None) -> ReasoningSequence | None:
        """The innermost sequence that a context names (D-31: the start's id, or a path with it)."""
        if context is None:
            return None
        for step in reversed(levels(context)):
            found = self._sequences.get(step)
            if found is not None:
                return found
        return None

    # What arrives

    def handle(self, envelope: Envelope) -> None:
        """Anything with a context, and every reasoning/start."""
        kind = envelope.kind
        if kind == "reasoning/start":
            self._start(envelope)
            return
        sequence = self.sequence_of(envelope.context)
        if sequence is None:
            return  # started before we joined, or not a sequence at all (D-31)
        if kind == "reasoning/cancel":
            self._cancel(sequence, envelope)
            return
        if kind in ("reasoning/thought", "reasoning/conclusion"):
            if envelope.sender != sequence.owner:
                self._validator.report(envelope, "not_owner", "thoughts of somebody else's sequence")
                return
            if sequence.state != "active":
                return  # MEW 3.5.5: nothing is added after its end
        sequence._add(envelope, MAX_BYTES_PER_CONTEXT)
        if kind == "reasoning/conclusion":
            sequence.state = "concluded"
            sequence.conclusion = reasoning_text(envelope.payload)

    def _start(self, envelope: Envelope) -> None:
        if len(self._sequences) >= MAX_CONTEXTS:
            over = (id for id, each in self._sequences.items() if each.state != "active")
            del self._sequences[next(over, None) or next(iter(self._sequences))]
        path = f"{envelope.context}/{envelope.id}" if envelope.context else envelope.id
        self._sequences[envelope.id] = ReasoningSequence(
            envelope.id,
            envelope.sender,
            path,
            reasoning_text(envelope.payload),
            tuple(envelope.correlation_id),
            items=deque(maxlen=MAX_MESSAGES_PER_CONTEXT),
        )

    def _cancel(self, sequence: ReasoningSequence, envelope: Envelope) -> None:
        if sequence.state != "active":
            return
        reason = envelope.payload.get("reason")
        sequence.state = "cancelled"
        sequence.cancelled_by = envelope.sender
        sequence.reason = reason if isinstance(reason, str) else None
        for handler in tuple(self.on_cancel):
            handler(sequence)
