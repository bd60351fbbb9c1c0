"""Who belongs to a space: members with their rights, and the sessions that they are connected by.

A *member* is a logical name with rights. It may be offline, or connected through several *sessions*
that share one runtime id. Their JSON is that of snapshots and journals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Notation, Rights, covered_by, read_capability
from moot.space.config import Name, ParticipantConfig, SessionId
from moot.space.id_window import SeenEnvelope
from moot.space.members.send_rate import SendRateLimiter

# A sender may make kinds up; this many are kept ready.
_KINDS_KEPT: Final = 64

NO_RIGHTS: Final = Rights(())
# Instead of an account: an administrator gave the name back, and it is the next one's who signs in under it.
FREE_NAME: Final = ""

# Programs that one person signs in with; of more, the one that was used longest ago is forgotten.
MAX_SIGN_IN_CLIENTS: Final = 64


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection asked for (D-02, D-54, D-57)."""

    echo: bool = True
    # False: not one's own requests that refer to nothing and belong to no context; their answer says enough.
    echo_requests: bool = True
    routing: Literal["all", "directed"] = "all"
    # mine: of what passes between others only what concerns it; of proposals everything (decision 0243).
    hears: Literal["all", "mine"] = "all"
    streams: bool = False
    runtime_id: str | None = None
    anonymous: bool = False
    # MEW 5.1: a token may carry less than all of its participant's rights; pairs of notation and capability.
    limited_to: tuple[tuple[Notation, Any], ...] | None = None
    # SHA-256 of the token that admitted the connection; None: of a guest, or not known (journals of 0.1).
    token: str | None = None
    # Whether it is asked what its member is asked, and says so where it does not offer it: what others of its
    # member do not offer is left to it. False: it answers nothing by itself (or a journal of 0.1).
    answers: bool = False
    # An HTTP post: it sends and is answered, but it is not present and receives nothing (D-40).
    injected: bool = False


class PauseRecord(msgspec.Struct, frozen=True):
    """MEW 3.9.1: who paused a member, by which envelope, and until when."""

    id: str
    by: Name
    until: float | None


class SignedInRights(msgspec.Struct, frozen=True):
    """What the newest token gave that somebody signed in with by one client."""

    issued_at: float
    capabilities: tuple[Capability, ...]
    # How the provider names them to this client (`SignIn.known_as`).
    known_as: str = ""


class TokenRights(NamedTuple):
    """What one token of a provider gives, to the connections that it admitted and to no others."""

    client: str
    capabilities: tuple[Capability, ...]


class SpaceMember:
    """One participant of the space, present or not."""

    __slots__ = (
        "anonymous",
        "common",
        "configured",
        "credentials",
        "description",
        "description_bytes",
        "exclusive",
        "granted",
        "id",
        "invited_by",
        "kicked",
        "lasting_granted",
        "lasting_rights",
        "name",
        "open_requests",
        "pause",
        "polling_until",
        "rights",
        "send_limiter",
        "sessions",
        "shut_down",
        "signed_in",
        "static_capabilities",
        "subject",
    )

    def __init__(self, name: Name, static: Sequence[Capability] = (), *, exclusive: bool = False) -> None:
        self.name = name
        self.id: str = name
        self.static_capabilities = tuple(static)
        # What the configuration said last; an operator may have changed the live rights and tokens since.
        self.configured: ParticipantConfig | None = None
        self.exclusive = exclusive
        self.anonymous = False
        self.invited_by: Name | None = None
        self.kicked = False
        # Hash of who signed in under this name first: nobody else gets it. None: not by signing in.
        self.subject: str | None = None
        # By client. An older token gives no more than the newest one of its client: rules or groups changed.
        self.signed_in: dict[str, SignedInRights] = {}
        self.credentials: tuple[str, ...] = ()
        self.pause: PauseRecord | None = None
        # D-26: until when it may still send; None unless it was shut down and has not rejoined.
        self.shut_down: float | None = None
        self.open_requests = 0
        # Without a connection, but polling over HTTP: until when it counts as somebody who hears.
        self.polling_until = 0.0
        self.sessions: dict[SessionId, Session] = {}
        # Static and granted together, kept current by `State.refresh`.
        self.rights = NO_RIGHTS
        # The same without grants that end by themselves.
        self.lasting_rights = NO_RIGHTS
        # The parts of both: of every connection, whatever token it has; and what was granted.
        self.common: tuple[Capability, ...] = ()
        self.granted: tuple[Capability, ...] = ()
        self.lasting_granted: tuple[Capability, ...] = ()
        # As welcomes show it; None after a change.
        self.description: dict[str, Json] | None = None
        self.description_bytes = 0
        # Not part of the saved state: a refused message changes nothing.
        self.send_limiter = SendRateLimiter()

    @property
    def present(self) -> bool:
        return any(not session.options.injected for session in self.sessions.values())

    @property
    def is_heard(self) -> bool:
        """Whether those who hear only their own are told that it is here: not of one another."""
        sessions = self.sessions.values()
        return any(not session.options.injected and not session.hears_mine for session in sessions)

    def is_reachable(self, now: float) -> bool:
        """Whether what is sent to it now is heard: by a connection, or by the next poll."""
        for session in self.sessions.values():
            if not session.options.injected:
                return True
        return self.polling_until > now

    @property
    def rights_by_sign_in(self) -> tuple[Capability, ...]:
        """What whoever signed in as this member has, with one client or another."""
        return tuple(right for each in self.signed_in.values() for right in each.capabilities)

    def note_sign_in(self, token: TokenRights, issued_at: float, known_as: str) -> None:
        """Whoever signs in with a client has what its newest token gives from now on."""
        known = self.signed_in.get(token.client)
        if known is not None and issued_at < known.issued_at:
            return
        self.signed_in[token.client] = SignedInRights(issued_at, token.capabilities, known_as)
        if len(self.signed_in) > MAX_SIGN_IN_CLIENTS:
            del self.signed_in[min(self.signed_in, key=lambda client: self.signed_in[client].issued_at)]

    def rights_of_token(self, token: TokenRights) -> tuple[Capability, ...]:
        """What a token gives that is not more than the newest one of its client."""
        newest = self.signed_in.get(token.client)
        if newest is None:
            # Forgotten, of too many: it may have given less than this one.
            return ()
        if newest.capabilities == token.capabilities:
            return token.capabilities
        mine, theirs = token.capabilities, newest.capabilities
        return (
            *(right for right in mine if covered_by(right, theirs)),
            *(right for right in theirs if covered_by(right, mine)),
        )

    def pause_is_over(self, now: float) -> bool:
        return self.pause is not None and self.pause.until is not None and self.pause.until <= now

    def save(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "id": self.id,
            "static": [save_capability(capability) for capability in self.static_capabilities],
            "configured": None if self.configured is None else save_participant(self.configured),
            "exclusive": self.exclusive,
            "anonymous": self.anonymous,
            "invited_by": self.invited_by,
            "kicked": self.kicked,
            "subject": self.subject,
            "signed_in": {
                client: [
                    each.issued_at,
                    [save_capability(right) for right in each.capabilities],
                    each.known_as,
                ]
                for client, each in self.signed_in.items()
            },
            "credentials": list(self.credentials),
            "pause": None if self.pause is None else msgspec.to_builtins(self.pause),
            "shut_down": self.shut_down,
            "open_requests": self.open_requests,
            "polling_until": self.polling_until,
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> SpaceMember:
        member = cls(Name(saved["name"]), load_capabilities(saved["static"]), exclusive=saved["exclusive"])
        member.id = saved["id"]
        member.configured = None if saved["configured"] is None else load_participant(saved["configured"])
        member.anonymous = saved["anonymous"]
        member.invited_by = saved["invited_by"]
        member.kicked = saved["kicked"]
        member.subject = saved.get("subject")
        if member.subject is not None and "signed_in" not in saved:
            # Of 0.2, where all of a member's connections had what the last token gave.
            member.signed_in = {"": SignedInRights(0.0, member.static_capabilities)}
            member.static_capabilities = ()
        for client, (issued_at, rights, *known_as) in saved.get("signed_in", {}).items():
            member.signed_in[client] = SignedInRights(issued_at, load_capabilities(rights), *known_as)
        member.credentials = tuple(saved["credentials"])
        member.pause = None if saved["pause"] is None else PauseRecord(**saved["pause"])
        member.shut_down = saved["shut_down"]
        member.open_requests = saved["open_requests"]
        member.polling_until = saved.get("polling_until", 0.0)
        return member


class Session:
    """One connection of a member."""

    __slots__ = (
        "_seen_records",
        "closing_at",
        "dialect",
        "hears_itself",
        "id",
        "lasting_rights",
        "limit",
        "member",
        "number",
        "options",
        "rights",
        "token_rights",
    )

    def __init__(
        self,
        id: SessionId,
        member: SpaceMember,
        dialect: DialectName,
        options: Options,
        number: int,
        token_rights: TokenRights | None = None,
    ) -> None:
        self.id = id
        # Greater than that of every session that joined before. A post has that of the last session.
        self.number = number
        self._seen_records: dict[str, SeenEnvelope] = {}
        self.member = member
        self.dialect = dialect
        self.options = options
        # Whether it receives all of its own.
        self.hears_itself = options.echo and options.echo_requests
        self.limit = None if options.limited_to is None else load_capabilities(options.limited_to)
        # Of a token of a provider: beside these, the connection has what was granted to its member.
        self.token_rights = token_rights
        self.rights = self.lasting_rights = NO_RIGHTS
        self.refresh()
        # D-26: when a shut-down session is closed; None while it lives. A post is no way round a shutdown.
        self.closing_at: float | None = member.shut_down if options.injected else None

    @property
    def client(self) -> str | None:
        """With which program its member signed in at a provider; None for every other token."""
        return None if self.token_rights is None else self.token_rights.client

    def seen_record(self, kind: str) -> SeenEnvelope:
        """What the window keeps of an envelope that nobody has to answer: one record for all of a kind."""
        record = self._seen_records.get(kind)
        if record is None:
            if len(self._seen_records) >= _KINDS_KEPT:
                self._seen_records.clear()
            record = self._seen_records[kind] = SeenEnvelope(self.member.name, kind, self.number)
        return record

    def limit_to(self, limit: Sequence[Capability] | None) -> bool:
        """Set what the session's token carries, None for everything; tells whether that is new."""
        shown = None if limit is None else capability_pairs(limit)
        if shown == self.options.limited_to:
            return False
        self.options = msgspec.structs.replace(self.options, limited_to=shown)
        self.limit = None if limit is None else tuple(limit)
        self.refresh()
        return True

    def refresh(self) -> bool:
        """What this session may do: all that its member may, or as much of it as its token carries.

        Tells whether that changed.
        """
        member, before = self.member, (self.rights.capabilities, self.lasting_rights.capabilities)
        if self.token_rights is not None:
            self.rights = self.rights_with(member.granted)
            self.lasting_rights = self.rights_with(member.lasting_granted)
        else:
            self.rights = self.limited_by_token(member.rights)
            is_same = member.lasting_rights is member.rights
            self.lasting_rights = self.rights if is_same else self.limited_by_token(member.lasting_rights)
        return (self.rights.capabilities, self.lasting_rights.capabilities) != before

    def rights_with(self, granted: Sequence[Capability]) -> Rights:
        """What this session may do where these are its member's grants."""
        member, token = self.member, self.token_rights
        signed_in = member.rights_by_sign_in if token is None else member.rights_of_token(token)
        return self.limited_by_token(Rights(dict.fromkeys([*member.common, *signed_in, *granted])))

    @property
    def has_all_rights(self) -> bool:
        """Whether its token carries all that its member may, but for grants that end by themselves."""
        own, carried = self.member.lasting_rights, self.lasting_rights
        return own is carried or all(covered_by(each, carried.capabilities) for each in own.capabilities)

    def limited_by_token(self, held: Rights) -> Rights:
        """As much of these rights as the session's token carries."""
        if self.limit is None:
            return held
        return Rights([right for right in self.limit if covered_by(right, held.capabilities)])

    @property
    def directed(self) -> bool:
        return self.options.routing == "directed" and self.dialect != "mew"  # D-54

    @property
    def hears_mine(self) -> bool:
        return self.options.hears == "mine"

    def receives_own(self, envelope: Envelope) -> bool:
        """D-02: whether it receives this envelope of its own."""
        options = self.options
        if not options.echo or self.hears_itself:
            return options.echo
        return envelope.kind != "mcp/request" or bool(envelope.correlation_id or envelope.context)

    @property
    def takes_frames(self) -> bool:
        return self.dialect == "mew" or self.options.streams  # D-57

    def save(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "member": self.member.name,
            "dialect": self.dialect,
            "options": msgspec.to_builtins(self.options),
            "number": self.number,
            "closing_at": self.closing_at,
        }


def save_participant(participant: ParticipantConfig) -> dict[str, Json]:
    return {
        "capabilities": [save_capability(capability) for capability in participant.capabilities],
        "exclusive": participant.exclusive,
        "credentials": list(participant.credentials),
    }


def load_participant(saved: dict[str, Any]) -> ParticipantConfig:
    return ParticipantConfig(
        capabilities=load_capabilities(saved["capabilities"]),
        exclusive=saved["exclusive"],
        credentials=tuple(saved["credentials"]),
    )


def save_capability(capability: Capability) -> list[Json]:
    return [capability.notation, capability.original]


def capability_pairs(capabilities: Sequence[Capability]) -> tuple[tuple[Notation, Any], ...]:
    """Capabilities as `Options` and journals hold them: pairs of notation and capability."""
    return tuple((capability.notation, capability.original) for capability in capabilities)


def load_capabilities(saved: Sequence[Sequence[Json]]) -> tuple[Capability, ...]:
    return tuple(read_capability(original, notation=notation, place=notation) for notation, original in saved)
