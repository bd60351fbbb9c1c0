"""What an agent says and does, sent to the space in its order.

    messages          chat
    thoughts, plans   reasoning/thought
    tool calls        reasoning/thought with `tool_call`: what it is, its state, its diffs

Pieces of one text are joined, and updates of one tool call as well while they wait: an agent that floods
costs memory of a bounded size and so many messages a second. What cannot be sent during a pause or a lost
connection waits. An envelope that may have got lost is sent again under the same id, so nobody gets it twice.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from moot.agents.acp.tool_calls import AgentToolCall
from moot.agents.secret_filter import SecretFilter
from moot.participant import JoinedSpace, Reasoning
from moot.participant.programs.repeated_send import deliver
from moot.protocol.operation import Json
from moot.protocol.strict_json import map_texts
from moot.resilience.rate_limits import TokenBucket

# Edits and commands that nobody was asked about, told one by one in a turn; then their number.
MAX_UNASKED_NOTES: Final = 5
# One chat or thought; longer ones are sent in parts.
MAX_TEXT_CHARS: Final = 16_000
# What one act shows of a diff, an input or an output. A proposal has all of it, or is not made.
MAX_SHOWN_CHARS: Final = 4_000
# Acts and thoughts that are sent within a second; updates of one tool call are joined meanwhile.
MAX_ACTS_PER_SECOND: Final = 20.0

log = logging.getLogger(__name__)

_TEXTS: Final = {"agent_message_chunk": "message", "agent_thought_chunk": "thought"}
# Updates that concern only an editor.
_SILENT: Final = frozenset(
    {"available_commands_update", "config_option_update", "session_info_update", "usage_update",
     "user_message_chunk", "compaction_summary_chunk"}
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Turn:
    """What a turn is about, and where its messages go."""

    # The chat that began it and who wrote it; empty for what the agent does by itself.
    chat_id: str = ""
    sender: str = ""
    reasoning: Reasoning | None = None
    # Messages of the agent that were sent, characters of text, and calls.
    messages: int = 0
    chars: int = 0
    calls: int = 0
    # Calls that are not over, and how many were done that nobody was asked about.
    open_calls: dict[str, AgentToolCall] = field(default_factory=dict)
    unasked: int = 0


@dataclass(slots=True, eq=False)
class _Item:
    kind: Literal["message", "thought", "act", "note"]
    turn: Turn
    texts: list[str] = field(default_factory=list)
    call: AgentToolCall | None = None
    more: dict[str, Json] = field(default_factory=dict)
    chars: int = 0
    # Nothing is added to it any more.
    sealed: bool = False


class UpdateRelay:
    """Sends what an agent tells. `run` is its worker; `add` never waits."""

    def __init__(self, space: JoinedSpace) -> None:
        self.turn = Turn()
        self.secrets = SecretFilter(())
        self._space = space
        self._items: deque[_Item] = deque()
        self._waiting_acts: set[str] = set()
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()
        self._bucket = TokenBucket(MAX_ACTS_PER_SECOND, MAX_ACTS_PER_SECOND, time.monotonic())
        self._unknown_kinds: set[str] = set()

    @property
    def waiting(self) -> int:
        return len(self._items)

    # What the agent tells

    def add_update(self, update: Mapping[str, Any]) -> None:
        """Any update but one of a tool call, known or not."""
        kind = update.get("sessionUpdate")
        if isinstance(kind, str) and kind in _TEXTS:
            self._add_text("message" if _TEXTS[kind] == "message" else "thought", _text_of(update))
        elif kind == "plan":
            entries = update.get("entries")
            self._put(_Item("thought", self.turn, [_plan_text(entries)], more={"plan": self._cut(entries)}))
        elif kind == "notice" or kind == "compaction_update":
            self._put(_Item("thought", self.turn, [f"{kind}: {self._short(update)}"]))
        elif kind not in _SILENT and str(kind) not in self._unknown_kinds and len(self._unknown_kinds) < 100:
            # Told once each: what is not understood is not hidden.
            self._unknown_kinds.add(str(kind))
            text = f"(the agent sent an update of a kind that is not known here: {str(kind)[:100]})"
            self._put(_Item("thought", self.turn, [text], more={"update": self._cut(dict(update))}))

    def add_act(self, call: AgentToolCall) -> None:
        """A tool call is new or has changed."""
        if call.is_over:
            self.turn.open_calls.pop(call.id, None)
        else:
            self.turn.open_calls[call.id] = call
        if call.id not in self._waiting_acts:
            self._waiting_acts.add(call.id)
            self._put(_Item("act", self.turn, call=call, sealed=True))

    def note_unasked(self, call: AgentToolCall) -> None:
        """Say loudly that the agent did something that nobody was asked about."""
        self.turn.unasked += 1
        if self.turn.unasked <= MAX_UNASKED_NOTES:
            self.note(f"WARNING: done, and nobody was asked: {call.describe()[:500]}")

    def note_unasked_rest(self) -> None:
        """At the end of a turn, those that were not told one by one."""
        if (rest := self.turn.unasked - MAX_UNASKED_NOTES) > 0:
            self.note(f"WARNING: {rest} more edits or commands were done that nobody was asked about.")

    def note(self, text: str) -> None:
        """Words of our own about the agent, as a chat to everybody."""
        self._put(_Item("note", self.turn, [text], sealed=True))

    def _add_text(self, kind: Literal["message", "thought"], text: str) -> None:
        if not text:
            return
        self.turn.chars += len(text)
        last = self._items[-1] if self._items else None
        if (
            last is None
            or last.kind != kind
            or last.sealed
            or last.turn is not self.turn
            or last.chars + len(text) > MAX_TEXT_CHARS
        ):
            last = _Item(kind, self.turn)
            self._put(last)
        last.texts.append(text)
        last.chars += len(text)

    def _put(self, item: _Item) -> None:
        self.seal()
        self._items.append(item)
        self._changed.set()

    def seal(self) -> None:
        """Send what is there, also if it may go on."""
        if self._items:
            self._items[-1].sealed = True
            self._changed.set()

    async def flush(self) -> None:
        """Wait until everything was sent, or the space has ended."""
        self.seal()
        while self._items and self._space.close_reason is None:
            self._sent.clear()
            await self._sent.wait()

    # Sending

    async def run(self) -> None:
        """Send one after the other, until cancelled."""
        while True:
            while not self._items or not self._items[0].sealed:
                self._changed.clear()
                await self._changed.wait()
            item = self._items[0]
            wait = self._bucket.take(time.monotonic())
            if wait:
                await asyncio.sleep(wait)
                continue
            if item.call is not None:
                self._waiting_acts.discard(item.call.id)
            try:
                await self._send(item)
            finally:
                self._items.popleft()
                self._sent.set()

    async def _send(self, item: _Item) -> None:
        turn, text = item.turn, self.clean("".join(item.texts))
        more = self.clean_json(item.more)
        match item.kind:
            case "message":
                for part in _parts(text.strip(), MAX_TEXT_CHARS):
                    turn.messages += 1
                    await self.chat(part, turn)
            case "note":
                await self.chat(text, turn)
            case "thought":
                for part in _parts(text, MAX_TEXT_CHARS):
                    await self._think(turn, part, more)
            case "act":
                assert item.call is not None  # noqa: S101  # acts have one
                message, details = describe_act(item.call, MAX_SHOWN_CHARS)
                await self._think(turn, self.clean(message), self.clean_json({"tool_call": details}))

    async def _think(self, turn: Turn, text: str, more: Mapping[str, Json]) -> None:
        reasoning = turn.reasoning
        if reasoning is not None and not reasoning.cancelled.is_set():
            payload = {"message": text, **more}
            if await self.deliver("reasoning/thought", payload, context=reasoning.context):
                return
        if "tool_call" in more:
            # What it does is seen in any case.
            await self.chat(text, turn)

    async def chat(self, text: str, turn: Turn | None = None) -> bool:
        """A chat that answers the turn's, or is for everybody."""
        about = turn.chat_id if turn is not None else ""
        to = (turn.sender,) if turn is not None and turn.sender and turn.sender in self._space.roster else ()
        return await self.deliver("chat", {"text": text}, to=to, about=about)

    async def deliver(self, kind: str, payload: Mapping[str, Json], **where: Any) -> bool:
        """Send one envelope, exactly once, however often the connection is lost; False if it is refused."""
        return await deliver(self._space, kind, payload, **where)

    # Secrets and sizes

    def clean(self, text: str) -> str:
        return self.secrets.clean(text)

    def clean_json(self, value: Any) -> Any:
        """The same value without any trace of the agent's keys."""
        return map_texts(value, self.secrets.clean)

    def _short(self, value: Any) -> str:
        return _shorten(orjson.dumps(value, default=str).decode(), MAX_SHOWN_CHARS)

    def _cut(self, value: Any) -> Json:
        """A value as it is, or what fits of it as text."""
        text = orjson.dumps(value, default=str).decode()
        most = MAX_SHOWN_CHARS
        return value if len(text) <= most else _shorten(text, most)


def describe_act(call: AgentToolCall, max_chars: int) -> tuple[str, dict[str, Json]]:
    """A tool call as text for people, and its details for programs; long ones are cut, and say so."""
    lines = [f"{call.describe()} ({call.status.replace('_', ' ')})"]
    lines += [diff_text(change) for change in call.changes]
    if call.is_over:
        lines += call.outcome_lines()
    details: dict[str, Json] = {
        "id": call.id,
        "kind": call.kind,
        "status": call.status,
        "title": _shorten(call.title, max_chars),
    }
    if call.input is not None:
        text = orjson.dumps(call.input, default=str).decode()
        details["input"] = call.input if len(text) <= max_chars else _shorten(text, max_chars)
    if places := call.locations:
        details["paths"] = places[:100]
    return _shorten("\n".join(lines), max_chars), details


def diff_text(change: Mapping[str, Json]) -> str:
    """A change as a unified diff."""
    path, old, new = str(change["path"]), change["old_text"], str(change["new_text"])
    before = "/dev/null" if old is None else path
    # Texts of a megabyte would take minutes to compare.
    if len(str(old or "")) + len(new) > 200_000:
        return f"--- {before}\n+++ {path}\n({len(new)} characters)"
    lines = difflib.unified_diff(
        str(old or "").splitlines(), new.splitlines(), before, path, lineterm="", n=3
    )
    return "\n".join(lines)


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}… ({len(text)} characters in all)"


def _parts(text: str, max_chars: int) -> list[str]:
    return [text[at : at + max_chars] for at in range(0, len(text), max_chars)]


def _text_of(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    if not isinstance(content, dict):
        return ""
    text = content.get("text")
    if isinstance(text, str):
        return text
    return f"[{content.get('type', 'content')} without text]"


def _plan_text(entries: Any) -> str:
    marks = {"completed": "x", "in_progress": ">"}
    lines = ["Plan:"]
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            lines.append(f"[{marks.get(str(entry.get('status')), ' ')}] {entry.get('content', '')}")
    return "\n".join(lines)
