"""Keys that are void, and who can say so."""

from __future__ import annotations

import pytest

from moot.errors import EndpointUnavailable, InvalidKey, InvalidStatement
from moot.xprotocol.events.event_composer import publish
from moot.xprotocol.events.events import MAX_LIFETIME_SECONDS, REVOKE, check_times
from moot.xprotocol.events.key_statements import KeyRevocation, read_revocation
from moot.xprotocol.events.revocation import Revocations, revoke
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE, NOW, person


def revocation_by(signer: str, key: str) -> KeyRevocation:
    return KeyRevocation("0" * 64, signer, key)


def test_a_key_revokes_itself_everywhere_and_for_good() -> None:
    revocations = Revocations()
    event = revoke(ALICE, ALICE.key.text, now=NOW)
    assert (event.event.kind, event.event.payload) == (REVOKE, {"revoked_key": ALICE.key.text})
    check_times(event.event, NOW + 1000 * MAX_LIFETIME_SECONDS)
    revocations.add(read_revocation(event))
    assert revocations.is_revoked(ALICE.key.text)
    assert not revocations.is_revoked(BOB.key.text)


def test_somebody_elses_word_counts_only_where_they_stand_above() -> None:
    revocations = Revocations()
    revocations.add(read_revocation(revoke(CAROL, ALICE.key.text, now=NOW)))
    assert not revocations.is_revoked(ALICE.key.text)
    assert not revocations.is_revoked(ALICE.key.text, [BOB.key.text])
    assert revocations.is_revoked(ALICE.key.text, [BOB.key.text, CAROL.key.text])


def test_the_configuration_revokes_outright() -> None:
    assert Revocations([ALICE.key.text]).is_revoked(ALICE.key.text)


def test_strangers_cannot_fill_the_room_for_those_who_matter() -> None:
    revocations = Revocations(heeded={CAROL.key.text, ALICE.key.text}, limit=3)
    for number in range(3):
        revocations.add(revocation_by(f"stranger {number}", f"stranger {number}"))
    with pytest.raises(EndpointUnavailable, match="3 revocations by strangers"):
        revocations.add(revocation_by(EVE.key.text, EVE.key.text))
    # Saying the same again takes no room.
    revocations.add(revocation_by("stranger 1", "stranger 1"))
    revocations.add(revocation_by(CAROL.key.text, BOB.key.text))
    revocations.add(revocation_by(ALICE.key.text, ALICE.key.text))
    assert revocations.is_revoked(BOB.key.text, [CAROL.key.text])
    assert revocations.is_revoked(ALICE.key.text)
    assert not revocations.is_revoked(EVE.key.text)


def test_one_key_can_be_revoked_by_several() -> None:
    revocations = Revocations()
    for name in ("one", "two"):
        revocations.add(read_revocation(revoke(person(name), ALICE.key.text, now=NOW)))
    assert revocations.is_revoked(ALICE.key.text, [person("one").key.text])
    assert revocations.is_revoked(ALICE.key.text, [person("two").key.text])
    assert not revocations.is_revoked(ALICE.key.text, [person("three").key.text])


def test_other_events_revoke_nothing() -> None:
    for event in (
        publish(ALICE, REVOKE, {}, now=NOW),
        publish(ALICE, REVOKE, {"revoked_key": "ed25519:" + "A" * 43}, now=NOW),
        publish(ALICE, REVOKE, {"revoked_key": [ALICE.key.text]}, now=NOW),
        publish(ALICE, "xp.endpoint.announce", {"revoked_key": ALICE.key.text}, now=NOW),
    ):
        with pytest.raises(InvalidStatement):
            read_revocation(event)
    with pytest.raises(InvalidKey):
        revoke(ALICE, "ed25519:", now=NOW)
