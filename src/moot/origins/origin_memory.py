"""What was said in a space, by whom and to whom: envelopes in their order in, a memory of sources out.

`see` only keeps an envelope, so chats cost nothing; what it holds is read when the first call after it asks
where its values came from. The same envelopes in the same order give the same memory on every gateway and
after a restart. Pure: told the time, and told who is a person when something is said (decision 0052).

A task begins with what a person asks for. What a person said counts for an agent until its context was
cleared and it said so; neither a new task nor a request to clear makes an agent forget what it read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

import orjson

from moot.origins.endorsement import ENDORSE_KIND, MAX_ENDORSEMENTS, Endorsement, read_endorsement
from moot.origins.source_index import MAX_INDEX_CHARS, OriginSource, SourceIndex
from moot.origins.text_forms import fold_strictly, words_of
from moot.origins.tool_traits import UNKNOWN_TOOL, ToolTraits
from moot.origins.value_keys import is_id_name, name_words
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json, context_of

# Envelopes that nobody has asked about yet: beyond this the oldest are forgotten unread.
MAX_UNREAD_MESSAGES: Final = 4_096
MAX_UNREAD_BYTES: Final = 16 << 20
# Requests whose answers may still come, leaves of one message, records that have a name and an id.
MAX_OPEN_REQUESTS: Final = 10_000
MAX_ASKED: Final = 64
MAX_ASKED_CHARS: Final = 256
MAX_AGENTS: Final = 4_096
MAX_LEAVES: Final = 4_096
MAX_RECORDS: Final = 20_000
MAX_DEPTH: Final = 16
# A look-up returns names and values. More words, or a sentence, are what somebody wrote.
MAX_VALUE_WORDS: Final = 8
_NAME_MEMBERS: Final = frozenset({"name", "title", "filename", "subject", "label", "path"})
_PARTS_OF_RESULT: Final = frozenset({"content", "structuredContent", "isError"})
# Nobody takes values from these: they are about members, rights and streams.
_WITHOUT_VALUES: Final = (
    "system/",
    "stream/",
    "capability/",
    "space/",
    "reasoning/",
    "trust/",
    "participant/",
)

TraitsOf = Callable[[str, str], ToolTraits]


class _Request(NamedTuple):
    readers: tuple[str, ...]
    traits: ToolTraits
    tool: str | None
    # What it asked for: a result that repeats it says nothing new.
    asked: frozenset[str]


class NamedRecord(NamedTuple):
    """An object in a result that has an id and a name: `{"id": 5, "title": "Dental check-up"}`."""

    id: str
    name: str
    source: OriginSource


@dataclass(slots=True)
class AgentContext:
    """What one agent has read: `since` is the last source before its context was cleared."""

    since: int = -1
    untrusted: int = -1
    outside: bool = False
    task: str = ""


@dataclass(slots=True)
class OriginMemory:
    """`traits` says what a tool of a member does; `known` are values that the operator configured."""

    traits: TraitsOf = lambda _host, _tool: UNKNOWN_TOOL
    known: Sequence[str] = ()
    max_chars: int = MAX_INDEX_CHARS
    index: SourceIndex = field(init=False)
    endorsements: dict[str, Endorsement] = field(init=False, default_factory=dict)
    # Tuples: they are made for every message of a space.
    _unread: deque[tuple[Envelope, bool, float]] = field(init=False, default_factory=deque)
    _unread_bytes: int = field(init=False, default=0)
    _number: int = field(init=False, default=0)
    _requests: dict[str, _Request] = field(init=False, default_factory=dict)
    _clears: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)
    _agents: dict[str, AgentContext] = field(init=False, default_factory=dict)
    _everyone: AgentContext = field(init=False, default_factory=AgentContext)
    # What members that are no people said to everybody: the latest of each.
    _chats: dict[str, int] = field(init=False, default_factory=dict)
    _records: dict[str, list[NamedRecord]] = field(init=False, default_factory=dict)
    _record_ids: dict[str, set[str]] = field(init=False, default_factory=dict)
    _record_count: int = field(init=False, default=0)
    _lost_unread: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.index = SourceIndex(max_chars=self.max_chars)
        for value in self.known:
            self.index.add(OriginSource(0, "", "", 0.0, "operator"), "", value)

    def see(self, envelope: Envelope, *, person: bool, at: float) -> None:
        """Note an accepted envelope. `person`: whether its sender counts as one now."""
        self._unread.append((envelope, person, at))
        self._unread_bytes += len(envelope.raw)
        if len(self._unread) > MAX_UNREAD_MESSAGES or self._unread_bytes > MAX_UNREAD_BYTES:
            self._unread_bytes -= len(self._unread.popleft()[0].raw)
            self._lost_unread = True

    def note_gap(self) -> None:
        """Some messages were not seen: what came before now may have had anything in it."""
        self._catch_up()
        self._lost_unread = True

    def read_outside(self, agent: str) -> None:
        """This agent also reads what the space does not see."""
        self._context(agent).outside = True

    def context_of(self, agent: str) -> AgentContext:
        """What this agent has read by now, the words of others to everybody included."""
        self._catch_up()
        own = self._agents.get(agent, self._everyone if len(self._agents) >= MAX_AGENTS else AgentContext())
        heard = max((number for name, number in self._chats.items() if name != agent), default=-1)
        untrusted = max(own.untrusted, self._everyone.untrusted, heard)
        return replace(own, untrusted=untrusted, task=own.task or self._everyone.task)

    def records_with(self, id: str, since: int) -> list[NamedRecord]:
        """The records with this id whose name no record with another id has."""
        return [
            each for each in self._records.get(id, ())
            if each.source.number > since and self._record_ids.get(" ".join(words_of(each.name))) == {id}
        ]  # fmt: skip

    # Reading what was seen.

    def _catch_up(self) -> None:
        if self._lost_unread:
            self._lost_unread = False
            self.index.dropped = self._number
            self._number += 1
        while self._unread:
            envelope, person, at = self._unread.popleft()
            self._unread_bytes -= len(envelope.raw)
            self._read(envelope, person, at)

    def _read(self, envelope: Envelope, person: bool, at: float) -> None:
        self._number += 1
        kind = envelope.kind
        if kind in ("mcp/request", "mcp/proposal"):
            self._read_call(envelope, person, at)
        elif kind == "mcp/response":
            self._read_response(envelope, at)
        elif kind == "participant/clear":
            _bound(self._clears, MAX_OPEN_REQUESTS)
            self._clears[envelope.id] = tuple(envelope.to)
        elif kind == "participant/status":
            # Cleared is who says so: a request alone clears nothing.
            if any(envelope.sender in self._clears.get(each, ()) for each in envelope.correlation_id):
                context = self._context(envelope.sender)
                if context is not self._everyone:
                    context.since, context.task = self._number, ""
        elif kind == ENDORSE_KIND:
            if person:
                self._read_endorsement(envelope, at)
        elif not kind.startswith(_WITHOUT_VALUES):
            self._read_words(envelope, person, at)

    def _read_words(self, envelope: Envelope, person: bool, at: float) -> None:
        source = OriginSource(
            self._number, envelope.id, envelope.sender, at, "person" if person else "untrusted"
        )
        self._add_leaves(source, envelope.payload)
        if not person and not envelope.to:
            _bound(self._chats, MAX_AGENTS)
            self._chats[envelope.sender] = self._number
            return
        for context in self._readers(envelope.to):
            if person:
                context.task = envelope.id
            else:
                context.untrusted = self._number

    def _readers(self, to: Sequence[str]) -> list[AgentContext]:
        return [self._context(name) for name in to] if to else [self._everyone]

    def _context(self, name: str) -> AgentContext:
        """With too many names, what one of them read counts for all: nobody becomes clean by that."""
        if name not in self._agents and len(self._agents) >= MAX_AGENTS:
            return self._everyone
        return self._agents.setdefault(name, AgentContext())

    def _read_call(self, envelope: Envelope, person: bool, at: float) -> None:
        method = envelope.payload.get("method")
        tool = context_of(method if isinstance(method, str) else None, envelope.payload)
        about = [self._requests[each] for each in envelope.correlation_id if each in self._requests]
        host = envelope.to[0] if envelope.to else ""
        traits = self.traits(host, tool) if method == "tools/call" and tool else UNKNOWN_TOOL
        # Whoever proposed it reads the answer to the request that fulfils it.
        readers = (envelope.sender, *(name for each in about for name in each.readers))
        params = envelope.payload.get("params")
        arguments = params.get("arguments", params) if isinstance(params, dict) else None
        asked = frozenset(
            text for _, _, text in islice(_leaves(arguments, "", "", 4), 64) if len(text) <= 256
        )
        _bound(self._requests, MAX_OPEN_REQUESTS)
        self._requests[envelope.id] = _Request(readers, traits, tool, asked)
        # To approve what another wrote is not to say it; to call a tool oneself is.
        if person and not envelope.correlation_id:
            source = OriginSource(self._number, envelope.id, envelope.sender, at, "person")
            self._add_leaves(source, arguments)

    def _read_response(self, envelope: Envelope, at: float) -> None:
        asked = next(
            (self._requests[each] for each in envelope.correlation_id if each in self._requests), None
        )
        traits = asked.traits if asked else UNKNOWN_TOOL
        result = envelope.payload.get("result")
        trusted = traits.returns == "trusted" and isinstance(result, dict) and not result.get("isError")
        source = OriginSource(
            self._number, envelope.id, envelope.sender, at, "trusted" if trusted else "untrusted",
            traits.private, asked.tool if asked else None,
        )  # fmt: skip
        known = asked.asked if asked else frozenset()
        had_others_words = self._add_leaves(source, _content_of(envelope.payload), known)
        for context in self._readers(asked.readers if asked else envelope.to):
            if had_others_words:
                context.untrusted = self._number

    def _add_leaves(self, source: OriginSource, value: Json, known: frozenset[str] = frozenset()) -> bool:
        """Take in a message but for what is known; returns whether it had words of others."""
        others = replace(source, grade="untrusted")
        written = False
        for count, (path, member, text) in enumerate(_leaves(value, "payload", "", MAX_DEPTH)):
            if count >= MAX_LEAVES:
                self.index.dropped = max(self.index.dropped, source.number)
                break
            if fold_strictly(text) in known:
                continue
            if source.grade != "trusted":
                self.index.add(source, path, text, member=member)
                written = True
                continue
            for line in _lines(
                text, heading=path.startswith("payload[") and path.count("[") == 1 and "." not in path
            ):
                if _is_written(line):
                    self.index.add(others, path, line)
                    written = True
                elif fold_strictly(line) not in known:
                    self.index.add(source, path, line, member=member)
        for record in _records(value, source, MAX_DEPTH):
            self._add_record(record)
        return written and source.grade != "person"

    def _add_record(self, record: NamedRecord) -> None:
        self._record_count += 1
        if self._record_count > MAX_RECORDS:
            # What is forgotten here is asked for.
            self._records, self._record_ids, self._record_count = {}, {}, 1
        self._records.setdefault(record.id, []).append(record)
        self._record_ids.setdefault(" ".join(words_of(record.name)), set()).add(record.id)

    def _read_endorsement(self, envelope: Envelope, at: float) -> None:
        revoked = envelope.payload.get("revoke")
        if isinstance(revoked, str):
            self.endorsements.pop(revoked, None)
        elif (endorsement := read_endorsement(envelope, at)) is not None:
            _bound(self.endorsements, MAX_ENDORSEMENTS)
            self.endorsements[envelope.id] = endorsement


def _bound(table: dict[str, Json], most: int) -> None:
    """Make room for one more: the oldest goes."""
    while len(table) >= most:
        del table[next(iter(table))]


def _lines(text: str, *, heading: bool) -> list[str]:
    """The lines of a text; the first one also without its heading, as in `Hotels: Ritz`."""
    lines = text.splitlines()
    _, colon, behind = lines[0].partition(": ") if lines and heading else ("", "", "")
    return [line.strip() for line in ([behind] if colon else []) + lines]


def _is_written(line: str) -> bool:
    """Whether a line of a look-up is what somebody wrote, rather than a name or a value."""
    words = len(line.split())
    return words > MAX_VALUE_WORDS or (words >= 4 and line.rstrip().endswith((".", "!", "?")))


def _content_of(payload: Mapping[str, Json]) -> Json:
    """What an answer says: its result, where text that is JSON is read as JSON; or its error."""
    result = payload.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        return payload
    structured = result.get("structuredContent")
    blocks = [_block(each) for each in result["content"]]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        structured = structured["result"]
    said_twice = blocks == [structured] or blocks == structured
    rest = {name: value for name, value in result.items() if name not in _PARTS_OF_RESULT}
    return [
        *([rest] if rest else []),
        *([] if said_twice else blocks),
        *([] if structured is None else [structured]),
    ]


def _block(block: Json) -> Json:
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str) or block.keys() - {"type", "text"}:
        return block
    try:
        return orjson.loads(text) if text.lstrip().startswith(("{", "[")) or text == "null" else text
    except orjson.JSONDecodeError:
        return text


def _leaves(value: Json, path: str, member: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """Every text and number of a JSON value, names of members too: where it stands, its member, the text."""
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            yield f"{path}.{name}", "", name
            yield from _leaves(inner, f"{path}.{name}", name, depth - 1)
    elif isinstance(value, list) and depth:
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{at}]", member, depth - 1)
    elif isinstance(value, bool) or value is None:
        return
    else:
        yield path, member, value if isinstance(value, str) else orjson.dumps(value).decode()


def _records(value: Json, source: OriginSource, depth: int) -> Iterator[NamedRecord]:
    if isinstance(value, list) and depth:
        for inner in value:
            yield from _records(inner, source, depth - 1)
    elif isinstance(value, dict) and depth:
        ids = [each for name, each in value.items() if is_id_name(name) and isinstance(each, str | int)]
        names = [
            each for name, each in value.items() if name_words(name) & _NAME_MEMBERS and isinstance(each, str)
        ]
        # With two ids it is not clear which is its own.
        if len(ids) == 1:
            yield from (NamedRecord(str(ids[0]), name, source) for name in names if len(name) <= 256)
        for inner in value.values():
            yield from _records(inner, source, depth - 1)
