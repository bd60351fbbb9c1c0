"""`moot rules` with a real approver: what does not exist is not accepted, dismissed, stopped or lifted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from moot.participant import JoinedSpace, SeenProposal, connect
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore
from tests.cli.space_with_members import SETTINGS, SpaceWithMembers, space_with_members
from tests.trust.approver.test_approver import APPROVER, LEARNING
from tests.waiting import HANG_SECONDS

SPACE = SETTINGS | {
    "participants": {
        "alice": {"capabilities": [{"kind": "*"}]},
        # May dismiss, but not look at what is suggested.
        "carol": {"capabilities": [{"kind": "trust/dismiss"}, {"kind": "trust/stop"}]},
        "agent": {"capabilities": [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}]},
        "files": {"capabilities": [{"kind": "mcp/response"}]},
        "approver": {"capabilities": APPROVER},
    }
}


@pytest.fixture
def lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SpaceWithMembers]:
    monkeypatch.chdir(tmp_path)
    with space_with_members(tmp_path, capsys, SPACE) as members:
        yield members


@dataclass
class SpaceWithApprover:
    """The approver of the lab, and its store."""

    lab: SpaceWithMembers
    approver: Approver

    @property
    def book(self) -> RuleStore:
        return self.approver.store

    def suggested(self) -> str:
        """Alice approves what the agent proposes, until that bears a rule; its suggestion."""
        agent, alice, files = (self.lab.join(name) for name in ("agent", "alice", "files"))
        self.lab.do(_decide(agent, alice, files))
        self.lab.do(self.approver.suggester.suggest_now())
        (name,) = self.book.suggestions
        return name


async def _decide(agent: JoinedSpace, alice: JoinedSpace, files: JoinedSpace) -> None:
    @files.tool
    def write_file(path: str) -> str:
        return path

    @alice.on_proposal
    async def decide(seen: SeenProposal) -> None:
        await alice.approve(seen)

    for day in range(10, 20):
        await agent.call("files", "write_file", {"path": f"reports/day-{day}.md"})


@pytest.fixture
def approver_space(lab: SpaceWithMembers, monkeypatch: pytest.MonkeyPatch) -> SpaceWithApprover:
    monkeypatch.setattr("moot.operations.approver_client.ANSWER_SECONDS", HANG_SECONDS)
    return SpaceWithApprover(lab, lab.stay(_approver(lab)))


@asynccontextmanager
async def _approver(lab: SpaceWithMembers) -> AsyncIterator[Approver]:
    token = lab.token("approver").read_text("ascii").strip()
    async with connect(lab.gateway.url, "lab", token) as space:
        approver = Approver(
            space,
            RuleStore.open(lab.folder / "trust"),
            ProposalHistory(),
            ApproverSettings(learning=LEARNING),
        )
        running = asyncio.create_task(approver.run())
        try:
            yield approver
        finally:
            running.cancel()
            await asyncio.wait([running])


def test_without_an_approver_nothing_is_claimed(lab: SpaceWithMembers) -> None:
    for words in (["accept", "s-nosuch"], ["dismiss", "s-nosuch"], ["resume", "rule"], ["resume"], ["list"]):
        code, output = lab.fails("rules", *words)
        assert code == 1
        assert "no member approver is here" in output
    # The stop is sent all the same: whoever comes back obeys it.
    code, output = lab.fails("rules", "stop")
    assert (code, "not confirmed: the stop" in output, "comes back obeys it" in output) == (1, True, True)


def test_a_stop_that_the_approver_does_not_confirm_is_not_claimed(
    lab: SpaceWithMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.operations.approver_client.ANSWER_SECONDS", 0.2)
    # Connected, but it hears nothing: nobody knows whether rules still decide.
    lab.join("approver")
    code, output = lab.fails("rules", "stop")
    assert code != 0
    assert "not confirmed" in output
    code, output = lab.fails("rules", "stop", "--json")
    assert code != 0
    assert "not confirmed" in json.loads(output)["message"]


def test_what_is_not_there_is_not_accepted_dismissed_stopped_or_lifted(
    approver_space: SpaceWithApprover,
) -> None:
    lab = approver_space.lab
    for words, answer in (
        (["accept", "s-nosuch"], "there is no suggestion s-nosuch: nothing is suggested"),
        (["accept", "s-nosuch", "--grant"], "there is no suggestion s-nosuch"),
        (["dismiss", "s-nosuch"], "there is no suggestion s-nosuch: nothing is suggested"),
        (["dismiss", "s-nosuch", "--as", "carol"], "not dismissed: this suggestion no longer exists"),
        (["stop", "nosuch"], "not stopped: there is no rule nosuch"),
        (["resume", "nosuch"], "not resumed: there is no suspended rule nosuch"),
        (["resume"], "rules were not stopped"),
    ):
        code, output = lab.fails("rules", *words)
        # 2: found out before anything was said; 1: the approver said so.
        assert (code, answer in output) == (2 if answer.startswith("there is no") else 1, True), (
            words,
            output,
        )


def test_the_switch_says_what_it_did(approver_space: SpaceWithApprover) -> None:
    lab = approver_space.lab
    answer = lab.output_of("rules", "stop", "--about", "nosuch")
    assert answer.startswith("no rule is known behind nosuch, so all rules are stopped")
    # Said twice, it is still true.
    assert lab.output_of("rules", "stop").startswith("all rules are stopped")
    assert lab.output_of("rules", "resume") == "rules decide again\n"


def test_a_suggestion_is_named_by_its_beginning_and_becomes_a_rule_once(
    approver_space: SpaceWithApprover,
) -> None:
    lab, name = approver_space.lab, approver_space.suggested()
    # Too little to be sure.
    assert f"there is {name}" in lab.fails("rules", "accept", name[:3])[1]
    answer = lab.output_of("rules", "accept", name[:-2])
    (rule,) = approver_space.book.rules
    assert answer == f"accepted {name}; rule {rule.name} decides from now on\n"
    assert "nothing is suggested" in lab.fails("rules", "accept", name)[1]
    assert lab.output_of("rules", "stop", rule.name) == f"rule {rule.name} is suspended\n"
    assert lab.output_of("rules", "stop", rule.name) == f"rule {rule.name} is suspended\n"
    assert lab.output_of("rules", "resume", rule.name) == f"rule {rule.name} decides again\n"


def test_what_a_rule_decided_is_shown_and_confirmed_up_to_what_was_shown(
    approver_space: SpaceWithApprover,
) -> None:
    lab, name = approver_space.lab, approver_space.suggested()
    lab.output_of("rules", "accept", name)
    (rule,) = approver_space.book.rules
    assert lab.output_of("rules", "review") == "there is nothing to review\n"
    reviews = approver_space.approver.reviews
    for id in ("p-1", "p-2", "p-3"):
        reviews.note(rule, id, 0.0)
    answer = lab.output_of("rules", "review", rule.name)
    assert [line.split()[0] for line in answer.splitlines() if line.startswith("p-")] == ["p-1", "p-2", "p-3"]
    assert f"moot rules review {rule.name} --confirm p-3" in answer
    assert "p-4 does not wait for a review" in lab.fails("rules", "review", "--confirm", "p-4")[1]
    # Decided since it was shown: the person has not seen it.
    reviews.note(rule, "p-9", 0.0)
    assert lab.output_of("rules", "review", "--confirm", "p-3") == "reviewed 3 decisions\n"
    assert reviews.unreviewed(rule.name) == ("p-9",)


def test_suggestions_are_a_table_with_what_speaks_for_each_below(approver_space: SpaceWithApprover) -> None:
    assert approver_space.lab.output_of("rules", "suggestions") == (
        "nothing is suggested\nno person approved a call yet that a rule could cover\n"
    )
    name = approver_space.suggested()
    headings, row, *details = approver_space.lab.output_of("rules", "suggestions").splitlines()
    assert headings.split() == ["SUGGESTION", "RULE"]
    assert row.startswith(f"{name}  ")
    assert details
    assert all(line.startswith("    ") for line in details)


def test_a_dismissed_suggestion_is_gone(approver_space: SpaceWithApprover) -> None:
    lab, name = approver_space.lab, approver_space.suggested()
    assert lab.output_of("rules", "dismiss", name) == f"dismissed {name}\n"
    assert "there is no suggestion" in lab.fails("rules", "dismiss", name)[1]
    assert not approver_space.book.suggestions


def test_a_suggestion_is_narrowed_by_a_file_with_one_rule(approver_space: SpaceWithApprover) -> None:
    lab, name = approver_space.lab, approver_space.suggested()
    rule = dict(approver_space.book.suggestions[name]["rule"])
    rule["limits"] = {**rule["limits"], "count": 1}
    file = lab.folder / "narrow.yaml"
    # The rule alone, and as a rules file.
    file.write_text(json.dumps(rule))
    assert "decides from now on" in lab.output_of("rules", "accept", name, "--narrow", str(file))
    (made,) = approver_space.book.rules
    assert made.limits.max_decisions == 1
    assert lab.output_of("rules", "remove", made.name) == f"rule {made.name} is gone\n"
    assert approver_space.book.rules == ()
    assert f"there is no rule {made.name}" in lab.fails("rules", "remove", made.name)[1]


def test_all_that_is_suspended_is_resumed_at_once(approver_space: SpaceWithApprover) -> None:
    lab, name = approver_space.lab, approver_space.suggested()
    assert "no rule is suspended" in lab.fails("rules", "resume", "--all")[1]
    lab.output_of("rules", "accept", name)
    (rule,) = approver_space.book.rules
    lab.output_of("rules", "stop", rule.name)
    lab.output_of("rules", "stop")
    assert lab.output_of("rules", "resume", "--all") == f"resumed {rule.name}\n"
    assert (approver_space.book.suspensions, approver_space.book.stopped) == ({}, None)


def test_a_call_is_approved_again_from_the_shell(approver_space: SpaceWithApprover) -> None:
    lab = approver_space.lab
    agent, files = lab.join("agent"), lab.join("files")

    arguments = {"to": "acme", "memo": "The invoice of May"}

    async def propose() -> str:
        @files.tool
        def order(to: str, memo: str) -> str:
            return f"paid {to}"

        made = await agent.propose("files", "tools/call", {"name": "order", "arguments": arguments})
        return made.id

    id = lab.do(propose())
    assert "are for --again" in lab.fails("approve", id, "--times", "3")[1]
    answer = lab.output_of("approve", id, "--again", "--times", "3", "--until", "12h")
    assert "paid acme" in answer
    (rule,) = approver_space.book.remembered
    assert f"`moot rules remove {rule.name}` ends that" in answer
    assert (rule.limits.max_decisions, rule.equals) == (3, arguments)
    assert rule.name in lab.output_of("rules", "list")
    said = lab.output_of("rules", "ignore", "files/order", "memo")
    assert said == "memo of files/order: not compared any more: any plain words will do\n"
    assert approver_space.book.tools_json["files/order"]["ignore"] == ["memo"]
    lab.output_of("rules", "ignore", "files/order", "memo", "--undo")
    assert approver_space.book.tools_json["files/order"]["ignore"] == []
    assert lab.output_of("rules", "stop", rule.name) == f"rule {rule.name} is forgotten\n"
    assert len(approver_space.book.remembered) == 0
