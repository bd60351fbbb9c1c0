"""The pictures of the space: who talks to whom, and the way of one operation."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.conftest import MemberAs, PageAs


def test_who_talks_to_whom_is_drawn_and_stands_in_a_table(page_as: PageAs, member: MemberAs) -> None:
    """Once for each message: to one member, to several, and to everybody."""
    agent, second = member("agent"), member("second")
    member("watcher")
    page = page_as("human", "flow")
    for _ in range(3):
        agent.run(lambda space: space.chat("for you", to="second"))
    second.run(lambda space: space.chat("for both", to=["agent", "watcher"]))
    second.run(lambda space: space.chat("for all"))
    page.locator("summary", has_text="Table").click()
    rows = page.locator(".graph-table tbody tr")
    said = {"agent second 3", "second agent 1", "second watcher 1", "second everyone 1"}
    expect(rows).to_have_count(len(said))
    assert {" ".join(text.split()) for text in rows.all_inner_texts()} == said
    expect(page.locator(".graph-line")).to_have_count(3)
    expect(page.locator(".graph-member")).to_have_count(4)
    # The busiest pair has the thickest line.
    widest = page.locator(".graph-line").evaluate_all(
        """(all) => {
            const width = (line) => Number(line.getAttribute("stroke-width"));
            return all.sort((a, b) => width(b) - width(a))[0].textContent;
        }"""
    )
    assert widest == "agent → second: 3"


def test_the_way_of_an_operation_goes_from_proposal_to_result(page_as: PageAs, member: MemberAs) -> None:
    agent, human = member("agent"), member("human")
    member("files")
    page = page_as("human", "flow")
    call = {"name": "read_file", "arguments": {"path": "notes.txt"}}
    proposal = agent.run(lambda space: space.propose("files", "tools/call", call))
    boxes = page.locator(".path-box")
    expect(boxes).to_have_count(1)
    human.run(lambda space: space.approve(proposal.id))
    expect(boxes).to_have_count(3)
    # The request is shown as what it says of the proposal: approved.
    assert boxes.evaluate_all("(all) => all.map((each) => each.dataset.family)") == [
        "proposal",
        "response",
        "response",
    ]
    page.get_by_role("heading", name="Operation", exact=True).scroll_into_view_if_needed()
    card = page.get_by_role("region", name="Operation", exact=True).bounding_box()
    path = page.locator(".path-scroll").bounding_box()
    assert card is not None
    assert path is not None
    assert path["x"] + path["width"] <= card["x"] + card["width"]
