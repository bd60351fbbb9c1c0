"""An adapter's key in its organisation's hierarchy (XP 6.2): delegations, written and published.

The holder of a parent key signs a delegation to the adapter's key with a list of capabilities. There is no
delegation of everything: a stolen adapter key must not be worth the whole organisation (XP 8.6). What is
written to the file is the whole chain, so that whoever has the file needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.errors import InvalidStatement, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.trust_chain.event_files import parse_events, read_event_file
from moot.xprotocol.contracts.capabilities import is_capability
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.delegation import DelegationChain, delegate, read_chain
from moot.xprotocol.events.events import SignedPublic, decode
from moot.xprotocol.events.key_statements import Expand, expand_for
from moot.xprotocol.events.revocation import Revocations
from moot.xprotocol.identity.keys import Identity

# A year: long enough to forget about, short enough that a forgotten adapter does not keep its rights.
LIFETIME_SECONDS: Final = 365 * 86_400
PUBLISH_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class KeyRegistration:
    """A chain with a new link at its end."""

    chain: DelegationChain
    # Root first.
    events: tuple[SignedPublic, ...]

    def as_json(self) -> Json:
        """As it is kept in a file: the one event, or the list of them."""
        events = [json.loads(event.raw) for event in self.events]
        return events[0] if len(events) == 1 else events


def register_key(
    parent: Identity,
    key: str,
    capabilities: Iterable[str],
    *,
    ends: int,
    now: float,
    parent_chain: Path | None = None,
) -> KeyRegistration:
    """Delegate these capabilities from the parent to `key`; raises UsageError and InvalidKey.

    `parent_chain` is the file of delegations by which the parent holds its own; None: the parent is the root.
    """
    names = list(capabilities)
    for name in names:
        if not is_capability(name):
            raise UsageError(
                f"capability {name[:120]!r}: write labels of letters, digits, - and _ joined by dots, "
                "such as com.acme.crm.read or com.acme.*"
            )
    above: tuple[SignedPublic, ...] = ()
    by: DelegationChain | None = None
    if parent_chain is not None:
        raw = read_event_file(parent_chain)
        try:
            by = read_chain(raw, holder=parent.key.text)
            by.check_usable(anchors={by.root}, revocations=Revocations(), now=now)
        except InvalidStatement as fault:
            raise UsageError(f"{parent_chain}: {fault.message}") from None
        found = {signed.event.id: signed for signed in map(_public, parse_events(raw, str(parent_chain)))}
        above = tuple(found[link.id] for link in by.links)
        if ends > by.ends:
            raise UsageError(
                f"the parent's own delegation ends before that, at {by.ends}: take an earlier --expires"
            )
    signed = delegate(parent, key, names, ends=ends, now=now, by=by)
    events = (*above, signed)
    chain = read_chain(json.dumps([json.loads(event.raw) for event in events]).encode(), holder=key)
    return KeyRegistration(chain, events)


def capabilities_of(settings: AdapterSettings) -> tuple[str, ...]:
    """The capabilities of a configuration's sources: the explicit lists, else everything of a namespace."""
    found: list[str] = []
    for source in settings.mcp_sources:
        explicit = source.capability_inference == "explicit"
        found += source.capabilities if explicit else (f"{source.namespace}.*",)
    return tuple(dict.fromkeys(found))


def capability_expansion(settings: AdapterSettings | None) -> Expand:
    """How short names are written out (D-60): by the namespaces of a configuration, or not at all."""
    if settings is None or not settings.namespaces:
        return lambda name: name
    return expand_for(settings.namespaces)


async def publish_events(
    urls: Sequence[str],
    identity: Identity,
    events: Iterable[SignedPublic],
) -> str:
    """Publish events to a relay; returns its URL. Raises RelayRefused, TimedOut and Unreachable."""
    async with RelayClient(urls, identity) as relays:
        url = await relays.wait_connected(PUBLISH_SECONDS)
        for event in events:
            url = await relays.publish(event, timeout_seconds=PUBLISH_SECONDS)
        return url


def _public(event: Json) -> SignedPublic:
    signed = decode(json.dumps(event).encode())
    if not isinstance(signed, SignedPublic):
        raise UsageError("a delegation is a public event")
    return signed
