"""What a person sees before a decision: risks first, why it was proposed, how like ones were decided."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from moot.participant import JoinedSpace
from moot.protocol import risk_table
from moot.protocol.call_risks import risks_of
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.approvals_page import (
    SETTLED,
    detail,
    dialog_button,
    outcome,
    propose,
    shown,
    waiting,
)
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven
from tests.console.in_node import each_in_node, in_node
from tests.participant.risk_cases import cases
from tests.participant.risky_calls import HARMLESS, HOSTILE, RISKY
from tests.waiting import HANG_SECONDS


def test_risks_are_found_and_nothing_else_is_called_one() -> None:
    calls: list[Any] = [
        {"name": name, "params": {"arguments": given}} for name, given, *_ in [*RISKY, *HARMLESS]
    ]
    found = each_in_node(
        "views/proposals/call-risks.js", "(call) => m.risksOf(call).map((each) => each.text)", calls
    )
    for (_, given, expected), risks in zip(RISKY, found, strict=False):
        assert any(expected in text for text in risks), (given, risks)
    assert found[len(RISKY) :] == [[]] * len(HARMLESS)


def test_the_console_says_of_every_case_what_the_terminal_says() -> None:
    calls = [*cases("dangerous"), *cases("harmless"), *((tool, given) for tool, given, _ in RISKY), *HARMLESS]
    given: list[Json] = [{"name": tool, "params": {"arguments": arguments}} for tool, arguments in calls]
    shown = "(call) => m.risksOf(call).map((each) => [each.tone, each.text])"
    found = each_in_node("views/proposals/call-risks.js", shown, given)
    for (tool, arguments), risks in zip(calls, found, strict=True):
        assert risks == [[each.severity, each.text] for each in risks_of(tool, arguments)], arguments


def test_the_console_has_the_table_of_the_terminal() -> None:
    tables = in_node("async (bring) => ({...(await bring('views/proposals/risk-table.js'))})")
    names = [name for name in vars(risk_table) if name.isupper()]
    assert tables == json.loads(json.dumps({name: vars(risk_table)[name] for name in names}))


MEASURE = "(call) => { const at = performance.now(); m.risksOf(call); return performance.now() - at; }"


def test_looking_for_risks_in_a_hostile_megabyte_ends() -> None:
    """No text makes an expression look far ahead from each of many starts."""
    cases: list[Any] = [
        {"name": "shell", "params": {"arguments": {"command": (text * 1_000_000)[:1_000_000]}}}
        for text in HOSTILE
    ]
    took = each_in_node("views/proposals/call-risks.js", MEASURE, cases)
    assert max(took) < HANG_SECONDS * 1000 / 2, took


def test_risks_stand_above_the_call_and_in_the_list_of_several(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, second = member("agent"), member("second")
    propose(agent, "write_file", path="../outside.txt", content="x")
    propose(agent, "write_file", path="inside.txt", content="y" * 5_000)
    emptied = propose(agent, "write_file", path="notes.txt", content="")
    page = page_as("human", "approvals")
    second.run(lambda space: space.reject(emptied.id, "unsafe"))
    second.run(lambda space: space.call("files", "read_file", {"path": "notes.txt"}))
    expect(waiting(page).filter(has_text="Rejected by second")).to_have_count(1)
    shown(page, "write_file")
    expect(detail(page).locator(".proposal-cautions .caution").first).to_contain_text("leaves its folder")
    for number in range(3):
        waiting(page).nth(number).get_by_role("checkbox").check()
    page.keyboard.press("a")
    dialog = page.locator("dialog")
    expect(dialog.locator(".caution").first).to_contain_text("leaves its folder")
    expect(dialog.locator("tbody tr").last).to_contain_text("Rejected by second")
    expect(dialog.locator("tbody tr").last).to_contain_text("Empties the file: removes all 2 lines.")
    # What cannot be read whole is not approved with the others.
    expect(dialog.locator(".left-out")).to_contain_text("too long to be read here")
    page.wait_for_timeout(SETTLED)
    # One of them is red: the press is held.
    dialog_button(page, "Hold to approve 2 calls").click(delay=1_000)
    expect(waiting(page)).to_have_count(1)
    expect(waiting(page)).to_contain_text("inside.txt")


@pytest.mark.parametrize("may_read", [True, False])
def test_the_change_is_shown_unasked_if_the_proposer_may_read_the_file_anyway(
    page_as: PageAs, member: MemberAs, may_read: bool
) -> None:
    """Everybody sees what is read: a proposal to write must not be a way to have a file read."""
    member("files")
    agent, human = member("agent"), member("human")
    read: Json = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_file"}}}
    if may_read:
        human.run(lambda space: space.admin.grant("agent", [read]))
    reads: list[str] = []
    arriving = agent.run(lambda space: space.envelopes())

    async def count_reads(_: JoinedSpace) -> None:
        async for each in arriving:
            if isinstance(each, Envelope) and each.kind == "mcp/request":
                reads.append(str(each.payload.get("params", {}).get("name")))

    agent.start(count_reads)
    propose(agent, "write_file", path="notes.txt", content="")
    page = page_as("human", "approvals")
    shown(page, "write_file")
    if may_read:
        expect(detail(page)).to_contain_text("Empties the file: removes all 2 lines.")
        expect(detail(page).locator(".diff-line.removed")).to_have_count(2)
        # Everybody sees a read, so a moment later it is not read again; what the person presses is.
        page.evaluate("location.hash = '#/lab/chat'")
        expect(page.locator(".view-chat")).to_be_visible()
        page.go_back()
        expect(detail(page)).to_contain_text("compared with the file on files at")
        detail(page).get_by_role("button", name="Read again").click()
        expect(detail(page)).to_contain_text("compared with the file on files now")
        agent.sees(lambda _: reads.count("read_file") >= 2)
        assert reads.count("read_file") == 2
    else:
        expect(detail(page).get_by_role("button", name="Compare with current file")).to_be_visible()
        expect(detail(page)).not_to_contain_text("second line")
        detail(page).get_by_role("button", name="Compare with current file").click()
        expect(detail(page)).to_contain_text("Empties the file: removes all 2 lines.")


def approve_as(member: Driven, proposal: str) -> None:
    member.run(lambda space: space.approve(proposal))


def test_why_it_was_proposed_and_how_like_ones_were_decided(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, human = member("agent"), member("human")
    page = page_as("human", "approvals")
    for _ in range(3):
        proposal = propose(agent, "add", a=1)
        human.sees(lambda space: space.proposals.open())
        approve_as(human, proposal.id)
        outcome(agent, proposal)
    decided = page.get_by_role("list", name="Recent decisions").locator(".approvals-row")
    expect(decided.filter(has_text="Approved")).to_have_count(3)

    async def reason_and_propose(space: Any) -> None:
        async with space.reasoning("adding as asked") as reasoning:
            await reasoning.thought("one and one is two")
            params = {"name": "add", "arguments": {"a": 1}}
            await space.propose("files", "tools/call", params, context=reasoning.context)

    agent.run(reason_and_propose)
    waiting(page).locator(".approvals-row-open").click()
    expect(detail(page)).to_contain_text("agent thought: one and one is two")
    expect(detail(page)).to_contain_text("before: 3 approved")
    offer = detail(page).locator(".proposal-offer")
    expect(offer).to_contain_text("You approved this exact call 3 times and rejected none.")
    page.wait_for_timeout(SETTLED)
    offer.get_by_role("button", name="Approve and grant…").click()
    expect(page.locator("dialog").get_by_label("This exact call")).to_be_checked()
