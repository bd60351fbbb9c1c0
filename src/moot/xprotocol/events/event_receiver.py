"""What happens to an event that arrives, in one order (D-76).

    size → JSON → types → recipient → times → id → key → signature
        → revoked? → seen? → too fast? → payload's hash → open → kind → capability → contract → accepted

Up to the signature nobody is known to have sent anything, so whatever fails is dropped in silence: an answer
would tell a forger something, or be sent to a victim of his choice. From there on the sender is known, and a
failure is answered with an `xp.error`.

Seen ids and the sender's rate come after the signature: before it, a forger could fill the memory of ids or
use up somebody else's rate. Three rules keep answers from being used as a weapon:

- an event is answered once: its second coming is dropped, whatever was said to the first;
- an event that is itself an answer is never answered, or two endpoints could go on for ever;
- one that expired is still answered for some minutes, and after that dropped unread.

Everything that the receiver must ask others is a hook, and the time comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moot.errors import (
    EventExpired,
    EventFault,
    KindNotFound,
    SchemaViolation,
    SenderRevoked,
    SenderTooFast,
    UnverifiedEvent,
)
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ERROR_KIND
from moot.xprotocol.events.access_rights import AuthorizedCaller
from moot.xprotocol.events.event_composer import open_payload
from moot.xprotocol.events.events import (
    PUBLIC_KINDS,
    SKEW_SECONDS,
    DirectedEvent,
    SignedDirected,
    SignedPublic,
    check_times,
    decode,
    verify_event,
)
from moot.xprotocol.events.replay import SeenIds
from moot.xprotocol.identity.keys import Identity

# Long enough for a slow relay to be the reason; whatever is older is not worth a signature check.
EXPIRED_ANSWERED_SECONDS: Final = 300
PROOFS: Final = "proofs"
# Holds the W3C context of the call, as MCP has it (docs/how-to/trace-calls.md).
META: Final = "_meta"
_TRACE_MEMBERS: Final = frozenset({"traceparent", "tracestate"})


@dataclass(frozen=True, slots=True)
class KindTerms:
    """What a kind asks of those who send it."""

    # None: anybody may, as xp.schema.describe must work before there are rights (D-77).
    capability: str | None
    # Raises SchemaViolation.
    check_payload: Callable[[dict[str, Json]], None] | None = None
    # The contract has a member `proofs` of its own, so that none of ours can come with it.
    own_proofs: bool = False
    # The same for `_meta`.
    own_meta: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request, or an answer that was waited for; all checks passed."""

    event: DirectedEvent
    # Without the proofs and the trace.
    payload: Json
    caller: AuthorizedCaller
    # In which trace the sender made the call, by its own word: it gives no right.
    trace: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class PublicReceived:
    """A public event, verified. Statements come again and again: whoever acts on them must not mind."""

    signed: SignedPublic


@dataclass(frozen=True, slots=True)
class Dropped:
    """Nothing is done and nothing said; `reason` is one word and `message` a sentence, both for the log."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EventRejected:
    """The sender is known and to be told (`event_composer.reply_fault`)."""

    event: DirectedEvent
    fault: EventFault


Outcome = Accepted | PublicReceived | Dropped | EventRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Whom a receiver asks. None of them may await, and all are told what they need."""

    # Whether a key's events are refused: key, now.
    is_revoked: Callable[[str, float], bool]
    seen_ids: SeenIds
    # Count one event of a sender: key, bytes, now. Seconds to wait when it is one too many, else None.
    too_fast: Callable[[str, int, float], float | None]
    # What a kind asks for; None: nothing here answers to it.
    terms: Callable[[str], KindTerms | None]
    # On whose account the sender has a capability; raises AuthorizationInsufficient: event, capability,
    # proofs, now.
    authorize: Callable[[DirectedEvent, str | None, Sequence[Json], float], AuthorizedCaller]
    # Whether somebody waits for this answer (`event_composer.answers`).
    is_expected: Callable[[DirectedEvent], bool]


class EventReceiver:
    """Takes events for one identity through all checks."""

    def __init__(self, identity: Identity, hooks: Hooks) -> None:
        self._identity = identity
        self._key = identity.key.text
        self._hooks = hooks

    def receive(self, raw: bytes, now: float) -> Outcome:
        """What becomes of one event as it came in; raises nothing, whatever the bytes are."""
        try:
            signed = decode(raw)
            if isinstance(signed, SignedPublic):
                return self._receive_public(signed, now)
            if signed.event.recipient != self._key:
                return Dropped("recipient", "for somebody else")
            expired = _expired(signed.event, now)
            verify_event(signed)
        except UnverifiedEvent as refusal:
            return Dropped(refusal.reason, refusal.message)
        except EventExpired as fault:
            return Dropped("expired", fault.message)
        return self._decide(signed, expired, now)

    def _receive_public(self, signed: SignedPublic, now: float) -> Outcome:
        check_times(signed.event, now)
        verify_event(signed)
        # What a void key states is void, too. That it is void was heard before.
        if self._hooks.is_revoked(signed.event.sender, now):
            return Dropped("revoked", "a public event of a revoked key")
        return PublicReceived(signed)

    def _decide(self, signed: SignedDirected, expired: EventExpired | None, now: float) -> Outcome:
        event, hooks = signed.event, self._hooks
        is_answer = event.in_reply_to is not None or event.kind == ERROR_KIND
        until = event.expires_at + SKEW_SECONDS + EXPIRED_ANSWERED_SECONDS
        try:
            revoked = hooks.is_revoked(event.sender, now)
            if hooks.seen_ids.seen(event.id, until):
                return Dropped("seen", "seen before")
            expected = is_answer and hooks.is_expected(event)
            # How many answers come is our own doing, if we asked for them.
            wait = None if expected else hooks.too_fast(event.sender, len(signed.raw), now)
            if revoked:
                # Counted like any other, so that answering a flood of a revoked key costs no more.
                if wait is not None:
                    return Dropped("revoked", "a flood of a revoked key")
                hooks.seen_ids.remember(event.id, until, now)
                raise SenderRevoked("the sender's key has been revoked")
            if wait is not None:
                # Not remembered: the same event may come again when there is room.
                raise SenderTooFast("too many events", retry_after=wait)
            hooks.seen_ids.remember(event.id, until, now)
            if expired is not None:
                raise expired
            payload = open_payload(signed, self._identity)
            if is_answer:
                if not expected:
                    return Dropped("unexpected", "an answer that nobody waits for")
                return Accepted(event, payload, AuthorizedCaller(event.sender))
            return self._admit(event, payload, now)
        except EventFault as fault:
            if is_answer:
                return Dropped("answer", f"{fault.code} on an answer: {fault.message}")
            return EventRejected(event, fault)

    def _admit(self, event: DirectedEvent, payload: Json, now: float) -> Accepted:
        terms = self._hooks.terms(event.kind)
        if terms is None:
            raise KindNotFound("nothing here answers to this kind")
        if payload.__class__ is not dict:
            raise SchemaViolation("the payload of a request is a JSON object")
        proofs = [] if terms.own_proofs else _take_proofs(payload)
        trace = None if terms.own_meta else _take_trace(payload)
        caller = self._hooks.authorize(event, terms.capability, proofs, now)
        if terms.check_payload is not None:
            terms.check_payload(payload)
        return Accepted(event, payload, caller, trace)


def _expired(event: DirectedEvent, now: float) -> EventExpired | None:
    """The fault to answer a verified event with; raises EventExpired when it is too old even for that."""
    try:
        check_times(event, now)
    except EventExpired as fault:
        if now >= event.expires_at + SKEW_SECONDS + EXPIRED_ANSWERED_SECONDS:
            raise
        return fault
    return None


def _take_proofs(payload: dict[str, Json]) -> list[Json]:
    """Take `proofs` out of a payload, so that the tool gets the arguments and nothing else."""
    proofs = payload.get(PROOFS)
    if not isinstance(proofs, list) or not proofs or not all(_is_proof(each) for each in proofs):
        # An argument of the tool that happens to have this name.
        return []
    del payload[PROOFS]
    return proofs


def _take_trace(payload: dict[str, Json]) -> dict[str, Json] | None:
    """Take the context of a trace out of a payload; any other `_meta` is an argument of the tool."""
    meta = payload.get(META)
    if not isinstance(meta, dict) or not meta.keys() <= _TRACE_MEMBERS or "traceparent" not in meta:
        return None
    if not all(isinstance(value, str) for value in meta.values()):
        return None
    del payload[META]
    return meta


def _is_proof(value: Json) -> bool:
    return isinstance(value, dict) and value.get("v") == "xp1" and value.get("kind") in PUBLIC_KINDS
