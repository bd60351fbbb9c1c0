"""Approve and grant in words: what, for how long, what it allows and what still asks."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from moot.errors import NotAllowed
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.approvals_page import SETTLED, approve, detail, dialog_button, outcome, propose, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, gathered
from tests.console.test_approvals import heard


def open_dialog(page: Page) -> Any:
    shown(page, "write_file")
    page.keyboard.press("Shift+A")
    return page.locator("dialog")


def granted(watcher: Driven) -> list[Envelope]:
    grants: list[Envelope] = []
    watcher.run(lambda space: heard(space, "capability/grant", grants))
    return grants


def may_call(space: JoinedSpace, params: dict[str, Json]) -> bool:
    return space.may_request("files", "tools/call", params)


def write(agent: Driven, path: str, **more: Json) -> Json:
    params: dict[str, Json] = {"name": "write_file", "arguments": {"path": path, "content": "x", **more}}
    return agent.run(lambda space: space.request("files", "tools/call", params))


def test_a_grant_for_once_allows_one_more_call_and_no_second(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, watcher = member("agent"), member("watcher")
    grants = granted(watcher)
    proposal = propose(agent, "write_file", path="notes/a.txt", content="x")
    page = page_as("human", "approvals")
    dialog = open_dialog(page)
    # The narrowest for a short time, unless somebody chooses otherwise; the JSON is there for those who ask.
    expect(dialog.get_by_label("This exact call")).to_be_checked()
    expect(dialog.get_by_label("One hour")).to_be_checked()
    expect(dialog.get_by_label("Capability", exact=True)).to_be_hidden()
    dialog.get_by_label("Once").check()
    expect(dialog.locator(".capability-description")).to_contain_text("one more time.")
    expect(dialog.locator(".asks")).to_contain_text("a second such call")
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve and grant").click()
    outcome(agent, proposal)
    expect(detail(page).locator(".outcome")).to_contain_text("agent can do this without asking one more time")
    (grant,) = gathered(grants, 1)
    assert grant.payload["max_uses"] == 1
    assert "expires_in_seconds" not in grant.payload
    exact: dict[str, Json] = {"name": "write_file", "arguments": {"path": "notes/a.txt", "content": "x"}}
    agent.sees(lambda space: space.may_request("files", "tools/call", exact))
    write(agent, "notes/a.txt")
    agent.sees(lambda space: not space.may_request("files", "tools/call", exact))
    with pytest.raises(NotAllowed):
        write(agent, "notes/a.txt")
    page.goto(page.url.partition("#")[0] + "#/lab/members/agent")
    page.get_by_text("Earlier grants (1)").click()
    expect(page.locator(".ended-grants")).to_contain_text("used up")


def test_a_folder_is_granted_for_an_hour_and_the_examples_are_true(page_as: PageAs, member: MemberAs) -> None:
    """Each example is tried at the gateway afterwards."""
    member("files")
    agent, watcher = member("agent"), member("watcher")
    grants = granted(watcher)
    proposal = propose(agent, "write_file", path="notes/a.txt", content="one")
    page = page_as("human", "approvals")
    dialog = open_dialog(page)
    dialog.get_by_label("This folder: notes/").check()
    expect(dialog.locator(".allowed li")).to_contain_text(
        ["this call again", "path = notes/another.txt", "path = notes/sub/a.txt", "another content"]
    )
    expect(dialog.locator(".asks li")).to_contain_text(
        ["anything after", "path = elsewhere/a.txt", "path = notes/../a.txt", "another tool"]
    )
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve and grant").click()
    outcome(agent, proposal)
    (grant,) = gathered(grants, 1)
    assert grant.payload["expires_in_seconds"] == 3_600
    for path in ("notes/another.txt", "notes/sub/a.txt"):
        params: dict[str, Json] = {"name": "write_file", "arguments": {"path": path, "content": "y"}}
        agent.sees(partial(may_call, params=params))
        write(agent, path)
    for path in ("elsewhere/a.txt", "notes/../a.txt"):
        with pytest.raises(NotAllowed):
            write(agent, path)


def test_exactly_these_arguments_means_no_others(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    propose(member("agent"), "write_file", path="a.txt", content="x", mode="append")
    page = page_as("human", "approvals")
    dialog = open_dialog(page)
    expect(dialog.get_by_label("This folder")).to_be_disabled()
    expect(dialog).to_contain_text("Not available: no argument names a file in a folder")
    expect(dialog.locator(".allowed li")).to_have_count(1)
    dialog.get_by_label("Until revoked").check()
    expect(dialog.locator(".asks")).to_contain_text("path = another.txt")
    expect(dialog.locator(".asks")).not_to_contain_text("anything after")
    dialog.get_by_label("This tool").check()
    expect(dialog.locator(".allowed")).to_contain_text("path = elsewhere/a.txt")


def test_what_leads_out_of_its_folder_is_no_folder(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    propose(member("agent"), "write_file", path="notes/../etc/x", content="x")
    page = page_as("human", "approvals")
    expect(open_dialog(page).get_by_label("This folder")).to_be_disabled()


def test_numbers_are_the_same_to_the_last_digit_in_words_and_in_results(
    page_as: PageAs, member: MemberAs
) -> None:
    """9007199254740993 is no number of JavaScript."""
    member("files")
    agent = member("agent")
    proposal = propose(agent, "add", a=9007199254740993, b=1)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    expect(dialog.locator(".capability-description")).to_contain_text("exactly a=9007199254740993")
    page.keyboard.press("Escape")
    agent.run(lambda space: proposal.withdraw())
    proposal = propose(agent, "add", a=9007199254740992, b=1)
    page.get_by_role("list", name="Pending proposals").get_by_text("a=9007199254740992").click(force=True)
    shown(page, "add")
    approve(page)
    outcome(agent, proposal)
    page.get_by_text("Structured data").click()
    expect(detail(page).locator(".history-result .json-number")).to_have_text("9007199254740993")
