"""The adapter's own place in its organisation (XP 6.1): its chain of delegations, and the keys it trusts.

`register` writes the chain beside the key file. An adapter reads it there without being told: whoever can
write there has the key itself. From such a file it takes one thing only, whom to obey when its key is
revoked; for rights to follow from it, the configuration has to name the parent.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from moot.errors import InvalidStatement, MalformedEvent, MootError, UsageError
from moot.protocol.strict_json import encode
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.trust_chain.event_files import parse_events, read_event_file
from moot.xprotocol.events.delegation import DelegationChain, read_chain
from moot.xprotocol.events.events import SignedPublic, read
from moot.xprotocol.events.key_statements import expand_for
from moot.xprotocol.events.revocation import Revocations
from moot.xprotocol.identity.keys import Identity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppliedConfig:
    """A configuration with what its files prove about this adapter."""

    settings: AdapterSettings
    # The delegations from the root down to this adapter; None: it has no place in an organisation.
    chain: DelegationChain | None
    # The signed events of that chain, the root's first.
    delegations: tuple[SignedPublic, ...]

    @property
    def parent_key(self) -> str | None:
        """The key above this adapter's, for the announce: as configured, or as its registration says."""
        configured = self.settings.identity.parent_key
        return self.chain.keys[-2] if configured is None and self.chain is not None else configured


def apply_config(settings: AdapterSettings, identity: Identity, *, now: float) -> AppliedConfig:
    """Verify the adapter's own chain; raises UsageError when the configured file does not prove it."""
    file = settings.identity.parent_delegation_event
    if file is None:
        return _follow_registration(settings, identity, now=now)
    chain = own_chain(settings, identity, now=now)
    return AppliedConfig(settings, chain, _delegation_events(file, chain))


def registration_file(key_file: Path) -> Path:
    """Where `register` writes the chain of a key, and an adapter looks for it."""
    return key_file.with_suffix(".delegation.json")


def _follow_registration(settings: AdapterSettings, identity: Identity, *, now: float) -> AppliedConfig:
    """The chain beside the key file, if there is one that ends at this key; a wrong one stops nothing."""
    file = registration_file(settings.identity.key_file)
    if not file.is_file():
        return AppliedConfig(settings, None, ())
    try:
        chain = read_chain(
            read_event_file(file), holder=identity.key.text, expand=expand_for(settings.namespaces)
        )
        parent = settings.identity.parent_key
        if parent is not None and parent not in chain.keys:
            raise InvalidStatement(f"it is not by identity.parent_key, but by {chain.keys[-2]}")
        events = _delegation_events(file, chain)
    except MootError as fault:
        log.warning(
            "the registration beside the key is not used", extra={"file": str(file), "reason": str(fault)}
        )
        return AppliedConfig(settings, None, ())
    try:
        chain.check_usable(anchors={chain.root}, revocations=Revocations(settings.revoked), now=now)
    except InvalidStatement:
        # Ended: nobody is told of it any more, but who stands above may still revoke.
        events = ()
    return AppliedConfig(settings, chain, events)


def own_chain(settings: AdapterSettings, identity: Identity, *, now: float) -> DelegationChain | None:
    """The adapter's chain of delegations, or None; raises UsageError when its file does not prove it.

    XP 3.1: the file has to verify, to end at this adapter's key, to run through `parent_key` and to hold now.
    """
    file = settings.identity.parent_delegation_event
    if file is None:
        return None
    path = "identity.parent_delegation_event"
    try:
        chain = read_chain(
            read_event_file(file), holder=identity.key.text, expand=expand_for(settings.namespaces)
        )
        chain.check_usable(anchors={chain.root}, revocations=Revocations(settings.revoked), now=now)
    except InvalidStatement as fault:
        raise UsageError(f"{path}: {file}: {fault.message}") from None
    above = chain.keys[:-1]
    parent = settings.identity.parent_key
    if parent is not None and parent not in above:
        raise UsageError(f"{path}: {file}: the delegation is not by identity.parent_key, but by {above[-1]}")
    if parent is None and chain.root not in settings.trust:
        raise UsageError(
            f"{path}: {file}: its signer is not trusted; set identity.parent_key to {above[-1]} if it is"
        )
    return chain


def trust_anchors(settings: AdapterSettings, chain: DelegationChain | None) -> frozenset[str]:
    """Keys that are trusted here: by configuration, and the root above `parent_key` that its file proves."""
    if chain is None or settings.anchors.isdisjoint(chain.keys[:-1]):
        return settings.anchors
    return settings.anchors | {chain.root}


def _delegation_events(file: Path, chain: DelegationChain | None) -> tuple[SignedPublic, ...]:
    """The events of the adapter's own chain, the root's first; they were verified with the chain."""
    if chain is None:
        return ()
    found: dict[str, SignedPublic] = {}
    for event in parse_events(read_event_file(file), str(file)):
        try:
            signed = read(event, encode(event))
        except MalformedEvent as fault:
            raise UsageError(f"{file}: not a delegation: {fault.message}") from None
        if isinstance(signed, SignedPublic):
            found[signed.event.id] = signed
    return tuple(found[link.id] for link in chain.links)
