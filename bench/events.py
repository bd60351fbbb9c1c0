"""XProtocol events per CPU second, beside the two public-key operations that each of them cannot do without.

`python -m bench.events` prints the table. Absolute figures depend on the machine. Each share is taken within
one round, beside the bare operations on the same bytes, and is the median of many rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair

from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.xprotocol.events.access_rights import Access, AuthorizedCaller
from moot.xprotocol.events.event_composer import INFO_LABEL, compose, open_payload
from moot.xprotocol.events.event_receiver import Accepted, EventReceiver, Hooks, KindTerms
from moot.xprotocol.events.events import (
    SIGNED_LABEL,
    DirectedEvent,
    SignedDirected,
    canonical_header,
    check_times,
    decode,
    verify_event,
)
from moot.xprotocol.events.replay import ReplayCache
from moot.xprotocol.identity.keys import Identity

ROUNDS: Final = 15
BATCH: Final = 150
# An event is to cost at most half more than its public-key operations. What is added is decoding, canonical
# form and checks, 25 to 90 µs. It was a quarter (80 %) on a machine whose curves took 400 µs; where they take
# 160, the same work is a larger share: 70 to 77 %.
LEAST_SHARE: Final = 0.65

NOW: Final = 1_780_000_000
KIND: Final = "com.acme.filesystem.write_file"
CAPABILITY: Final = "com.acme.filesystem.write"
# A tool call as bench.decisions has it. And a file: there, base64, SHA-256 and JSON of the payload weigh as
# much as the curves, and no bound is set.
SMALL_BYTES: Final = 500
LARGE_BYTES: Final = 16 << 10
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `share` is how much of its events the bare operations would have made."""

    words: str
    microseconds: float
    share: float | None = None
    bound: float | None = None

    @property
    def per_second(self) -> float:
        return 1e6 / self.microseconds

    @property
    def met(self) -> bool:
        return self.bound is None or (self.share is not None and self.share >= self.bound)


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to measure over and over, and the bare operations that it stands beside."""

    words: str
    step: Callable[[int], object]
    beside: str | None = None
    bound: float | None = None


class Post:
    """Events of one size from one identity to another, made in advance, and the bytes inside them."""

    def __init__(self, size: int) -> None:
        self.alice, self.bob = Identity.generate(), Identity.generate()
        self.payload: dict[str, Json] = {"path": "docs/readme.md", "text": ""}
        self.payload["text"] = ("lorem ipsum dolor " * size)[: size - len(orjson.dumps(self.payload))]
        self.plaintext = orjson.dumps(self.payload)
        self.events = [self.make() for _ in range(BATCH)]
        self.raw = [each.raw for each in self.events]
        self.messages = [SIGNED_LABEL + canonical_header(each.covered) for each in self.events]
        self.signatures = [base64url.decode(each.event.signature[8:]) for each in self.events]
        self.sealed = [base64url.decode(each.event.payload) for each in self.events]
        self.infos = [INFO_LABEL + canonical_header(_header(each)) for each in self.events]
        self.public, self.secret = crypto_sign_seed_keypair(self.alice.signing.secret())
        self.receiver = self._receiver()

    def make(self, _number: int = 0) -> SignedDirected:
        return compose(
            self.alice,
            KIND,
            self.payload,
            recipient=self.bob.key.text,
            enc_key=self.bob.enc_key.text,
            now=NOW,
            correlation_id="c-1",
        )

    def sign_and_seal(self, number: int) -> None:
        _SUITE.encrypt(self.plaintext, self.bob.enc_key.point, self.infos[number])
        crypto_sign(self.messages[number], self.secret)

    def verify(self, number: int) -> None:
        crypto_sign_open(self.signatures[number] + self.messages[number], self.public)

    def verify_and_open(self, number: int) -> None:
        crypto_sign_open(self.signatures[number] + self.messages[number], self.public)
        _SUITE.decrypt(self.sealed[number], self.bob.opening.point, self.infos[number])

    def open(self, number: int) -> Json:
        signed = decode(self.raw[number])
        assert isinstance(signed, SignedDirected)
        check_times(signed.event, NOW)
        verify_event(signed)
        return open_payload(signed, self.bob)

    def receive(self, number: int) -> None:
        """Open with the whole order of checks: revocation, replay, rate, kind, capability, contract."""
        if number == 0:
            self.receiver = self._receiver()
        assert isinstance(self.receiver.receive(self.raw[number], NOW), Accepted)

    def relay(self, number: int) -> bytes:
        """What a relay does: prove who sent it, and hand on the very bytes."""
        signed = decode(self.raw[number])
        check_times(signed.event, NOW)
        verify_event(signed)
        return signed.raw

    def _receiver(self) -> EventReceiver:
        access = Access(
            own_key=self.bob.key.text, access={self.alice.key.text: frozenset({"com.acme.filesystem.*"})}
        )
        terms = {KIND: KindTerms(CAPABILITY, lambda _payload: None)}

        def authorize(
            event: DirectedEvent, capability: str | None, proofs: Sequence[Json], now: float
        ) -> AuthorizedCaller:
            return access.authorize(
                event.sender, capability, delegation=event.delegation, proofs=proofs, now=now
            )

        hooks = Hooks(
            is_revoked=access.is_revoked,
            seen_ids=ReplayCache(),
            too_fast=lambda _sender, _size, _now: None,
            terms=terms.get,
            authorize=authorize,
            is_expected=lambda _event: False,
        )
        return EventReceiver(self.bob, hooks)


def _header(signed: SignedDirected) -> dict[str, Json]:
    return {name: value for name, value in signed.covered.items() if name not in ("payload", "content_hash")}


def works(post: Post, bound: float | None) -> list[Work]:
    return [
        Work("sign + seal alone", post.sign_and_seal),
        Work("made (signed and sealed)", post.make, "sign + seal alone", bound),
        Work("verify + open alone", post.verify_and_open),
        Work("opened (verified and opened)", post.open, "verify + open alone", bound),
        Work("received (opened, every check)", post.receive, "verify + open alone", bound),
        Work("verify alone", post.verify),
        Work("relayed (verified, forwarded as it came)", post.relay, "verify alone", bound),
    ]


def _cost(step: Callable[[int], object]) -> float:
    """Microseconds of CPU for one step."""
    gc.collect()
    gc.disable()
    start = time.process_time_ns()
    for number in range(BATCH):
        step(number)
    cost = (time.process_time_ns() - start) / BATCH / 1_000
    gc.enable()
    return cost


def rows(size: int = SMALL_BYTES, bound: float | None = LEAST_SHARE) -> list[Row]:
    """The table for payloads of one size; the works take turns, so that a busy moment hits all of them."""
    listed = works(Post(size), bound)
    for work in listed:
        _cost(work.step)
    rounds = [{work.words: _cost(work.step) for work in listed} for _ in range(ROUNDS)]
    found = []
    for work in listed:
        cost = statistics.median(each[work.words] for each in rounds)
        share = None
        if work.beside is not None:
            share = statistics.median(each[work.beside] / each[work.words] for each in rounds)
        found.append(Row(work.words, cost, share, work.bound))
    return found


def table(found: Sequence[Row]) -> Iterator[list[str]]:
    """The rows as texts, the head first."""
    yield ["event", "µs CPU", "per CPU second", "of what its operations allow", ""]
    for row in found:
        share = "" if row.share is None else f"{row.share:.0%}"
        verdict = "" if row.bound is None else f"at least {row.bound:.0%}: {'met' if row.met else 'MISSED'}"
        yield [row.words, f"{row.microseconds:.1f}", f"{row.per_second:,.0f}", share, verdict]


def run() -> None:
    for size, bound in ((SMALL_BYTES, LEAST_SHARE), (LARGE_BYTES, None)):
        print(f"\nEvents with payloads of {size:,} bytes\n")
        for words, *values, verdict in table(rows(size, bound)):
            print(
                f"{words:42}"
                + "".join(f"{value:>16}" for value in values[:2])
                + f"{values[2]:>30}  {verdict}"
            )


if __name__ == "__main__":
    run()
