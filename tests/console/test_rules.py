"""Rules in the console: suggested with what they rest on, accepted, narrowed, granted, stopped (D-92)."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running
from tests.console.page_time import press_at_once
from tests.console.rules_page import ApproverScene, card, dialog, notice, rule, trusting_spaces
from tests.console.test_accessibility import in_both, issues
from tests.console.test_members_page import HOSTILE, too_wide
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """As everywhere, with a participant for the approver and a guest who may not accept anything."""
    running = Running(tmp_path, loop, trusting_spaces(), port=origin_port)
    yield running
    running.stop()


@pytest.fixture
def office(member: MemberAs, tmp_path: Path) -> ApproverScene:
    return ApproverScene(member, tmp_path)


def accept(page: Page) -> None:
    """With two keys."""
    expect(card(page)).to_have_count(1)
    page.keyboard.press("a")
    expect(dialog(page, "Accept this rule?")).to_be_visible()
    page.keyboard.press("Enter")
    expect(rule(page)).to_have_count(1)


@pytest.mark.requirement("MCPX-7.1-4")
def test_a_widening_of_rights_is_suggested_only_once_history_supports_it(
    page_as: PageAs, office: ApproverScene
) -> None:
    """A few approvals suggest nothing; enough of them suggest as much as they bear, and what it rests on."""
    page = page_as("human", "rules")
    office.teach(range(10, 14))
    office.member.run(lambda _: office.approver.suggester.suggest_now())
    body = page.locator(".rules-body")
    expect(body).to_contain_text("No suggestions. After 8 consistent decisions")
    expect(card(page)).to_have_count(0)
    office.teach(range(14, 20))
    expect(card(page)).to_contain_text("Approve when agent proposes write_file on files")
    # It is made once enough was decided, which on a busy machine is before the last of them.
    expect(card(page)).to_contain_text(re.compile(r"learned from (8|9|10) decisions by second"))
    expect(card(page)).to_contain_text("error rate up to")
    expect(card(page).locator(".fact").nth(1)).to_contain_text(
        re.compile(r"error rate up to [1-9]\d % \(95 % confidence\)")
    )
    page.get_by_text("Back-test and alternatives").click()
    # Of those there are by now, all but the two rejected ones; the last may not be learned from yet.
    expect(card(page)).to_contain_text(
        re.compile(r"Would have approved (8 of 10|9 of 11|10 of 12) proposals\.")
    )
    expect(card(page)).to_contain_text("No conflicts with past decisions.")
    expect(card(page)).to_contain_text("write_file from agent, rejected: path does not match")
    steps = (
        card(page).get_by_role("list", name="Steps from proposals to a permission").get_by_role("listitem")
    )
    expect(steps).to_have_text(
        [
            "agent proposes; people decidecurrent",
            "agent calls write_file with these argumentscan be granted",
            re.compile("with any arguments.*not suggested: too few decisions"),
        ]
    )
    page.get_by_text("Rule text").click()
    expect(card(page).locator(".rule-text")).to_contain_text("tool: write_file")
    # Nothing is active before somebody says so.
    expect(page.locator(".rules-main")).to_contain_text("No rules yet: you are asked every time.")
    assert office.write("reports/day-20.md") == "by second"


def test_an_accepted_rule_decides_is_counted_and_says_why(page_as: PageAs, office: ApproverScene) -> None:
    page = page_as("human", "rules")
    office.teach()
    accept(page)
    office.mood = "leave"
    for day in (20, 21, 22):
        assert office.write(f"reports/day-{day}.md") == "by approver"
    expect(rule(page).locator(".rule-hits")).to_have_text("3decisions")
    expect(rule(page)).to_contain_text("accepted by human")
    # What is left of its limit is counted with its decisions, as the approver counts it.
    (accepted,) = office.store.rules
    left = office.approver.decider.tally.remaining(accepted, office.approver.uses_clock())
    assert left == (accepted.limits.max_decisions or 0) - 3
    expect(rule(page).locator("[data-left]")).to_have_text(f"{left} left")
    # Bars have their own axis: a share of decisions is no number of them.
    expect(page.locator(".plot-counts span")).to_have_text(["14", "7", "0"])
    expect(page.locator(".plot figcaption")).to_contain_text("21 % of 14 decisions were automatic")
    outcome = page.locator("[data-outcome^=write_file-agent-] td")
    expect(outcome.nth(0)).to_have_text("3")
    expect(outcome.nth(1)).to_have_text("0")
    expect(page.locator(".rule-decisions li")).to_have_count(3)
    page.locator(".rule-decisions li").first.get_by_role("button", name="Explain").click()
    why = dialog(page, "Explanation")
    expect(why).to_contain_text("Decided automatically by rule write_file-agent-")
    expect(why).to_contain_text("human accepted this rule from suggestion s-")
    page.keyboard.press("Escape")
    # The timeline and the approvals lead here.
    automatic = office.approver.ledger
    newest = list(automatic)[-1].id
    page.goto(page.url.replace("/rules", f"/timeline/{newest}"))
    page.get_by_role("button", name="Explain").click()
    expect(dialog(page, "Explanation")).to_contain_text("Decided automatically by rule write_file-agent-")
    page.goto(page.url.partition("/rules")[0] + f"/approvals/{newest}")
    expect(page.locator(".proposal-history")).to_contain_text(
        "approver approved it by rule write_file-agent-"
    )
    # Whoever comes late is told by the approver's tools.
    late = page_as("second", "rules")
    expect(rule(late).locator(".rule-hits")).to_have_text("3decisions")
    proposal = next(iter(office.approver.ledger)).id
    late.goto(late.url.replace("/rules", f"/rules/explain/{proposal}"))
    expect(dialog(late, "Explanation")).to_contain_text("second rejected it")


def test_a_narrower_rule_is_taken_and_a_wider_one_is_refused_in_the_dialog(
    page_as: PageAs, office: ApproverScene
) -> None:
    page = page_as("human", "rules")
    office.teach()
    expect(card(page)).to_have_count(1)
    page.keyboard.press("n")
    box = dialog(page, "Narrow and accept")
    box.get_by_label("path", exact=True).fill("reports/*")
    box.get_by_role("button", name="Accept").click()
    expect(box.get_by_role("alert")).to_contain_text("not accepted: it may allow more than the suggestion")
    box.get_by_label("Maximum uses").fill("many")
    box.get_by_label("Maximum uses").press("Enter")
    expect(box.get_by_role("alert")).to_contain_text("Enter a number, not “many”")
    expect(box.get_by_label("Maximum uses")).to_be_focused()
    box.get_by_label("Maximum uses").fill("2")
    box.get_by_label("path", exact=True).fill('["reports/day-11.md", "reports/day-12.md"]')
    box.get_by_label("Only while these members are online (optional)").fill("human")
    box.get_by_role("button", name="Accept").click()
    expect(rule(page)).to_contain_text("at most 2 per hour")
    expect(rule(page)).to_contain_text("only while human is online")
    expect(card(page)).to_have_count(0)
    office.mood = "reject"
    assert office.write("reports/day-12.md") == "by approver"
    assert office.write("reports/day-13.md") == "no, second"


def test_a_suggestion_becomes_a_right_of_the_agent_and_one_key_takes_it_back(
    page_as: PageAs, office: ApproverScene
) -> None:
    """MEW 9.2: the person grants, the approver only hears of it."""
    page = page_as("human", "rules")
    office.teach()
    expect(card(page)).to_have_count(1)
    page.keyboard.press("e")
    box = dialog(page, "Grant this to agent?")
    expect(box).to_contain_text("other arguments are allowed too")
    expect(box).to_contain_text("it does not expire")
    box.get_by_role("button", name="Grant").click()
    expect(card(page)).to_have_count(0)
    given = page.get_by_role("region", name="Granted instead")
    expect(given).to_contain_text("agent can call write_file")
    office.mood = "leave"

    async def call(space: JoinedSpace) -> str:
        return (await space.call("files", "write_file", {"path": "reports/day-20.md", "content": "news"})).how

    assert office.agent.run(call) == "direct"
    page.keyboard.press("u")
    expect(dialog(page, "Revoke this grant?")).to_be_visible()
    page.keyboard.press("Enter")
    expect(given).to_be_hidden()
    office.mood = "reject"
    assert office.write("reports/day-21.md") == "no, second"


def test_a_dismissed_suggestion_is_gone_for_everybody(page_as: PageAs, office: ApproverScene) -> None:
    page, other = page_as("human", "rules"), page_as("second", "chat")
    office.teach()
    # Who looks at something else sees that one waits.
    expect(other.get_by_role("link", name="Rules").locator(".badge")).to_have_text("1")
    press_at_once(other, "g", "u")
    expect(card(other)).to_have_count(1)
    expect(card(page)).to_have_count(1)
    page.keyboard.press("d")
    dialog(page, "Dismiss this suggestion?").get_by_label("Reason (optional)").press("Enter")
    expect(card(page)).to_have_count(0)
    expect(card(other)).to_have_count(0)
    office.member.sees(lambda _: len(office.store.dismissed) == 1)


def test_what_is_suggested_while_the_page_asks_the_approver_is_shown(
    page_as: PageAs, office: ApproverScene
) -> None:
    """Of three answers the last comes late, and meanwhile a rule is suggested."""
    asked, go_on = Event(), Event()

    async def late_report() -> dict[str, Json]:
        asked.set()
        await asyncio.to_thread(go_on.wait)
        return office.approver.status.trust_report()

    office.member.run(lambda space: space.tool(late_report, name="trust_report"))
    page = page_as("human", "rules")
    assert asked.wait(HANG_SECONDS)
    office.teach()
    expect(page.get_by_role("link", name="Rules").locator(".badge")).to_have_text("1")
    go_on.set()
    expect(page.locator(".rules-main")).to_contain_text("Learns from human, second")
    expect(card(page)).to_have_count(1)


def test_everything_is_stopped_with_two_presses_and_resumed(page_as: PageAs, office: ApproverScene) -> None:
    """The switch is reachable by key from anywhere in the view, and asks once more."""
    page = page_as("human", "rules")
    office.teach()
    accept(page)
    page.locator(".rules-body").evaluate("(node) => node.scrollTo(0, 1e6)")
    page.keyboard.press("Shift+S")
    expect(page.get_by_role("button", name="Yes, stop all rules")).to_be_focused()
    assert office.store.stopped is None
    page.keyboard.press("Enter")
    expect(page.locator(".rules-box")).to_contain_text("All rules are stopped by human")
    expect(rule(page)).to_contain_text("stopped")
    assert office.write("reports/day-20.md") == "by second"
    page.get_by_role("button", name="Resume rules").click()
    expect(notice(page, "Rules are resumed")).to_be_visible()
    office.mood = "leave"
    assert office.write("reports/day-21.md") == "by approver"
    page.keyboard.press("Shift+S")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("button", name="Stop all rules")).to_be_visible()


def test_a_tripped_rule_says_why_and_is_lifted_and_an_objection_suspends_it(
    page_as: PageAs, office: ApproverScene
) -> None:
    page = page_as("human", "rules")
    office.teach()
    accept(page)
    office.mood = "reject"
    assert office.write("reports/../x.md") == "no, second"
    expect(rule(page)).to_contain_text("Suspended: agent made an unusual proposal: path contains escapes")
    office.mood = "approve"
    assert office.write("reports/day-20.md") == "by second"
    page.keyboard.press("l")
    expect(rule(page)).to_contain_text("active")
    office.mood = "leave"
    assert office.write("reports/day-21.md") == "by approver"
    page.get_by_role("button", name="Object to write_file").click()
    box = dialog(page, "Object to this decision?")
    box.get_by_label("What was wrong (optional)").fill("not that day")
    box.get_by_label("What was wrong (optional)").press("Enter")
    expect(rule(page)).to_contain_text("Suspended: human complained: not that day")
    expect(notice(page, "is suspended").first).to_be_visible()


def test_without_an_approver_it_says_how_to_start_one_and_notices_when_it_comes_and_goes(
    page_as: PageAs, member: MemberAs, tmp_path: Path
) -> None:
    page = page_as("human", "rules")
    expect(page.locator(".rules-box")).to_contain_text("moot rules run --as approver")
    office = ApproverScene(member, tmp_path)
    expect(page.locator(".rules-main")).to_contain_text("No rules yet: you are asked every time.")
    expect(page.locator(".rules-main")).to_contain_text(
        "Learns from human, second (members who can accept rules)."
    )
    office.member.leave()
    expect(page.locator(".rules-box")).to_contain_text("approver is offline, so no rules are applied.")
    # The switch is heard later, by whoever comes.
    page.keyboard.press("Shift+S")
    page.keyboard.press("Enter")
    expect(notice(page, "will apply it when it joins")).to_be_visible()
    office.begin()
    expect(page.locator(".rules-box")).to_contain_text("All rules are stopped by human")


def test_who_may_not_ask_is_not_told_that_nothing_decides(
    page_as: PageAs, member: MemberAs, tmp_path: Path
) -> None:
    office = ApproverScene(member, tmp_path)
    page = page_as("watcher", "rules")
    expect(page.locator(".rules-box")).to_have_text(
        re.compile("^Whether an approver is running is not known")
    )
    expect(page.locator(".rules-status")).to_have_text("Whether rules decide is not known")
    rule: Json = {"rule": {"name": "reads"}, "words": "Approve reads", "state": "active"}
    office.member.run(lambda space: space.send("trust/rule", rule))
    expect(page.locator(".rules-status")).to_have_text("Rules on")
    expect(page.locator(".rules-main")).to_contain_text(
        "Which rules there are is not known: there may be more."
    )
    expect(page.get_by_text("No decisions yet")).to_have_count(0)


def test_rules_are_turned_on_from_the_page_with_one_command_to_copy(
    page_as: PageAs, member: MemberAs, gateway: Running, tmp_path: Path
) -> None:
    member("files")
    page = page_as("human", "rules")
    page.get_by_role("button", name="Turn on rules…").click()
    box = dialog(page, "Invite a member")
    box.get_by_label("Name", exact=True).fill("keeper")
    # What it may approve at most is seen, and can be changed, before it is there.
    more = json.loads(box.get_by_label("Additional permissions (optional)").input_value())
    assert more == {"kind": "mcp/request", "to": ["files"], "payload": {"method": "tools/call"}}
    expect(box.locator(".picked")).not_to_contain_text("likely refused")
    assert in_both(page, issues) == []
    box.get_by_role("button", name="Invite", exact=True).click()
    shown = dialog(page, "keeper is invited")
    line = shown.get_by_role("group", name="Command").inner_text()
    assert line == f"moot rules run --gateway {gateway.url} --space lab --token-file keeper.token"
    token = tmp_path / "keeper.token"
    token.touch(0o600)
    token.write_text(shown.get_by_label("Token", exact=True).input_value(), "ascii")
    with subprocess.Popen([*warm_command(), *shlex.split(line)[1:]], cwd=tmp_path) as approver:  # noqa: S603
        try:
            expect(page.locator(".rules-main")).to_contain_text("No rules yet: you are asked every time.")
            expect(page.get_by_role("button", name="Turn on rules…")).to_have_count(0)
        finally:
            approver.terminate()
            approver.wait(HANG_SECONDS)


def test_who_may_not_invite_is_told_the_command_of_the_operator(page_as: PageAs) -> None:
    page = page_as("guest", "rules")
    expect(page.locator(".rules-box")).to_contain_text("moot rules run --as approver")
    expect(page.get_by_role("button", name="Turn on rules…")).to_have_count(0)


def test_who_may_not_accept_sees_and_may_object_and_nobody_else_can_suggest(
    page_as: PageAs, member: MemberAs, office: ApproverScene
) -> None:
    human = member("human")
    human.run(lambda space: space.admin.grant("agent", [{"kind": "trust/*"}]))
    office.teach()
    page = page_as("guest", "rules")
    expect(card(page)).to_have_count(1)
    expect(page.get_by_role("button", name="Accept…", exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name="Dismiss…")).to_be_disabled()
    expect(page.get_by_role("button", name="Stop all rules")).to_be_enabled()
    # An agent that may speak of rules is no approver for it.
    forged: Json = next(iter(office.store.suggestions.values())) | {
        "suggestion": "s-forged",
        "words": "Trust me",
    }
    office.agent.run(lambda space: space.send("trust/suggestion", forged, confirm=True))
    office.agent.run(lambda space: space.send("trust/rule", {"rule": "mine", "state": "active", "why": ""}))
    office.second.run(lambda space: space.send("trust/stop", {"reason": "last word"}))
    expect(page.locator(".rules-box")).to_contain_text("last word")
    expect(page.locator(".rules-main")).not_to_contain_text("Trust me")
    expect(card(page)).to_have_count(1)
    expect(rule(page)).to_have_count(0)


def test_nothing_of_it_is_hard_to_use_or_dangerous(page_as: PageAs, office: ApproverScene) -> None:
    """Every state of the view, with the most hostile words that people and rules can hold (D-86)."""
    page = page_as("human", "rules")
    found = {"empty": in_both(page, issues, too_wide)}
    office.teach()
    expect(card(page)).to_have_count(1)
    for summary in card(page).locator("summary").all():
        summary.click()
    found["suggested"] = in_both(page, issues, too_wide)
    for key in ("a", "n", "e", "d"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        found[f"dialog {key}"] = in_both(page, issues)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
    accept(page)
    office.mood = "leave"
    assert office.write("reports/day-20.md") == "by approver"
    office.store.rules_file.write_text(
        office.store.rules_file.read_text("utf-8")
        + f"- name: odd\n  decision: reject\n  tool: x\n  words: {json.dumps(HOSTILE)}\n",
        "utf-8",
    )
    expect(rule(page)).to_have_count(2)
    office.second.run(lambda space: space.send("trust/stop", {"reason": HOSTILE, "rule": "odd"}))
    expect(rule(page).nth(1)).to_contain_text("⟨U+202E⟩gnp")
    office.second.run(lambda space: space.send("trust/stop", {"reason": HOSTILE}))
    expect(page.locator(".rules-box")).to_contain_text("⟨U+202E⟩gnp")
    page.locator("summary", has_text="Table").click()
    found["stopped"] = in_both(page, issues, too_wide)
    assert {name: each for name, each in found.items() if each} == {}
    assert page.evaluate("window.__owned") is None
    assert page.locator("main img").count() == 0


def test_what_a_rule_decided_is_reviewed_with_one_button_or_objected_to(
    page_as: PageAs, office: ApproverScene
) -> None:
    page = page_as("human", "rules")
    office.teach()
    accept(page)
    office.mood = "leave"
    for day in range(30, 36):
        assert office.write(f"reports/day-{day}.md") == "by approver"
    expect(rule(page)).to_contain_text("Please review what it decided")
    page.get_by_role("button", name="Review 6 decisions").click()
    shown = page.get_by_role("dialog").locator(".review-list li")
    expect(shown).to_have_count(6)
    expect(shown.first).to_contain_text("reports/day-30.md")
    assert issues(page) == []
    page.get_by_role("button", name="All correct").click()
    expect(notice(page, "Reviewed")).to_be_visible()
    expect(rule(page)).not_to_contain_text("Please review")
    (name,) = [each.name for each in office.store.rules]
    assert office.approver.reviews.unreviewed(name) == ()
    assert office.write("reports/day-40.md") == "by approver"
    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("button", name="Review 1 decision").click()
    page.get_by_role("dialog").get_by_role("button", name="Object to").click()
    dialog(page, "Object to this decision?").get_by_role("button", name="Object", exact=True).click()
    expect(rule(page)).to_contain_text("Suspended: human complained")
