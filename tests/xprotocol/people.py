"""Who sends events in these tests, and a receiver with real parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import orjson

from moot.errors import SchemaViolation
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.xprotocol.events.access_rights import Access, AuthorizedCaller
from moot.xprotocol.events.event_composer import answers, compose
from moot.xprotocol.events.event_receiver import EventReceiver, Hooks, KindTerms
from moot.xprotocol.events.events import SIGNED_LABEL, DirectedEvent, SignedDirected, canonical_json
from moot.xprotocol.events.replay import ReplayCache
from moot.xprotocol.identity.keys import Identity, OpeningKey, SigningKey

NOW: Final = 1_780_000_000
KIND: Final = "com.acme.filesystem.read_file"
CAPABILITY: Final = "com.acme.filesystem.read"
PAYLOAD: Final[dict[str, Json]] = {"path": "docs/readme.md", "encoding": "utf-8"}


def person(name: str) -> Identity:
    """Always the same keys for the same name."""
    return Identity(
        SigningKey(sha256(f"{name} signs".encode()).digest()),
        OpeningKey(sha256(f"{name} opens".encode()).digest()),
    )


ALICE, BOB, CAROL, EVE = (person(name) for name in ("alice", "bob", "carol", "eve"))


def call(
    sender: Identity = ALICE, recipient: Identity = BOB, payload: Json = None, **more: Any
) -> SignedDirected:
    options: dict[str, Any] = {"now": NOW, "correlation_id": "c-1", "kind": KIND} | more
    return compose(
        sender,
        options.pop("kind"),
        PAYLOAD if payload is None else payload,
        recipient=recipient.key.text,
        enc_key=recipient.enc_key.text,
        **options,
    )


def signed_by(identity: Identity, covered: dict[str, Json]) -> bytes:
    """Whatever members, with an id and a signature that fit them: what a dishonest sender can make."""
    canonical = canonical_json(covered)
    signature = identity.signing.sign(SIGNED_LABEL + canonical)
    members = covered | {
        "id": sha256(canonical).hexdigest(),
        "signature": "ed25519:" + base64url.encode(signature),
    }
    return orjson.dumps(members)


def needs_path(payload: dict[str, Json]) -> None:
    if not isinstance(payload.get("path"), str):
        raise SchemaViolation("path is missing")


@dataclass
class ReceivingEndpoint:
    """An endpoint: a receiver and what it asks."""

    identity: Identity = BOB
    access: Access = field(
        default_factory=lambda: Access(own_key=BOB.key.text, access={ALICE.key.text: frozenset({CAPABILITY})})
    )
    seen_ids: ReplayCache = field(default_factory=ReplayCache)
    kinds: dict[str, KindTerms] = field(default_factory=lambda: {KIND: KindTerms(CAPABILITY, needs_path)})
    waiting: list[DirectedEvent] = field(default_factory=list)
    # Seconds to wait, by key.
    waits: dict[str, float] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)

    @property
    def receiver(self) -> EventReceiver:
        hooks = Hooks(
            is_revoked=lambda key, now: self.access.is_revoked(key, now),
            seen_ids=self.seen_ids,
            too_fast=self._too_fast,
            terms=self.kinds.get,
            authorize=self._authorize,
            is_expected=lambda event: any(answers(event, request) for request in self.waiting),
        )
        return EventReceiver(self.identity, hooks)

    def _too_fast(self, key: str, _size: int, _now: float) -> float | None:
        self.counted.append(key)
        return self.waits.get(key)

    def _authorize(
        self, event: DirectedEvent, capability: str | None, proofs: Sequence[Json], now: float
    ) -> AuthorizedCaller:
        return self.access.authorize(
            event.sender, capability, delegation=event.delegation, proofs=proofs, now=now
        )
