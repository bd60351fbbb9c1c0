"""What waits in the other spaces of a person is said, with where; what is not known is not called nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from moot.protocol.operation import Json
from tests.console.conftest import NewPage, stay_signed_in
from tests.console.gateway_and_members import Driven, Loop, Running
from tests.gateway.running_gateway import participants, space_settings

# More than a page is connected to at once, which is 16.
SPACES = [f"space-{number:02}" for number in range(20)]
PEOPLE = participants(human=["*"], agent=["mcp/proposal", "mcp/withdraw"])


@pytest.fixture
def many(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    settings: dict[str, Json] = {name: space_settings(PEOPLE) for name in SPACES}
    running = Running(tmp_path, loop, settings, port=origin_port)
    yield running
    running.stop()


def test_what_waits_in_other_spaces_is_counted_and_named(
    many: Running, loop: Loop, new_page: NewPage
) -> None:
    """In those that the page is connected to, and in those beyond."""
    agents: list[Driven] = []
    busy = [*SPACES[1:6], *SPACES[15:]]
    for name in busy:
        agent = Driven(loop, "agent")
        agent.enter(many.url, name, many.token("agent"))
        agents.append(agent)
        for number in range(3):
            params: Json = {"name": "tidy", "arguments": {"n": number}}
            agent.run(lambda space, p=params: space.propose("files", "tools/call", p))  # type: ignore[misc]
    page = new_page(alone=True)
    stay_signed_in(page, many.url, many.token("human"))
    page.goto(f"{many.url}/#/space-00/approvals")
    expect(page.locator(".approvals-none")).to_have_text("No pending proposals in this space.")
    where = page.locator(".approvals-where")
    expect(where).to_contain_text("30 pending in 10 other spaces: space-01 3")
    expect(where.get_by_role("link", name="space-19")).to_have_attribute("href", "#/space-19/approvals")
    expect(page.locator(".approvals-detail")).to_contain_text("30 pending in 10 other spaces")
    expect(page.get_by_role("link", name="Inbox").first).to_contain_text("30")
    expect(page).to_have_title("(30) Inbox · space-00 · Moot")
    where.get_by_role("link", name="space-19").click()
    expect(page.get_by_role("button", name="Space: space-19")).to_be_visible()
    expect(page.locator(".view-head")).to_contain_text("3 pending")
    for agent in agents:
        agent.leave()


def test_where_nobody_answers_it_is_said_to_be_not_known(many: Running, new_page: NewPage) -> None:
    page = new_page(alone=True)
    page.route("**/spaces/space-18/proposals", lambda route: route.abort())
    stay_signed_in(page, many.url, many.token("human"))
    page.goto(f"{many.url}/#/space-00/approvals")
    expect(page.locator(".approvals-where")).to_have_text("Not known in space-18.")
    expect(page.locator(".approvals-detail")).to_contain_text("in 1 other space is not known")
    page.get_by_role("button", name="Space: space-00").click()
    unknown = page.get_by_role("menuitemradio").filter(has=page.get_by_role("img"))
    expect(unknown).to_have_text(["space-18as human?"])
    expect(unknown.get_by_role("img")).to_have_accessible_name("not known what is pending")
