"""What a call changed is undone and shown as such, or made good; a stale preview is made anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.bridges.server.bridge_runner import bridged
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.config.box_config import BoxConfig
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer, UpstreamOptions
from moot.protocol.argument_template import NotThere, fill
from moot.protocol.operation import Json
from tests.bridges.bridged_space import HOST
from tests.console.approvals_page import approve, detail, propose, row, shown, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import PEOPLE, Loop, Running, spaces
from tests.console.in_node import in_node
from tests.console.test_accessibility import issues
from tests.gateway.running_gateway import participants, space_settings
from tests.mcp.upstreams import QUICK

_SERVER = Path(__file__).parents[1] / "preview" / "changing_server.py"
_SCRIPT = """(folder / "notes.md").write_text("one\\nthree\\n")
say("wrote")"""


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """`host` is a server in a box that makes previews; what `add` does is made good by `subtract`."""
    good: Json = {"tool": "subtract", "arguments": {"a": "{result.result}", "note": "was {a}+{b}"}}
    lab = space_settings(PEOPLE | participants(host=HOST))
    lab |= {"effects": {"sum": {"tool": "add", "undo": "compensable", "compensate": good}}}
    running = Running(tmp_path, loop, spaces() | {"lab": lab}, port=origin_port)
    yield running
    running.stop()


@pytest.fixture
def boxed(gateway: Running, loop: Loop, tmp_path: Path) -> Iterator[Path]:
    """The folder that the boxed server may write."""
    if (why := why_not_confined()) is not None:
        pytest.skip(f"no box here: {why}")
    top = tmp_path / "boxed"
    folder = top / "shared"
    folder.mkdir(parents=True)
    (folder / "notes.md").write_text("one\ntwo\n")
    config: dict[str, Any] = {"write": ("shared",), "preview": True}
    home, hidden = top / ".moot" / "boxes" / "host", (top / ".moot",)
    box = Box(config=BoxConfig(**config), folder=top, hidden=hidden, home=home)
    server = StdioServer(command=Command(argv=(sys.executable, str(_SERVER), str(folder))))
    options = UpstreamOptions(limits=QUICK)
    made = BridgeSettings(
        server=server, gateway=gateway.url, space="lab", token="t-host", upstream=options, box=box
    )
    stack = AsyncExitStack()
    loop.run(stack.enter_async_context(bridged(made)))
    yield folder
    loop.run(stack.aclose())


def test_a_preview_that_does_not_hold_is_made_anew_before_anything_is_sent_and_undoing_is_shown(
    boxed: Path, page_as: PageAs, member: MemberAs
) -> None:
    agent = member("agent")
    page = page_as("human", "approvals")
    propose(agent, "change", to="host", script=_SCRIPT)
    preview = detail(page).get_by_role("region", name="Preview")
    expect(preview).to_contain_text("notes.md, +1 −1")
    expect(preview).to_contain_text("it can be undone while files are as it left them")
    expect(preview).not_to_contain_text("`")
    (boxed / "notes.md").write_text("somebody\nelse's\n")
    shown(page, "change")
    approve(page)
    said = detail(page).get_by_role("alert").filter(has_text="has changed since the preview")
    expect(said).to_be_visible()
    assert (boxed / "notes.md").read_text() == "somebody\nelse's\n"
    # Still pending, with a new preview, and that is what runs now.
    expect(waiting(page)).to_have_count(1)
    expect(preview).to_contain_text("notes.md, +2 −2")
    shown(page, "change")
    approve(page)
    history = detail(page).get_by_role("region", name="History")
    expect(history).to_contain_text("host replied")
    assert (boxed / "notes.md").read_text() == "one\nthree\n"
    expect(row(page, "change")).to_contain_text("Approved")
    other = page_as("second", "approvals")
    page.get_by_role("button", name="Undo what it changed").click()
    for each in (page, other):
        expect(row(each, "change")).to_contain_text("Undone by")
    expect(row(other, "change")).to_contain_text("Undone by human")
    expect(history).to_contain_text("undid it")
    expect(detail(page).locator(".settled-text")).to_contain_text("you undid it")
    expect(page.get_by_role("button", name="Undo what it changed")).to_have_count(0)
    assert (boxed / "notes.md").read_text() == "somebody\nelse's\n"
    # Whoever comes later sees the same, and so does a page that is loaded anew.
    page.reload()
    expect(row(page, "change")).to_contain_text("Undone by you")
    assert issues(page) == []


def test_a_call_is_made_good_with_what_it_answered(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    page = page_as("human", "approvals")
    propose(agent, "add", a=4, b=38)
    shown(page, "add")
    approve(page)
    good = detail(page).locator(".compensation")
    expect(good).to_contain_text('subtract on files: {"a":42,"note":"was 4+38"}')
    assert issues(page) == []
    good.get_by_role("button", name="Compensate…").click()
    expect(detail(page).locator(".proposal-head")).to_contain_text("subtract")
    expect(detail(page)).to_contain_text("This is your own proposal; others decide.")
    other = page_as("second", "approvals")
    expect(waiting(other)).to_contain_text("was 4+38")


def test_the_page_fills_templates_in_as_the_shell_does() -> None:
    source: Json = {"a": 4, "b": None, "n": "x", "l": [{"i": 1}, {"i": "z"}], "e": [], "o": {"k": True}}
    templates: list[Json] = [
        "{a}",
        "no {a}, {n}; {o.k}",
        {"x": ["{l.1.i}", "{l.*.i}", "{{a}}", 7, None]},
        "{b}",
        "{missing}",
        "{e.*}",
        "{l.2.i}",
        "{a.k}",
        "{o.toString}",
        "{l.length}",
    ]
    expected = []
    for each in templates:
        try:
            expected.append([fill(each, source)])
        except NotThere:
            expected.append([])
    run = """async (bring, given) => {
      const { fill, NotThere } = await bring("views/proposals/compensation.js");
      return given.templates.map((each) => {
        try { return [fill(each, given.source)]; }
        catch (fault) { if (fault instanceof NotThere) return []; throw fault; }
      });
    }"""
    assert in_node(run, {"templates": templates, "source": source}) == expected
    # Spelled in another way by each, so the page leaves it to the shell.
    assert in_node(run, {"templates": ["is {o}"], "source": source}) == [[]]
