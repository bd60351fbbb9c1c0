"""Walks anybody's chain of trust (XP 6.1) from the evidence that was found: files, announces, relays."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from moot.errors import InvalidStatement
from moot.xprotocol.adapter.trust_chain.chain_evidence import ChainEvidence
from moot.xprotocol.events.delegation import DelegationChain, assemble
from moot.xprotocol.events.key_statements import KeyDelegation


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
