"""The same call, pending twice: whoever decides is told in the list, and on its page while it is open."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.approvals_page import detail, propose, row, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.in_node import in_node


def test_the_same_call_pending_twice_is_said_on_an_open_page_and_in_the_list(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    first = propose(agent, "write_file", path="a.txt", content="a")
    page = page_as("human", "approvals", first.id)
    said = detail(page).locator(".caution", has_text="The same call is already pending")
    expect(detail(page).locator(".proposal-head")).to_contain_text("write_file")
    expect(said).to_have_count(0)
    again = propose(agent, "write_file", path="a.txt", content="a")
    propose(agent, "write_file", path="b.txt", content="a")
    expect(waiting(page)).to_have_count(3)
    expect(said).to_contain_text("proposed by agent")
    expect(said).to_contain_text("Approving both carries it out twice.")
    expect(row(page, "same call, 2 pending")).to_have_count(2)
    said.get_by_role("link").click()
    expect(page.locator(f'.approvals-row.selected[data-id="{again.id}"]')).to_be_visible()
    expect(said).to_have_count(1)
    agent.run(lambda space: first.withdraw("no_longer_needed"))
    expect(said).to_have_count(0)
    expect(row(page, "same call")).to_have_count(0)


CALLS = [
    ("agent", '{"name":"add","arguments":{"a":1,"b":2}}'),
    ("agent", '{"name":"add","arguments":{"b":2,"a":1},"_meta":{"progressToken":1}}'),
    ("agent", '{"name":"add","arguments":{"a":12345678901234567890,"b":2}}'),
    ("agent", '{"name":"add","arguments":{"a":12345678901234567891,"b":2}}'),
    ("other", '{"name":"list","arguments":{"a":[{"x":1,"y":2}]}}'),
    ("agent", '{"name":"list","arguments":{"a":[{"y":2,"x":1}]}}'),
    ("agent", '{"name":"list","arguments":{"a":["{",["x",1]]}}'),
    ("agent", '{"name":"remove","arguments":{"a":1,"b":2}}'),
]


def test_alike_are_those_with_the_same_tool_and_the_same_arguments_to_the_digit() -> None:
    found = in_node(
        """async (bring, calls) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const { countAlike } = await bring("core/state/alike-proposals.js");
        const proposals = new Proposals();
        calls.forEach(([from, params], index) => {
            const id = `p${index}`;
            const payload = `{"method":"tools/call","params":${params}}`;
            const raw = `{"id":"${id}","from":"${from}","payload":${payload}}`;
            const envelope = { ...JSON.parse(raw), kind: "mcp/proposal" };
            proposals.receive(envelope, { id, from, to: [], about: [], at: index, raw });
        });
        return [...countAlike(proposals.pending.values()).keys()].map((each) => each.id);
        }""",
        [list(call) for call in CALLS],
    )
    assert found == ["p0", "p1", "p4", "p5"]
