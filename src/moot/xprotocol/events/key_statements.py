"""What public events about keys say, read and checked: delegations, grants, revocations.

All three are *statements*: proven by their signature, they hold wherever they come from and whoever hands
them over, again and again, for as long as their payload says. The event's own `expires_at` only says how long
it travels. Reading one means that its signature was checked here; there is no other way to get one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moot.errors import InvalidKey, InvalidStatement, UnverifiedEvent, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import MAX_CAPABILITIES, Scopes, expand_capability, is_capability
from moot.xprotocol.events.events import (
    DELEGATE,
    GRANT,
    LARGEST_INTEGER,
    REVOKE,
    PublicEvent,
    SignedPublic,
    verify_event,
)
from moot.xprotocol.identity.keys import signing_point

# D-60: how a short name in a delegation or grant is written out; the default takes names as they are.
Expand = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class KeyDelegation:
    """XP 6.4: `signer` lets `delegated_key` use these capabilities on behalf of a root key, for a time."""

    id: str
    signer: str
    delegated_key: str
    capabilities: Scopes
    on_behalf_of: str
    starts: int
    ends: int
    # The delegation by which the signer itself holds what it hands on; None: the signer is the root.
    parent: str | None


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """`signer` gives `grantee` these capabilities for a time."""

    id: str
    signer: str
    grantee: str
    capabilities: Scopes
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class KeyRevocation:
    """`signer` declares `revoked_key` void, for good."""

    id: str
    signer: str
    revoked_key: str


def expand_for(namespaces: Sequence[str]) -> Expand:
    """D-60 for delegations and grants as they come in: short names of our namespaces are written out.

    One statement may also speak of what others serve. A name that does not begin like one of ours is taken as
    a full name of theirs; it gives nothing here. A name that could be several of ours is an error.
    """
    beginnings = {namespace.rpartition(".")[2] for namespace in namespaces}

    def expand(name: str) -> str:
        first, dot, _ = name.partition(".")
        return name if dot and first not in beginnings else expand_capability(name, namespaces)

    return expand


def read_delegation(signed: SignedPublic, expand: Expand | None = None) -> KeyDelegation:
    """The delegation in an event that is verified here; raises InvalidStatement for anything else."""
    event = _verified(signed, DELEGATE)
    return KeyDelegation(
        id=event.id,
        signer=event.sender,
        delegated_key=_key(event, "delegated_key"),
        capabilities=_capabilities(event, expand),
        on_behalf_of=_key(event, "on_behalf_of"),
        starts=event.timestamp,
        ends=_end(event),
        parent=event.delegation,
    )


def read_grant(signed: SignedPublic, expand: Expand | None = None) -> KeyGrant:
    """The grant in an event that is verified here; raises InvalidStatement for anything else."""
    event = _verified(signed, GRANT)
    return KeyGrant(
        id=event.id,
        signer=event.sender,
        grantee=_key(event, "grantee"),
        capabilities=_capabilities(event, expand),
        starts=event.timestamp,
        ends=_end(event),
    )


def read_revocation(signed: SignedPublic) -> KeyRevocation:
    """The revocation in an event that is verified here; raises InvalidStatement for anything else."""
    event = _verified(signed, REVOKE)
    return KeyRevocation(id=event.id, signer=event.sender, revoked_key=_key(event, "revoked_key"))


def _verified(signed: SignedPublic, kind: str) -> PublicEvent:
    if signed.event.kind != kind:
        raise InvalidStatement(f"expected {kind}, found {signed.event.kind[:64]}")
    try:
        verify_event(signed)
    except UnverifiedEvent as fault:
        raise InvalidStatement(f"{kind} does not verify: {fault.message}") from None
    return signed.event


def _key(event: PublicEvent, member: str) -> str:
    text = event.payload.get(member)
    if not isinstance(text, str):
        raise InvalidStatement(f"{event.kind}: {member} is missing or no text")
    try:
        signing_point(text)
    except InvalidKey as fault:
        raise InvalidStatement(f"{event.kind}: {member}: {fault}") from None
    return text


def _capabilities(event: PublicEvent, expand: Expand | None) -> Scopes:
    names: Json = event.payload.get("capabilities")
    if not isinstance(names, list) or not 0 < len(names) <= MAX_CAPABILITIES:
        raise InvalidStatement(f"{event.kind}: capabilities must list 1 to {MAX_CAPABILITIES} names")
    if not all(is_capability(name) for name in names):
        raise InvalidStatement(f"{event.kind}: capabilities are labels joined by dots, the last may be *")
    if expand is not None:
        try:
            names = [expand(name) for name in names]
        except UsageError as fault:
            raise InvalidStatement(f"{event.kind}: {fault}") from None
    return frozenset(names)


def _end(event: PublicEvent) -> int:
    end = event.payload.get("expires_at")
    if type(end) is not int or not event.timestamp < end <= LARGEST_INTEGER:
        raise InvalidStatement(f"{event.kind}: expires_at must be whole seconds, later than the timestamp")
    return end
