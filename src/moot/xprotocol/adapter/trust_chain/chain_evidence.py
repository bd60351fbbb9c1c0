"""Statements about keys, verified one by one: delegations, revocations and announces.

Where an event came from proves nothing, so every event is verified here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moot.errors import EndpointUnavailable, InvalidStatement, MalformedEvent, UnverifiedEvent
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.trust_chain.event_files import parse_events, read_event_file
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
