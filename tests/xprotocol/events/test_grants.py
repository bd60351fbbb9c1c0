"""Who may call what: the configuration, grants, and acting for somebody else (D-59)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from moot.errors import AuthorizationInsufficient, InvalidKey, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import any_covers
from moot.xprotocol.events.access_rights import MAX_PROOFS, Access, AuthorizedCaller, grant
from moot.xprotocol.events.delegation import DelegationChain, assemble, delegate
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.event_receiver import Accepted, EventRejected
from moot.xprotocol.events.events import DELEGATE, GRANT, SKEW_SECONDS, SignedPublic
from moot.xprotocol.events.key_statements import expand_for, read_delegation, read_revocation
from moot.xprotocol.events.revocation import Revocations, revoke
from moot.xprotocol.identity.keys import Identity
from tests.xprotocol.people import (
    ALICE,
    BOB,
    CAPABILITY,
    CAROL,
    EVE,
    NOW,
    PAYLOAD,
    ReceivingEndpoint,
    call,
    person,
)

READ = CAPABILITY
WRITE = "com.acme.filesystem.write"
ENDS = NOW + 10**6
ROOT, DEPARTMENT, SERVICE = (person(name) for name in ("root", "department", "service"))


def chain_of(*events: SignedPublic) -> DelegationChain:
    links = {each.event.id: read_delegation(each) for each in events}
    return assemble(events[-1].event.id, links.get)


def placed() -> DelegationChain:
    """Bob's place: below a department that has the filesystem only, below a root."""
    first = delegate(ROOT, DEPARTMENT.key.text, ["com.acme.filesystem.*"], ends=ENDS, now=NOW)
    second = delegate(DEPARTMENT, BOB.key.text, [READ], ends=ENDS - 5, now=NOW, by=chain_of(first))
    return chain_of(first, second)


def rules(**more: Any) -> Access:
    return Access(own_key=BOB.key.text, **more)


def allowed(
    access: Access,
    sender: Identity,
    capability: str | None = READ,
    *,
    proofs: Sequence[SignedPublic | Json] = (),
    delegation: str | None = None,
    now: float = NOW,
) -> AuthorizedCaller | None:
    sent = [orjson.loads(each.raw) if isinstance(each, SignedPublic) else each for each in proofs]
    try:
        return access.authorize(sender.key.text, capability, delegation=delegation, proofs=sent, now=now)
    except AuthorizationInsufficient:
        return None


def test_nobody_may_do_anything_unless_something_says_so() -> None:
    assert allowed(rules(), ALICE) is None
    assert allowed(rules(trust=frozenset({ALICE.key.text})), ALICE) is None
    assert allowed(rules(own_chain=placed(), trust=frozenset({ROOT.key.text})), ROOT) is None
    assert allowed(rules(), ALICE, None) == AuthorizedCaller(ALICE.key.text)


def test_the_configuration_gives_a_key_what_it_lists() -> None:
    access = rules(access={ALICE.key.text: frozenset({READ}), CAROL.key.text: frozenset({"com.acme.*"})})
    assert allowed(access, ALICE) == AuthorizedCaller(ALICE.key.text)
    assert allowed(access, ALICE, WRITE) is None
    assert allowed(access, ALICE, READ + "er") is None
    assert allowed(access, CAROL, WRITE) == AuthorizedCaller(CAROL.key.text)
    assert allowed(access, CAROL, "com.acmecorp.read") is None
    assert allowed(access, EVE) is None


def test_a_grant_by_the_endpoint_itself_counts_for_whom_it_names() -> None:
    given = grant(BOB, ALICE.key.text, [READ, "com.acme.crm.*"], ends=ENDS, now=NOW)
    assert (given.event.kind, given.event.payload["grantee"]) == (GRANT, ALICE.key.text)
    assert allowed(rules(), ALICE, proofs=[given]) == AuthorizedCaller(ALICE.key.text)
    assert allowed(rules(), ALICE, "com.acme.crm.write", proofs=[given]) is not None
    assert allowed(rules(), ALICE, WRITE, proofs=[given]) is None
    # Somebody else's grant is of no use, and without sending it there is none.
    assert allowed(rules(), EVE, proofs=[given]) is None
    assert allowed(rules(), ALICE) is None


def test_a_grant_has_a_beginning_and_an_end() -> None:
    given = grant(BOB, ALICE.key.text, [READ], ends=ENDS, now=NOW)
    assert allowed(rules(), ALICE, proofs=[given], now=NOW - SKEW_SECONDS) is not None
    assert allowed(rules(), ALICE, proofs=[given], now=NOW - SKEW_SECONDS - 1) is None
    # Long after the event itself has expired.
    assert allowed(rules(), ALICE, proofs=[given], now=ENDS - 1) is not None
    assert allowed(rules(), ALICE, proofs=[given], now=ENDS) is None


def test_grants_by_strangers_count_for_nothing() -> None:
    for signer in (ALICE, EVE, ROOT, DEPARTMENT):
        given = grant(signer, ALICE.key.text, [READ], ends=ENDS, now=NOW)
        assert allowed(rules(), ALICE, proofs=[given]) is None
        # Not even if their delegations are trusted: that is about acting for them.
        assert allowed(rules(trust=frozenset({signer.key.text})), ALICE, proofs=[given]) is None


def test_a_key_above_the_endpoint_grants_within_what_it_holds() -> None:
    access = rules(own_chain=placed(), trust=frozenset({ROOT.key.text}))
    for signer, capability, holds in (
        (ROOT, READ, True),
        (ROOT, "com.acme.crm.read", True),
        (DEPARTMENT, READ, True),
        (DEPARTMENT, WRITE, True),
        (DEPARTMENT, "com.acme.crm.read", False),
        (BOB, "com.acme.crm.read", True),
        (EVE, READ, False),
    ):
        given = grant(signer, ALICE.key.text, [capability], ends=ENDS, now=NOW)
        assert (allowed(access, ALICE, capability, proofs=[given]) is not None) == holds, (signer, capability)
    # A wide grant of a narrow key gives what the key has.
    wide = grant(DEPARTMENT, ALICE.key.text, ["com.acme.*"], ends=ENDS, now=NOW)
    assert allowed(access, ALICE, WRITE, proofs=[wide]) is not None
    assert allowed(access, ALICE, "com.acme.crm.read", proofs=[wide]) is None


def test_keys_above_have_no_say_when_the_endpoints_own_chain_does_not_hold() -> None:
    given = grant(ROOT, ALICE.key.text, [READ], ends=ENDS + 99, now=NOW)
    trust = frozenset({ROOT.key.text})
    assert allowed(rules(own_chain=placed(), trust=trust), ALICE, proofs=[given]) is not None
    assert allowed(rules(own_chain=placed(), trust=trust), ALICE, proofs=[given], now=ENDS - 5) is None
    assert allowed(rules(own_chain=placed()), ALICE, proofs=[given]) is None
    revocations = Revocations()
    revocations.add(read_revocation(revoke(ROOT, DEPARTMENT.key.text, now=NOW)))
    access = rules(own_chain=placed(), trust=trust, revocations=revocations)
    assert allowed(access, ALICE, proofs=[given]) is None


def test_the_endpoints_own_chain_must_end_at_its_own_key() -> None:
    with pytest.raises(UsageError, match="another key"):
        Access(own_key=CAROL.key.text, own_chain=placed())


def test_proofs_that_do_not_verify_or_are_something_else_are_refused_with_a_reason() -> None:
    good = orjson.loads(grant(BOB, ALICE.key.text, [READ], ends=ENDS, now=NOW).raw)
    wider = good | {"payload": good["payload"] | {"capabilities": ["com.acme.*"]}}
    announce = orjson.loads(publish(BOB, "xp.endpoint.announce", {}, now=NOW).raw)
    directed = orjson.loads(call(BOB, ALICE).raw)
    nameless = orjson.loads(publish(BOB, GRANT, {"capabilities": [READ], "expires_at": ENDS}, now=NOW).raw)
    for proof, words in (
        (wider, "does not verify"),
        (good | {"signature": "ed25519:" + "A" * 86}, "does not verify"),
        (good | {"extra": 1}, "no event"),
        (5, "no event"),
        (announce, "proofs are"),
        (directed, "proofs are"),
        (nameless, "grantee is missing"),
    ):
        with pytest.raises(AuthorizationInsufficient, match=words):
            rules().authorize(ALICE.key.text, READ, proofs=[proof], now=NOW)
    with pytest.raises(AuthorizationInsufficient, match="are the most"):
        rules().authorize(ALICE.key.text, READ, proofs=[good] * (MAX_PROOFS + 1), now=NOW)
    assert allowed(rules(), ALICE, proofs=[good] * MAX_PROOFS) is not None


def given_by_alice(**more: Any) -> SignedPublic:
    options: dict[str, Any] = {"ends": ENDS, "now": NOW} | more
    return delegate(ALICE, SERVICE.key.text, ["com.acme.*"], **options)


USERS = {ALICE.key.text: frozenset({READ})}


@pytest.mark.requirement("XP-6.4-1", "XP-6.4-4", "XP-11.2-1")
def test_whoever_acts_for_a_user_has_the_users_rights_and_the_user_is_booked() -> None:
    event = given_by_alice()
    access = rules(access=USERS, trust=frozenset({ALICE.key.text}))
    standing = allowed(access, SERVICE, proofs=[event], delegation=event.event.id)
    assert standing is not None
    assert standing.principal == ALICE.key.text
    assert standing.chain == chain_of(event)
    # The delegation carries more than the user has.
    assert any_covers(chain_of(event).capabilities, WRITE)
    assert allowed(access, SERVICE, WRITE, proofs=[event], delegation=event.event.id) is None


@pytest.mark.requirement("XP-6.4-4")
def test_a_delegation_that_is_over_exceeded_or_anothers_is_refused() -> None:
    access = rules(access=USERS | {EVE.key.text: frozenset({READ})}, trust=frozenset({ALICE.key.text}))
    event = given_by_alice(ends=NOW + 50)
    proofs, delegation = [event], event.event.id
    assert allowed(access, SERVICE, proofs=proofs, delegation=delegation, now=NOW + 49) is not None
    assert allowed(access, SERVICE, proofs=proofs, delegation=delegation, now=NOW + 50) is None
    assert allowed(access, EVE, proofs=proofs, delegation=delegation) is None
    narrow = delegate(ALICE, SERVICE.key.text, [WRITE], ends=ENDS, now=NOW)
    assert allowed(access, SERVICE, proofs=[narrow], delegation=narrow.event.id) is None
    assert allowed(access, SERVICE, proofs=[], delegation=delegation) is None
    for void in (ALICE, SERVICE):
        revocations = Revocations()
        revocations.add(read_revocation(revoke(ALICE, void.key.text, now=NOW)))
        access = rules(access=USERS, trust=frozenset({ALICE.key.text}), revocations=revocations)
        assert (
            allowed(access, SERVICE, proofs=[given_by_alice()], delegation=given_by_alice().event.id) is None
        )


def test_a_delegation_must_hold_even_where_no_capability_is_asked_for() -> None:
    """Otherwise anybody could book whatever on anybody."""
    access = rules(trust=frozenset({ALICE.key.text}))
    event = given_by_alice()
    standing = allowed(access, SERVICE, None, proofs=[event], delegation=event.event.id)
    assert standing is not None
    assert standing.principal == ALICE.key.text
    assert allowed(access, EVE, None, proofs=[event], delegation=event.event.id) is None
    assert allowed(rules(), SERVICE, None, proofs=[event], delegation=event.event.id) is None


def test_whoever_names_a_delegation_uses_no_rights_of_its_own() -> None:
    """A service with rights must not lend them to a user who has none."""
    access = rules(access={SERVICE.key.text: frozenset({READ})}, trust=frozenset({ALICE.key.text}))
    event = given_by_alice()
    assert allowed(access, SERVICE) is not None
    assert allowed(access, SERVICE, proofs=[event], delegation=event.event.id) is None


def test_a_delegation_does_not_add_to_rights_when_it_is_not_named() -> None:
    access = rules(access=USERS, trust=frozenset({ALICE.key.text}))
    assert allowed(access, SERVICE, proofs=[given_by_alice()]) is None


def test_a_users_rights_may_themselves_come_by_grant() -> None:
    event = given_by_alice()
    granted = grant(BOB, ALICE.key.text, [READ], ends=ENDS, now=NOW)
    access = rules(trust=frozenset({ALICE.key.text}))
    assert allowed(access, SERVICE, proofs=[event], delegation=event.event.id) is None
    standing = allowed(access, SERVICE, proofs=[event, granted], delegation=event.event.id)
    assert standing is not None
    assert standing.principal == ALICE.key.text


def test_the_root_must_be_trusted_or_have_authority_here() -> None:
    event = given_by_alice()
    assert allowed(rules(access=USERS), SERVICE, proofs=[event], delegation=event.event.id) is None
    # The endpoint itself, and whoever is above it, delegate what they could grant.
    own = delegate(BOB, SERVICE.key.text, [READ], ends=ENDS, now=NOW)
    assert allowed(rules(), SERVICE, proofs=[own], delegation=own.event.id) is not None
    access = rules(own_chain=placed(), trust=frozenset({ROOT.key.text}))
    roots = delegate(ROOT, SERVICE.key.text, ["com.acme.*"], ends=ENDS, now=NOW)
    assert (
        allowed(access, SERVICE, "com.acme.crm.read", proofs=[roots], delegation=roots.event.id) is not None
    )
    departments = delegate(DEPARTMENT, SERVICE.key.text, ["com.acme.*"], ends=ENDS, now=NOW)
    proofs, leaf = [departments], departments.event.id
    assert allowed(access, SERVICE, WRITE, proofs=proofs, delegation=leaf) is not None
    assert allowed(access, SERVICE, "com.acme.crm.read", proofs=proofs, delegation=leaf) is None


def test_links_may_be_known_from_elsewhere() -> None:
    first = delegate(ALICE, CAROL.key.text, ["com.acme.*"], ends=ENDS, now=NOW)
    second = delegate(CAROL, SERVICE.key.text, [READ], ends=ENDS, now=NOW, by=chain_of(first))
    store = {first.event.id: read_delegation(first)}
    access = rules(access=USERS, trust=frozenset({ALICE.key.text}), known=store.get)
    standing = allowed(access, SERVICE, proofs=[second], delegation=second.event.id)
    assert standing is not None
    assert standing.chain == chain_of(first, second)


def test_a_link_that_is_not_part_of_the_chain_lends_nothing() -> None:
    """A forged chain beside a true one."""
    true = delegate(ALICE, CAROL.key.text, [READ], ends=ENDS, now=NOW)
    forged = publish(
        EVE,
        DELEGATE,
        {
            "delegated_key": SERVICE.key.text,
            "capabilities": [READ],
            "on_behalf_of": ALICE.key.text,
            "expires_at": ENDS,
        },
        now=NOW,
        delegation=true.event.id,
    )
    access = rules(access=USERS, trust=frozenset({ALICE.key.text}))
    assert allowed(access, SERVICE, proofs=[true, forged], delegation=forged.event.id) is None


def test_a_malicious_link_cannot_revoke_somebody_it_delegated_to() -> None:
    """Eve acts for Alice, delegates to Carol, whom nobody asked, and revokes her."""
    first = delegate(ALICE, EVE.key.text, ["com.acme.*"], ends=ENDS, now=NOW)
    second = delegate(EVE, CAROL.key.text, [READ], ends=ENDS, now=NOW, by=chain_of(first))
    revocations = Revocations()
    revocations.add(read_revocation(revoke(EVE, CAROL.key.text, now=NOW)))
    access = rules(
        access=USERS | {CAROL.key.text: frozenset({READ})},
        trust=frozenset({ALICE.key.text}),
        revocations=revocations,
    )
    assert not access.is_revoked(CAROL.key.text, NOW)
    assert allowed(access, CAROL) is not None
    # By that chain, Carol may indeed do nothing.
    assert allowed(access, CAROL, proofs=[first, second], delegation=second.event.id) is None


def test_those_trusted_here_and_those_above_may_revoke() -> None:
    for signer in (ROOT, DEPARTMENT, BOB, ALICE, CAROL):
        revocations = Revocations()
        revocations.add(read_revocation(revoke(signer, CAROL.key.text, now=NOW)))
        access = rules(
            own_chain=placed(), trust=frozenset({ROOT.key.text, ALICE.key.text}), revocations=revocations
        )
        assert access.is_revoked(CAROL.key.text, NOW), signer
    revocations = Revocations()
    revocations.add(read_revocation(revoke(EVE, CAROL.key.text, now=NOW)))
    assert not rules(own_chain=placed(), revocations=revocations).is_revoked(CAROL.key.text, NOW)


def test_short_names_are_written_out_in_grants_too() -> None:
    """D-60, with the names that this endpoint serves."""
    given = grant(BOB, ALICE.key.text, ["filesystem.read", "org.other.mail.send"], ends=ENDS, now=NOW)
    assert allowed(rules(), ALICE, proofs=[given]) is None
    access = rules(expand=expand_for(["com.acme.filesystem", "com.acme.crm"]))
    assert allowed(access, ALICE, proofs=[given]) is not None
    assert allowed(access, ALICE, "com.acme.crm.read", proofs=[given]) is None
    assert allowed(rules(expand=expand_for(["com.acme.crm"])), ALICE, proofs=[given]) is None
    # Two namespaces that end alike: nobody can tell which is meant.
    twice = rules(expand=expand_for(["com.acme.filesystem", "org.acme.filesystem"]))
    with pytest.raises(AuthorizationInsufficient, match="in full"):
        twice.authorize(ALICE.key.text, READ, proofs=[orjson.loads(given.raw)], now=NOW)


@pytest.mark.requirement("XP-6.4-3", "XP-6.4-4")
def test_an_event_for_a_user_names_its_delegation_beside_the_senders_key() -> None:
    event = given_by_alice()
    proof = orjson.loads(event.raw)
    access = rules(access=USERS, trust=frozenset({ALICE.key.text}))
    sent = call(SERVICE, payload=PAYLOAD | {"proofs": [proof]}, delegation=event.event.id)
    assert (sent.event.sender, sent.event.delegation) == (SERVICE.key.text, event.event.id)
    outcome = ReceivingEndpoint(access=access).receiver.receive(sent.raw, NOW)
    assert isinstance(outcome, Accepted)
    assert outcome.caller.principal == ALICE.key.text
    assert outcome.payload == PAYLOAD
    without = call(SERVICE, payload=PAYLOAD | {"proofs": [proof]})
    refused = ReceivingEndpoint(access=access).receiver.receive(without.raw, NOW)
    assert isinstance(refused, EventRejected)
    assert refused.fault.code == "AUTHORIZATION_INSUFFICIENT"


def test_grants_that_nobody_would_accept_are_not_made() -> None:
    for capabilities, ends in (([], ENDS), (["*"], ENDS), ([READ], NOW), (["a"] * 2 + ["b "], ENDS)):
        with pytest.raises(UsageError):
            grant(BOB, ALICE.key.text, capabilities, ends=ends, now=NOW)
    with pytest.raises(InvalidKey):
        grant(BOB, "alice", [READ], ends=ENDS, now=NOW)
