"""Statements about keys, verified one by one: delegations, revocations and announces.

Where an event came from proves nothing, so every event is verified here.
`walk_chain` goes up anybody's chain of trust by them (XP 6.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.errors import EndpointUnavailable, InvalidStatement, MalformedEvent, UnverifiedEvent
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.trust_chain.event_files import parse_events, read_event_file
from moot.xprotocol.events.delegation import DelegationChain, assemble
from moot.xprotocol.events.events import (
    ANNOUNCE,
    DELEGATE,
    REVOKE,
    PublicEvent,
    SignedPublic,
    read,
    verify_event,
)
from moot.xprotocol.events.key_statements import Expand, KeyDelegation, read_delegation, read_revocation
from moot.xprotocol.events.revocation import Revocations

# Events of one file, or of one relay: an organisation's, not a whole network's.
MAX_EVENTS: Final = 10_000


@dataclass(slots=True)
class ChainEvidence:
    """Verified statements about keys, from wherever they came."""

    expand: Expand | None = None
    delegations: dict[str, KeyDelegation] = field(default_factory=dict)
    revocations: Revocations = field(default_factory=Revocations)
    # The newest announce of each key.
    announces: dict[str, PublicEvent] = field(default_factory=dict)
    # Why events did not verify; for people.
    refused: list[str] = field(default_factory=list)

    def add(self, event: Json, where: str) -> None:
        """Add one event; one that proves nothing goes to `refused`."""
        if len(self.delegations) + len(self.announces) >= MAX_EVENTS:
            return
        try:
            signed = read(event, encode(event))
            if isinstance(signed, SignedPublic):
                self._add_signed(signed, where)
        except (InvalidStatement, MalformedEvent, UnverifiedEvent) as fault:
            self.refused.append(f"{where}: {fault.message}")
        except EndpointUnavailable as fault:
            self.refused.append(f"{where}: {fault.message}")

    def add_file(self, file: Path) -> None:
        """Raises UsageError for a file that cannot be read or holds no events."""
        for event in parse_events(read_event_file(file), str(file))[:MAX_EVENTS]:
            self.add(event, str(file))

    def _add_signed(self, signed: SignedPublic, where: str) -> None:
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
                self._add_announced(event.payload.get("delegations"), where)

    def _add_announced(self, proofs: Json, where: str) -> None:
        """An adapter publishes its chain with its announce."""
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
    """The result of walking a key's chain."""

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


def walk_chain(key: str, evidence: ChainEvidence, *, anchors: Collection[str], now: float) -> ChainWalk:
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
    return best or ChainWalk(key, None, "no delegation to this key is known", None)


def _leaves(key: str, evidence: ChainEvidence) -> Iterable[KeyDelegation]:
    """Delegations to a key, the one that it announces first, then the one that lasts longest."""
    announced = evidence.announces.get(key)
    named = announced.delegation if announced is not None else None
    found = [link for link in evidence.delegations.values() if link.delegated_key == key]
    return sorted(found, key=lambda link: (link.id != named, -link.ends, link.id))
