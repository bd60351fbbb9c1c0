"""Approvals that are confirmed with a passkey: exactly this call, by exactly this person, once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cryptography.exceptions import InvalidSignature

from moot.config.space.space_reader import read_space
from moot.errors import (
    InvalidOperation,
    PasskeyInvalid,
    PasskeyRequired,
    ResourceLimit,
    Unauthorized,
    UsageError,
)
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.protocol.payloads import GatewayNotice
from moot.space.config import Name
from moot.space.config_json import load_config, save_config
from moot.space.effects import Deliver, Disconnect, Token
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.space import Space
from moot.space.tokens import passkeys
from moot.space.tokens.passkey_proof import (
    CHALLENGE_SECONDS,
    Assertion,
    Decision,
    decision_challenge,
    read_assertion,
)
from moot.space.tokens.passkeys import MAX_PASSKEYS_PER_MEMBER, Passkey
from moot.space.tokens.temporary_tokens import TemporaryToken
from tests.authenticator import ORIGIN, PRESENT, VERIFIED, SoftwareAuthenticator, verify_again
from tests.space.space_driver import SpaceDriver

DEPLOY: Json = {"method": "tools/call", "params": {"name": "deploy", "arguments": {"env": "prod"}}}
READ: Json = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a.txt"}}}


class Office(SpaceDriver):
    """An agent proposes, ana and bob decide; deploying takes a passkey."""

    def __init__(self, *rules: Json, **settings: Json) -> None:
        super().__init__(
            participants={
                "agent": ["mcp/proposal", "mcp/withdraw"],
                "ana": ["*"],
                "bob": ["*"],
                "tool": [],
            },
            **{"passkeys": {"required": list(rules) or [{"tool": "deploy"}]}, **settings},
        )
        self.enter("agent", "ana", "bob", "tool")
        self.keys = {"ana": SoftwareAuthenticator(b"ana's"), "bob": SoftwareAuthenticator(b"bob's")}
        for name in self.keys:
            self.add_key(name)

    def add_key(self, name: str, key: SoftwareAuthenticator | None = None, **more: Any) -> None:
        key = key or self.keys[name]
        told = PasskeyInput(
            key=Passkey(
                id=key.id,
                member=Name(name),
                public_key=key.public_key,
                rp_id=key.rp_id,
                origin=ORIGIN,
                by_link=more.pop("by_link", False),
                signs_in=more.pop("signs_in", True),
            ),
            **more,
        )
        self.space.add_passkey(told, self.now)

    def propose(self, call: Json = DEPLOY, id: str = "p1") -> None:
        assert self.says("agent", "mcp/proposal", call, to=["tool"], id=id) is None

    def challenge(
        self,
        id: str = "p1",
        decision: Decision = "approve",
        *,
        who: str = "ana",
        space: str | None = None,
        seconds: float = 60.0,
    ) -> tuple[bytes, dict[str, Json]]:
        proposal = self.space.state.ledger.proposals[id]
        more: dict[str, Json] = {"nonce": "n", "expires": self.now + seconds}
        name = space or self.space.state.config.name
        return decision_challenge(
            name, proposal, Name(who), decision, nonce="n", expires=self.now + seconds
        ), more

    def confirmed(self, name: str = "ana", id: str = "p1", **more: Any) -> dict[str, Json]:
        challenge, made_of = self.challenge(id, who=name)
        return {"passkey": self.keys[name].sign(challenge, **more) | made_of}

    def error(self, session: str = "ana") -> str:
        return str(self.received[session][-1]["payload"]["message"])

    def has_run(self) -> bool:
        return any(each.get("kind") == "mcp/request" for each in self.received.get("tool", []))


def test_an_approval_that_was_signed_makes_the_call_and_another_library_agrees() -> None:
    office = Office()
    office.propose()
    challenge, made_of = office.challenge()
    assertion = office.keys["ana"].sign(challenge) | made_of
    assert office.says("ana", "moot/approve", {"passkey": assertion}, about=["p1"]) is None
    assert office.has_run()
    verify_again(office.keys["ana"].public_key, assertion, challenge)
    with pytest.raises(InvalidSignature):
        verify_again(office.keys["bob"].public_key, assertion, challenge)


def test_a_vote_does_not_outlive_the_passkey_that_confirmed_it() -> None:
    """Who finds that a key was stolen, and removes it, has not approved what the thief did."""
    office = Office(quorum=[{"payload": DEPLOY, "approvals_needed": 2}])
    spare = SoftwareAuthenticator(b"ana's other")
    office.add_key("ana", spare, by_link=True)
    office.propose()
    assert office.says("ana", "moot/approve", office.confirmed(), about=["p1"]) is None
    assert office.space.state.ledger.proposals["p1"].approved_by == ["ana"]
    # One that confirmed nothing takes nothing along.
    office.space.remove_passkeys([spare.id], office.now, office.mint)
    assert office.space.state.ledger.proposals["p1"].approved_by == ["ana"]
    effects = office.space.remove_passkeys([office.keys["ana"].id], office.now, office.mint)
    told = [each.message for each in effects if isinstance(each, Deliver)]
    assert [each.kind for each in told if isinstance(each, GatewayNotice)] == ["moot/votes"]
    assert office.says("bob", "moot/approve", office.confirmed("bob"), about=["p1"]) is None
    assert not office.has_run()
    assert office.space.state.ledger.proposals["p1"].approved_by == ["bob"]


@pytest.mark.parametrize("injected", [False, True])
def test_no_way_round_it(injected: bool) -> None:
    """A plain vote, carrying it out, making the call oneself, a grant."""
    office = Office()
    office.propose()
    office.leave("ana")
    office.enter("ana", injected=injected)
    assert office.says("ana", "moot/approve", {}, about=["p1"]) == "passkey_required"
    assert "open the proposal in the console" in office.error()
    assert office.says("ana", "mcp/request", DEPLOY, to=["tool"], about=["p1"]) == "approval_required"
    assert office.says("ana", "mcp/request", DEPLOY, to=["tool"]) == "approval_required"
    given = [{"kind": "mcp/request"}]
    assert (
        office.says("bob", "capability/grant", {"recipient": "agent", "capabilities": given}, to=["agent"])
        is None
    )
    assert office.says("agent", "mcp/request", DEPLOY, to=["tool"]) == "approval_required"
    assert not office.has_run()


def test_what_no_rule_names_is_decided_as_before() -> None:
    office = Office()
    office.propose(READ)
    assert office.says("ana", "mcp/request", READ, to=["tool"], about=["p1"]) is None


def _another_proposal(office: Office) -> dict[str, Json]:
    office.propose(id="p2")
    return office.confirmed(id="p2")


def _changed_arguments(office: Office) -> dict[str, Json]:
    other: Json = {"method": "tools/call", "params": {"name": "deploy", "arguments": {"env": "test"}}}
    office.propose(other, id="p2")
    return office.confirmed(id="p2")


def _signed(office: Office, **how: Any) -> dict[str, Json]:
    challenge, made_of = office.challenge(**how)
    return {"passkey": office.keys["ana"].sign(challenge) | made_of}


def _with_another_end(office: Office) -> dict[str, Json]:
    given = office.confirmed()
    return {"passkey": {**given["passkey"], "expires": office.now + 200}}


def _of_somebody_else(office: Office) -> dict[str, Json]:
    return office.confirmed("bob")


def _by_another_key_under_my_id(office: Office) -> dict[str, Json]:
    challenge, made_of = office.challenge()
    signed = office.keys["bob"].sign(challenge)
    return {"passkey": {**signed, **made_of, "credential_id": office.keys["ana"].id}}


def _removed(office: Office) -> dict[str, Json]:
    office.space.remove_passkeys([office.keys["ana"].id], office.now, office.mint)
    return office.confirmed()


def _for_another_address(office: Office) -> dict[str, Json]:
    office.keys["ana"].rp_id = "evil.example"
    return office.confirmed()


def _counter_goes_back(office: Office) -> dict[str, Json]:
    office.propose(id="p0")
    assert office.says("ana", "moot/approve", office.confirmed(id="p0", count=9), about=["p0"]) is None
    return office.confirmed(count=9)


ATTACKS = {
    "another proposal": (_another_proposal, "another decision or another call"),
    "changed arguments": (_changed_arguments, "another decision or another call"),
    "another space": (lambda o: _signed(o, space="elsewhere"), "another decision or another call"),
    "a rejection": (lambda o: _signed(o, decision="reject"), "another decision or another call"),
    "for somebody else": (lambda o: _signed(o, who="bob"), "another decision or another call"),
    "over already": (lambda o: _signed(o, seconds=0.0), "too long ago"),
    "ends too late": (lambda o: _signed(o, seconds=CHALLENGE_SECONDS + 1), "too long ago"),
    "the end changed": (_with_another_end, "another decision or another call"),
    "somebody else's key": (_of_somebody_else, "not one of yours"),
    "a key under my id": (_by_another_key_under_my_id, "not by your key"),
    "a removed key": (_removed, "was removed"),
    "wrong origin": (lambda o: o.confirmed(origin="https://evil.example"), "page at another address"),
    "another scheme": (lambda o: o.confirmed(origin="https://localhost:8080"), "page at another address"),
    "a name that begins so": (lambda o: o.confirmed(origin="http://localhost.evil.org"), "another address"),
    "wrong RP id": (_for_another_address, "for another address"),
    "in a frame": (lambda o: o.confirmed(crossOrigin=True), "frame in another page"),
    "nobody verified": (lambda o: o.confirmed(flags=PRESENT), "did not check who you are"),
    "nobody there": (lambda o: o.confirmed(flags=VERIFIED), "nobody touched"),
    "counter goes back": (_counter_goes_back, "counter went back"),
    "a registration": (lambda o: o.confirmed(type="webauthn.create"), "does not confirm this"),
    "no object": (lambda _: {"passkey": "yes"}, "payload.passkey"),
    "no base64url": (
        lambda o: {"passkey": {**o.confirmed()["passkey"], "authenticator_data": "!"}},
        "base64url",
    ),
    "too short": (
        lambda o: {"passkey": {**o.confirmed()["passkey"], "authenticator_data": "AAAA"}},
        "base64url",
    ),
    "no JSON": (
        lambda o: {"passkey": {**o.confirmed()["passkey"], "client_data_json": "AAAA"}},
        "cannot be read",
    ),
    "too long": (lambda o: {"passkey": {**o.confirmed()["passkey"], "signature": "A" * 5000}}, "characters"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_signed_for_something_else_approves_nothing(attack: str) -> None:
    office = Office()
    office.propose()
    make, words = ATTACKS[attack]
    payload = make(office)
    assert office.says("ana", "moot/approve", payload, about=["p1"]) == "passkey_invalid"
    assert words in office.error()
    assert not office.has_run()
    assert office.space.state.ledger.proposals["p1"].approved_by == []


def test_one_signature_is_not_for_several_proposals() -> None:
    office = Office()
    office.propose()
    office.propose(id="p2")
    assert office.says("ana", "moot/approve", office.confirmed(), about=["p1", "p2"]) == "passkey_invalid"
    assert "one by one" in office.error()


def test_a_signature_that_was_used_is_not_used_again() -> None:
    """Its vote was taken back meanwhile by a removal; somebody who has the token tries it once more."""
    office = Office(quorum=[{"payload": {"method": "tools/call"}, "approvals_needed": 2}])
    office.propose()
    given = office.confirmed()
    assert office.says("ana", "moot/approve", given, about=["p1"]) is None
    office.space.state.ledger.proposals["p1"].approved_by.clear()
    assert office.says("ana", "moot/approve", given, about=["p1"]) == "passkey_invalid"
    assert "used before" in office.error()


def test_on_localhost_the_port_may_be_another() -> None:
    office = Office()
    office.propose()
    given = office.confirmed(origin="http://localhost:50123")
    assert office.says("ana", "moot/approve", given, about=["p1"]) is None


def test_a_quorum_counts_approvals_with_a_passkey_alone() -> None:
    office = Office(quorum=[{"payload": {"method": "tools/call"}, "approvals_needed": 2}])
    office.propose()
    assert office.says("ana", "moot/approve", office.confirmed(), about=["p1"]) is None
    assert not office.has_run()
    assert office.says("bob", "moot/approve", {}, about=["p1"]) == "passkey_required"
    assert office.says("bob", "moot/approve", office.confirmed("bob"), about=["p1"]) is None
    assert office.has_run()


def test_whoever_has_none_is_told_how_to_get_one() -> None:
    office = Office()
    office.propose()
    office.space.remove_passkeys([office.keys["ana"].id], office.now, office.mint)
    assert office.says("ana", "moot/approve", {}, about=["p1"]) == "passkey_required"
    assert "moot passkeys link" in office.error()


@pytest.mark.parametrize(
    ("rule", "call", "bound"),
    [
        ({"risk": "bad"}, {"name": "run", "arguments": {"command": "rm -rf /"}}, True),
        ({"risk": "bad"}, {"name": "run", "arguments": {"command": "ls"}}, False),
        ({"risk": "bad"}, {"name": "delete_row", "arguments": {}}, False),
        ({"risk": "warn"}, {"name": "delete_row", "arguments": {}}, True),
        ({"risk": "bad"}, {"name": "x", "arguments": {"text": "a" * 70_000}}, True),
        # Behind more than is looked at.
        ({"risk": "bad"}, {"name": "run", "arguments": {"n": [0] * 2_000, "command": "rm -rf /"}}, True),
        ({"risk": "bad"}, {"name": "run", "arguments": {"command": [*["ls"] * 2_000, "rm -rf /"]}}, True),
        (
            {"risk": "bad"},
            {"name": "run", "arguments": {"text": ["a" * 50_000] * 4, "command": "rm -rf /"}},
            True,
        ),
        ({"risk": "bad"}, {"name": "run", "arguments": {"n": [0] * 1_900, "command": "ls"}}, False),
        ({"tool": "dep*"}, {"name": "deploy", "arguments": {}}, True),
        ({"tool": ["a", "b"]}, {"name": "deploy", "arguments": {}}, False),
        ({"arguments": {"env": "prod"}}, {"name": "deploy", "arguments": {"env": "prod"}}, True),
        ({"arguments": {"env": "prod"}}, {"name": "deploy", "arguments": {"env": "test"}}, False),
        ({"tool": "deploy", "risk": "bad"}, {"name": "deploy", "arguments": {"command": "ls"}}, False),
        ({"to": "tool"}, {"name": "x", "arguments": {}}, True),
        ({"to": "other"}, {"name": "x", "arguments": {}}, False),
        ({}, {"name": "x", "arguments": {}}, True),
    ],
)
def test_a_rule_goes_by_risk_tool_or_argument(rule: Json, call: Json, bound: bool) -> None:
    office = Office(rule)
    office.propose({"method": "tools/call", "params": call})
    assert office.space.state.ledger.proposals["p1"].passkey is bound


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"require": []}, "did you mean required"),
        ({"required": {}}, "must be a list"),
        ({"required": [{"tools": "x"}]}, "tool"),
        ({"required": [{"risk": "high"}]}, "risk"),
        ({"required": [{"tool": []}]}, "a name or a list"),
        ({"first": "ever"}, "first"),
    ],
)
def test_a_wrong_setting_is_named(settings: Json, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_space("lab", {"passkeys": settings})


def test_rules_and_keys_survive_being_saved() -> None:
    office = Office({"tool": "deploy", "risk": "warn", "exempt": "bob"})
    office.propose()
    config = load_config(save_config(office.space.state.config))
    assert config == office.space.state.config
    space = Space(config, saved=office.space.save())
    assert space.save() == office.space.save()
    assert [key.member for key in space.state.passkeys.by_id.values()] == ["ana", "bob"]


def test_a_new_rule_binds_what_is_open_and_drops_votes_without_a_passkey() -> None:
    office = Office({"tool": "other"}, quorum=[{"payload": {"method": "tools/call"}, "approvals_needed": 2}])
    office.propose()
    assert office.says("ana", "moot/approve", {}, about=["p1"]) is None
    strict = read_space("lab", {"passkeys": {"required": [{"tool": "deploy"}]}}).passkeys

    office.space.reload(
        msgspec.structs.replace(office.space.state.config, passkeys=strict), office.now, office.mint
    )
    proposal = office.space.state.ledger.proposals["p1"]
    assert (proposal.passkey, proposal.approved_by, proposal.approvals_needed) == (True, [], 2)


# Adding keys


def test_a_second_key_is_confirmed_with_the_first() -> None:
    office = Office()
    second = SoftwareAuthenticator(b"second")
    with pytest.raises(PasskeyRequired):
        office.add_key("ana", second)
    challenge = b"c" * 32
    proof = {"challenge": base64url.encode(challenge)}
    with pytest.raises(PasskeyInvalid):
        office.add_key("ana", second, assertion=_assertion(office.keys["bob"].sign(challenge)), **proof)
    office.add_key("ana", second, assertion=_assertion(office.keys["ana"].sign(challenge)), **proof)
    assert len(office.space.state.passkeys.of(Name("ana"))) == 2


def _assertion(parts: dict[str, Any]) -> Assertion:
    return read_assertion(parts)


def test_whoever_lost_theirs_needs_a_link() -> None:
    """Otherwise a stolen token would add the thief's."""
    office = Office()
    office.space.remove_passkeys([office.keys["ana"].id], office.now, office.mint)
    other = SoftwareAuthenticator(b"other")
    with pytest.raises(Unauthorized, match="ask your operator for a link"):
        office.add_key("ana", other)
    office.add_key("ana", other, by_link=True)
    with pytest.raises(InvalidOperation, match="registered already"):
        office.add_key("bob", other, by_link=True)


def test_a_space_can_ask_for_a_link_for_the_first_one() -> None:
    driver = SpaceDriver(participants={"ana": ["*"]}, passkeys={"first": "link"})
    key = SoftwareAuthenticator()
    made = Passkey(id=key.id, member=Name("ana"), public_key=key.public_key, rp_id="localhost", origin=ORIGIN)
    with pytest.raises(Unauthorized, match="link"):
        driver.space.add_passkey(PasskeyInput(key=made), driver.now)


def test_a_member_has_a_bounded_number() -> None:
    office = Office()
    for number in range(1, MAX_PASSKEYS_PER_MEMBER):
        office.add_key("ana", SoftwareAuthenticator(b"%d" % number), by_link=True)
    with pytest.raises(ResourceLimit, match="remove one first"):
        office.add_key("ana", SoftwareAuthenticator(b"one more"), by_link=True)


def test_a_replaced_token_takes_the_keys_along_that_it_added() -> None:
    office = Office()
    link = SoftwareAuthenticator(b"by link")
    office.add_key("ana", link, by_link=True)
    office.space.rotate_credential("ana", Token("h"), office.now, office.mint, keep=True)
    assert len(office.space.state.passkeys.of(Name("ana"))) == 2
    office.space.rotate_credential("ana", Token("h2"), office.now, office.mint, keep=False)
    assert [each.id for each in office.space.state.passkeys.of(Name("ana"))] == [link.id]
    # Also if it had begun before: the order of the space decides, at every gateway of a cluster.
    with pytest.raises(Unauthorized, match="no longer valid"):
        office.add_key("ana", SoftwareAuthenticator(b"late"), made_with="h")


def test_whoever_is_removed_has_none_when_they_come_back() -> None:
    office = Office()
    assert office.says("bob", "space/kick", {"participant_id": "ana"}) is None
    office.space.restore_member("ana", office.mint)
    assert office.space.state.passkeys.of(Name("ana")) == []


# Signing in


def _sign_in(office: Office, name: str = "ana", *, challenge: bytes = b"c" * 32, **more: Any) -> PasskeyInput:
    key = office.keys[name]
    given: dict[str, Any] = {
        "assertion": _assertion(key.sign(challenge)),
        "challenge": base64url.encode(challenge),
        "expires": office.now + 60,
        "token": TemporaryToken(hash="t", member=Name(name), expires_at=office.now + 3600, passkey=key.id),
    }
    return PasskeyInput(**given | more)


def test_a_passkey_signs_its_owner_in_until_it_is_removed() -> None:
    office = Office()
    office.space.sign_in_with_passkey(_sign_in(office), office.now)
    assert office.space.find_token_owner("t") == "ana"
    office.leave("ana")
    assert office.comes("ana", token="t") is None
    effects = office.space.remove_passkeys([office.keys["ana"].id], office.now, office.mint)
    assert any(isinstance(each, Disconnect) for each in effects)
    assert office.space.find_token_owner("t") is None


def test_nobody_signs_in_with_what_is_not_right() -> None:
    office = Office()
    office.space.sign_in_with_passkey(_sign_in(office), office.now)
    wrong = TemporaryToken(
        hash="u", member=Name("bob"), expires_at=office.now + 9, passkey=office.keys["ana"].id
    )
    cases = {
        "used before": _sign_in(office),
        "too long": _sign_in(office, challenge=b"d" * 32, expires=office.now),
        "another decision": _sign_in(
            office, assertion=_assertion(office.keys["ana"].sign(b"f" * 32)), challenge=b"g" * 32
        ),
        "somebody else's": _sign_in(office, challenge=b"h" * 32, token=wrong),
    }  # fmt: skip
    for words, told in cases.items():
        with pytest.raises(PasskeyInvalid, match=words):
            office.space.sign_in_with_passkey(told, office.now)
    assert office.says("bob", "space/kick", {"participant_id": "ana"}) is None
    with pytest.raises(PasskeyInvalid, match="not one of yours"):
        office.space.sign_in_with_passkey(_sign_in(office, challenge=b"i" * 32), office.now)


def test_a_refused_sign_in_leaves_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passkeys, "_MAX_USED", 1)
    office = Office()
    office.space.sign_in_with_passkey(_sign_in(office), office.now)
    before = office.space.save()
    more = TemporaryToken(
        hash="u", member=Name("ana"), expires_at=office.now + 9, passkey=office.keys["ana"].id
    )
    with pytest.raises(ResourceLimit, match="too many sign-ins"):
        office.space.sign_in_with_passkey(_sign_in(office, challenge=b"d" * 32, token=more), office.now)
    assert office.space.save() == before
    office.now += 61
    office.space.sign_in_with_passkey(_sign_in(office, challenge=b"d" * 32, token=more), office.now)


def test_votes_that_count_nothing_are_not_remembered_for_ever() -> None:
    office = Office(quorum=[{"payload": {"method": "tools/call"}, "approvals_needed": 2}])
    office.propose()
    for _ in range(3):
        office.now += 1
        assert office.says("ana", "moot/approve", office.confirmed(), about=["p1"]) is None
    assert len(office.space.state.ledger.proposals["p1"].used_challenges) == 1


def test_whoever_comes_by_a_provider_does_not_sign_in_past_it() -> None:
    office = Office()
    key = office.keys["ana"] = SoftwareAuthenticator(b"of a provider")
    office.add_key("ana", key, by_link=True, signs_in=False)
    with pytest.raises(Unauthorized, match="identity provider"):
        office.space.sign_in_with_passkey(_sign_in(office), office.now)


def test_a_changed_call_takes_a_passkey_as_well() -> None:
    """Whoever changes a call agrees to it, which counts as a vote: without a passkey it does not."""
    office = Office()
    office.propose()
    harmless: Json = {"method": "tools/call", "params": {"name": "read_file", "arguments": {}}}
    assert office.says("ana", "mcp/proposal", harmless, to=["tool"], id="c1", about=["p1"]) is None
    assert office.says("ana", "mcp/request", harmless, to=["tool"], about=["c1", "p1"]) == "approval_required"
    assert office.says("ana", "moot/approve", {}, about=["c1"]) == "passkey_required"
    assert office.says("ana", "moot/approve", office.confirmed(id="c1"), about=["c1"]) is None
    assert office.has_run()


def test_nobody_signs_a_call_of_their_own_as_a_change_of_a_harmless_one() -> None:
    office = Office()
    office.propose(READ)
    assert office.says("ana", "mcp/proposal", DEPLOY, to=["tool"], id="c1", about=["p1"]) is None
    assert office.says("ana", "moot/approve", office.confirmed(id="c1"), about=["c1"]) == "unauthorized"
    assert not office.has_run()
    assert office.says("bob", "moot/approve", office.confirmed("bob", id="c1"), about=["c1"]) is None
    assert office.has_run()
