"""What was said in a space, by whom and to whom: envelopes in their order in, a memory of sources out.

The same envelopes in the same order give the same memory on every gateway and after a restart. Pure: told
the time, and told who is a person when something is said (decision 0052). Senders and recipients are logical
names (D-19). To read a message takes longer than to deliver it: whoever keeps a memory may feed it late.

A task begins with what a person asks for. What a person said counts for an agent until its context was
cleared and it said so; neither a new task nor a request to clear makes an agent forget what it read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from moot.origins.endorsement import MAX_ENDORSEMENTS, Endorsement, read_endorsement
from moot.origins.open_requests import (
    MAX_ASKED_CHARS,
    MAX_OPEN_REQUESTS,
    OpenRequest,
    OpenRequests,
    asked_in,
    changed_values,
    has_key,
    is_echo,
)
from moot.origins.own_words import own_words
from moot.origins.record_names import RecordNames, records_of
from moot.origins.result_parts import (
    is_written,
    leaves_of,
    lines_of,
    parts_of_answer,
)
from moot.origins.source_index import MAX_INDEX_CHARS, SourceIndex
from moot.origins.source_place import Grade, OriginSource
from moot.origins.step_budget import MESSAGE_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import fold_loosely
from moot.origins.tool_traits import UNKNOWN_TOOL, ToolTraits, lower_by_labels
from moot.origins.value_keys import TARGETS, values_in
from moot.protocol.envelope import Envelope
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json, context_of
from moot.protocol.origin_report import A2A_CONTEXT, ENDORSE_KIND
from moot.protocol.payloads import GATEWAY
from moot.protocol.preview_report import PREVIEW_KIND

# Who reads the answer of one request.
MAX_READERS: Final = 64
MAX_TOOL_CHARS: Final = 64
MAX_AGENTS: Final = 4_096
# Values of calls that people rejected.
MAX_REJECTED: Final = 20_000
MIN_REJECTED_CHARS: Final = 3
# Types of blocks, and names of members, whose content is not text in the message.
_PICTURES: Final = frozenset({"image", "audio"})
_ELSEWHERE: Final = frozenset({CONTENT_KEY, "blob"})

TraitsOf = Callable[[str, str], ToolTraits]


@dataclass(slots=True)
class AgentContext:
    """What one agent has read: `since` is the last source before its context was cleared."""

    since: int = -1
    untrusted: int = -1
    outside: bool = False
    task: str = ""


class OriginMemory:
    """`traits` says what a tool of a member does; `known` are values that the operator configured.

    `own` is the member that keeps this memory: what it says is taken from here, and no source.
    """

    def __init__(
        self,
        traits: TraitsOf = lambda _host, _tool: UNKNOWN_TOOL,
        known: Sequence[str] = (),
        max_chars: int = MAX_INDEX_CHARS,
        *,
        own: str = "",
    ) -> None:
        self.traits, self.own = traits, own
        self.index = SourceIndex(max_chars=max_chars)
        self.records = RecordNames()
        self.endorsements: LatestDict[str, Endorsement] = LatestDict(MAX_ENDORSEMENTS)
        self._number = 0
        self._requests = OpenRequests()
        # Values of rejected calls, loosely, each with the number of the rejection.
        self._rejected: LatestDict[str, int] = LatestDict(MAX_REJECTED)
        # Who has not answered a request to clear.
        self._clears: LatestDict[str, set[str]] = LatestDict(MAX_OPEN_REQUESTS)
        self._agents: dict[str, AgentContext] = {}
        self._everyone = AgentContext()
        # What members that are no people said to everybody: the latest of each.
        self._chats: LatestDict[str, int] = LatestDict(MAX_AGENTS)
        for value in known:
            self.index.add(OriginSource(0, "", "", 0.0, "operator"), "", value)

    def see(self, envelope: Envelope, *, person: bool, at: float) -> None:
        """Take in an accepted envelope. `person`: whether its sender counts as one now."""
        if envelope.kind == ENDORSE_KIND:
            if person:
                self._read_endorsement(envelope, at)
            return
        self._number += 1
        try:
            self._read(envelope, person, at)
        except Exception:  # noqa: BLE001
            # Whatever cannot be read is something that nobody here knows, and that asks. It must neither stop
            # whoever decides nor pass for not said.
            self.index.drop(self._number)

    def note_gap(self) -> None:
        """Some messages were not seen: what came before now may have had anything in it."""
        self._number += 1
        self.index.drop(self._number)

    def context_of(self, agent: str) -> AgentContext:
        """What this agent has read by now, the words of others to everybody included."""
        own = self._agents.get(agent, self._everyone if len(self._agents) >= MAX_AGENTS else AgentContext())
        heard = max((number for name, number in self._chats.items() if name != agent), default=-1)
        untrusted = max(own.untrusted, self._everyone.untrusted, heard)
        task = own.task or self._everyone.task
        # Whom no person asked for anything here has its task from elsewhere.
        return AgentContext(own.since, untrusted, own.outside or not task, task)

    @property
    def has_rejections(self) -> bool:
        return bool(self._rejected)

    def rejected_at(self, value: str, since: int = -1) -> int:
        """When a person last rejected a call with this value, as the number of a source; -1: not since."""
        at = self._rejected.get(fold_loosely(value), -1)
        return at if at > since else -1

    def _read(self, envelope: Envelope, person: bool, at: float) -> None:
        kind = envelope.kind
        grade: Grade = "person" if person else "untrusted"
        source = OriginSource(self._number, envelope.id, envelope.sender, at, grade)
        if kind in ("mcp/request", "mcp/proposal"):
            self._read_call(envelope, source)
        elif kind == "mcp/response":
            self._read_response(envelope, source)
        elif kind.startswith("stream/"):
            # What goes through it is in no message.
            self.index.drop(self._number)
        elif kind == "participant/clear" and (person or envelope.sender == GATEWAY):
            self._clears[envelope.id] = set(envelope.to)
        elif person:
            # People say something in chats alone: whatever else they send is about what others said.
            if kind == "chat":
                self._read_words(envelope, source)
            elif kind == "mcp/reject":
                self._read_rejection(envelope, at)
        elif envelope.sender not in (self.own, GATEWAY):
            if kind == "participant/status":
                self._read_status(envelope)
            if kind == PREVIEW_KIND:
                self._read_preview(envelope, source)
            else:
                self._read_words(envelope, source)

    def _read_rejection(self, envelope: Envelope, at: float) -> None:
        """What people talk about after they rejected it is not what they ask for."""
        for proposal in envelope.correlation_id:
            for text in self._requests[proposal].values if proposal in self._requests else ():
                if text.isdigit():
                    continue
                inner = [
                    key[1]
                    for key, _, _ in values_in(text, at, StepBudget(MESSAGE_STEPS))
                    if key[0] in TARGETS
                ]
                for value in (text, *inner):
                    loose = fold_loosely(value)
                    if len(loose) >= MIN_REJECTED_CHARS:
                        self._rejected[loose] = self._number

    def _read_status(self, envelope: Envelope) -> None:
        """Cleared is who says so, once: a request alone clears nothing, and neither does an old one."""
        asked = [each for each in envelope.correlation_id if envelope.sender in self._clears.get(each, ())]
        for each in asked:
            self._clears[each].discard(envelope.sender)
        left = envelope.payload.get("messages_in_context")
        context = self._context(envelope.sender)
        cleared = left == 0 and left is not False and envelope.payload.get("cleared") is not False
        if asked and cleared and context is not self._everyone:
            context.since, context.task = self._number, ""

    def _read_words(self, envelope: Envelope, source: OriginSource) -> None:
        person, call = source.grade == "person", envelope.payload.get("tool_call")
        if isinstance(call, dict) and not person:
            self._read_report(envelope, call, source)
            return
        text = envelope.payload.get("text")
        if person and isinstance(text, str):
            text, quoted, unwanted = own_words(text)
            others = replace(source, grade="untrusted")
            if quoted:
                self._add_others(others, envelope.to, [("payload.text", quoted)])
            if unwanted:
                # The agent has read nothing of others by that.
                self.index.take_back(unwanted, source.at, StepBudget(MESSAGE_STEPS))
                self._add_leaves(others, [("payload.text", unwanted)])
        if person:
            for context in self._readers(envelope.to):
                context.task = envelope.id
            # Nothing else of a message is what a person wrote.
            self._add_leaves(source, [("payload.text", text)])
        elif isinstance(text, str) and envelope.payload in (
            {"text": text},
            {"text": text, "format": "plain"},
        ):
            self._add_others(source, envelope.to, [("payload.text", text)])
        else:
            self._add_others(source, envelope.to, [("payload", dict(envelope.payload))])

    def _read_preview(self, envelope: Envelope, source: OriginSource) -> None:
        """What a call would do names its values again: whoever proposed it has them from elsewhere."""
        about = [self._requests[each] for each in envelope.correlation_id if each in self._requests]
        values = sorted((text for each in about for text in each.values if text), key=len, reverse=True)
        echo = re.compile("|".join(map(re.escape, values))) if values else None
        leaves = leaves_of(dict(envelope.payload), "payload")
        parts = [(path, echo.sub("\n", text) if echo else text) for path, _, text in leaves]
        self._add_others(source, envelope.to, [(path, text) for path, text in parts if text.strip()])

    def _add_others(self, source: OriginSource, to: Sequence[str], parts: list[tuple[str, Json]]) -> None:
        """Words of somebody who is no person, to these members or to all."""
        if to:
            for context in self._readers(to):
                context.untrusted = self._number
        else:
            self._chats[source.by] = self._number
        self._add_leaves(source, parts)

    def _read_report(self, envelope: Envelope, call: Mapping[str, Json], source: OriginSource) -> None:
        """An agent tells what it did by itself: it read the result, and it can read more than it tells."""
        kind = call.get("kind")
        source = replace(source, private=True, tool=kind if isinstance(kind, str) and kind else "a tool")
        context = self._context(envelope.sender)
        context.outside, context.untrusted = True, self._number
        self._chats[envelope.sender] = self._number
        self._add_leaves(source, [("payload", dict(envelope.payload))])

    def _readers(self, to: Iterable[str]) -> list[AgentContext]:
        return [self._context(name) for name in to] if to else [self._everyone]

    def _context(self, name: str) -> AgentContext:
        """With too many names, what one of them read counts for all: nobody becomes clean by that."""
        if name not in self._agents and len(self._agents) >= MAX_AGENTS:
            return self._everyone
        return self._agents.setdefault(name, AgentContext())

    def _read_call(self, envelope: Envelope, source: OriginSource) -> None:
        person, method = source.grade == "person", envelope.payload.get("method")
        tool = context_of(method if isinstance(method, str) else None, envelope.payload)
        about = [self._requests[each] for each in envelope.correlation_id if each in self._requests]
        hosts = tuple(envelope.to)
        known = method == "tools/call" and tool and len(hosts) == 1
        traits = self.traits(hosts[0], tool) if known and tool else UNKNOWN_TOOL
        # Whoever proposed it reads the answer to the request that fulfils it. With too many: everybody.
        readers = dict.fromkeys((envelope.sender, *(name for each in about for name in each.readers)))
        # What a person looks up by themselves is for everybody to see.
        if (person and not about) or len(readers) > MAX_READERS or any(not each.readers for each in about):
            readers = {}
        params = envelope.payload.get("params")
        arguments = params.get("arguments", params) if isinstance(params, dict) else None
        asked, values = asked_in(arguments)
        asking = hosts if envelope.kind == "mcp/request" else ()
        name = (tool or str(method))[:MAX_TOOL_CHARS]
        request = OpenRequest(asking, tuple(readers), traits, name, asked, values)
        self._requests.keep(envelope.id, request)
        if person and envelope.kind == "mcp/proposal" and about:
            # A counter-proposal: what a person put in place of another's value is theirs.
            self._add_leaves(source, changed_values(arguments, about, source.at))
        if acts_outside(envelope):
            self._context(envelope.sender).outside = True
        if (envelope.context or "").startswith(A2A_CONTEXT):
            self._context(envelope.sender).task = envelope.context or ""
        # To approve what another wrote is not to say it, and neither is to look something up. What all others
        # ask for is read by whom they ask.
        repeats = asked is not None and any(each.asked == asked for each in about)
        if not (person or envelope.sender == self.own or repeats):
            parts = [("payload.params", params)]
            if isinstance(params, dict) and params.keys() == {"name", "arguments"}:
                # These names are the protocol's.
                parts = [(f"payload.params.{name}", value) for name, value in params.items()]
            self._add_others(source, hosts, parts)

    def _read_response(self, envelope: Envelope, source: OriginSource) -> None:
        """Traits count only for the answer of the one host that was asked, to nothing but such requests."""
        found = [self._requests.get(each) for each in envelope.correlation_id]
        known = [each for each in found if each is not None]
        asked = (
            known[0] if known and all(each and each.hosts == (envelope.sender,) for each in found) else None
        )
        if asked and any((each.tool, each.traits) != (asked.tool, asked.traits) for each in known):
            asked = None
        traits = lower_by_labels(asked.traits if asked else UNKNOWN_TOOL, envelope.payload.get("result"))
        echoes = [each.asked for each in known]
        result = envelope.payload.get("result")
        failed = not isinstance(result, dict) or bool(result.get("isError"))
        trusted = traits.returns == "trusted" and not failed and None not in echoes
        tool = asked.tool if asked else "an answer"
        grade: Grade = "trusted" if trusted else "untrusted"
        source = replace(source, grade=grade, private=traits.private, tool=tool)
        parts = parts_of_answer(envelope.payload)
        echoed = "".join(each for each in echoes if each)
        readers = {name for each in known for name in each.readers}
        if len(known) < len(found) or not found:
            readers.update(envelope.to)
        every = not readers or any(not each.readers for each in known)
        if self.own and readers == {self.own} and not every:
            return
        values = [text for each in known for text in each.values]
        others = self._add_leaves(source, parts, echoed, values if trusted else ())
        if failed and traits.returns == "trusted":
            # `user not found` of a look-up says nothing by which an agent could be led.
            texts = (leaf.text for _, value in parts for leaf in leaves_of(value, ""))
            others = any(is_written(line) for text in texts for line in lines_of(text, heading=False))
        # What of it could not be read may have been anything.
        if others or self.index.dropped == self._number:
            for context in [self._everyone] if every else self._readers(readers):
                context.untrusted = self._number
        if traits.returns == "records" and not failed:
            for _, value in parts:
                for record in records_of(value):
                    self.records.add(record, self._number)

    def _add_leaves(
        self,
        source: OriginSource,
        parts: list[tuple[str, Json]],
        echoed: str = "",
        values: Sequence[str] = (),
    ) -> bool:
        """Take in a message but for what only repeats a request; returns whether it had words of others."""
        others = replace(source, grade="untrusted") if source.grade == "trusted" else source
        written = False
        budget = StepBudget(MESSAGE_STEPS)
        seen: set[tuple[str, str]] = set()
        try:
            asked = {key for text in values for key, _, _ in values_in(text, source.at, budget)}
            for root, value in parts:
                for path, member, text in leaves_of(value, root):
                    budget.spend(1)
                    # Lists repeat their names and values: the first place of each is enough.
                    if (member, text) in seen:
                        continue
                    seen.add((member, text))
                    if source.grade != "person" and text in (_PICTURES if member == "type" else _ELSEWHERE):
                        # Whoever reads this message sees more than stands in it.
                        self.index.drop(source.number)
                    if source.grade != "trusted":
                        if echoed and len(text) <= MAX_ASKED_CHARS:
                            budget.spend((len(echoed) + len(text)) // 16 + 2)
                            if is_echo(text, echoed, whole=True):
                                continue
                        written = True
                        self.index.add(source, path, text, member=member, budget=budget)
                        continue
                    for line in lines_of(text, heading=path == root):
                        budget.spend((len(echoed) + len(line)) // 16 + 2)
                        if is_written(line):
                            written = True
                            self.index.add(others, path, line, budget=budget)
                        elif not (is_echo(line, echoed) or has_key(line, source.at, asked, budget)):
                            self.index.add(source, path, line, member=member, budget=budget)
        except BudgetSpent:
            self.index.drop(source.number)
        return written and source.grade != "person"

    def _read_endorsement(self, envelope: Envelope, at: float) -> None:
        revoked = envelope.payload.get("revoke")
        if isinstance(revoked, str):
            self.endorsements.pop(revoked, None)
        elif (endorsement := read_endorsement(envelope, at)) is not None:
            self.endorsements[envelope.id] = endorsement


def acts_outside(envelope: Envelope) -> bool:
    """Whether its sender also reads what the space does not see.

    An agent that asks before it acts by itself can read by itself, and a caller by A2A is elsewhere.
    """
    is_call = envelope.kind in ("mcp/request", "mcp/proposal")
    return is_call and (envelope.sender in envelope.to or (envelope.context or "").startswith(A2A_CONTEXT))
