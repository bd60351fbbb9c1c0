"""Proposals from a shell: look, approve, vote, reject, withdraw (MEW 3.2, 3.3, D-28)."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path

import pytest

from moot.errors import Rejected
from moot.participant import JoinedSpace, Outcome, Proposal, Rejection
from moot.protocol.operation import Json
from tests.cli.space_with_members import SpaceWithMembers
from tests.waiting import HANG_SECONDS, until


@pytest.fixture
def host(lab: SpaceWithMembers) -> JoinedSpace:
    """Offers two tools."""
    space = lab.join("host")

    async def offer() -> None:
        @space.tool
        def write(path: str, text: str) -> str:
            """Write a file."""
            return f"{path}: {len(text)}"

        @space.tool
        def launch() -> str:
            """Needs two votes here."""
            return "lift-off"

    lab.do(offer())
    return space


def proposed(lab: SpaceWithMembers, agent: JoinedSpace, name: str = "write") -> Proposal:
    arguments = {"path": "a.md", "text": "one\ntwo"} if name == "write" else {}
    params = {"name": name, "arguments": arguments}
    return lab.do(agent.propose("host", "tools/call", params))


def outcome_of(lab: SpaceWithMembers, proposal: Proposal) -> Outcome:
    return lab.do(proposal.outcome(HANG_SECONDS))


def test_proposals_made_before_one_came_are_listed_in_full(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    answer = lab.output_of("proposals")
    assert answer.startswith("ID        PROPOSER  TO    CALL              PROPOSED          STATUS\n")
    assert f"\n{proposal.id[:8]}  agent     host  tools/call write  " in answer
    assert "    path: a.md\n    text: one\n          two\n" in answer
    (row,) = lab.value("proposals")
    assert row["id"] == proposal.id
    assert row["params"] == {"name": "write", "arguments": {"path": "a.md", "text": "one\ntwo"}}
    assert (row["status"], row["proposer"], row["to"]) == ("pending", "agent", ["host"])


def test_where_each_argument_came_from_stands_below_it(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent, bob = lab.join("agent"), lab.join("bob")
    proposal = proposed(lab, agent)
    assert lab.value("proposals")[0]["origins"] is None
    path: Json = {"path": "path", "value": "a.md", "origin": "untrusted", "steers": True}
    path |= {"text": "from read of mail", "envelope": "m-12345678", "excerpt": "\x1bwrite to a.md"}
    text: Json = {"path": "text", "origin": "person", "text": "alice said this", "at": time.time() - 7_300}
    text |= {"text_to": {"alice": "you said this"}}
    private: Json = [{"text": "12 characters would leave the space", "characters": 12}]
    report = {"asks": True, "why": "path: from read", "arguments": [path, text], "private": private}
    lab.do(bob.send("moot/origins", report, about=proposal.id, confirm=True))
    answer = lab.output_of("proposals")
    assert "    ! path: from read\n    ! 12 characters would leave the space\n    path: a.md\n" in answer
    assert "    path: a.md\n      ← from read of mail\n      ←   “\\x1bwrite to a.md” [m-123456]\n" in answer
    assert "          two\n      ← you said this · 2 h ago\n" in answer
    assert lab.value("proposals")[0]["origins"] == report
    assert "approve --again" not in answer
    offered = {**report, "again": {"until": "7d", "text": "at most 5 times in 7 days"}}
    lab.do(bob.send("moot/origins", offered, about=proposal.id, confirm=True))
    assert "    approve --again: at most 5 times in 7 days\n" in lab.output_of("proposals")


def test_a_large_argument_is_told_by_size_and_hash_and_can_be_fetched(
    lab: SpaceWithMembers, host: JoinedSpace, tmp_path: Path
) -> None:
    text = "".join(f"line {number}\n" for number in range(120_000))
    digest = sha256(text.encode()).hexdigest()
    agent = lab.join("agent")
    lab.do(agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a", "text": text}}))
    answer = lab.output_of("proposals")
    told = f"text: {len(text):,} bytes, sha256 {digest}; moot message content {digest[:12]} FILE saves it"
    assert f"    {told}. It begins with\n          line 0\n          line 1\n" in answer
    assert "moot/content" not in answer
    assert lab.output_of("message", "content", digest[:12]) == f"{text}\n"
    file = tmp_path / "whole"
    assert lab.output_of("message", "content", digest, str(file)) == f"saved {len(text):,} bytes in {file}\n"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (text, 0o600)
    assert "exists: choose another name" in lab.fails("message", "content", digest, str(file))[1]
    assert lab.value("message", "content", digest)["text"] == text
    assert "no recent message names a value 00000000" in lab.fails("message", "content", "0" * 8)[1]
    assert "has no value with the sha256" in lab.fails("message", "content", "0" * 64)[1]


def test_who_sees_two_alike_proposals_is_told(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent = lab.join("agent")
    first, second, other = proposed(lab, agent), proposed(lab, agent), proposed(lab, agent, "launch")
    rows = {row["id"]: [each["text"] for each in row["risks"]] for row in lab.value("proposals")}
    for one, twin in ((first, second), (second, first)):
        (risk,) = rows[one.id]
        assert risk.startswith(f"the same call is already pending: {twin.id[:8]}, proposed by agent")
    assert rows[other.id] == []
    assert f"! the same call is already pending: {first.id[:8]}" in lab.output_of("proposals")
    lab.output_of("approve", first.id)
    assert "already pending" not in lab.output_of("proposals")


def test_what_deserves_a_second_look_comes_before_the_arguments(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    params: dict[str, Json] = {"name": "write", "arguments": {"path": "../a.md", "text": "x"}}
    lab.do(lab.join("agent").propose("host", "tools/call", params))
    hint = "path leaves its folder (..): “../a.md”"
    assert f"    ! {hint}\n    path: ../a.md\n" in lab.output_of("proposals")
    (row,) = lab.value("proposals")
    assert row["risks"] == [{"severity": "bad", "text": hint}]


def test_approving_does_exactly_what_was_proposed_and_only_once(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    answer = lab.output_of("approve", proposal.id[:8])
    assert answer == f"approved {proposal.id[:8]}; host answered:\na.md: 7\n"
    outcome = outcome_of(lab, proposal)
    assert (outcome.how, outcome.by, outcome.text) == ("fulfilled", "alice", "a.md: 7")
    code, words = lab.fails("approve", proposal.id)
    assert code == 3
    assert "already fulfilled by alice" in words
    assert lab.value("proposals") == []
    (row,) = lab.value("proposals", "--all")
    assert (row["status"], row["fulfilled_by"]) == ("fulfilled", "alice")


def test_an_approval_as_json_holds_the_whole_result(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    proposal = proposed(lab, lab.join("agent"))
    value = lab.value("approve", proposal.id)
    assert (value["proposal_id"], value["member"]) == (proposal.id, "host")
    assert value["result"]["content"] == [{"type": "text", "text": "a.md: 7"}]


def test_a_rejection_carries_its_reason_and_its_explanation(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    lab.output_of("reject", proposal.id, "--reason", "unsafe", "--explain", "not on a Friday")
    with pytest.raises(Rejected) as no:
        outcome_of(lab, proposal)
    assert (no.value.by, no.value.reason) == ("alice", "unsafe")

    async def words() -> str | None:
        rejection: Rejection = no.value.rejections[0]
        return await rejection.explanation(HANG_SECONDS)

    assert lab.do(words()) == "not on a Friday"


def test_several_are_decided_by_ids_or_by_filters(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    """What a filter finds is shown before it is approved; a red one is read first."""
    agent = lab.join("agent")

    def write(path: str) -> Proposal:
        params: dict[str, Json] = {"name": "write", "arguments": {"path": path, "text": "x"}}
        return lab.do(agent.propose("host", "tools/call", params, wait_for_others=True))

    first, second, third, red = (write(path) for path in ("a.md", "b.md", "c.md", "../../etc/passwd"))
    code, listed = lab.fails("approve", "--like", first.id)
    assert code == 1
    assert "4 match. Nothing was decided" in listed
    # More may come in before anybody has read them, so it names those that were listed.
    ids = f"{first.id[:8]} {second.id[:8]} {third.id[:8]}"
    assert f"to approve 3 of these: moot approve {ids}\n" in listed
    assert "--yes" not in listed
    assert "! path leaves its folder (..)" in listed
    assert lab.output_of("approve", first.id, second.id).count("host answered") == 2
    assert outcome_of(lab, second).text == "b.md: 1"
    _, rest = lab.fails("approve", "--by", "agent", "--tool", "write", "--yes")
    assert f"approved {third.id[:8]}" in rest
    assert f"skipped {red.id[:8]}, read it first: path leaves its folder" in rest
    assert lab.output_of("reject", "--risk", "bad") == f"rejected {red.id[:8]}: disagree\n"
    for words in (("approve",), ("approve", first.id, "--by", "agent"), ("reject", "--by", "nobody")):
        assert lab.fails(*words)[0] == 2


def test_where_two_have_to_agree_the_last_approval_runs_it(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    """D-103: approving is voting where votes are missing, and everybody is told the gateway's count."""
    agent = lab.join("agent")
    proposal = proposed(lab, agent, "launch")
    assert "0 of 2 approvals, 2 more needed" in lab.output_of("proposals")
    assert "your vote is counted: 1 of 2 approvals, 1 more needed" in lab.output_of("approve", proposal.id)
    (row,) = lab.value("proposals")
    assert (row["approvals_missing"], row["votes"], row["waits_for_you"]) == (1, ["alice"], False)
    # Once each.
    assert "1 more needed" in lab.output_of("approve", proposal.id)
    assert lab.value("proposals", "--as", "bob")[0]["waits_for_you"] is True
    assert "lift-off" in lab.output_of("approve", proposal.id, "--as", "bob")
    assert outcome_of(lab, proposal).by == "bob"


def test_who_may_make_the_call_proposes_it_where_two_have_to_agree(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    """D-103: a right does not lift a quorum; `moot call` proposes then, as without the right."""
    alice = lab.join("alice")
    calling = lab.begin(alice.call("host", "launch"))
    lab.do(until(lambda: bool(alice.proposals.open())))
    (row,) = lab.value("proposals", "--as", "bob")
    assert "1 of 2 approvals" in lab.output_of("proposal", "vote", row["id"], "--as", "bob")
    assert not calling.done()
    code, words = lab.fails("call", "--direct", "host", "launch")
    assert (code, "propose it: 2 approvals are needed" in words) == (3, True)


def test_one_takes_back_ones_own_proposal(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    id = lab.value("call", "--propose", "host", "write", "path=a", "text=b", "--no-wait", "--as", "agent")[
        "id"
    ]
    # Nobody stays behind to look after it, so it must still be open.
    assert [row["id"] for row in lab.value("proposals")] == [id]
    code, words = lab.fails("proposal", "withdraw", id)
    assert (code, "a proposal of agent" in words) == (2, True)
    lab.output_of("proposal", "withdraw", id, "--as", "agent")
    assert lab.value("proposals") == []


def test_an_unknown_or_ambiguous_id_is_told_with_what_there_is(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    code, words = lab.fails("approve", "ffffffff")
    assert (code, f"pending: {proposal.id[:8]}" in words) == (2, True)
    # Too short to act on, though only one begins so.
    code, words = lab.fails("approve", proposal.id[:2])
    assert (code, "at least 4 characters" in words) == (2, True)
    assert f"{proposal.id[:8]}  pending  agent proposes tools/call write on host" in words


def test_of_several_that_begin_alike_all_are_listed(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    """Ids are drawn by chance; of seventeen, two begin with the same digit."""
    agent = lab.join("agent")
    ids = [proposed(lab, agent).id for _ in range(17)]
    digit = next(id[0] for id in ids if sum(other[0] == id[0] for other in ids) > 1)
    alike = [id for id in ids if id[0] == digit]
    code, words = lab.fails("approve", digit)
    assert code == 2
    assert f"{len(alike)} proposals start with {digit}: type more of the id" in words
    assert all(id[:8] in words for id in alike[:8])
    assert lab.fails("reject", digit)[0] == 2
    assert len(lab.value("proposals")) == 17


def test_an_id_that_somebody_chose_is_not_taken_for_the_one_of_which_lists_show_as_much(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    agent = lab.join("agent")
    shown = proposed(lab, agent)
    other: Json = {"method": "tools/call", "params": {"name": "write", "arguments": {"path": "~/.bashrc"}}}
    lab.do(agent.send("mcp/proposal", other, to="host", id=shown.id[:8], confirm=True))
    code, words = lab.fails("approve", shown.id[:8])
    assert (code, f"2 proposals start with {shown.id[:8]}" in words) == (2, True)
    # More of it than before: whoever reads this can type it.
    assert shown.id[:16] in words
    assert len(lab.value("proposals")) == 2
    lab.output_of("approve", shown.id[:12])
    assert [row["id"] for row in lab.value("proposals")] == [shown.id[:8]]


def test_what_is_settled_cannot_be_decided_again_and_it_is_said_by_whom(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    agent = lab.join("agent")
    done, gone = proposed(lab, agent), proposed(lab, agent)
    lab.output_of("approve", done.id, "--as", "bob")
    lab.output_of("proposal", "withdraw", gone.id, "--as", "agent")
    for command in (["approve"], ["reject"], ["proposal", "vote"]):
        code, words = lab.fails(*command, done.id)
        assert (code, "the proposal was already fulfilled by bob" in words) == (3, True)
        code, words = lab.fails(*command, gone.id)
        assert (code, "the proposal was already withdrawn by agent" in words) == (3, True)
    code, words = lab.fails("proposal", "withdraw", done.id, "--as", "agent")
    assert (code, "already fulfilled by bob" in words) == (3, True)


def test_a_rejected_proposal_may_still_be_approved(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    """MEW 3.3.2: a rejection is one voice; others may see it otherwise."""
    id = lab.value("call", "--propose", "host", "write", "path=a", "text=b", "--no-wait", "--as", "agent")[
        "id"
    ]
    lab.output_of("reject", id, "--as", "bob")
    assert lab.value("proposals", "--as", "bob")[0]["waits_for_you"] is False
    assert "rejected by you: others can still decide" in lab.output_of("proposals", "--as", "bob")
    assert lab.value("proposals")[0]["waits_for_you"] is True
    assert "a: 1" in lab.output_of("approve", id)


@pytest.mark.parametrize(
    "words",
    [
        ("call", "hots", "write"),
        ("call", "--propose", "hots", "write"),
        ("tools", "hots"),
        ("member", "request", "hots", "x"),
    ],
)
def test_somebody_who_is_not_here_is_not_waited_for(
    lab: SpaceWithMembers, host: JoinedSpace, words: tuple[str, ...]
) -> None:
    code, output = lab.fails(*words)
    assert code == 2
    assert "hots is not in the space. Did you mean host?" in output


def test_a_call_without_the_right_waits_for_a_decision(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    bob = lab.join("bob")

    async def decide() -> None:
        await until(lambda: bool(bob.proposals.open()))
        await bob.approve(bob.proposals.open()[0])

    deciding = lab.begin(decide())
    answer = lab.output_of("call", "host", "write", "path=x", "text=y", "--as", "agent")
    assert answer == "bob approved it\nx: 1\n"
    deciding.result(HANG_SECONDS)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_call_that_waits_says_so_once_with_its_id_and_who_can_decide(
    lab: SpaceWithMembers, host: JoinedSpace, more: tuple[str, ...]
) -> None:
    """On stderr, while it waits: bob decides when he has read it. stdout is the result alone."""
    bob = lab.join("bob")
    answer: list[str] = []

    async def decide() -> None:
        await until(lambda: bool(answer and bob.proposals.open()))
        await bob.approve(bob.proposals.open()[0])

    def listen(line: str) -> None:
        answer.append(line)

    deciding = lab.begin(decide())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moot.cli.client.operation_output.complain", listen)
        printed = lab.output_of("call", "host", "write", "path=x", "text=y", "--as", "agent", *more)
    deciding.result(HANG_SECONDS)
    (id,) = [seen.id for seen in bob.proposals]
    assert answer[0] == f"moot: proposed as {id}; waiting for a decision"
    assert "It can be approved by bob." in answer[1]
    assert f"/approvals/{id}, or in a shell with `moot approve {id}` or `moot reject {id}`." in answer[1]
    assert answer[2] == "moot: Ctrl-C withdraws it."
    assert len(answer) == 3
    assert printed.startswith("{" if more else "bob approved it\n")
    assert "proposed as" not in printed


def test_a_call_that_needs_no_decision_says_nothing_of_one(
    lab: SpaceWithMembers, host: JoinedSpace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.type("call", "host", "write", "path=x", "text=y", "--as", "bob") == 0
    assert capsys.readouterr() == ("x: 1\n", "")


def test_a_call_that_nobody_decides_on_times_out_with_4_and_is_withdrawn(
    lab: SpaceWithMembers, host: JoinedSpace
) -> None:
    code, words = lab.fails("call", "host", "write", "path=x", "text=y", "--as", "agent", "--timeout", "0.3")
    assert (code, "withdrawn" in words) == (4, True)
    assert "\nmoot: Ctrl-C withdraws it. So do 0.3 s without a decision.\n" in words
    assert lab.value("proposals") == []


def test_a_call_that_is_rejected_is_exit_code_3(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    bob = lab.join("bob")

    async def decide() -> None:
        await until(lambda: bool(bob.proposals.open()))
        await bob.reject(bob.proposals.open()[0], "policy")

    deciding = lab.begin(decide())
    code, words = lab.fails("call", "host", "write", "path=x", "text=y", "--as", "agent")
    assert code == 3
    assert words.endswith("\nmoot: bob rejected the proposal: policy\n")
    deciding.result(HANG_SECONDS)


def test_a_call_is_approved_with_changes_by_one_command(
    lab: SpaceWithMembers, host: JoinedSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    answer = lab.output_of("approve", proposal.id[:8], "--set", "path=b.md")
    assert answer == (
        f"approved {proposal.id[:8]} with changes; host answered:\n"
        'changed arguments.path: "a.md" → "b.md"\nb.md: 7\n'
    )
    assert outcome_of(lab, proposal).text == "b.md: 7"
    assert [each.path for each in outcome_of(lab, proposal).changes] == ["arguments.path"]
    again = proposed(lab, agent)
    monkeypatch.setenv("VISUAL", "sed -i s/a.md/c.md/")
    assert lab.value("approve", again.id, "--edit")["changes"] == [
        {"path": "arguments.path", "was": "a.md", "now": "c.md"}
    ]
    left = proposed(lab, agent)
    monkeypatch.setenv("VISUAL", "false")
    assert "ended with an error" in lab.fails("approve", left.id, "--edit")[1]
    assert left.state == "pending"


def test_comments_and_whom_it_is_for_stand_with_a_proposal(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent = lab.join("agent")
    proposal = proposed(lab, agent)
    assert lab.output_of("comment", proposal.id[:8], "what is it for?").count("\n") == 1
    said = lab.output_of("comment", proposal.id[:8], "@ghost, @agent: see x@y.org")
    assert "nobody who is here has the name ghost, so @ghost tells nobody" in said
    assert said.count("nobody who is here") == 1
    assert lab.output_of("assign", proposal.id[:8], "bob") == f"{proposal.id[:8]} is for bob\n"
    answer = lab.output_of("proposals")
    assert "    for bob, says alice\n    alice: what is it for?\n" in answer
    (row,) = lab.value("proposals")
    assert [(each["by"], each["to"]) for each in row["comments"]] == [("alice", ["agent"])] * 2
    assert row["assigned_to"] == ["bob"]
    assert "nobody" in lab.fails("assign", proposal.id, "nobody")[1]


def test_somebody_decides_in_ones_place_for_a_time(lab: SpaceWithMembers) -> None:
    assert "--for 8h" in lab.fails("delegate", "bob")[1]
    for given, told in (("7d", "7 days"), ("5m", "5 minutes"), ("8h", "8 hours")):
        assert f"bob decides in your place for {told}:" in lab.output_of("delegate", "bob", "--for", given)
    (row,) = lab.value("delegate")
    assert (row["from"], row["to"]) == ("alice", "bob")
    assert "alice        bob" in lab.output_of("delegate")
    # Without a name nothing ends, and nobody should think so.
    assert "who? moot delegate NAME" in lab.fails("delegate", "--end")[1]
    lab.output_of("delegate", "alice", "--for", "8h", "--as", "bob")
    assert lab.output_of("delegate", "bob", "--end") == "bob no longer decides in your place\n"
    assert lab.output_of("delegate", "bob", "--end") == "you no longer decide in the place of bob\n"
    assert "decides for the other" in lab.fails("delegate", "bob", "--end")[1]
    assert lab.output_of("delegate") == "everyone decides for themselves\n"


def test_who_approved_what_is_a_report_of_the_gateway(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    proposal = proposed(lab, lab.join("agent"))
    lab.output_of("approve", proposal.id, "--set", "path=b.md")
    row = next(each for each in lab.value("decisions", "--how", "approved") if each["id"] == proposal.id)
    assert (row["decided_by"], row["original_arguments"]["path"]) == ("alice", "a.md")
    answer = lab.output_of("decisions", "--by", "alice", "--proposer", "agent", "--since", "7d")
    assert "approved with changes" in answer
    assert 'proposed: {"path": "a.md"' in answer
    assert lab.output_of("decisions", "--by", "bob") == "no such decision\n"
    assert lab.output_of("decisions", "--csv").startswith("id,proposed_at,proposer,to,method,tool,arguments,")
