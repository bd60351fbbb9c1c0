"""The members of a space by their names, their tokens and their sessions (MEW 3.6.4, D-19, D-22).

A member's logical name and its runtime id address it everywhere; `resolve` is the only place that knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moot.errors import InvalidRequest, ParticipantNotFound, ResourceLimit, UsageError
from moot.space.config import Name, SessionId
from moot.space.members.member import Session, SpaceMember
from moot.space.members.member_names import check_runtime_id

# As many programs that one person signs in with may have all the connections that a member may have.
_CLIENTS_AT_ONCE: Final = 16


class SpaceRoster:
    """All members of the space, in the order in which they were first known."""

    def __init__(self) -> None:
        self.members: dict[Name, SpaceMember] = {}
        self.sessions: dict[SessionId, Session] = {}
        # Runtime ids that differ from their logical name; empty in most spaces, which keeps delivery quick.
        self.aliases: dict[str, SpaceMember] = {}
        # By the hashes of their tokens: strangers have tokens looked up as often as they like.
        self._by_token: dict[str, set[Name]] = {}

    def __iter__(self) -> Iterator[SpaceMember]:
        return iter(self.members.values())

    def resolve(self, name: str) -> SpaceMember | None:
        """The member that a logical name or runtime id stands for; kicked ones are nowhere."""
        member = self.members.get(Name(name)) or self.aliases.get(name)
        return None if member is None or member.kicked else member

    def find(self, name: str) -> SpaceMember:
        """`resolve`, or ParticipantNotFound."""
        member = self.resolve(name)
        if member is None:
            raise ParticipantNotFound(f"no participant {name!r} in this space", participant_id=name)
        return member

    def present(self) -> list[SpaceMember]:
        return [member for member in self.members.values() if member.present]

    def add(self, member: SpaceMember) -> None:
        self._forget_tokens(self.members.get(member.name, member))
        self.members[member.name] = member
        self.set_credentials(member, member.credentials)

    def remove(self, member: SpaceMember) -> None:
        self.aliases.pop(member.id, None)
        self._forget_tokens(member)
        del self.members[member.name]

    def set_credentials(self, member: SpaceMember, hashes: tuple[str, ...]) -> None:
        """Say which tokens a member of this roster has, by their hashes."""
        self._forget_tokens(member)
        member.credentials = hashes
        for token_hash in hashes:
            self._by_token.setdefault(token_hash, set()).add(member.name)

    def _forget_tokens(self, member: SpaceMember) -> None:
        for token_hash in member.credentials:
            if names := self._by_token.pop(token_hash, set()) - {member.name}:
                self._by_token[token_hash] = names

    def find_token_owner(self, token_hash: str) -> Name | None:
        """Who has this token; kicked members have none."""
        owners = [name for name in self._by_token.get(token_hash, ()) if not self.members[name].kicked]
        # Several only when an operator wrote one's token down for another: who was there first.
        first = owners if len(owners) < 2 else (name for name in self.members if name in owners)
        return next(iter(first), None)

    def attach_session(self, session: Session, *, max_sessions: int) -> None:
        """Attach a session; checks the runtime id it proposes (D-19, D-88) and the number of sessions."""
        member, wanted = session.member, session.options.runtime_id
        if session.id in self.sessions:
            raise UsageError(f"session {session.id} has joined already")
        gateway = _gateway_of(session.id)
        # At this gateway of a cluster: those of one that was just killed are here for a while, and whoever
        # they belonged to comes back at once.
        listening = [
            other
            for other in member.sessions.values()
            if not other.options.injected and _gateway_of(other.id) == gateway
        ]
        # Of each program that somebody signed in with, so that agents leave room for the console.
        alike = [other for other in listening if other.client == session.client]
        is_full = len(alike) >= max_sessions or len(listening) >= max_sessions * _CLIENTS_AT_ONCE
        if is_full and not member.exclusive and not session.options.injected:
            raise ResourceLimit(
                f"{member.name} has {len(listening)} connections already: close one first",
                limit="max_sessions_per_member",
            )
        if wanted is not None and wanted != member.id:
            self._check_runtime_id(member, wanted)
            self.aliases.pop(member.id, None)
            member.id = wanted
            member.description = None
            if wanted != member.name:
                self.aliases[wanted] = member
        member.sessions[session.id] = session
        self.sessions[session.id] = session

    def detach_session(self, session: Session) -> None:
        """Detach a session. Its member keeps the runtime id until `release_runtime_id`, for notices."""
        del self.sessions[session.id]
        del session.member.sessions[session.id]

    def release_runtime_id(self, member: SpaceMember) -> None:
        """Give the runtime id back once the last session is gone."""
        if not member.sessions:
            self.aliases.pop(member.id, None)
            member.id = member.name
            member.description = None

    def _check_runtime_id(self, member: SpaceMember, wanted: str) -> None:
        if member.sessions:
            raise InvalidRequest(
                f"{member.name} is connected as {member.id!r}: all its connections share that id"
            )
        check_runtime_id(wanted)
        if wanted != member.name and (Name(wanted) in self.members or wanted in self.aliases):
            raise InvalidRequest(f"participant id {wanted!r} belongs to somebody else")


def _gateway_of(session: SessionId) -> str:
    """The name of the gateway, in a cluster; there it is in front of a dot."""
    return session.partition(".")[0] if "." in session else ""
