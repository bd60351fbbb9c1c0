"""Who may call what (D-59): nobody, unless something below says so.

- The endpoint's configuration gives a key capabilities (`access:`).
- A grant (`xp.capability.grant`) gives them, if it is signed by the endpoint itself or by a key above it in
  its own organisation's chain, within what that key holds there. Grants come as `proofs` in the payload.
- A delegation lets the sender act for its root: with what the chain carries, as far as the root has it
  itself. The root must be an anchor: configured under `trust:`, the endpoint itself, or above it. Whoever
  names a delegation acts for somebody else and never with rights of its own.

Names are compared in full, or by a last `.*` (see `capability_names`). Everything is checked
anew for every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moot.errors import (
    AuthorizationInsufficient,
    InvalidJson,
    InvalidStatement,
    MalformedEvent,
    UsageError,
)
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.xprotocol.contracts.capabilities import MAX_CAPABILITIES, Scopes, any_covers, is_capability
from moot.xprotocol.events.delegation import MAX_LINKS, DelegationChain, assemble
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import DELEGATE, GRANT, SKEW_SECONDS, SignedPublic, read
from moot.xprotocol.events.key_statements import Expand, KeyDelegation, KeyGrant, read_delegation, read_grant
from moot.xprotocol.events.revocation import Revocations
from moot.xprotocol.identity.keys import Identity, signing_point

# A whole chain and as many grants. Each costs a signature check, after the sender's own.
MAX_PROOFS: Final = 2 * MAX_LINKS


@dataclass(frozen=True, slots=True)
class AuthorizedCaller:
    """For whom a sender acts: `principal` is its own key, or the root of the chain by which it acts."""

    principal: str
    chain: DelegationChain | None = None


def grant(
    identity: Identity, grantee: str, capabilities: Iterable[str], *, ends: int, now: float
) -> SignedPublic:
    """Give a key capabilities until `ends`; raises UsageError for what no receiver would accept."""
    signing_point(grantee)
    names = sorted(set(capabilities))
    if not 0 < len(names) <= MAX_CAPABILITIES or not all(map(is_capability, names)):
        raise UsageError(
            f"name 1 to {MAX_CAPABILITIES} capabilities, such as com.acme.crm.read or com.acme.*"
        )
    if ends <= now:
        raise UsageError("a grant must end in the future")
    payload = {"grantee": grantee, "capabilities": names, "expires_at": ends}
    return publish(identity, GRANT, payload, now=now)


def _nothing_known(_id: str) -> KeyDelegation | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What an endpoint knows of everybody's rights. `revocations` is shared with whoever hears of them."""

    own_key: str
    access: Mapping[str, Scopes] = field(default_factory=dict)
    # `trust:` and `identity.parent_key`: whose delegations count, and whose revocations (D-59).
    trust: frozenset[str] = frozenset()
    # The endpoint's own place in its organisation, if it has one.
    own_chain: DelegationChain | None = None
    revocations: Revocations = field(default_factory=Revocations)
    # Delegations that came another way than among the proofs, verified, by id.
    known: Callable[[str], KeyDelegation | None] = _nothing_known
    expand: Expand | None = None

    def __post_init__(self) -> None:
        if self.own_chain is not None and self.own_chain.holder != self.own_key:
            raise UsageError("the chain of delegations ends at another key than this endpoint's own")

    def authorities(self, now: float) -> frozenset[str]:
        """Who may give rights at this endpoint: itself, and every key above it while its chain holds."""
        chain = self.own_chain
        if chain is None:
            return frozenset({self.own_key})
        try:
            chain.check_usable(anchors=self.trust, revocations=self.revocations, now=now)
        except InvalidStatement:
            return frozenset({self.own_key})
        return frozenset({self.own_key, *chain.keys[:-1]})

    def is_revoked(self, key: str, now: float) -> bool:
        """Whether a key is void here: by its own word, the configuration's, or that of a key trusted here."""
        if not self.revocations.mentions(key):
            return False
        return self.revocations.is_revoked(key, self.authorities(now) | self.trust)

    def is_own_key_revoked(self, now: float) -> bool:
        """Whether the endpoint's own key is void, by itself or by whoever stood above it when it started."""
        if not self.revocations.mentions(self.own_key):
            return False
        above = self.own_chain.keys if self.own_chain is not None else ()
        return self.revocations.is_revoked(self.own_key, {*above, *self.trust, *self.authorities(now)})

    def authorize(
        self,
        sender: str,
        capability: str | None,
        *,
        delegation: str | None = None,
        proofs: Sequence[Json] = (),
        now: float,
    ) -> AuthorizedCaller:
        """On whose account `sender` may use a capability; raises AuthorizationInsufficient when on nobody's.

        None as capability: anybody may, but a delegation that is named must hold all the same.
        """
        if delegation is None:
            if capability is not None and not self._holds(sender, capability, proofs, now):
                raise AuthorizationInsufficient(f"this needs the capability {capability}")
            return AuthorizedCaller(sender)
        chain = self._chain(delegation, proofs)
        authorities = self.authorities(now)
        chain.check_usable(
            anchors=self.trust | authorities,
            revocations=self.revocations,
            now=now,
            authorities=authorities | self.trust,
        )
        if chain.holder != sender:
            raise InvalidStatement("the delegation is for another key than the sender's")
        if capability is not None:
            if not any_covers(chain.capabilities, capability):
                raise AuthorizationInsufficient(f"the delegation does not carry the capability {capability}")
            if not self._authority_covers(chain.root, capability, now) and not self._holds(
                chain.root, capability, proofs, now
            ):
                raise AuthorizationInsufficient(
                    f"the key at the delegation's root lacks the capability {capability} itself"
                )
        return AuthorizedCaller(chain.root, chain)

    def _holds(self, key: str, capability: str, proofs: Sequence[Json], now: float) -> bool:
        if any_covers(self.access.get(key, ()), capability):
            # Before any proof is looked at: most callers are in the configuration.
            return True
        return any(
            each.grantee == key
            and each.starts <= now + SKEW_SECONDS
            and now < each.ends
            and any_covers(each.capabilities, capability)
            and self._authority_covers(each.signer, capability, now)
            for each in self._grants(proofs)
        )

    def _authority_covers(self, key: str, capability: str, now: float) -> bool:
        """Whether a key may give this capability here."""
        if key == self.own_key:
            return True
        chain = self.own_chain
        if chain is None or key not in self.authorities(now):
            return False
        scope = chain.scope_of(key)
        return scope is None or any_covers(scope, capability)

    def _grants(self, proofs: Sequence[Json]) -> list[KeyGrant]:
        return [read_grant(each, self.expand) for each in _signed_proofs(proofs) if each.event.kind == GRANT]

    def _chain(self, leaf: str, proofs: Sequence[Json]) -> DelegationChain:
        sent = {each.event.id: each for each in _signed_proofs(proofs) if each.event.kind == DELEGATE}

        def find(wanted: str) -> KeyDelegation | None:
            # Only the links that are walked are verified: the others prove nothing anyway.
            if wanted in sent:
                return read_delegation(sent[wanted], self.expand)
            return self.known(wanted)

        return assemble(leaf, find)


def _signed_proofs(proofs: Sequence[Json]) -> list[SignedPublic]:
    if len(proofs) > MAX_PROOFS:
        raise InvalidStatement(f"{len(proofs)} proofs; {MAX_PROOFS} are the most")
    found: list[SignedPublic] = []
    for proof in proofs:
        try:
            signed = read(proof, encode(proof))
        except (MalformedEvent, InvalidJson) as fault:
            raise InvalidStatement(f"a proof is no event: {fault.message}") from None
        if not isinstance(signed, SignedPublic) or signed.event.kind not in (GRANT, DELEGATE):
            raise InvalidStatement(f"proofs are {GRANT} and {DELEGATE} events")
        found.append(signed)
    return found
