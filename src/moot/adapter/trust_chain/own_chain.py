"""The adapter's own place in its organisation (XP 6.1): its chain of delegations, and the keys it trusts."""

from __future__ import annotations

from dataclasses import dataclass

from moot.adapter.config.adapter_settings import AdapterSettings
from moot.adapter.trust_chain.event_files import parse_events, read_event_file
from moot.errors import InvalidStatement, MalformedEvent, UsageError
from moot.identity.keys import Identity
from moot.protocol.strict_json import encode
from moot.xprotocol.delegation import DelegationChain, read_chain
from moot.xprotocol.events import SignedPublic, read
from moot.xprotocol.key_statements import expand_for
from moot.xprotocol.revocation import Revocations


@dataclass(frozen=True, slots=True)
class AppliedConfig:
    """A configuration with what its files prove about this adapter."""

    settings: AdapterSettings
    # The delegations from the root down to this adapter; None: it has no place in an organisation.
    chain: DelegationChain | None
    # The signed events of that chain, the root's first.
    delegations: tuple[SignedPublic, ...]


def apply_config(settings: AdapterSettings, identity: Identity, *, now: float) -> AppliedConfig:
    """Verify the adapter's own chain; raises UsageError when its file does not prove it."""
    chain = own_chain(settings, identity, now=now)
    return AppliedConfig(settings, chain, _delegation_events(settings, chain))


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
    return settings.anchors if chain is None else settings.anchors | {chain.root}


def _delegation_events(settings: AdapterSettings, chain: DelegationChain | None) -> tuple[SignedPublic, ...]:
    """The events of the adapter's own chain, the root's first; they were verified with the chain."""
    file = settings.identity.parent_delegation_event
    if chain is None or file is None:
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
