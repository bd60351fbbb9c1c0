"""Budgets where people decide: one wording, by the gateway, in the shell, the terminal and for assistants."""

from __future__ import annotations

from moot.bridges.operator.proposal_text import describe, question_text
from moot.participant import JoinedSpace, Proposal
from moot.tui.proposal_lines import full_lines, summary_lines
from tests.cli.space_with_members import SpaceWithMembers
from tests.waiting import until


def offer_pay(lab: SpaceWithMembers) -> None:
    space = lab.join("host")

    async def offer() -> None:
        @space.tool
        def pay(amount: float) -> str:
            """Pay."""
            return f"paid {amount}"

    lab.do(offer())


def propose(lab: SpaceWithMembers, agent: JoinedSpace, amount: float) -> Proposal:
    params = {"name": "pay", "arguments": {"amount": amount}}
    return lab.do(agent.propose("host", "tools/call", params))


def text_of(lines: object) -> str:
    return "\n".join("".join(part[0] for part in line) for line in lines)  # type: ignore[attr-defined]


def test_every_face_says_what_a_call_would_take(lab: SpaceWithMembers) -> None:
    offer_pay(lab)
    agent, bob = lab.join("agent"), lab.join("bob")
    assert lab.type("approve", propose(lab, agent, 390.5).id) == 0
    assert lab.type("approve", propose(lab, agent, 29.5).id) == 0
    lab.capsys.readouterr()
    proposal = propose(lab, agent, 95)
    text = "payments: 420 of 500 used today; this one 95 would pass the limit"
    assert f"\n    ! {text}\n" in lab.output_of("proposals")
    (row,) = lab.value("proposals")
    (budget,) = row["budgets"]
    assert (budget["text"], budget["verdict"], budget["used"], budget["amount"]) == (
        text,
        "refused",
        "420",
        "95",
    )
    # Whoever was there when it was proposed is told the same.
    lab.do(_seen(bob, proposal.id))
    seen = bob.proposals.get(proposal.id)
    assert seen is not None
    assert f"! {text}" in text_of(full_lines(seen))
    assert f"! {text}" in text_of(summary_lines(seen, 1))
    assert f"Budget {text}." in question_text(seen, "bob").split("\n")
    assert describe(seen)["budgets"] == [text]


async def _seen(space: JoinedSpace, id: str) -> None:
    await until(lambda: (seen := space.proposals.get(id)) is not None and bool(seen.budgets))


def test_moot_budgets_lists_what_is_used_and_an_approval_beyond_the_end_says_why(
    lab: SpaceWithMembers,
) -> None:
    offer_pay(lab)
    agent = lab.join("agent")
    (before,) = lab.value("budgets")
    assert (before["budget"], before["used"], before["at_most"], before["ask_at"]) == (
        "payments",
        "0",
        "500",
        "400",
    )
    assert lab.type("approve", propose(lab, agent, 450).id) == 0
    lab.capsys.readouterr()
    shown = lab.output_of("budgets").split("\n")
    assert shown[0].split() == ["BUDGET", "OF", "USED", "ASKS", "BEYOND", "AT", "MOST", "FREE", "AGAIN"]
    assert shown[1].split()[:4] == ["payments", "450", "400", "500"]
    assert shown[2].strip().startswith("the sum of arguments.amount in calls of pay, in a day")
    proposal = propose(lab, agent, 51)
    assert lab.type("approve", proposal.id) != 0
    said = lab.capsys.readouterr().err
    assert "payments: 450 of 500 used today; this one 51 would pass the limit; it is free again at" in said
    assert proposal.seen.status == "pending"
