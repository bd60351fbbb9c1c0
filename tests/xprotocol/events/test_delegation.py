"""Chains: organisations and users, and every way in which one does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import InvalidKey, InvalidStatement, UsageError
from moot.xprotocol.contracts.capabilities import any_covers
from moot.xprotocol.events.delegation import MAX_LINKS, DelegationChain, assemble, delegate, read_chain
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import DELEGATE, SKEW_SECONDS, SignedPublic, canonical_json, decode
from moot.xprotocol.events.key_statements import read_delegation, read_revocation
from moot.xprotocol.events.revocation import Revocations, revoke
from moot.xprotocol.identity.keys import Identity
from tests.rows import for_each_row
from tests.xprotocol.people import ALICE, BOB, EVE, NOW, call, person, signed_by

ROOT, DEPARTMENT, ADAPTER, OTHER = (person(name) for name in ("root", "department", "adapter", "other"))
ENDS = NOW + 10**6
ALL = ["com.acme.*"]


def chain_of(events: Sequence[SignedPublic]) -> DelegationChain:
    links = {each.event.id: read_delegation(each) for each in events}
    return assemble(events[-1].event.id, links.get)


def organisation() -> list[SignedPublic]:
    """Root, department, adapter, each with less."""
    first = delegate(ROOT, DEPARTMENT.key.text, ALL, ends=ENDS, now=NOW)
    second = delegate(
        DEPARTMENT,
        ADAPTER.key.text,
        ["com.acme.filesystem.read", "com.acme.crm.*"],
        ends=ENDS - 100,
        now=NOW + 5,
        by=chain_of([first]),
    )
    return [first, second]


def check(
    chain: DelegationChain, *, anchors: Sequence[Identity] = (ROOT,), now: float = NOW + 10, **more: Any
) -> None:
    chain.check_usable(
        anchors={each.key.text for each in anchors},
        revocations=more.pop("revocations", Revocations()),
        now=now,
        **more,
    )


@pytest.mark.requirement("XP-1.4-2", "XP-6.1-3", "XP-6.1-4")
def test_an_organisations_chain_can_be_walked_up_to_its_root() -> None:
    events = organisation()
    file = orjson.dumps([orjson.loads(each.raw) for each in reversed(events)])
    chain = read_chain(file, holder=ADAPTER.key.text)
    assert chain == chain_of(events)
    assert chain.keys == (ROOT.key.text, DEPARTMENT.key.text, ADAPTER.key.text)
    assert (chain.root, chain.holder) == (ROOT.key.text, ADAPTER.key.text)
    assert chain.capabilities == {"com.acme.filesystem.read", "com.acme.crm.*"}
    assert (chain.starts, chain.ends) == (NOW + 5, ENDS - 100)
    assert chain.scope_of(ROOT.key.text) is None
    assert chain.scope_of(DEPARTMENT.key.text) == frozenset(ALL)
    check(chain)


@pytest.mark.requirement("XP-6.4-1", "XP-6.4-2", "XP-11.2-1")
def test_a_user_delegates_with_the_four_members_of_the_document() -> None:
    event = delegate(ALICE, ADAPTER.key.text, ["com.acme.crm.read"], ends=ENDS, now=NOW)
    assert event.event.kind == DELEGATE
    assert event.event.payload == {
        "delegated_key": ADAPTER.key.text,
        "capabilities": ["com.acme.crm.read"],
        "on_behalf_of": ALICE.key.text,
        "expires_at": ENDS,
    }
    chain = read_chain(event.raw, holder=ADAPTER.key.text)
    check(chain, anchors=[ALICE])


@pytest.mark.requirement("XP-6.4-2")
@pytest.mark.parametrize("member", ["delegated_key", "capabilities", "on_behalf_of", "expires_at"])
def test_a_delegation_that_lacks_a_member_is_none(member: str) -> None:
    payload = dict(delegate(ALICE, ADAPTER.key.text, ALL, ends=ENDS, now=NOW).event.payload)
    del payload[member]
    with pytest.raises(InvalidStatement, match=member):
        read_delegation(publish(ALICE, DELEGATE, payload, now=NOW))


@for_each_row(
    ("member", "value"),
    [
        ("delegated_key", ADAPTER.enc_key.text),
        ("delegated_key", "ed25519:" + "A" * 43),
        ("delegated_key", 5),
        ("on_behalf_of", None),
        ("on_behalf_of", ALICE.key.text + "="),
        ("capabilities", []),
        ("capabilities", "com.acme.*"),
        ("capabilities", ["*"]),
        ("capabilities", ["com.acme.*", 5]),
        ("capabilities", ["com.acme.*"] * 257),
        ("expires_at", str(ENDS)),
        ("expires_at", NOW),
        ("expires_at", NOW - 1),
        ("expires_at", float(ENDS) + 0.5),
        ("expires_at", True),
    ],
)
def test_a_delegation_with_a_bad_member_is_none(member: str, value: Any) -> None:
    payload = dict(delegate(ALICE, ADAPTER.key.text, ALL, ends=ENDS, now=NOW).event.payload) | {member: value}
    with pytest.raises(InvalidStatement, match=member):
        read_delegation(publish(ALICE, DELEGATE, payload, now=NOW))


@pytest.mark.requirement("XP-3.1-5")
def test_a_chain_with_a_bad_signature_is_refused_when_it_is_loaded() -> None:
    events = [orjson.loads(each.raw) for each in organisation()]
    for place in (0, 1):
        for change in (
            {"signature": events[1 - place]["signature"]},
            {"id": "0" * 64},
            {"timestamp": NOW + 6},
            {"payload": events[place]["payload"] | {"expires_at": ENDS + 1}},
        ):
            spoilt = list(events)
            spoilt[place] = events[place] | change
            with pytest.raises(InvalidStatement):
                read_chain(orjson.dumps(spoilt), holder=ADAPTER.key.text)
    assert read_chain(orjson.dumps(events), holder=ADAPTER.key.text).root == ROOT.key.text


@for_each_row("raw", [b"", b"[]", b"{}", b"5", b"[5]", b"[[]]", b"\xff", b'{"v":"xp1"}'])
def test_files_that_are_no_chain_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidStatement):
        read_chain(raw, holder=ADAPTER.key.text)


def test_a_file_must_hold_the_holders_chain_and_nothing_else() -> None:
    first, second = (orjson.loads(each.raw) for each in organisation())
    foreign = orjson.loads(delegate(EVE, BOB.key.text, ALL, ends=ENDS, now=NOW).raw)
    announce = orjson.loads(publish(ROOT, "xp.endpoint.announce", {}, now=NOW).raw)
    for events, words in (
        ([second], "not known"),
        ([first], "expected one delegation to"),
        ([first, second, foreign], "not part of"),
        ([first, second, announce], "expected xp.key.delegate"),
        ([first] * 9, "1 to 8"),
    ):
        with pytest.raises(InvalidStatement, match=words):
            read_chain(orjson.dumps(events), holder=ADAPTER.key.text)


def link(
    signer: Identity, to: Identity, root: Identity, above: SignedPublic | None, **payload: Any
) -> SignedPublic:
    """A delegation by somebody who follows no rules."""
    body = {
        "delegated_key": to.key.text,
        "capabilities": ALL,
        "on_behalf_of": root.key.text,
        "expires_at": ENDS,
    } | payload
    return publish(signer, DELEGATE, body, now=NOW, delegation=None if above is None else above.event.id)


def test_capabilities_only_shrink_along_the_chain() -> None:
    first = link(ROOT, DEPARTMENT, ROOT, None, capabilities=["com.acme.crm.*", "com.acme.files.read"])
    for capabilities in (["com.acme.*"], ["com.acme.files.*"], ["com.acme.crm.read", "com.other.read"]):
        second = link(DEPARTMENT, ADAPTER, ROOT, first, capabilities=capabilities)
        with pytest.raises(InvalidStatement, match="does not hold"):
            chain_of([first, second])
    for capabilities in (["com.acme.crm.*"], ["com.acme.crm.read"], ["com.acme.files.read"]):
        second = link(DEPARTMENT, ADAPTER, ROOT, first, capabilities=capabilities)
        assert chain_of([first, second]).capabilities == set(capabilities)
    # What one link dropped, no later one brings back.
    second = link(DEPARTMENT, ADAPTER, ROOT, first, capabilities=["com.acme.crm.read"])
    third = link(ADAPTER, OTHER, ROOT, second, capabilities=["com.acme.files.read"])
    with pytest.raises(InvalidStatement, match="does not hold"):
        chain_of([first, second, third])


def test_every_link_is_signed_by_the_key_above() -> None:
    first = link(ROOT, DEPARTMENT, ROOT, None)
    with pytest.raises(InvalidStatement, match="signed by another key"):
        chain_of([first, link(EVE, ADAPTER, ROOT, first)])
    with pytest.raises(InvalidStatement, match="on_behalf_of"):
        chain_of([link(EVE, ADAPTER, ROOT, None)])


def test_every_link_names_the_root_it_acts_for() -> None:
    first = link(ROOT, DEPARTMENT, ROOT, None)
    with pytest.raises(InvalidStatement, match="on_behalf_of"):
        chain_of([first, link(DEPARTMENT, ADAPTER, ALICE, first)])
    with pytest.raises(InvalidStatement, match="on_behalf_of"):
        chain_of([link(ROOT, DEPARTMENT, ALICE, None)])


def test_no_key_comes_twice() -> None:
    first = link(ROOT, DEPARTMENT, ROOT, None)
    for last in (link(DEPARTMENT, ROOT, ROOT, first), link(DEPARTMENT, DEPARTMENT, ROOT, first)):
        with pytest.raises(InvalidStatement, match="twice"):
            chain_of([first, last])
    with pytest.raises(InvalidStatement, match="twice"):
        chain_of([link(ROOT, ROOT, ROOT, None)])


def long_chain(links: int) -> list[SignedPublic]:
    people = [person(f"link {n}") for n in range(links + 1)]
    events: list[SignedPublic] = []
    for signer, to in pairwise(people):
        events.append(link(signer, to, people[0], events[-1] if events else None))
    return events


def test_a_chain_has_at_most_eight_links() -> None:
    longest = long_chain(MAX_LINKS)
    assert len(chain_of(longest).links) == 8
    with pytest.raises(InvalidStatement, match="more than 8"):
        chain_of(long_chain(MAX_LINKS + 1))
    with pytest.raises(UsageError, match="at most 8"):
        delegate(person("link 8"), EVE.key.text, ALL, ends=ENDS, now=NOW, by=chain_of(longest))


def test_links_that_lead_nowhere_or_in_circles_end_the_walk() -> None:
    with pytest.raises(InvalidStatement, match="not known"):
        assemble("0" * 64, lambda _id: None)
    loop = read_delegation(link(ROOT, DEPARTMENT, ROOT, None))
    with pytest.raises(InvalidStatement, match="more than 8"):
        assemble("x", lambda _id: _parented(loop, "x"))


def _parented(delegation: Any, parent: str) -> Any:
    return type(delegation)(
        **{name: getattr(delegation, name) for name in delegation.__slots__} | {"parent": parent}
    )


def test_a_chain_holds_from_its_latest_start_to_its_earliest_end() -> None:
    chain = chain_of(organisation())
    check(chain, now=NOW + 5 - SKEW_SECONDS)
    check(chain, now=ENDS - 101)
    with pytest.raises(InvalidStatement, match="not hold yet"):
        check(chain, now=NOW + 4 - SKEW_SECONDS)
    # Skew is for clocks that differ, not for rights that are over.
    with pytest.raises(InvalidStatement, match="ended"):
        check(chain, now=ENDS - 100)


def test_a_chain_holds_only_where_its_root_is_trusted() -> None:
    chain = chain_of(organisation())
    for anchors in ([], [DEPARTMENT], [ADAPTER, EVE]):
        with pytest.raises(InvalidStatement, match="not trusted"):
            check(chain, anchors=anchors)
    # Anybody can make a chain to anybody.
    with pytest.raises(InvalidStatement, match="not trusted"):
        check(chain_of([delegate(EVE, ADAPTER.key.text, ALL, ends=ENDS, now=NOW)]))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_chain_with_a_revoked_key_does_not_hold(place: int) -> None:
    people = (ROOT, DEPARTMENT, ADAPTER)
    chain = chain_of(organisation())
    key = people[place].key.text
    for signer in people[: place + 1]:
        revocations = Revocations()
        revocations.add(read_revocation(revoke(signer, key, now=NOW)))
        with pytest.raises(InvalidStatement, match="revoked"):
            check(chain, revocations=revocations)
    # Neither those below nor strangers can revoke.
    revocations = Revocations()
    for signer in (*people[place + 1 :], EVE):
        revocations.add(read_revocation(revoke(signer, key, now=NOW)))
    check(chain, revocations=revocations)
    # Strangers with authority can.
    with pytest.raises(InvalidStatement, match="revoked"):
        check(chain, revocations=revocations, authorities={EVE.key.text})


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: delegate(ALICE, ADAPTER.key.text, [], ends=ENDS, now=NOW), "capabilities"),
        (lambda: delegate(ALICE, ADAPTER.key.text, ["*"], ends=ENDS, now=NOW), "capabilities"),
        (lambda: delegate(ALICE, ADAPTER.key.text, ALL, ends=NOW, now=NOW), "future"),
        (lambda: delegate(ALICE, ALICE.key.text, ALL, ends=ENDS, now=NOW), "already"),
        (
            lambda: delegate(ALICE, BOB.key.text, ALL, ends=ENDS, now=NOW, by=chain_of(organisation())),
            "another key",
        ),
        (
            lambda: delegate(ADAPTER, BOB.key.text, ALL, ends=ENDS, now=NOW, by=chain_of(organisation())),
            "not ours to hand on: com.acme",
        ),
        (
            lambda: delegate(
                ADAPTER, ROOT.key.text, ["com.acme.crm.read"], ends=ENDS, now=NOW, by=chain_of(organisation())
            ),
            "already",
        ),
    ],
)
def test_delegations_that_nobody_would_accept_are_not_made(act: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        act()


def test_a_bad_key_is_not_delegated_to() -> None:
    with pytest.raises(InvalidKey):
        delegate(ALICE, ADAPTER.enc_key.text, ALL, ends=ENDS, now=NOW)


def test_short_names_are_written_out_when_a_delegation_is_read() -> None:
    """D-60."""
    event = delegate(ALICE, ADAPTER.key.text, ["filesystem.read"], ends=ENDS, now=NOW)

    def expand(name: str) -> str:
        if name != "filesystem.read":
            raise UsageError("means nothing")
        return "com.acme.filesystem.read"

    assert read_delegation(event, expand).capabilities == {"com.acme.filesystem.read"}
    other = delegate(ALICE, ADAPTER.key.text, ["crm.read"], ends=ENDS, now=NOW)
    with pytest.raises(InvalidStatement, match="means nothing"):
        read_delegation(other, expand)


def test_a_directed_event_is_no_delegation() -> None:
    with pytest.raises(InvalidStatement, match="directed"):
        read_chain(call().raw, holder=BOB.key.text)


def test_a_delegation_is_the_same_however_its_bytes_came() -> None:
    event = organisation()[0]
    read = decode(canonical_json(orjson.loads(event.raw)))
    assert isinstance(read, SignedPublic)
    assert read_delegation(read) == read_delegation(event)
    other = decode(signed_by(ROOT, event.covered | {"kind": "xp.key.revoke"}))
    assert isinstance(other, SignedPublic)
    with pytest.raises(InvalidStatement, match="expected"):
        read_delegation(other)


names = st.sampled_from(
    ["com.*", "com.acme.*", "com.acme.crm.*", "com.acme.crm.read", "com.acme.crm.write", "org.x"]
)


@given(st.lists(st.lists(names, min_size=1, max_size=3), min_size=1, max_size=4))
def test_however_a_chain_is_made_nobody_holds_what_somebody_above_does_not(wanted: list[list[str]]) -> None:
    people = [person(f"link {n}") for n in range(len(wanted) + 1)]
    events: list[SignedPublic] = []
    for place, capabilities in enumerate(wanted):
        above = events[-1] if events else None
        events.append(link(people[place], people[place + 1], people[0], above, capabilities=capabilities))
    try:
        chain = chain_of(events)
    except InvalidStatement:
        return
    for capability in ("com.acme.crm.read", "com.acme.crm.write", "com.acme.hr.read", "org.x"):
        if any_covers(chain.capabilities, capability):
            assert all(any_covers(set(each), capability) for each in wanted)
