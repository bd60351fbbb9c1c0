"""The names that completion offers: members, tools, proposals, streams and so on.

The tools of a member are requested when a person starts to name one, not before: everyone sees the request.
Lists that other members request are used as well.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from moot.errors import MootError
from moot.mcp.eras import LIST_CHANGED
from moot.operations.operation import ClientContext, short_id
from moot.operations.trust_log import TrustLog
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.tui.completion import Candidate
from moot.tui.proposal_lines import title_of
from moot.tui.timeline import Timeline

# How long a member has to list its tools, and how many members and open requests are kept.
_LIST_SECONDS: Final = 10.0
_MAX_MEMBERS: Final = 256
_MAX_REQUESTS: Final = 512

StartTask = Callable[[Coroutine[Any, Any, None]], object]


class KnownTools:
    """The tools of members, as far as they are known."""

    def __init__(self, space: JoinedSpace, start_task: StartTask, on_change: Callable[[], None]) -> None:
        self._space = space
        self._start_task = start_task
        self._on_change = on_change
        self._tools: LatestDict[str, dict[str, Json]] = LatestDict(_MAX_MEMBERS)
        self._pending: set[str] = set()
        self._requests: LatestDict[str, None] = LatestDict(_MAX_REQUESTS)

    def tools_of(self, member: str) -> dict[str, Json]:
        """The tools of a member by name; requested if unknown, and `on_change` is called when they arrive."""
        id = self._space.roster.id_of(member)
        known = self._tools.get(id)
        may_ask = id in self._space.roster and self._space.may_request(id, "tools/list")
        if known is None and may_ask and id not in self._pending:
            self._pending.add(id)
            self._start_task(self._request(id))
        return known or {}

    async def _request(self, member: str) -> None:
        try:
            self._remember(member, await self._space.list_all(member, "tools", timeout_seconds=_LIST_SECONDS))
        except MootError:
            # It offers none, or does not answer: not asked again until it announces a change.
            self._remember(member, [])
        finally:
            self._pending.discard(member)

    def observe(self, envelope: Envelope) -> None:
        """Learn from lists that others request; forget lists that have changed."""
        method: Json = envelope.payload.get("method")
        if envelope.kind == "mcp/request" and isinstance(method, str):
            if LIST_CHANGED.get(method) == "tools":
                self._tools.pop(envelope.sender, None)
            elif method == "tools/list" and "params" not in envelope.payload:
                self._requests[envelope.id] = None
        elif envelope.kind == "mcp/response":
            result: Json = envelope.payload.get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            is_answer = any(id in self._requests for id in envelope.correlation_id)
            # A list with more pages is incomplete.
            if is_answer and isinstance(tools, list) and "nextCursor" not in result:
                self._remember(envelope.sender, tools)
        elif envelope.kind == "system/presence" and envelope.payload.get("event") == "leave":
            who: Json = envelope.payload.get("participant")
            self._tools.pop(str(who.get("id")) if isinstance(who, dict) else "", None)

    def _remember(self, member: str, tools: Iterable[Json]) -> None:
        self._tools[member] = {
            tool["name"]: tool
            for tool in tools
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        }
        self._on_change()


class KnownNames:
    """All names, as candidates."""

    def __init__(
        self,
        context: ClientContext,
        tools: KnownTools,
        timeline: Timeline,
        trust: TrustLog,
        themes: Callable[[], Iterable[str]],
    ) -> None:
        self._context = context
        self._tools = tools
        self._timeline = timeline
        self._trust = trust
        self._themes = themes

    def members(self) -> Iterable[Candidate]:
        return [Candidate(id) for id in sorted(self._context.space.roster)]

    def tools(self, member: str) -> Iterable[Candidate]:
        return [
            Candidate(name, str(tool.get("description") or tool.get("title") or "").partition("\n")[0])
            for name, tool in self._tools.tools_of(member).items()
        ]

    def arguments(self, member: str, tool: str) -> Iterable[Candidate]:
        schema = self._tools.tools_of(member).get(tool, {}).get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for name, value in properties.items() if isinstance(properties, dict) else ():
            described = value if isinstance(value, dict) else {}
            sign = "=" if described.get("type") == "string" else ":="
            text = f"{described.get('type', '')} {described.get('description', '')}".strip()
            yield Candidate(f"{name}{sign}", text, is_partial=True)

    def proposals(self) -> Iterable[Candidate]:
        for seen in self._context.space.proposals.open():
            yield Candidate(
                short_id(seen.id), f"#{self._context.number(seen.id)} {seen.proposer}: {title_of(seen)}"
            )

    def streams(self) -> Iterable[Candidate]:
        for info in self._context.space.streams:
            yield Candidate(info.id, f"by {info.owner} {info.details.get('description', '')}")

    def sequences(self) -> Iterable[Candidate]:
        for each in self._context.space.contexts.active():
            yield Candidate(short_id(each.id), f"{each.owner}: {each.message}")

    def chats(self) -> Iterable[Candidate]:
        for chat in reversed(self._context.space.chats.pending()):
            yield Candidate(chat.id, f"{chat.sender}: {chat.payload.get('text')}")

    def suggestions(self) -> Iterable[Candidate]:
        for each in self._trust.open_suggestions():
            yield Candidate(each.name, each.text)

    def rules(self) -> Iterable[Candidate]:
        for each in self._trust.rules():
            yield Candidate(each.name, f"{each.state}: {each.words}")

    def envelopes(self) -> Iterable[Candidate]:
        for envelope in reversed(self._timeline.envelopes()[-50:]):
            yield Candidate(short_id(envelope.id), f"{envelope.kind} from {envelope.sender}")

    def themes(self) -> Iterable[Candidate]:
        return [Candidate(name) for name in self._themes()]
