"""One effect, once, where people decide: the same words in the shell, the terminal and for assistants."""

from __future__ import annotations

import pytest

from moot.bridges.operator.proposal_text import describe, question_text
from moot.chat.act_check import page_reason
from moot.chat.card_text import proposal_card
from moot.participant import JoinedSpace, SeenProposal
from moot.tui.dialogs import ShownProposal
from moot.tui.proposal_lines import full_lines, summary_lines
from tests.cli.space_with_members import SpaceWithMembers
from tests.cli.test_budgets import text_of
from tests.waiting import until


def offer_transfers(lab: SpaceWithMembers) -> list[str]:
    space, done = lab.join("host"), list[str]()

    async def offer() -> None:
        @space.tool
        def transfer(invoice: str, amount: float) -> dict[str, str]:
            done.append(f"transfer {invoice} {amount:g}")
            return {"id": f"T{len(done)}"}

        @space.tool
        def refund(transfer: str, amount: float) -> str:
            done.append(f"refund {transfer} {amount:g}")
            return "refunded"

    lab.do(offer())
    return done


def propose(lab: SpaceWithMembers, agent: JoinedSpace, invoice: str) -> str:
    params = {"name": "transfer", "arguments": {"invoice": invoice, "amount": 5}}
    return lab.do(agent.propose("host", "tools/call", params)).id


def test_people_see_it_before_they_pay_again_and_say_so(lab: SpaceWithMembers) -> None:
    done = offer_transfers(lab)
    agent, bob = lab.join("agent"), lab.join("bob")
    first = propose(lab, agent, "INV-7")
    assert "    transfer: compensable, it can be made good by refund\n" in lab.output_of("proposals")
    assert lab.type("approve", first) == 0
    again = propose(lab, agent, "inv-7")
    lab.capsys.readouterr()
    output = lab.output_of("proposals")
    assert "    ! transfer INV-7 was done for agent on " in output
    assert "approved by alice: do it again?" in output
    assert lab.type("approve", again) != 0
    assert "If so, add --repeat. Nothing was approved" in lab.capsys.readouterr().err
    seen = lab.do(until_seen(bob, again))
    text = seen.effects[0].text
    assert f"! {text}" in text_of(full_lines(seen))
    assert f"! {text}" in text_of(summary_lines(seen, 1))
    assert f"Effect {text}." in question_text(seen, "bob").split("\n")
    assert describe(seen)["effects"][0] == text
    assert ShownProposal.of(seen).repeats == seen.repeats != ()
    card = proposal_card(
        seen, key="k", viewers=(), console="http://x", space="lab", link_above="warn", max_chars=4_000
    )
    assert f"! {text}" in card.notes
    # A card may have been sent before it was done: it is looked at on its page.
    assert card.verbs == ()
    assert page_reason(seen, "warn")
    assert lab.type("approve", again, "--repeat") == 0
    assert done == ["transfer INV-7 5", "transfer inv-7 5"]


def test_a_call_is_made_good_by_a_proposal_like_any_other(lab: SpaceWithMembers) -> None:
    done = offer_transfers(lab)
    agent, bob = lab.join("agent"), lab.join("bob")
    first = propose(lab, agent, "INV-8")
    assert lab.type("compensate", first) != 0
    assert "was not carried out" in lab.capsys.readouterr().err
    assert lab.type("approve", first) == 0
    made = lab.value("compensate", first)
    assert made["params"] == {"name": "refund", "arguments": {"transfer": "T1", "amount": 5}}
    seen = lab.do(until_seen(bob, made["proposal_id"], is_noted=False))
    assert done == ["transfer INV-8 5"]
    lab.do(bob.approve(seen))
    assert done[1:] == ["refund T1 5"]


@pytest.mark.parametrize("tool", ["refund", "transfer"])
def test_nothing_is_guessed_where_no_call_is_named_or_its_result_is_not_known(
    lab: SpaceWithMembers, tool: str
) -> None:
    space, agent = lab.join("host"), lab.join("agent")

    async def offer() -> None:
        space.tool(name=tool)(answer)

    lab.do(offer())
    params = {"name": tool, "arguments": {"invoice": "x", "amount": 5}}
    id = lab.do(agent.propose("host", "tools/call", params)).id
    assert lab.type("approve", id) == 0
    lab.capsys.readouterr()
    assert lab.type("compensate", id) != 0
    why = "no call is named" if tool == "refund" else "cannot be filled in from what ran: result.id"
    assert why in lab.capsys.readouterr().err


def answer(invoice: str, amount: float) -> str:
    """Answers with words."""
    return f"{invoice}: {amount}"


async def until_seen(space: JoinedSpace, id: str, *, is_noted: bool = True) -> SeenProposal:
    await until(lambda: (seen := space.proposals.get(id)) is not None and (seen.effects or not is_noted))
    seen = space.proposals.get(id)
    assert seen is not None
    return seen
