"""The timeline: everything heard, by conversation, with filters, causes and reasons (MEW 3, D002)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from websockets.asyncio.client import connect

from moot.errors import MootError
from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.console.approvals_page import propose
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Loop, Running
from tests.console.in_node import in_node
from tests.waiting import HANG_SECONDS

READ = {"name": "read_file", "arguments": {"path": "notes.txt"}}


def lines(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Timeline").get_by_role("option")


def rows(page: Page, words: str) -> Locator:
    return lines(page).filter(has_text=words)


def narrow(page: Page, words: str) -> None:
    page.get_by_label("Filter the timeline").fill(words)


@pytest.mark.requirement("MEW-3.1.2-2", "MEW-3.2.1-4", "MCPX-3.2.1-4")
def test_an_observer_follows_an_operation_from_cause_to_effect(page_as: PageAs, member: MemberAs) -> None:
    """Proposal, request and response stand together; each leads to the next, by mouse and by key."""
    page = page_as("watcher", "timeline")
    agent, second, _ = member("agent"), member("second"), member("files")
    proposal = agent.run(lambda space: space.propose("files", "tools/call", READ))
    second.run(lambda space: space.approve(proposal.id))
    head = rows(page, "proposal").filter(has_text="read_file")
    expect(head.get_by_role("img", name="3 messages")).to_be_visible()
    head.click()
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("Resulted in")
    details.get_by_role("button", name="approved second").click()
    expect(details.get_by_role("heading", level=2)).to_contain_text("approved")
    page.get_by_role("listbox", name="Timeline").focus()
    page.keyboard.press("]")
    expect(details.get_by_role("heading", level=2)).to_contain_text("response")
    expect(details).to_contain_text("first line")
    page.keyboard.press("[")
    expect(details.get_by_role("heading", level=2)).to_contain_text("approved")
    page.keyboard.press("[")
    expect(details.get_by_role("heading", level=2)).to_contain_text("proposal")
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()


@pytest.mark.requirement("D002-34")
def test_filters_find_who_kind_operation_and_text(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline")
    agent, second, _ = member("agent"), member("second"), member("files")
    second.run(lambda space: space.call("files", "read_file", {"path": "notes.txt"}))
    second.run(lambda space: space.call("files", "add", {"a": 20, "b": 22}))
    agent.run(lambda space: space.chat("the Needle in the haystack"))
    expect(rows(page, "Needle")).to_be_visible()
    narrow(page, "tools/call:read_file")
    expect(lines(page)).to_have_count(2)
    narrow(page, "tools/call:a*")
    expect(lines(page)).to_have_count(2)
    narrow(page, "needle")
    expect(lines(page)).to_have_count(1)
    narrow(page, "from:second kind:mcp/request add")
    expect(lines(page)).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_label("Kind", exact=True).select_option("chat")
    narrow(page, "kind:chat")
    expect(lines(page)).to_have_count(1)
    agent.run(lambda space: space.chat("and another"))
    expect(lines(page)).to_have_count(2)
    page.get_by_label("Kind", exact=True).select_option("")
    narrow(page, "")
    page.get_by_label("Member", exact=True).select_option("files")
    expect(rows(page, "Needle")).to_have_count(0)
    expect(rows(page, "read_file").first).to_be_visible()


@pytest.mark.requirement("MCPX-3.1.2-4", "D002-1", "D002-3", "D002-33")
def test_a_response_says_by_its_kind_alone_what_it_answers(
    gateway: Running, page_as: PageAs, loop: Loop
) -> None:
    """The page never heard the request: it was too late, and the past is not kept."""

    async def ask_and_answer() -> None:
        address = f"ws://127.0.0.1:{gateway.port}/ws?topic=lab"
        async with (
            connect(address, additional_headers={"Authorization": "Bearer t-second"}, proxy=None) as asker,
            connect(address, additional_headers={"Authorization": "Bearer t-files"}, proxy=None) as host,
        ):
            call: dict[str, Any] = {"method": "tools/call", "params": READ}
            await asker.send(json.dumps(_mcpx("q1", "mcp/request:tools/call:read_file", call)))
            async for message in host:
                if json.loads(message)["id"] == "q1":
                    break
            # Too late for whoever comes now, as if they had been invited at this moment.
            host_of_lab = gateway.gateway.directory.hosts["lab"]
            host_of_lab.delivery.history.hide_before("human", host_of_lab.journaled.clock())
            joined.set()
            await asyncio.to_thread(ready.wait)
            answer = _mcpx("a1", "mcp/response:tools/call:read_file", {"result": {"content": []}})
            await host.send(json.dumps(answer | {"to": ["second"], "correlation_id": "q1"}))
            async for message in asker:
                if json.loads(message)["id"] == "a1":
                    return

    joined, ready = threading.Event(), threading.Event()
    talk = loop.start(ask_and_answer())
    assert joined.wait(HANG_SECONDS)
    page = page_as("human", "timeline")
    ready.set()
    talk.result(HANG_SECONDS)
    answer = rows(page, "response")
    expect(answer).to_contain_text("read_file")
    expect(answer.get_by_title("tools/call:read_file")).to_be_visible()
    expect(rows(page, "request")).to_have_count(0)


def _mcpx(id: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    to = {"to": ["files"]} if "request" in kind else {}
    said: dict[str, Any] = {"protocol": "mcpx/v0.1", "id": id, "ts": "2026-01-01T00:00:00Z", "kind": kind}
    return said | {"payload": payload} | to


@pytest.mark.requirement("D002-5")
def test_fifty_calls_at_once_stay_tellable_apart(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline")
    second, files = member("second"), member("files")

    def offer(space: JoinedSpace) -> None:
        for number in range(50):

            async def answer(word: str) -> str:
                await asyncio.sleep(0.01)
                return f"it is {word}"

            space.tool(name=f"tool_{number}")(answer)

    files.run(offer)

    async def all_at_once(space: JoinedSpace) -> None:
        calls = [space.call("files", f"tool_{n}", {"word": f"w{n}"}) for n in range(50)]
        await asyncio.gather(*calls)

    second.run(all_at_once)
    for number in (0, 17, 49):
        narrow(page, f"kind:mcp/response tools/call:tool_{number}")
        expect(lines(page)).to_have_count(1)
        expect(rows(page, f"it is w{number}")).to_be_visible()


@pytest.mark.requirement("D002-4")
def test_a_response_is_labelled_when_its_request_has_been_let_go() -> None:
    """In the store itself: the row of the request is gone, its operation is remembered."""
    label = in_node(
        """async (bring) => {
            const { Envelopes } = await bring("core/state/envelopes.js");
            const store = new Envelopes(1000);
            const put = (fields) => store.add({ from: "a", ...fields }, JSON.stringify(fields), 0);
            put({ id: "q", kind: "mcp/request", payload: { method: "tools/call", params: { name: "dig" } } });
            for (let n = 0; n < 1_500; n += 1) put({ id: `c${n}`, kind: "chat", payload: { text: "x" } });
            const answer = put({ id: "r", kind: "mcp/response", correlation_id: ["q"], payload: {} });
            return { label: answer.operation, kept: store.has("q"), size: store.size };
        }"""
    )
    assert label["label"] == "tools/call:dig"
    assert not label["kept"]
    assert label["size"] <= 1000


def test_why_something_was_refused_is_explained(page_as: PageAs, member: MemberAs) -> None:
    """The sender sees code, meaning, what to do, its capabilities, and what it had sent."""
    page = page_as("watcher", "chat")
    page.evaluate("location.hash = '#/lab/chat'")
    page.get_by_label("Message", exact=True).fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator(".chat-message")).to_have_count(1)
    page.get_by_role("button", name="Cancel message").click()
    expect(page.locator(".notice.bad")).to_contain_text("your capabilities do not allow this chat/cancel")
    page.evaluate("location.hash = '#/lab/timeline'")
    rows(page, "do not allow this").click()
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("Why was this refused?")
    expect(details).to_contain_text("None of the sender's capabilities allows this.")
    expect(details).to_contain_text("Propose it instead")
    expect(details).to_contain_text("Attempted: chat/cancel")
    details.get_by_text("Sent envelope").click()
    expect(details.get_by_role("group", name="sent envelope")).to_contain_text("handled_elsewhere")


@pytest.mark.requirement("MEW-3-60")
def test_a_message_with_several_causes_shows_them_all(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3: correlation makes a graph; both parents are listed and drawn."""
    page = page_as("human", "timeline")
    agent = member("agent")
    first = agent.run(lambda space: space.chat("one"))
    other = agent.run(lambda space: space.chat("two"))
    both = agent.run(lambda space: space.chat("a summary", about=[first.id, other.id]))
    rows(page, "a summary").click()
    details = page.get_by_role("complementary", name="Details")
    expect(details.locator(".cause")).to_have_count(2)
    details.get_by_role("button", name="View flow").click()
    expect(page.locator(".path-box")).to_have_count(3)
    expect(page.locator(".path-line")).to_have_count(2)
    expect(page.locator(f'.path-box[data-id="{both.id}"]')).to_have_class("path-box here")


@pytest.mark.requirement("MEW-3-62", "MEW-3-64", "MEW-3.5.6-1", "MEW-3.5.6-4", "MEW-3.5.6-5")
def test_contexts_group_nest_and_filter(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline")
    agent, second = member("agent"), member("second")

    async def think(space: JoinedSpace) -> str:
        async with space.reasoning("outer question") as outer:
            await outer.thought("outer thought")
            async with space.reasoning("inner question", under=outer) as inner:
                await inner.thought("inner thought")
        return outer.id

    async def think_too(space: JoinedSpace) -> None:
        async with space.reasoning("other question") as other:
            await other.thought("other thought")

    outer = agent.start(think)
    second.run(think_too)
    id = outer.result(HANG_SECONDS)
    expect(rows(page, "outer question").get_by_role("img", name="6 messages")).to_be_visible()
    expect(rows(page, "other question").get_by_role("img", name="3 messages")).to_be_visible()
    assert rows(page, "inner thought").get_attribute("data-deep") == "2"
    narrow(page, f"context:{id}/")
    expect(rows(page, "inner thought")).to_be_visible()
    expect(rows(page, "other thought")).to_have_count(0)


def test_conversations_fold_and_the_order_can_be_plain(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline")
    second, _ = member("second"), member("files")
    second.run(lambda space: space.call("files", "add", {"a": 1}))
    head = rows(page, "request").filter(has_text="add")
    expect(rows(page, "response")).to_have_count(1)
    head.locator(".fold-mark").click()
    expect(rows(page, "response")).to_have_count(0)
    page.get_by_role("listbox", name="Timeline").focus()
    page.keyboard.press("ArrowRight")
    expect(rows(page, "response")).to_have_count(1)
    page.keyboard.press("c")
    expect(page.locator(".group-head")).to_have_count(0)
    expect(rows(page, "response")).to_have_count(1)


def test_the_payload_is_shown_to_the_digit(page_as: PageAs, member: MemberAs) -> None:
    """D-28: 9007199254740993 must not be shown as …992."""
    page = page_as("human", "timeline")
    agent = member("agent")
    params = {
        "name": "pay",
        "arguments": {"amount": 9007199254740993, "other": 12345678901234567890, "x": 1.0},
    }
    agent.run(lambda space: space.propose("files", "tools/call", params, timeout_seconds=60))
    expect(rows(page, "pay")).to_contain_text("amount=9007199254740993 other=12345678901234567890 x=1.0")
    rows(page, "pay").click()
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("9007199254740993")
    expect(details).to_contain_text("12345678901234567890")


def test_a_tool_that_fails_is_seen_to_fail(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "timeline")
    second, _ = member("second"), member("files")
    with pytest.raises(MootError):
        second.run(lambda space: space.call("files", "read_file", {"path": "none"}))
    rows(page, "there is no none").click()
    expect(page.get_by_role("complementary", name="Details")).to_contain_text("Why did this fail?")


def test_conversations_taken_in_one_by_one_stand_as_if_ordered_at_once() -> None:
    """The quick way and the plain way agree, for random conversations, folding and eviction."""
    differ = in_node(
        """async (bring) => {
            const { Envelopes } = await bring("core/state/envelopes.js");
            const { Grouping } = await bring("views/timeline/timeline-groups.js");
            let seed = 7;
            const random = (most) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % most; };
            for (let round = 0; round < 40; round += 1) {
                const store = new Envelopes(300);
                const folded = (root) => root.charCodeAt(1) % 3 === 0;
                const quick = new Grouping(store, folded);
                for (let n = 0; n < 400; n += 1) {
                    const about = random(3) === 0 || n === 0 ? [] : [`m${random(n)}`];
                    store.add({ id: `m${n}`, kind: "chat", from: "a", correlation_id: about }, "{}", 0);
                    if (random(4) === 0) quick.update();
                }
                quick.update();
                const plain = new Grouping(store, folded);
                plain.rebuild(null);
                const spelled = (items) => items.map((each) => each.root ?? each).join();
                if (spelled(quick.items) !== spelled(plain.items)) return round;
            }
            return null;
        }"""
    )
    assert differ is None


def test_an_order_made_in_slices_is_the_one_made_at_once() -> None:
    """The newest lines come first, the older ones while more is said and old conversations wake up."""
    found = in_node(
        """async (bring) => {
            const { Envelopes } = await bring("core/state/envelopes.js");
            const { Grouping } = await bring("views/timeline/timeline-groups.js");
            let seed = 11;
            const random = (most) => {
                seed = (seed * 1103515245 + 12345) % 2147483648;
                return Math.floor(seed / 7) % most;
            };
            let inSlices = 0;
            for (let round = 0; round < 10; round += 1) {
                const store = new Envelopes(round % 2 ? 2_500 : 100_000);
                const folded = (root) => root.charCodeAt(1) % 3 === 0;
                let said = 0;
                const say = () => {
                    const about = random(3) === 0 || said === 0 ? [] : [`m${random(said)}`];
                    store.add({ id: `m${said}`, kind: "chat", from: "a", correlation_id: about }, "{}", 0);
                    said += 1;
                };
                while (said < 3_000) say();
                const sliced = new Grouping(store, folded);
                sliced.begin();
                if (!sliced.whole) inSlices += 1;
                for (let more = 0; more < 20; more += 1) {
                    for (let count = random(5); count > 0; count -= 1) say();
                    if (random(2) === 0) sliced.update();
                    if (random(4) === 0) sliced.older();
                }
                // A conversation that woke up while it was passed is found missing, and all begins again.
                for (let more = 0; more < 2; more += 1) {
                    sliced.update();
                    while (!sliced.whole) sliced.older();
                }
                const plain = new Grouping(store, folded);
                plain.rebuild(null);
                const spelled = (items) => items.map((each) => each.root ?? each).join();
                if (spelled(sliced.items) !== spelled(plain.items)) return { round, inSlices };
            }
            return { round: null, inSlices };
        }"""
    )
    assert found == {"round": None, "inSlices": 10}


# The page's socket, so that a test can say as much as it likes through it.
_SOCKET = """
const Real = window.WebSocket;
window.WebSocket = class extends Real {
  set onmessage(hear) { window.__hear = hear; super.onmessage = hear; }
};
"""


def in_a_rush(page_as: PageAs, member: MemberAs) -> tuple[Page, int]:
    """A timeline that has just heard thousands at once, and how many messages it holds."""
    page = page_as("watcher", "timeline", script=_SOCKET)
    # What comes of joining is heard when this is, and from then on nobody else speaks.
    member("agent").run(lambda space: space.chat("all are here"))
    expect(rows(page, "all are here")).to_be_visible()
    count = _count(page) + 6_000
    page.evaluate(
        """async () => {
            for (let n = 0; n < 6_000; n += 1) {
                const about = n % 3 ? { correlation_id: [`rush${n - (n % 3)}`] } : {};
                const chat = { id: `rush${n}`, from: "agent", kind: "chat", payload: { text: `rush ${n}` } };
                window.__hear({ data: JSON.stringify({ ...chat, ...about }) });
                if (n % 500 === 0) await new Promise(requestAnimationFrame);
            }
        }"""
    )
    expect(page.locator(".tl-count")).to_have_text(f"{count:,} messages")
    return page, count


def test_a_rush_is_taken_in_whole_and_the_newest_stays_in_sight(page_as: PageAs, member: MemberAs) -> None:
    """Thousands at once, another order and back: none is missing, the end is in sight, Home is the oldest."""
    page, count = in_a_rush(page_as, member)
    modes = page.get_by_role("button", name="Conversations", exact=True)
    for pressed in ("false", "true"):
        modes.click()
        expect(modes).to_have_attribute("aria-pressed", pressed)
        expect(rows(page, "rush 5999")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Newest")).to_be_hidden()
    # Every message has a line, the oldest too.
    page.get_by_role("listbox", name="Timeline").focus()
    page.keyboard.press("Home")
    expect(rows(page, "rush 0").first).to_be_in_viewport()
    assert page.evaluate("document.querySelector('.vl-inner').offsetHeight") == count * 32
    # Pressed in the very turn in which another order was asked for: older lines come in slices after it.
    page.keyboard.press("End")
    expect(rows(page, "rush 5999")).to_be_in_viewport()
    page.evaluate(
        """() => {
            const modes = document.querySelector(".tl-modes button");
            modes.click();
            modes.click();
            const home = new KeyboardEvent("keydown", { key: "Home", bubbles: true });
            document.querySelector(".vl").dispatchEvent(home);
        }"""
    )
    expect(rows(page, "rush 0").first).to_be_in_viewport()
    assert page.evaluate("document.querySelector('.vl').scrollTop") == 0
    assert page.evaluate("document.querySelector('.vl-inner').offsetHeight") == count * 32
    expect(page.locator(".vl-row[aria-selected=true]")).to_have_attribute("data-index", "0")


def _count(page: Page) -> int:
    return int(page.locator(".tl-count").inner_text().split()[0].replace(",", ""))


def test_what_failed_is_hidden_only_if_this_page_asked_by_itself() -> None:
    rows: list[Json] = [
        {"id": id, "kind": kind, "operation": operation, "about": about, "failed": failed}
        for id, kind, operation, about, failed in [
            ("own", "mcp/request", "tools/call", [], False),
            ("1", "mcp/response", "tools/call", ["own"], True),
            ("2", "mcp/response", "tools/call", ["other"], True),
            ("3", "mcp/response", "tools/list", ["other"], True),
            ("4", "mcp/response", "tools/list", ["other"], False),
            ("5", "system/error", "", ["own"], True),
            ("6", "chat", "", ["own"], False),
        ]
    ]
    hidden = in_node(
        """async (bring, rows) => {
            const { isHousekeeping } = await bring("core/state/housekeeping.js");
            return rows.filter((row) => isHousekeeping(row, (id) => id === "own")).map((row) => row.id);
        }""",
        rows,
    )
    assert hidden == ["own", "1", "4"]


def test_questions_about_rules_are_hidden_only_if_they_go_to_who_may_keep_rules() -> None:
    """A tool of that name at somebody else may do anything; so may another tool of who keeps the rules."""
    rules, objection = "tools/call:trust_rules", "tools/call:trust_object"
    rows: list[Json] = [
        {
            "id": id,
            "kind": kind,
            "operation": operation,
            "from": sender,
            "to": to,
            "about": [],
            "failed": failed,
        }
        for id, kind, operation, sender, to, failed in [
            ("1", "mcp/request", rules, "maria", ["approver"], False),
            ("2", "mcp/response", rules, "approver", ["maria"], False),
            ("3", "mcp/response", rules, "approver", ["maria"], True),
            ("4", "mcp/request", rules, "maria", ["files"], False),
            ("5", "mcp/request", rules, "maria", ["approver", "files"], False),
            ("6", "mcp/request", rules, "maria", [], False),
            ("7", "mcp/response", rules, "files", ["maria"], False),
            ("8", "mcp/request", objection, "maria", ["approver"], False),
        ]
    ]
    hidden = in_node(
        """async (bring, rows) => {
            const { isHousekeeping } = await bring("core/state/housekeeping.js");
            const { Roster } = await bring("core/state/state-roster.js");
            const roster = new Roster();
            const given = (kinds) => kinds.map((kind) => ({ kind }));
            const add = (id, kinds) => roster.members.set(id, { id, capabilities: given(kinds) });
            add("approver", ["chat", "trust/*"]);
            add("files", ["mcp/response", "*"]);
            const keepsRules = (id) => roster.keepsRules(id);
            return rows.filter((row) => isHousekeeping(row, () => false, keepsRules)).map((row) => row.id);
        }""",
        rows,
    )
    assert hidden == ["1", "2"]


def test_what_somebody_did_is_said_with_a_verb() -> None:
    said = in_node(
        """async (bring, kinds) => {
            const { didText } = await bring("views/timeline/timeline-rows.js");
            return kinds.map(didText);
        }""",
        [
            "mcp/reject",
            "mcp/proposal:tools/call",
            "mcp/request",
            "moot/approve",
            "capability/grant",
            "chat/x",
        ],
    )
    assert said == ["rejected", "proposed", "called", "voted for", "granted", "x"]


def test_the_line_of_a_proposal_says_who_approved_it(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent, human = member("agent"), member("human")
    page = page_as("human", "timeline")
    proposal = propose(agent, "add", a=1)
    human.run(lambda space: space.approve(proposal.id))
    expect(page.locator(".tl-row").filter(has_text="proposal").first).to_contain_text("approved by human")
    expect(page.locator(".tl-row .kind").filter(has_text="approved")).to_have_count(1)
