"""The tools that `moot mcp` adds: chat in the space, its members, a search for tools, and pending calls.
Their names are reserved: no member's tool is ever shown under one (D-91)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from moot.bridges.space.error_text import describe_fault
from moot.bridges.space.pending_calls import PendingCalls
from moot.bridges.space.pending_text import STATUS_TOOL
from moot.bridges.space.plan_tool import PLAN_DEFINITION, PLAN_TOOL, PlanTool
from moot.bridges.space.room_view import MAX_CHATS, RoomView
from moot.bridges.space.short_answers import cut, found_result, listed_result
from moot.errors import McpError, MootError
from moot.mcp.downstream.backend import PendingCall, text_result
from moot.mcp.eras import JsonObject, is_input_required
from moot.operations.text.call_text import show_arguments
from moot.participant import JoinedSpace
from moot.protocol import strict_json
from moot.protocol.operation import Json

CHAT_TOOL: Final = "moot_chat"
PARTICIPANTS_TOOL: Final = "moot_participants"
FIND_TOOL: Final = "moot_find_tools"
CALL_TOOL: Final = "moot_call_tool"
# Those that are always listed, all that we answer ourselves, and all that no member's tool is shown under.
OWN_NAMES: Final = (CHAT_TOOL, PARTICIPANTS_TOOL, FIND_TOOL, STATUS_TOOL)
ANSWERED_NAMES: Final = (*OWN_NAMES, PLAN_TOOL)
RESERVED_NAMES: Final = (*ANSWERED_NAMES, CALL_TOOL)

# Chat messages that are kept, and the length of one.
MAX_FOUND: Final = 50
# Members that are named as having told nothing yet.
_MAX_SILENT: Final = 10
# Clients give up on a call after about a minute.
MAX_WAIT_SECONDS: Final = 50.0

_DEFINITIONS: Final[tuple[JsonObject, ...]] = (
    {
        "name": CHAT_TOOL,
        "title": "Chat in the space",
        "description": "Send a message to the people and agents in this space, and read the latest messages. "
        "Everybody sees it. Leave out `text` to only read.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The message."},
                "to": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "The members it is for; leave out for everybody.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_CHATS,
                    "default": 20,
                    "description": "How many of the latest messages to show.",
                },
            },
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
    {
        "name": PARTICIPANTS_TOOL,
        "title": "Who is in the space",
        "description": "List the members of this space: people, agents and tool servers, what each offers, "
        "and what you may do yourself.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": FIND_TOOL,
        "title": "Find a tool",
        "description": "Find tools, prompts and resources of this space by what they are for. Returns the "
        "name to call, its arguments, whose it is, and whether a call needs somebody's approval. With `name` "
        "instead of `query` it shows the whole definition of one tool.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to do, in your own words."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 10},
                "name": {"type": "string", "description": "A tool's name, to see its whole definition."},
            },
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": STATUS_TOOL,
        "title": "Status of a pending call",
        "description": "Calls that you may only propose wait for somebody's approval. This shows the status "
        "of one (and its result, once it is there), or without a handle all of yours, also of earlier "
        "sessions.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "From the answer that said PENDING."},
                "wait_seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": MAX_WAIT_SECONDS,
                    "default": 0,
                    "description": "Wait this long for a decision before answering.",
                },
                "withdraw": {"type": "boolean", "default": False, "description": "Withdraw the proposal."},
            },
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
)


# Listed in place of the members' tools where those are too many.
_CALL_DEFINITION: Final[JsonObject] = {
    "name": CALL_TOOL,
    "title": "Call a tool of the space",
    "description": "Call a tool that moot_find_tools found: its name as found there, and its arguments "
    "according to its inputSchema, which moot_find_tools shows by `name`. The "
    "call, its approval and its result are those of that tool.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name of the tool, from moot_find_tools."},
            "arguments": {"type": "object", "description": "The arguments of the tool."},
            "member": {
                "type": "string",
                "description": "Whose tool it is; only needed for one that is not listed.",
            },
        },
        "required": ["name"],
    },
    "annotations": {"readOnlyHint": False, "openWorldHint": True},
}


_UNKNOWN_TOOLS: Final = (
    "Your rights in this space do not let you ask members for their tools, so only those are listed that "
    "somebody else has asked for since you joined. You can still call any tool whose name you know, with the "
    "`member` that has it (moot_participants): the call is proposed, and somebody has to approve it."
)


class BadArgument(Exception):
    """One of these tools got an invalid argument; the text says what it needs."""


def list_own_tools() -> list[JsonObject]:
    """The definitions of the tools that are always listed."""
    return [*_DEFINITIONS]


class OwnTools:
    """The tools of `moot mcp` itself."""

    def __init__(
        self,
        space: JoinedSpace,
        pending_calls: PendingCalls,
        room: RoomView,
        *,
        space_name: str,
        count_offers: Callable[[], Mapping[str, Mapping[str, int]]],
        find: Callable[[str, int], Awaitable[list[JsonObject]]],
        silent_hosts: Callable[[], Awaitable[list[str]]],
        definition_of: Callable[[str], JsonObject | None],
        locate: Callable[[str], tuple[str, str] | None],
    ) -> None:
        """`definition_of` is that of a tool which may be used, by its name; `locate` finds whose tool a
        listed name is; `silent_hosts` waits for tools that were not told yet, and says whose are missing."""
        self._definition_of = definition_of
        self._space = space
        self._pending_calls = pending_calls
        self._space_name = space_name
        self._count_offers = count_offers
        self._find = find
        self._silent_hosts = silent_hosts
        self._plans = PlanTool(space, locate)
        self._room = room
        self._heard_before = room.heard

    def definitions(
        self, unlisted: int = 0, silent: Sequence[str] = (), *, may_ask: bool = True
    ) -> list[JsonObject]:
        """The tools to list; `unlisted` is how many tools of members are not listed beside them, `silent` who
        has not told yet which it has. Without `may_ask` tools may be called that are not known here."""
        own = [*list_own_tools(), *([PLAN_DEFINITION] if self._plans.is_useful else [])]
        if not may_ask and not unlisted:
            text = f"{_UNKNOWN_TOOLS} {_CALL_DEFINITION['description']}"
            return [*own, {**_CALL_DEFINITION, "description": text}]
        if not unlisted and not silent:
            return own
        note = ""
        if unlisted:
            note = (
                f" This space has {unlisted} tools, too many to list: find the one you need here, then call "
                f"it with {CALL_TOOL}."
            )
        if silent:
            names = ", ".join(silent[:_MAX_SILENT])
            note += f" Not listed yet, since their servers have not answered: the tools of {names}."
        listed = [
            {**each, "description": each["description"] + note} if each["name"] == FIND_TOOL else each
            for each in own
        ]
        return [*listed, _CALL_DEFINITION] if unlisted else listed

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        try:
            match name:
                case "moot_chat":
                    return await self._chat(arguments)
                case "moot_participants":
                    return self._participants()
                case "moot_find_tools":
                    return await self._find_tools(arguments)
                case "moot_plan":
                    return await self._plans.call(arguments)
            return await self._status(arguments)
        except BadArgument as fault:
            return text_result(f"{name}: {fault}", is_error=True)
        except McpError:
            raise
        except MootError as fault:
            return text_result(describe_fault(fault, name, "the gateway"), is_error=True)

    # Chat

    async def _chat(self, arguments: JsonObject) -> JsonObject:
        text = _argument(arguments, "text", str, None)
        limit = _number(arguments, "limit", 20, MAX_CHATS)
        to = _argument(arguments, "to", list, [])
        if not all(isinstance(each, str) for each in to):
            raise BadArgument("`to` is a list of member names")
        here = {name for each in self._room.members(self._space).values() for name in (each.id, each.name)}
        unknown = [each for each in to if each not in here]
        if unknown:
            raise BadArgument(f"no member is called {', '.join(unknown)}; moot_participants lists them")
        sent = ""
        if text:
            payload = {"text": text, "format": "plain"}
            if not self._space.may("chat", payload, to=to):
                raise BadArgument("you may not chat in this space; ask for the capability `chat`")
            await self._space.chat(text, to=to)
            sent = "Sent. "
        latest = self._room.chats(self._heard_before, int(limit))
        lines = "\n".join(f"[{each['at']}] {each['from']}: {each['text']}" for each in latest)
        shown = f"{sent}{lines}" if lines or sent else "No messages since this client joined."
        return text_result(shown, structuredContent={"messages": latest})

    # Members

    def _participants(self) -> JsonObject:
        offered = self._count_offers()
        members: list[JsonObject] = []
        for member in sorted(self._room.members(self._space).values(), key=lambda member: member.name):
            entry: JsonObject = {"id": member.id, "offers": dict(offered.get(member.name, {}))}
            if member.name != member.id:
                entry["name"] = member.name
            entry["may"] = sorted({_kind(right.original) for right in member.capabilities})
            members.append(entry)
        may = sorted({_kind(right.original) for right in self._space.rights.capabilities})
        you: JsonObject = {"id": self._space.me, "space": self._space_name, "may": may}
        lines = [f"You are {self._space.me} in space {self._space_name}; you may send: {', '.join(may)}."]
        for entry in members:
            offers = ", ".join(f"{count} {what}" for what, count in entry["offers"].items()) or "no tools"
            lines.append(f"- {entry['id']}: {offers}; may send {', '.join(entry['may']) or 'nothing'}")
        if not members:
            lines.append("No other members are here.")
        return text_result("\n".join(lines), structuredContent={"you": you, "participants": members})

    # Finding

    async def _find_tools(self, arguments: JsonObject) -> JsonObject:
        name = _argument(arguments, "name", str, None)
        query = _argument(arguments, "query", str, "")
        limit = int(_number(arguments, "limit", 10, MAX_FOUND))
        if name is None and not query.strip():
            raise BadArgument("`query` says what you want to do")
        silent = ", ".join(await self._silent_hosts())[:256]
        missing = f" These have not answered yet which tools they offer: {silent}." if silent else ""
        if name is not None:
            definition = self._definition_of(name)
            if definition is None:
                raise BadArgument(
                    f"no tool that you may use is called {name[:128]}; search with `query`.{missing}"
                )
            return text_result(strict_json.encode(definition).decode())
        found = await self._find(query, limit)
        if not found:
            text = f"No match. Try other words, or moot_participants.{missing}"
            return text_result(text, structuredContent={"found": []})
        return found_result(found)

    # Pending calls

    async def _status(self, arguments: JsonObject) -> JsonObject:
        handle = _argument(arguments, "handle", str, None)
        wait = _number(arguments, "wait_seconds", 0, MAX_WAIT_SECONDS)
        withdraw = _argument(arguments, "withdraw", bool, False)
        if handle is None:
            return await self._overview()
        pending = await self._pending_calls.find(handle)
        if pending is None:
            return await self._describe_told(handle)
        if withdraw:
            await pending.withdraw("withdrawn with moot_status")
        if wait or withdraw:
            try:
                # A withdrawal takes a round trip; a decision made before it shows in the result.
                async with asyncio.timeout(max(wait, 2.0 if withdraw else 0.0)):
                    await pending.finished.wait()
            except TimeoutError:
                pass
        if not pending.finished.is_set():
            return pending.pending_result()
        return _finished(pending)

    async def _describe_told(self, handle: str) -> JsonObject:
        """A proposal of ours that is not known here any more: what the gateway still says about it."""
        found = await self._space.look_up_proposal(handle)
        if found is None or found.proposer != self._space.me:
            raise BadArgument(
                "the gateway knows no proposal of yours with this handle; without a handle all are shown"
            )
        about = f"{found.method} {found.name or ''}".strip()
        outcome = f", outcome {found.outcome}" if found.outcome is not None else ""
        by = f" by {found.fulfilled_by}" if found.fulfilled_by is not None else ""
        text = f"{handle}: {about} was proposed at {found.proposed_at} and is {found.state}{by}{outcome}."
        if found.rejections:
            text += f" Rejected by {', '.join(f'{who} ({why})' for who, why in found.rejections)}."
        facts: JsonObject = {
            "handle": handle,
            "method": found.method,
            "name": found.name,
            "state": found.state,
        }
        facts |= {"outcome": found.outcome, "approved_by": found.fulfilled_by}
        facts["rejections"] = [{"by": who, "reason": why} for who, why in found.rejections]
        return text_result(text, structuredContent=facts)

    async def _overview(self) -> JsonObject:
        calls = self._pending_calls
        # Those that wait come first, then the newest.
        newest_first = (await calls.all())[::-1]
        known = sorted(newest_first, key=lambda pending: pending.finished.is_set())
        connection: JsonObject = {
            "space": self._space_name,
            "you": self._space.me,
            "connection": self._space.state,
        }
        count = f"{len(known)} proposals" if calls.known else f"{len(known)} proposals known"
        head = f"{self._space.me} in {self._space_name}, {self._space.state}; {count}."
        if not calls.known:
            head += " The gateway has not told whether there are more: ask again."

        def list_entries(chars: int) -> list[JsonObject]:
            return [_overview_entry(calls.describe(pending), pending, chars) for pending in known]

        def make(entries: Sequence[JsonObject]) -> JsonObject:
            lines = [
                f"- {e['handle']}: {e['state']}, {e['note']}. {e['name']} of {e['host']} with "
                f"{e['arguments']}"
                for e in entries
            ]
            facts: JsonObject = connection | {"calls": [*entries]}
            if len(entries) < len(known):
                facts["left_off"] = len(known) - len(entries)
                lines.append(f"… and {facts['left_off']} more; ask for one with its handle.")
            shown = "\n".join([head, *lines])
            return text_result(shown, structuredContent=facts)

        return listed_result(make, list_entries)


def _overview_entry(facts: JsonObject, pending: PendingCall, chars: int) -> JsonObject:
    entry: JsonObject = {
        name: facts[name] for name in ("handle", "host", "method", "name", "url") if name in facts
    }
    entry["state"] = "finished" if pending.finished.is_set() else "pending"
    entry["note"] = cut(pending.note, chars)
    entry["arguments"] = show_arguments(pending.call.method, pending.call.params, chars)
    return entry


def _finished(pending: PendingCall) -> JsonObject:
    """The result that the call would have had, had its client waited."""
    result = pending.result()
    about = {"type": "text", "text": f"{pending.handle}: {pending.note}."}
    if is_input_required(result):
        text = "The tool needs input first, which cannot be given here: call the tool again and wait for it."
        return text_result(text, is_error=True)
    if pending.call.method == "tools/call" and isinstance(result.get("content"), list):
        rest = {key: value for key, value in result.items() if key != "resultType"}
        return rest | {"content": [about, *result["content"]]}
    shown = {"type": "text", "text": strict_json.encode(result).decode()}
    return {"content": [about, shown], "structuredContent": result}


def _kind(capability: Json) -> str:
    kind = capability.get("kind") if isinstance(capability, dict) else capability
    return kind if isinstance(kind, str) else strict_json.encode(kind).decode()


def _argument(arguments: JsonObject, name: str, kind: type, default: Any) -> Any:
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        types = {str: "a string", bool: "true or false", list: "a list"}
        raise BadArgument(f"`{name}` is {types[kind]}")
    return value


def _number(arguments: JsonObject, name: str, default: float, maximum: float) -> float:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        raise BadArgument(f"`{name}` is a number from 0 to {maximum:g}")
    return value
