"""Deciding in somebody's place: what the giver may decide and no more, for a time, and each person once."""

from __future__ import annotations

import msgspec
import pytest

from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.acts.delegations import MAX_DELEGATES
from moot.space.config import Name, ParticipantConfig
from moot.space.members.member import capability_pairs
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.space import Space, load_state, save_state
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken
from tests.space.space_driver import SpaceDriver

PAY: Json = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 5}}}
REQUEST: Json = {"jsonrpc": "2.0", "id": 1, **PAY}
HOUR = 3_600


def office(**settings: Json) -> SpaceDriver:
    driver = SpaceDriver(
        participants={
            "agent": ["mcp/proposal"],
            "ana": ["mcp/*", "moot/approve", "capability/grant"],
            "bob": ["mcp/proposal", "chat"],
            "cara": ["mcp/*", "moot/approve", "moot/delegate"],
            "admin": ["*"],
            "bank": [],
        },
        **settings,
    )
    driver.enter("agent", "ana", "bob", "cara", "admin", "bank")
    assert driver.says("agent", "mcp/proposal", PAY, to=["bank"], id="p1") is None
    return driver


def delegate(driver: SpaceDriver, giver: str = "ana", to: str = "bob", seconds: Json = HOUR) -> str | None:
    return driver.says(giver, "moot/delegate", {"to": to, "expires_in_seconds": seconds})


def approve(driver: SpaceDriver, who: str = "bob", of: str = "p1") -> str | None:
    return driver.says(who, "mcp/request", REQUEST, to=["bank"], about=[of])


def record(driver: SpaceDriver, id: str = "p1") -> ProposalRecord:
    found = driver.space.state.ledger.get(id)
    assert found is not None
    return found


def test_a_delegate_decides_what_the_giver_may_and_it_is_said_in_whose_place() -> None:
    driver = office()
    assert approve(driver) == "capability_violation"
    assert delegate(driver) is None
    assert "moot/delegate" in driver.kinds("agent")
    assert approve(driver) is None
    assert (record(driver).fulfilled_by, record(driver).fulfilled_for) == ("bob", "ana")


def test_a_delegate_may_only_decide() -> None:
    driver = office()
    assert delegate(driver) is None
    # No call of one's own, nothing else of the giver's, and not on to the next one.
    assert driver.says("bob", "mcp/request", REQUEST, to=["bank"]) == "capability_violation"
    assert driver.says("bob", "capability/grant", {"recipient": "agent"}) == "capability_violation"
    assert delegate(driver, "bob", "agent") == "capability_violation"
    assert driver.says("bob", "mcp/reject", {"reason": "unsafe"}, about=["p1"]) is None
    # Neither what they proposed, nor what the giver did.
    assert driver.says("bob", "mcp/proposal", PAY, to=["bank"], id="p2") is None
    assert approve(driver, of="p2") == "capability_violation"
    assert driver.says("ana", "mcp/proposal", PAY, to=["bank"], id="p3") is None
    assert approve(driver, of="p3") == "capability_violation"
    # Nor both in one request.
    both = driver.says("bob", "mcp/request", REQUEST, to=["bank"], about=["p1", "p2"])
    assert both == "capability_violation"
    # And exactly what was proposed.
    other: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay"}}
    assert driver.says("bob", "mcp/request", other, to=["bank"], about=["p1"]) == "proposal_mismatch"


def test_it_ends_with_its_time() -> None:
    driver = office(limits={"proposal_seconds": 10 * HOUR})
    assert delegate(driver) is None
    driver.now += HOUR - 1
    assert driver.says("bob", "mcp/reject", {"reason": "unsafe"}, about=["p1"]) is None
    driver.now += 2
    assert approve(driver) == "capability_violation"


@pytest.mark.parametrize("ends", ["taken back", "given back", "kicked", "paused", "rights"])
def test_it_ends_at_once_when_it_is_taken_back_or_the_givers_right_ends(ends: str) -> None:
    driver = office()
    assert delegate(driver) is None
    match ends:
        case "taken back":
            assert driver.says("ana", "moot/end-delegation", {"to": "bob"}) is None
        case "given back":
            assert driver.says("bob", "moot/end-delegation", {"from": "ana"}) is None
        case "kicked":
            assert driver.says("admin", "space/kick", {"participant_id": "ana"}) is None
        case "paused":
            assert driver.says("admin", "participant/pause", {"timeout_seconds": 60}, to=["ana"]) is None
        case "rights":
            member = driver.space.state.roster.members["ana"]  # type: ignore[index]
            removed = [each for each in member.static_capabilities if "mcp" in str(each.original)]
            driver.space.change_capabilities("ana", [], removed, "admin", driver.now, driver.mint)
    assert approve(driver) == "capability_violation"


def test_in_a_quorum_each_person_counts_once() -> None:
    rule: Json = {"payload": PAY, "approvals_needed": 3}
    driver = office(quorum=[rule])
    assert delegate(driver) is None
    assert delegate(driver, "cara") is None
    # Bob has no vote of his own: his is Ana's, and only one of the two that he could give.
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert (record(driver).approved_by, record(driver).delegated_votes) == (["ana"], {"ana": "bob"})
    assert driver.received["agent"][-1]["payload"]["delegated_votes"] == {"ana": "bob"}
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert driver.says("ana", "moot/approve", {}, about=["p1"]) is None
    assert record(driver).approved_by == ["ana"]
    # With a right of his own he is still the same person.
    granted = {"recipient": "bob", "capabilities": [{"kind": "moot/approve"}]}
    assert driver.says("admin", "capability/grant", granted, to=["bob"]) is None
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert record(driver).approved_by == ["ana"]
    assert driver.says("cara", "moot/approve", {}, about=["p1"]) is None
    # Who is removed has voted for nobody.
    assert driver.says("admin", "space/kick", {"participant_id": "bob"}) is None
    assert record(driver).approved_by == ["cara"]


def test_the_last_vote_of_a_delegate_carries_it_out_by_the_givers_right() -> None:
    driver = office(quorum=[{"payload": PAY, "approvals_needed": 2}])
    assert delegate(driver) is None
    assert driver.says("cara", "moot/approve", {}, about=["p1"]) is None
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert (record(driver).state, record(driver).fulfilled_for) == ("fulfilled", "ana")


def test_what_is_no_delegation_is_refused() -> None:
    driver = office()
    assert delegate(driver, seconds=0) == "invalid_request"
    assert delegate(driver, seconds=None) == "invalid_request"
    assert delegate(driver, seconds=True) == "invalid_request"
    assert delegate(driver, seconds=32 * 86_400) == "resource_limit"
    assert delegate(driver, to="ana") == "invalid_operation"
    assert delegate(driver, to="nobody") == "participant_not_found"
    assert delegate(driver, "agent") == "capability_violation"


def test_so_many_decide_in_ones_place_and_no_more() -> None:
    names = [f"m{number}" for number in range(MAX_DELEGATES + 1)]
    driver = SpaceDriver(participants={"ana": ["*"], **{name: [] for name in names}})
    driver.enter("ana")
    for name in names[:-1]:
        assert delegate(driver, to=name) is None
    assert delegate(driver, to=names[-1]) == "resource_limit"
    driver.now += HOUR
    assert delegate(driver, to=names[-1]) is None


def test_a_right_that_cannot_be_handed_on_is_not_delegated() -> None:
    driver = office()
    may_pay = {"kind": "mcp/request", "payload": PAY}
    granted: Json = {"recipient": "bob", "capabilities": [may_pay], "max_uses": 3}
    assert driver.says("ana", "capability/grant", granted, to=["bob"]) is None
    hand_on: Json = {"recipient": "bob", "capabilities": [{"kind": "moot/delegate"}]}
    assert driver.says("admin", "capability/grant", hand_on, to=["bob"]) is None
    assert delegate(driver, "bob", "agent") is None
    assert driver.says("cara", "mcp/proposal", PAY, to=["bank"], id="p4") is None
    assert approve(driver, "agent", of="p4") == "capability_violation"
    assert approve(driver, "bob", of="p4") is None


def test_delegations_are_listed_and_outlive_a_restart() -> None:
    driver = office()
    assert delegate(driver) is None
    assert driver.says("agent", "moot/list-proposals", {}) is None
    (listed,) = driver.received["agent"][-1]["payload"]["delegations"]
    assert (listed["from"], listed["to"]) == ("ana", "bob")
    state = driver.space.state
    restored = Space.__new__(Space)
    restored.state = load_state(state.config, save_state(state))
    assert restored.state.delegations.givers_to("bob", driver.now) == ("ana",)  # type: ignore[arg-type]


def signed_in(driver: SpaceDriver, name: str, token: str, client: str, *rights: str) -> None:
    """Somebody whom a provider of identities knows, with what this program of theirs may."""
    pairs = capability_pairs(read_capabilities([{"kind": each} for each in rights]))
    made = TemporaryToken(
        hash=token,
        member=Name(name),
        expires_at=driver.now + 10 * HOUR,
        source="sign_in",
        keys=(f"sub-{name}",),
        issued_at=driver.now,
        client=client,
    )
    driver.space.sign_in(SignIn(token=made, capabilities=pairs), driver.now, driver.mint)


def test_a_program_with_less_than_its_owners_rights_decides_in_nobodys_place() -> None:
    driver = office()
    signed_in(driver, "eve", "t-all", "console", "chat", "trust/*")
    signed_in(driver, "eve", "t-less", "program", "chat", "trust/rule")
    driver.enter("eve", token="t-less")
    assert delegate(driver, to="eve") is None
    assert approve(driver, "eve") == "capability_violation"
    driver.leave("eve")
    driver.enter("eve", token="t-all")
    assert approve(driver, "eve") is None


def test_a_name_that_somebody_else_gets_decides_in_nobodys_place() -> None:
    driver = office()
    signed_in(driver, "eve", "t-eve", "console", "chat")
    assert delegate(driver, to="eve") is None
    config = driver.space.state.config
    people = {**config.participants, "eve": ParticipantConfig(capabilities=())}
    driver.space.reload(msgspec.structs.replace(config, participants=people), driver.now, driver.mint)
    driver.enter("eve")
    assert approve(driver, "eve") == "capability_violation"


def test_a_rule_that_votes_in_a_persons_place_is_no_person() -> None:
    """Beyond a budget a person approves; whoever applies rules is none, whoever let it."""
    driver = office(budgets={"payments": {"tool": "pay", "ask_at": 0, "at_most": 9}})
    rules = [{"kind": each} for each in ("trust/suggestion", "trust/rule")]
    given: Json = {"recipient": "bob", "capabilities": rules}
    assert driver.says("admin", "capability/grant", given, to=["bob"]) is None
    assert delegate(driver) is None
    proposal = record(driver)
    assert driver.says("bob", "moot/approve", {}, about=["p1"]) is None
    assert proposal.approved_by == ["ana"]
    assert approve(driver) == "approval_required"


def test_one_of_eight_delegations_is_renewed() -> None:
    names = [f"m{number}" for number in range(MAX_DELEGATES)]
    driver = SpaceDriver(participants={"ana": ["*"], **{name: [] for name in names}})
    driver.enter("ana")
    for name in names:
        assert delegate(driver, to=name) is None
    assert delegate(driver, to=names[0], seconds=2 * HOUR) is None
    driver.now += HOUR
    assert driver.space.state.delegations.givers_to(Name(names[0]), driver.now) == ("ana",)
