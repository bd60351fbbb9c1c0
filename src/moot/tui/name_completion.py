"""The names of what is in the space, for completing them: members, tools, proposals, streams and so on.

Tools are asked for when somebody begins to name one of a member, not before: a list request is seen by all.
What others ask for and are answered is overheard as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from moot.errors import MootError
from moot.mcp.eras import LIST_CHANGED
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.tui.completion import Candidate
from moot.tui.operations.operation import ClientContext, short
from moot.tui.proposal_lines import title_of
from moot.tui.timeline import Timeline
from moot.tui.trust_log import TrustLog

# How long a member has for its list of tools, and how many members' lists are kept.
_LIST_SECONDS: Final = 10.0
_MEMBERS_KEPT: Final = 256
_OVERHEARD: Final = 512

Begin = Callable[[Coroutine[Any, Any, None]], object]


class KnownTools:
    """What members offer, as far as it is known."""

    def __init__(self, space: JoinedSpace, begin: Begin, changed: Callable[[], None]) -> None:
        self._space = space
        self._begin = begin
        self._changed = changed
        self._tools: OrderedDict[str, dict[str, Json]] = OrderedDict()
        self._asking: set[str] = set()
        self._asked: OrderedDict[str, None] = OrderedDict()

    def of(self, member: str) -> dict[str, Json]:
        """Its tools by name; asked for if they are not known yet, and `changed` tells when they are."""
        id = self._space.roster.id_of(member)
        known = self._tools.get(id)
        may_ask = id in self._space.roster and self._space.may_request(id, "tools/list")
        if known is None and may_ask and id not in self._asking:
            self._asking.add(id)
            self._begin(self._learn(id))
        return known or {}

    async def _learn(self, member: str) -> None:
        try:
            self._know(member, await self._space.list_all(member, "tools", timeout_seconds=_LIST_SECONDS))
        except MootError:
            # It offers none, or does not answer: not asked again until it says that something changed.
            self._know(member, [])
        finally:
            self._asking.discard(member)

    def hear(self, envelope: Envelope) -> None:
        """Learn from what others ask and are told; forget what is said to have changed."""
        method: Json = envelope.payload.get("method")
        if envelope.kind == "mcp/request" and isinstance(method, str):
            if LIST_CHANGED.get(method) == "tools":
                self._tools.pop(envelope.sender, None)
            elif method == "tools/list" and "params" not in envelope.payload:
                self._asked[envelope.id] = None
                while len(self._asked) > _OVERHEARD:
                    self._asked.popitem(last=False)
        elif envelope.kind == "mcp/response":
            result: Json = envelope.payload.get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            was_asked = any(id in self._asked for id in envelope.correlation_id)
            # A list with further pages is left to be asked for.
            if was_asked and isinstance(tools, list) and "nextCursor" not in result:
                self._know(envelope.sender, tools)
        elif envelope.kind == "system/presence" and envelope.payload.get("event") == "leave":
            who: Json = envelope.payload.get("participant")
            self._tools.pop(str(who.get("id")) if isinstance(who, dict) else "", None)

    def _know(self, member: str, tools: Iterable[Json]) -> None:
        self._tools[member] = {
            tool["name"]: tool
            for tool in tools
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        }
        while len(self._tools) > _MEMBERS_KEPT:
            self._tools.popitem(last=False)
        self._changed()


class KnownNames:
    """Everything that can be named, as candidates."""

    def __init__(
        self,
        seat: ClientContext,
        tools: KnownTools,
        timeline: Timeline,
        trust: TrustLog,
        themes: Callable[[], Iterable[str]],
    ) -> None:
        self._seat = seat
        self._tools = tools
        self._timeline = timeline
        self._trust = trust
        self._themes = themes

    def members(self) -> Iterable[Candidate]:
        return [Candidate(id) for id in sorted(self._seat.space.roster)]

    def tools(self, member: str) -> Iterable[Candidate]:
        return [
            Candidate(name, str(tool.get("description") or tool.get("title") or "").partition("\n")[0])
            for name, tool in self._tools.of(member).items()
        ]

    def arguments(self, member: str, tool: str) -> Iterable[Candidate]:
        schema = self._tools.of(member).get(tool, {}).get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for name, value in properties.items() if isinstance(properties, dict) else ():
            described = value if isinstance(value, dict) else {}
            sign = "=" if described.get("type") == "string" else ":="
            words = f"{described.get('type', '')} {described.get('description', '')}".strip()
            yield Candidate(f"{name}{sign}", words, goes_on=True)

    def proposals(self) -> Iterable[Candidate]:
        for seen in self._seat.space.proposals.open():
            yield Candidate(
                short(seen.id), f"#{self._seat.number(seen.id)} {seen.proposer}: {title_of(seen)}"
            )

    def streams(self) -> Iterable[Candidate]:
        for info in self._seat.space.streams:
            yield Candidate(info.id, f"by {info.owner} {info.details.get('description', '')}")

    def sequences(self) -> Iterable[Candidate]:
        for each in self._seat.space.contexts.active():
            yield Candidate(short(each.id), f"{each.owner}: {each.message}")

    def chats(self) -> Iterable[Candidate]:
        for chat in reversed(self._seat.space.chats.pending()):
            yield Candidate(chat.id, f"{chat.sender}: {chat.payload.get('text')}")

    def suggestions(self) -> Iterable[Candidate]:
        for each in self._trust.open_suggestions():
            yield Candidate(each.name, each.words)

    def rules(self) -> Iterable[Candidate]:
        for each in self._trust.rules():
            yield Candidate(each.name, f"{each.state}: {each.words}")

    def envelopes(self) -> Iterable[Candidate]:
        for envelope in reversed(self._timeline.envelopes()[-50:]):
            yield Candidate(short(envelope.id), f"{envelope.kind} from {envelope.sender}")

    def themes(self) -> Iterable[Candidate]:
        return [Candidate(name) for name in self._themes()]
