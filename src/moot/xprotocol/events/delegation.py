"""Chains of delegation: an organisation's root, its departments and its adapters, or a user and whoever acts
for them (XP 6.1, 6.4).

Each link is one `xp.key.delegate`. Its header's `delegation` names the link above by id, so that a chain is
walked without choice: from the event's `delegation` up to the link that names none, whose signer is the root.
Along the way capabilities only shrink, no key comes twice, every `on_behalf_of` names the root, and there are
at most eight links. A chain holds from its latest start to its earliest end, while none of its keys is
revoked, and where somebody trusts its root. That is looked at every time it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from moot.errors import InvalidJson, InvalidStatement, MalformedEvent, UsageError
from moot.protocol.strict_json import encode, parse
from moot.xprotocol.contracts.capabilities import MAX_CAPABILITIES, Scopes, is_capability, uncovered
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import DELEGATE, SKEW_SECONDS, SignedPublic, read
from moot.xprotocol.events.key_statements import Expand, KeyDelegation, read_delegation
from moot.xprotocol.events.revocation import Revocations
from moot.xprotocol.identity.keys import Identity, signing_point

# The profile's number; an organisation's chart is rarely deeper.
MAX_LINKS: Final = 8


@dataclass(frozen=True, slots=True)
class DelegationChain:
    """Links that belong together, the root's first. `assemble` is the only way to one."""

    links: tuple[KeyDelegation, ...]

    @property
    def root(self) -> str:
        return self.links[0].signer

    @property
    def holder(self) -> str:
        """Who may act by this chain."""
        return self.links[-1].delegated_key

    @property
    def keys(self) -> tuple[str, ...]:
        """Root first, holder last."""
        return (self.root, *(link.delegated_key for link in self.links))

    @property
    def capabilities(self) -> Scopes:
        """What the holder may do; no link above has less."""
        return self.links[-1].capabilities

    @property
    def starts(self) -> int:
        return max(link.starts for link in self.links)

    @property
    def ends(self) -> int:
        return min(link.ends for link in self.links)

    def scope_of(self, key: str) -> Scopes | None:
        """What a key of this chain has from the link above it; None for the root, whose right is its own."""
        return next((link.capabilities for link in self.links if link.delegated_key == key), None)

    def check_usable(
        self,
        *,
        anchors: Collection[str],
        revocations: Revocations,
        now: float,
        authorities: Collection[str] = (),
    ) -> None:
        """Raises InvalidStatement unless the chain holds here and now.

        `authorities` are keys whose revocations count whether or not they are part of the chain.
        """
        if self.root not in anchors:
            raise InvalidStatement("the delegation's root is not trusted here")
        # The start may lie as far ahead as clocks differ. The end is an end: rights never outlive it.
        if self.starts > now + SKEW_SECONDS:
            raise InvalidStatement("the delegation does not hold yet")
        if now >= self.ends:
            raise InvalidStatement(f"the delegation ended at {self.ends}")
        for place, key in enumerate(self.keys):
            if revocations.is_revoked(key, {*self.keys[:place], *authorities}):
                raise InvalidStatement("a key of the delegation has been revoked")


def assemble(leaf: str, find: Callable[[str], KeyDelegation | None]) -> DelegationChain:
    """The chain that ends in the delegation with the id `leaf`; raises InvalidStatement.

    `find` gives verified delegations by id. Whether the chain holds is the business of `check_usable`.
    """
    links: list[KeyDelegation] = []
    wanted: str | None = leaf
    while wanted is not None:
        if len(links) == MAX_LINKS:
            raise InvalidStatement(f"a chain of more than {MAX_LINKS} delegations")
        link = find(wanted)
        if link is None:
            raise InvalidStatement(f"the delegation {wanted[:16]}… is not known: send it among the proofs")
        links.append(link)
        wanted = link.parent
    links.reverse()
    chain = DelegationChain(tuple(links))
    if len(set(chain.keys)) != len(chain.keys):
        raise InvalidStatement("a key comes twice in the chain of delegations")
    for link in links:
        if link.on_behalf_of != chain.root:
            raise InvalidStatement("on_behalf_of must name the key at the root of the chain")
    for above, below in pairwise(links):
        if below.signer != above.delegated_key:
            raise InvalidStatement("a delegation is signed by another key than the one above it names")
        if uncovered(above.capabilities, below.capabilities):
            raise InvalidStatement("a delegation hands on capabilities that its signer does not hold")
    return chain


def delegate(
    identity: Identity,
    delegated_key: str,
    capabilities: Iterable[str],
    *,
    ends: int,
    now: float,
    by: DelegationChain | None = None,
) -> SignedPublic:
    """Let another key act with these capabilities, until `ends`: on our own behalf, or `by` a chain we hold.

    Raises UsageError for what no receiver would accept, and InvalidKey.
    """
    signing_point(delegated_key)
    names = sorted(set(capabilities))
    if not 0 < len(names) <= MAX_CAPABILITIES or not all(map(is_capability, names)):
        raise UsageError(
            f"name 1 to {MAX_CAPABILITIES} capabilities, such as com.acme.crm.read or com.acme.*"
        )
    if ends <= now:
        raise UsageError("a delegation must end in the future")
    if by is not None:
        if by.holder != identity.key.text:
            raise UsageError("the chain to hand on was delegated to another key")
        if missing := uncovered(by.capabilities, frozenset(names)):
            raise UsageError(f"not ours to hand on: {', '.join(sorted(missing))}")
        if len(by.links) == MAX_LINKS:
            raise UsageError(f"a chain has at most {MAX_LINKS} links")
    if delegated_key in (by.keys if by is not None else (identity.key.text,)):
        raise UsageError("that key is part of the chain already")
    payload = {
        "delegated_key": delegated_key,
        "capabilities": names,
        "on_behalf_of": identity.key.text if by is None else by.root,
        "expires_at": ends,
    }
    return publish(identity, DELEGATE, payload, now=now, delegation=None if by is None else by.links[-1].id)


def read_chain(raw: bytes, *, holder: str, expand: Expand | None = None) -> DelegationChain:
    """The chain in a file: one delegation, or a list of them in any order (XP 3.1, parent_delegation_event).

    `holder` is the key that the chain must end at. Raises InvalidStatement when anything in it does not
    verify or does not belong together; whether the chain holds is the business of `check_usable`.
    """
    try:
        value = parse(raw)
        events = value if isinstance(value, list) else [value]
        if not 0 < len(events) <= MAX_LINKS:
            raise InvalidStatement(f"expected 1 to {MAX_LINKS} delegation events")
        signed = [read(event, encode(event)) for event in events]
    except InvalidJson as fault:
        raise InvalidStatement(f"not a delegation: {fault.message}") from None
    except MalformedEvent as fault:
        raise InvalidStatement(f"not a delegation: {fault.message}") from None
    if not all(isinstance(each, SignedPublic) for each in signed):
        raise InvalidStatement("not a delegation: a directed event")
    links = {
        each.event.id: read_delegation(each, expand) for each in signed if isinstance(each, SignedPublic)
    }
    leaves = [link.id for link in links.values() if link.delegated_key == holder]
    if len(leaves) != 1:
        raise InvalidStatement(f"expected one delegation to {holder}, found {len(leaves)}")
    chain = assemble(leaves[0], links.get)
    if len(chain.links) != len(links):
        raise InvalidStatement("a delegation that is not part of the chain")
    return chain
