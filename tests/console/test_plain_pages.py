"""What stands on a page is for people: no ids, no marks of a text that is meant for a shell, few buttons."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.console.approvals_page import detail, propose, shown
from tests.console.conftest import MemberAs, PageAs, view_ids
from tests.console.gateway_and_members import Driven
from tests.console.in_node import in_node
from tests.console.test_accessibility import PHONE, issues
from tests.console.test_proposal_origins import report, scene, tell
from tests.console.test_same_call_again import OFFER

_CONTEXT = "0b54c1de-plan"
# As many as fit in two rows that are read at a glance.
_MAX_ANSWERS = 4


def _said(second: Driven, kind: str, payload: Json) -> str:
    """Its id."""
    return second.run(lambda space: space.send(kind, payload)).id


async def _open_stream(space: JoinedSpace) -> str:
    """Without a description; its id."""
    return (await space.streams.open(content_type="text/plain")).id


def test_no_page_shows_an_id_or_a_backtick(page_as: PageAs, member: MemberAs) -> None:
    agent, second = member("agent"), member("second")
    asked: Json = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}

    async def in_a_context(space: JoinedSpace) -> str:
        return (await space.send("mcp/proposal", asked, to=["files"], context=_CONTEXT)).id

    first = agent.run(in_a_context)
    again = propose(agent, "add", a=1).id
    given = second.run(lambda space: space.admin.grant("agent", [{"kind": "mcp/cancel"}])).id
    endorsed = _said(second, "moot/endorse", {"source": first})
    revoked = _said(second, "moot/endorse", {"revoke": endorsed})
    # A list shows Markdown without its marks.
    said = agent.run(lambda space: space.chat("run `rm` **never**", format="markdown")).id
    stream = agent.run(_open_stream)
    page = page_as("human", "approvals", again)
    shown(page, "add")
    caution = detail(page).locator(".caution", has_text="The same call is already pending")
    expect(caution).to_contain_text(re.compile("proposed by agent .* ago|proposed by agent just now"))
    ids = [_CONTEXT, *(each[:8] for each in (first, again, given, endorsed, revoked, said)), stream]
    found = {"again": _unfit(page, ids)}
    caution.get_by_role("link").click()
    expect(page.locator(f'.approvals-row.selected[data-id="{first}"]')).to_be_visible()
    found["first"] = _unfit(page, ids)
    for view in view_ids(page):
        page.evaluate(f"location.hash = '#/lab/{view}'")
        expect(page.locator(f".view-{view}")).to_be_visible()
        if view == "timeline":
            expect(page.get_by_role("option").filter(has_text="revokes an endorsement")).to_be_visible()
            expect(page.get_by_role("option").filter(has_text="agent: cancel calls")).to_be_visible()
            expect(page.get_by_role("option").filter(has_text="run rm never")).to_be_visible()
        if view == "chat":
            expect(page.locator(".queue-item")).to_contain_text(["run rm never"])
        if view == "streams":
            expect(page.get_by_role("heading", name="Stream without a description")).to_be_visible()
        if view == "call":
            expect(page.locator(".view-call .empty code")).to_have_text("moot bridge")
        found[view] = _unfit(page, ids)
    assert {view: each for view, each in found.items() if each} == {}
    # What somebody asks about a call has its code as code.
    second.run(lambda space: space.chat("why `b`?", about=again))
    page.evaluate(f"location.hash = '#/lab/approvals/{again}'")
    expect(detail(page).locator(".comments code")).to_have_text("b")


def _unfit(page: Page, ids: list[str]) -> list[str]:
    text = page.locator("#app").inner_text()
    return [each for each in ("`", *ids) if each in text]


def test_a_phone_shows_few_answers_and_the_other_ways_behind_a_button(
    page_as: PageAs, member: MemberAs
) -> None:
    second, proposal = scene(member)
    page = page_as("human", "approvals", proposal.id, viewport=PHONE)
    tell(second, proposal, report(again=OFFER))
    bar = page.get_by_role("group", name="Decide")
    again = bar.locator("button", has_text="Approve, and again")
    more = bar.get_by_role("button", name="Other ways")
    expect(again).to_be_attached()
    expect(again).to_be_hidden()
    seen = bar.locator("button:visible")
    assert seen.count() <= _MAX_ANSWERS
    for name in ("Approve once", "Reject", "Reject because…"):
        expect(bar.get_by_role("button", name=name, exact=True)).to_be_visible()
    assert issues(page) == []
    more.click()
    for name in ("Approve, and again", "Approve and grant…", "Change…"):
        expect(bar.get_by_role("button", name=name)).to_be_visible()
    for each in seen.all():
        box = each.bounding_box()
        assert box is not None
        assert box["height"] >= 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    assert issues(page) == []
    # It stays open while the page learns more of this one, and is shut for the next.
    tell(second, proposal, report(again=OFFER | {"text": "twice"}))
    expect(again).to_have_attribute("title", re.compile("twice"))
    expect(again).to_be_visible()
    more.click()
    expect(again).to_be_hidden()
    # On a wide page each is one press away, as ever.
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(again).to_be_visible()
    expect(more).to_be_hidden()


def test_the_timeline_says_what_was_done_and_not_to_which_id() -> None:
    """What is meant is linked in the details of a message."""
    cases: list[Json] = [
        ["moot/endorse", {"source": "3f1c22ab-1"}],
        ["moot/endorse", {"revoke": "3f1c22ab-1"}],
        ["moot/plan", {"withdraw": "3f1c22ab-1"}],
        ["moot/votes", {"counters": ["3f1c22ab-1"]}],
        ["capability/revoke", {"recipient": "agent", "grant_id": "3f1c22ab-1"}],
        ["stream/open", {"stream_id": "3f1c22ab-1", "description": "run of all tests"}],
        ["system/error", {"error": "target_not_found", "message": "there is no bo in this space"}],
    ]
    told = in_node(
        """async (bring, cases) => {
        const { summary } = await bring("core/state/envelope-fields.js");
        const operation = { base: "", method: "", name: "" };
        return cases.map(([kind, payload]) => summary({ kind, payload }, operation));
        }""",
        cases,
    )
    assert told == [
        "what a message says",
        "revokes an endorsement",
        "withdraws a plan",
        "a changed version of another proposal",
        "agent ",
        "run of all tests",
        "there is no bo in this space",
    ]
