"""Changes of rights that are in effect and not yet on disk: who has to be told, and who has to wait.

What reduces rights takes effect also while the disk fails (0021). Whoever did it over a socket is told that a
restart before the disk recovers would undo it; over HTTP the answer says so.

What gives rights is in the state of the space as soon as it is accepted, and nobody hears of it before it is
on disk. Somebody may know of it all the same and act on it; that is refused until then, so that nothing
happens for which, after a crash, there was no permission.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from moot.errors import Unavailable
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import KINDS, OBLIGED, UNKNOWN
from moot.protocol.operation import Json
from moot.space.config import Name, SessionId
from moot.space.effects import Mint, Reply
from moot.space.members.member import Session
from moot.space.space import Space

NOT_ON_DISK: Final = (
    "in effect, but not on disk: the journal cannot be written, and a restart before it can would undo this"
)


class _Reduction(NamedTuple):
    number: int
    session: SessionId
    id: str
    kind: str


class UnsavedChanges:
    """Those of one space. Numbers are those of journal records; what is `saved` is on disk."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._reductions: deque[_Reduction] = deque()
        # By id of the grant, and by name of a member who may do more than before, or again.
        self._grants: dict[str, int] = {}
        self._members: dict[Name, int] = {}
        # Whether somebody may have rights that are not on disk; `check` tells.
        self.gives_rights = False

    def note_envelope(self, session: SessionId, envelope: Envelope, number: int, saved: int) -> None:
        """An accepted envelope that reduces rights or gives some."""
        while self._reductions and self._reductions[0].number <= saved:
            self._reductions.popleft()
        kind = envelope.kind
        if KINDS.get(kind, UNKNOWN).shrinks_rights:
            self._reductions.append(_Reduction(number, session, envelope.id, envelope.wire_kind or kind))
        elif kind == "capability/grant":
            self._grants[envelope.id] = number
            self.gives_rights = True
        elif kind == "participant/resume":
            for name in envelope.to:
                member = self._space.state.roster.resolve(name)
                if member is not None:
                    self.note_member(member.name, number)

    def note_member(self, name: Name, number: int) -> None:
        """A member was given rights by somebody else than by an envelope, or was resumed."""
        self._members[name] = number
        self.gives_rights = True

    def check(self, session: Session, envelope: Envelope, saved: int) -> None:
        """Raises Unavailable if what allows this envelope is not on disk."""
        self._grants = {id: number for id, number in self._grants.items() if number > saved}
        self.gives_rights = bool(self._grants or self._members)
        row, member = KINDS.get(envelope.kind, UNKNOWN), session.member
        is_free = row.shrinks_rights or row.passes_pause
        if not is_free:
            self.check_member(member.name, saved)
        grants = self._space.state.grants.to(member.name)
        if envelope.kind in OBLIGED or not any(grant.id in self._grants for grant in grants):
            return
        held = [each for grant in grants if grant.id not in self._grants for each in grant.capabilities]
        saved_rights = session.rights_with(held)
        to = self._space.state.resolve_names(envelope.to)
        is_allowed = session.rights.allow(envelope.kind, envelope.payload, to, claim=envelope.claim)
        if is_allowed and not saved_rights.allow(envelope.kind, envelope.payload, to, claim=envelope.claim):
            raise Unavailable("the grant that allows this is not on disk yet: try again later")

    def check_member(self, name: Name, saved: int) -> None:
        """Raises Unavailable if what lets this member go on is not on disk."""
        self._members = {each: number for each, number in self._members.items() if number > saved}
        self.gives_rights = bool(self._grants or self._members)
        if name in self._members:
            raise Unavailable("what allows you this again is not on disk yet: try again later")

    def take_notices(self, now: float, mint: Mint, saved: int) -> list[Reply]:
        """What is to be told to those who reduced rights, once each."""
        taken, self._reductions = self._reductions, deque()
        state, replies = self._space.state, []
        for each in taken:
            session = state.roster.sessions.get(each.session)
            if each.number <= saved or session is None:
                continue
            payload: dict[str, Json] = {
                "error": "not_on_disk",
                "message": NOT_ON_DISK,
                "attempted_kind": each.kind,
                "on_disk": False,
            }
            to, about = [session.member.id], [each.id]
            notice = state.notice("system/error", payload, now, mint, to=to, correlation_id=about)
            replies.append(Reply(each.session, notice))
        return replies
