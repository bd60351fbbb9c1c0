"""Who is here, with which rights (MEW 3.7, 3.8.1): the welcome's list, kept up to date by presence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from moot.errors import InvalidPattern, TimedOut
from moot.participant.connection.message_feed import HandlerRunner, RunningHandler
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Rights, read_capability

log = logging.getLogger(__name__)


class Member(msgspec.Struct, frozen=True):
    """Somebody in the space. `name` is the logical name; the runtime id `id` may differ from it (D-19)."""

    id: str
    name: str
    rights: Rights

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return self.rights.capabilities

    def may(self, kind: str, payload: Mapping[str, Json] | None = None, to: Sequence[str] = ()) -> bool:
        """Whether this member's rights allow it, as far as they are shown to us (D-53)."""
        return self.rights.allow(kind, payload or {}, to)


class PresenceEvent(msgspec.Struct, frozen=True):
    """A change: somebody joined, left or was invited; `refreshed`: any of that, while we were away."""

    event: Literal["join", "leave", "invited", "refreshed"]
    member: Member | None
    reason: str | None = None


class Roster(Mapping[str, Member]):
    """The others by runtime id; logical names are found too. We ourselves are not in it."""

    def __init__(self, dialect: DialectName, runner: HandlerRunner) -> None:
        self._members: dict[str, Member] = {}
        self._by_name: dict[str, str] = {}
        # Mostly everybody is called what their runtime id is, and no name has to be looked up.
        self.ids_are_names = True
        self._own: tuple[str, str] = ("", "")
        self._dialect = dialect
        self._runner = runner
        self._handlers: list[RunningHandler[PresenceEvent]] = []
        self._changed = asyncio.Event()
        # While the rest of a welcome is fetched: who was listed so far. None: we know everybody.
        self._listed: set[str] | None = None
        # By capabilities: welcomes repeat everybody's rights.
        self._parsed: dict[str, Rights] = {}

    # Looking up

    def __getitem__(self, id: str) -> Member:
        return self._members[self.id_of(id)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.id_of(id) in self._members

    @property
    def own_id(self) -> str:
        """Our runtime id."""
        return self._own[0]

    @property
    def own_name(self) -> str:
        """Our own logical name."""
        return self._own[1]

    def id_of(self, name: str) -> str:
        """The runtime id of whoever has this name; the name itself if nobody has."""
        return name if name in self._members else self._by_name.get(name, name)

    def names_of(self, ids: Sequence[str]) -> Sequence[str]:
        """Logical names, which is what capabilities are written in."""
        if self.ids_are_names or not ids:
            return ids
        return [self._name_of(id) for id in ids]

    def _name_of(self, id: str) -> str:
        member = self._members.get(id)
        if member is not None:
            return member.name
        return self._own[1] if id == self._own[0] else id

    async def wait_for(
        self, name: str, *, timeout_seconds: float = 60.0, within: float | None = None
    ) -> Member:
        """Wait for the member of this name to be here; raises TimedOut. `within` is what 0.1 called it."""
        timeout_seconds = timeout_seconds if within is None else within
        try:
            async with asyncio.timeout(timeout_seconds):
                while name not in self:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimedOut(f"{name} did not join within {timeout_seconds:g} s") from None
        return self[name]

    def on_change(self, handler: Callable[[PresenceEvent], Any]) -> Callable[[PresenceEvent], Any]:
        """Call this function or coroutine function at every change; works as a decorator."""
        self._handlers.append(self._runner.start(handler))
        return handler

    # Changes

    @property
    def is_complete(self) -> bool:
        """Whether everybody who is here is listed; False while the rest of a long welcome is fetched."""
        return self._listed is None

    def apply_welcome(
        self,
        me: str,
        name: str,
        participants: Sequence[Mapping[str, Json]],
        *,
        again: bool,
        complete: bool = True,
    ) -> None:
        """MEW 3.8.1: everybody else who is here. `again`: we were away, and members may have changed.

        Not `complete`: the welcome had no room for all, and `apply_page` brings the others.
        """
        self._own = (me, name)
        before = dict(self._members)
        self._listed = None if complete else {shown["id"] for shown in participants}
        if complete:
            self._members = {}
            self._by_name = {}
        for shown in participants:
            if complete or "capabilities_omitted" not in shown or shown["id"] not in self._members:
                self._add(shown)
        self._note_change()
        if again and before.keys() != self._members.keys():
            self._notify(PresenceEvent("refreshed", None))

    def apply_page(self, participants: Sequence[Mapping[str, Json]], *, is_last: bool) -> None:
        """More of those who are here. After the last page, whoever was not listed is gone."""
        before = set(self._members)
        for shown in participants:
            self._add(shown)
            if self._listed is not None:
                self._listed.add(shown["id"])
        if is_last and self._listed is not None:
            for id in self._members.keys() - self._listed:
                self._by_name.pop(self._members.pop(id).name, None)
            self._listed = None
        self._note_change()
        if before != self._members.keys():
            self._notify(PresenceEvent("refreshed", None))

    def apply_presence(self, envelope: Envelope) -> PresenceEvent | None:
        """Apply one `system/presence`; None for our own join and leave, and for unknown events."""
        payload = envelope.payload
        shown: Mapping[str, Json] = payload["participant"]
        reason = payload.get("reason")
        id = shown["id"]
        if id == self._own[0]:
            return None
        match payload["event"]:
            case "join":
                event = PresenceEvent("join", self._add(shown))
                if self._listed is not None:
                    self._listed.add(id)
            case "leave":
                member = self._members.pop(id, None)
                if member is not None:
                    self._by_name.pop(member.name, None)
                event = PresenceEvent("leave", member or self._member(shown), _text(reason))
            case "invited":
                event = PresenceEvent("invited", self._member(shown), _text(reason))
            case _:
                # D-23: an event that we do not know is nothing that we could act on.
                return None
        self._note_change()
        self._notify(event)
        return event

    def _note_change(self) -> None:
        self.ids_are_names = not self._by_name and self._own[0] == self._own[1]
        self._changed.set()

    def rights_of(self, values: Sequence[Json]) -> Rights:
        """Rights from a list of capabilities; one that cannot be read gives none (D-53)."""
        key = repr(values)
        known = self._parsed.get(key)
        if known is not None:
            return known
        capabilities: list[Capability] = []
        for value in values:
            try:
                capabilities.append(read_capability(value, place=self._dialect))
            except InvalidPattern as fault:
                log.warning("a capability cannot be read", extra={"why": fault.message})
        if len(self._parsed) >= 256:
            self._parsed.clear()
        rights = self._parsed[key] = Rights(capabilities)
        return rights

    def _member(self, shown: Mapping[str, Json]) -> Member:
        return Member(
            shown["id"], shown.get("name", shown["id"]), self.rights_of(shown.get("capabilities", []))
        )

    def _add(self, shown: Mapping[str, Json]) -> Member:
        member = self._member(shown)
        self._members[member.id] = member
        if member.name != member.id:
            self._by_name[member.name] = member.id
        return member

    def _notify(self, event: PresenceEvent) -> None:
        for handler in self._handlers:
            handler.call(event)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
