"""A key's chain of trust (XP 6.1): its own place in its organisation, and anybody's, walked and shown.

An adapter's chain stands in the file that `identity.parent_delegation_event` names. Somebody else's is walked
from what can be found: events in files, what the key announces, what a relay keeps. Every event is verified
here; where it came from proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.adapter.config.adapter_settings import AdapterSettings
from moot.errors import (
    EndpointUnavailable,
    InvalidJson,
    InvalidStatement,
    MalformedEvent,
    UnverifiedEvent,
    UsageError,
)
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode, parse
from moot.xprotocol.delegation import DelegationChain, assemble, read_chain
from moot.xprotocol.events import (
    ANNOUNCE,
    DELEGATE,
    REVOKE,
    PublicEvent,
    SignedPublic,
    read,
    verify_event,
)
from moot.xprotocol.key_statements import Expand, KeyDelegation, expand_for, read_delegation, read_revocation
from moot.xprotocol.revocation import Revocations

# Eight delegations with 256 capabilities each are some 600 KiB.
MAX_FILE_BYTES: Final = 1 << 20
# Events of one file, or of one relay: an organisation's, not a whole network's.
MAX_EVENTS: Final = 10_000


def own_chain(settings: AdapterSettings, identity: Identity, *, now: float) -> DelegationChain | None:
    """The adapter's place in its organisation, or None; raises UsageError when its file does not prove it.

    XP 3.1: the file has to verify, to end at this adapter's key, to run through `parent_key` and to hold now.
    """
    file = settings.identity.parent_delegation_event
    if file is None:
        return None
    path = "identity.parent_delegation_event"
    try:
        chain = read_chain(read_small(file), holder=identity.key.text, expand=expand_for(settings.namespaces))
        chain.check_usable(anchors={chain.root}, revocations=Revocations(settings.revoked), now=now)
    except InvalidStatement as fault:
        raise UsageError(f"{path}: {file}: {fault.message}") from None
    above = chain.keys[:-1]
    parent = settings.identity.parent_key
    if parent is not None and parent not in above:
        raise UsageError(f"{path}: {file}: the delegation is not by identity.parent_key, but by {above[-1]}")
    if parent is None and chain.root not in settings.trust:
        raise UsageError(
            f"{path}: {file}: nothing says that its signer is to be trusted; set identity.parent_key to "
            f"{above[-1]} if it is"
        )
    return chain


def anchors_with(settings: AdapterSettings, chain: DelegationChain | None) -> frozenset[str]:
    """Keys that are trusted here: by configuration, and the root above `parent_key` that its file proves."""
    return settings.anchors if chain is None else settings.anchors | {chain.root}


def read_small(file: Path) -> bytes:
    """A file of events; raises UsageError."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{file}: is larger than {MAX_FILE_BYTES} bytes")
    return raw


def events_in(raw: bytes, where: str) -> list[Json]:
    """The events in a text: one, a list of them, or one a line; raises UsageError."""
    try:
        value = parse(raw.strip())
        return value if isinstance(value, list) else [value]
    except InvalidJson:
        pass
    try:
        return [parse(line) for line in raw.splitlines() if line.strip()]
    except InvalidJson as fault:
        raise UsageError(f"{where}: holds no events: {fault.message}") from None


@dataclass(slots=True)
class ChainEvidence:
    """Verified statements about keys, from wherever they came."""

    expand: Expand | None = None
    delegations: dict[str, KeyDelegation] = field(default_factory=dict)
    revocations: Revocations = field(default_factory=Revocations)
    # The newest announce of each key.
    announces: dict[str, PublicEvent] = field(default_factory=dict)
    # What did not verify, and why; for people.
    refused: list[str] = field(default_factory=list)

    def add(self, event: Json, where: str) -> None:
        """Take one event in; what proves nothing is noted and otherwise passed over."""
        if len(self.delegations) + len(self.announces) >= MAX_EVENTS:
            return
        try:
            signed = read(event, encode(event))
            if isinstance(signed, SignedPublic):
                self._take(signed, where)
        except (InvalidStatement, MalformedEvent, UnverifiedEvent) as fault:
            self.refused.append(f"{where}: {fault.message}")
        except EndpointUnavailable as fault:
            self.refused.append(f"{where}: {fault.message}")

    def add_file(self, file: Path) -> None:
        """Raises UsageError for a file that cannot be read or holds no events."""
        for event in events_in(read_small(file), str(file))[:MAX_EVENTS]:
            self.add(event, str(file))

    def _take(self, signed: SignedPublic, where: str) -> None:
        event = signed.event
        if event.kind == DELEGATE:
            self.delegations[event.id] = read_delegation(signed, self.expand)
        elif event.kind == REVOKE:
            self.revocations.add(read_revocation(signed))
        elif event.kind == ANNOUNCE:
            verify_event(signed)
            known = self.announces.get(event.sender)
            if known is None or event.timestamp >= known.timestamp:
                self.announces[event.sender] = event
                self._take_announced(event.payload.get("delegations"), where)

    def _take_announced(self, proofs: Json, where: str) -> None:
        """An adapter announces its chain, so that nobody has to look for it."""
        for proof in proofs if isinstance(proofs, list) else ():
            if isinstance(proof, dict) and proof.get("kind") == DELEGATE:
                self.add(proof, f"{where}, in the announce")

    def missing(self) -> list[str]:
        """Ids of delegations that others name as the one above them, and that are not here."""
        named = {link.parent for link in self.delegations.values() if link.parent is not None}
        named |= {event.delegation for event in self.announces.values() if event.delegation is not None}
        return sorted(named - self.delegations.keys())

    def keys_above(self, key: str) -> list[str]:
        """Every key that any delegation puts above this one, directly or not, this one first."""
        found = [key]
        for each in found:
            for link in self.delegations.values():
                if link.delegated_key == each and link.signer not in found:
                    found.append(link.signer)
        return found


@dataclass(frozen=True, slots=True)
class ChainWalk:
    """What came of walking a key's chain."""

    key: str
    # The chain that holds; or the one that came nearest, with `fault`; None: there is none at all.
    chain: DelegationChain | None
    # Why it does not hold; None: it does.
    fault: str | None
    # Whether the walker trusts a key above this one, or this one itself; None: it named none.
    trusted: bool | None

    @property
    def holds(self) -> bool:
        return self.fault is None


def walk(key: str, evidence: ChainEvidence, *, anchors: Collection[str], now: float) -> ChainWalk:
    """Walk from a key up to its root. Without anchors, any root will do, and the answer says so.

    An anchor may be any key above: whoever trusts a department trusts what it delegates, and the links above
    it can only take something away. A key that is an anchor itself holds without a chain.
    """
    judged = bool(anchors)
    if evidence.revocations.is_revoked(key, anchors):
        return ChainWalk(key, None, "the key has been revoked", None)
    if key in anchors:
        return ChainWalk(key, None, None, True)
    best: ChainWalk | None = None
    for leaf in _leaves(key, evidence):
        try:
            chain = assemble(leaf.id, evidence.delegations.get)
        except InvalidStatement as fault:
            best = best or ChainWalk(key, None, fault.message, None)
            continue
        trusted = not set(anchors).isdisjoint(chain.keys[:-1]) if judged else None
        try:
            chain.check_usable(
                anchors=() if trusted is False else {chain.root},
                revocations=evidence.revocations,
                now=now,
                authorities=anchors,
            )
        except InvalidStatement as fault:
            if best is None or best.chain is None:
                best = ChainWalk(key, chain, fault.message, trusted)
            continue
        return ChainWalk(key, chain, None, trusted)
    return best or ChainWalk(key, None, "nobody is known to have delegated anything to this key", None)


def _leaves(key: str, evidence: ChainEvidence) -> Iterable[KeyDelegation]:
    """Delegations to a key, the one that it announces first, then the one that lasts longest."""
    announced = evidence.announces.get(key)
    named = announced.delegation if announced is not None else None
    found = [link for link in evidence.delegations.values() if link.delegated_key == key]
    return sorted(found, key=lambda link: (link.id != named, -link.ends, link.id))
