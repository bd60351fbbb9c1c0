"""What is pending is told by the gateway, and never guessed (D-96)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.console.approvals_page import approve, detail, for_others, propose, row, shown, waiting
from tests.console.conftest import MemberAs, NewPage, PageAs, Watched, sign_in
from tests.console.gateway_and_members import PEOPLE, Driven, Loop, Running, offer_tools, spaces
from tests.console.in_node import each_in_node, in_node
from tests.console.test_reconnect import WATCH_SOCKETS, find, lose
from tests.gateway.running_gateway import gateway_settings, space_settings, write_config
from tests.gateway.served import Served, started
from tests.waiting import until_seen

# Keeps the gateway's answers about proposals back until `window.__release()`.
HOLD_ANSWERS = """
const Real = WebSocket;
const held = [];
let holds = true;
window.__release = () => { holds = false; held.splice(0).forEach((go) => go()); };
window.WebSocket = class extends Real {
    set onmessage(handle) {
        super.onmessage = (event) => {
            const isAnswer = typeof event.data === "string" && event.data.includes('"moot/proposals"');
            if (holds && isAnswer) held.push(() => handle(event));
            else handle(event);
        };
    }
};
"""


@pytest.fixture
def forgetful(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """A gateway whose message history reaches back five messages."""
    running = Running(tmp_path, loop, spaces(), port=origin_port, poll_messages=5)
    yield running
    running.stop()


async def say_much(agent: JoinedSpace) -> None:
    for number in range(20):
        await agent.chat(f"message {number}")


@pytest.fixture
def joined(forgetful: Running, loop: Loop) -> Iterator[Callable[[str], Driven]]:
    """Members of the forgetful gateway."""
    driven: list[Driven] = []

    def enter(name: str) -> Driven:
        one = Driven(loop, name)
        driven.append(one)
        one.enter(forgetful.url, "lab", forgetful.token(name))
        return one

    yield enter
    for one in reversed(driven):
        one.leave()


def test_a_newcomer_sees_what_was_proposed_long_ago(
    forgetful: Running, new_page: NewPage, joined: Callable[[str], Driven]
) -> None:
    """Beyond the message history, and after a restart; on a phone, and then on a wide screen."""
    files, agent = joined("files"), joined("agent")
    files.run(offer_tools)
    old = propose(agent, "write_file", path="old.txt", content="12345678901234567890")
    agent.run(say_much)
    forgetful.restart()
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{forgetful.url}/#/lab/approvals")
    sign_in(page, "t-human")
    expect(waiting(page)).to_have_count(1)
    expect(waiting(page)).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.get_by_text("1 pending", exact=True)).to_be_visible()
    expect(page).to_have_title("(1) Inbox · lab · Moot")
    shown(page, "write_file")
    page.evaluate("location.hash = '#/lab/members'")
    expect(page.get_by_role("main")).to_contain_text("files")
    page.evaluate("location.hash = '#/lab/approvals'")
    shown(page, "write_file")
    approve(page)
    expect(row(page, "write_file")).to_contain_text("Approved")
    agent.sees(lambda space: old.seen.status == "fulfilled")


def test_a_proposal_too_large_for_a_page_of_the_answer_is_shown_whole(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "write_file", path="large.txt", content="x" * 300_000)
    propose(agent, "add", a=1)
    agent.run(say_much)
    page = page_as("human", "approvals")
    expect(page.get_by_text("2 pending", exact=True)).to_be_visible()
    row(page, "large.txt").locator(".approvals-row-open").click()
    expect(detail(page)).to_contain_text("large.txt")


def test_nothing_is_said_to_be_missing_until_the_gateway_has_answered(
    page_as: PageAs, member: MemberAs
) -> None:
    page = page_as("human", "approvals", script=HOLD_ANSWERS)
    expect(page.locator(".approvals-list")).to_contain_text("Loading what is pending")
    expect(page.locator(".approvals-detail")).to_contain_text("Loading")
    expect(page.get_by_text("No pending proposals")).to_have_count(0)
    page.evaluate("window.__release()")
    expect(page.locator(".approvals-list")).to_contain_text("No pending proposals.")
    expect(page.get_by_text("none pending", exact=True)).to_be_visible()


def test_nothing_is_put_before_a_person_until_it_is_known_to_be_pending(
    page_as: PageAs, member: MemberAs
) -> None:
    """The first proposal of the message history may have been decided by what follows in it."""
    propose(member("agent"), "add", a=1)
    page = page_as("human", "approvals", script=HOLD_ANSWERS)
    expect(page.get_by_text("at least 1 pending", exact=True)).to_be_visible()
    expect(page.locator(".approvals-detail")).to_contain_text("Loading")
    page.evaluate("window.__release()")
    shown(page, "add")


def test_without_a_connection_it_is_not_known_what_is_pending(gateway: Running, page_as: PageAs) -> None:
    page = page_as("human", "approvals")
    expect(page.locator(".approvals-list")).to_contain_text("No pending proposals.")
    gateway.stop()
    expect(page.locator(".approvals-list")).to_contain_text(
        "What is pending is not known: the connection is lost."
    )
    expect(page.get_by_text("pending: not known", exact=True)).to_be_visible()
    expect(page.get_by_text("No pending proposals")).to_have_count(0)
    expect(page.locator(".approvals-list").get_by_role("button", name="Retry")).to_be_visible()
    gateway.start()
    expect(page.locator(".approvals-list")).to_contain_text("No pending proposals.")


def test_what_was_decided_while_the_page_was_away_is_no_longer_pending(
    forgetful: Running, new_page: NewPage, joined: Callable[[str], Driven]
) -> None:
    """Withdrawn during the outage, and the history does not say so: the gateway does."""
    agent = joined("agent")
    kept, gone = propose(agent, "add", a=1), propose(agent, "add", a=2)
    page = new_page()
    page.add_init_script(WATCH_SOCKETS)
    page.goto(f"{forgetful.url}/#/lab/approvals")
    sign_in(page, "t-human")
    expect(waiting(page)).to_have_count(2)
    lose(page)
    expect(page.locator(".approvals-list")).to_contain_text("There may be more")
    expect(waiting(page).first).to_contain_text("status unknown")
    agent.run(lambda space: gone.withdraw())
    agent.run(say_much)
    find(page)
    expect(waiting(page)).to_have_count(1)
    expect(waiting(page)).to_contain_text("a=1")
    expect(waiting(page)).not_to_contain_text("status unknown")
    assert kept.seen.status == "pending"
    icon = page.locator('link[rel="icon"]')
    expect(icon).to_have_attribute("href", re.compile(r"icon-badge\.svg$"))
    agent.run(lambda space: kept.withdraw())
    expect(icon).to_have_attribute("href", re.compile(r"icon\.svg$"))


class StoppedProcess:
    """`moot serve` in a process of its own, which can be halted like a machine that hangs."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self._loop = loop
        file = write_config(folder, gateway_settings({"lab": space_settings(PEOPLE)}))
        self._served: Served = loop.run(started(file))
        self.url = self._served.url

    def halt(self) -> None:
        pid = self._served.process.pid
        os.kill(pid, signal.SIGSTOP)
        # It need not be a child of ours.
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)

    def resume(self) -> None:
        os.kill(self._served.process.pid, signal.SIGCONT)

    def end(self) -> None:
        self.resume()

        async def end() -> None:
            await self._served.close()
            await self._served.end()

        self._loop.run(end())


@pytest.fixture
def halting(tmp_path: Path, loop: Loop) -> Iterator[StoppedProcess]:
    process = StoppedProcess(loop, tmp_path)
    yield process
    process.end()


def test_live_turns_within_ten_seconds_of_silence() -> None:
    """By the page's own clock: nothing comes over the socket any more, and no question is answered."""
    seconds = in_node(
        """async (bring) => {
            let now = 0;
            const due = [];
            const after = (wait, act) => due.push({ at: now + wait, act });
            globalThis.document = { hidden: false };
            Date.now = () => now;
            const every = (act, wait) => after(wait, () => { act(); every(act, wait); });
            globalThis.setInterval = (act, wait) => (every(act, wait), 1);
            AbortSignal.timeout = (wait) => wait;
            // Whoever asks gets no answer, and gives up when its time is over.
            const never = (wait) => new Promise((_, reject) => after(wait, () => reject(new Error("late"))));
            globalThis.fetch = (_, { signal }) => never(signal);
            let turnedAt = null;
            const connection = {
                state: "live", returns: 0, receivedAt: 0, responds: true,
                setResponds(value) { if (!value) turnedAt ??= now; },
            };
            const { Heartbeat } = await bring("core/connection/heartbeat.js");
            new Heartbeat(connection, new URL("http://gateway/"), async () => false);
            while (turnedAt === null && now < 60_000) {
                due.sort((a, b) => a.at - b.at);
                const next = due.shift();
                now = next.at;
                next.act();
                for (let turn = 0; turn < 20; turn += 1) await null;
            }
            return turnedAt / 1000;
        }"""
    )
    assert 0 < seconds <= 10


def test_live_turns_when_the_gateway_hangs_and_comes_back(halting: StoppedProcess, watched: Watched) -> None:
    page = watched.page()
    page.goto(f"{halting.url}/#/lab/approvals")
    sign_in(page, "t-human")
    expect(page.locator(".approvals-list")).to_contain_text("No pending proposals.")
    halting.halt()
    expect(page.locator(".top .pill")).to_have_text("No response")
    expect(page.locator(".banner")).to_contain_text("does not respond")
    expect(page.locator(".approvals-list")).to_contain_text("What is pending is not known")
    halting.resume()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.locator(".approvals-list")).to_contain_text("No pending proposals.")


def test_a_socket_over_which_nothing_comes_is_replaced(gateway: Running, watched: Watched) -> None:
    """HTTP answers, the socket does not, as behind a proxy that has forgotten it."""
    page = watched.page()
    page.add_init_script(
        HOLD_ANSWERS.replace("holds && isAnswer", "window.__deaf?.has(this)")
        .replace("const held = [];", "const held = []; window.__all = []; window.__deaf = new Set();")
        .replace("set onmessage(handle) {", "set onmessage(handle) { window.__all.push(this);")
    )
    page.clock.install()
    page.goto(f"{gateway.url}/#/lab/approvals")
    sign_in(page, "t-human")
    page.evaluate("window.__all.forEach((each) => window.__deaf.add(each))")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))

    def wait() -> bool:
        page.clock.run_for(20_000)
        page.wait_for_timeout(50)
        return len(sockets) > 0

    until_seen(wait)
    expect(page.locator(".top .pill")).to_have_text("Live")


def test_what_i_rejected_leaves_my_queue_and_others_can_still_decide(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "add", a=1)
    page, other = page_as("human", "approvals"), page_as("second", "approvals")
    shown(page, "add")
    badge = page.get_by_role("link", name="Inbox").locator(".badge")
    expect(badge).to_have_text("1")
    page.keyboard.press("r")
    page.wait_for_timeout(450)
    page.keyboard.press("Control+Enter")
    expect(for_others(page)).to_contain_text("Rejected by you")
    expect(page.get_by_text("none pending", exact=True)).to_be_visible()
    expect(badge).to_be_hidden()
    expect(waiting(other)).to_contain_text("Rejected by human")
    # It is the gateway that remembers it.
    page.reload()
    expect(for_others(page)).to_contain_text("Rejected by you")
    expect(waiting(page)).to_have_count(0)


def hold_calls(space: JoinedSpace, started: threading.Event) -> None:
    @space.tool
    async def slow(path: str) -> str:
        """Take for ever."""
        started.set()
        await asyncio.sleep(3600)
        return path


def test_an_unknown_outcome_is_shown_as_such_and_settled_by_somebody_who_looked(
    page_as: PageAs, member: MemberAs
) -> None:
    began = threading.Event()
    files, agent = member("files"), member("agent")
    files.run(lambda space: hold_calls(space, began))
    propose(agent, "slow", path="a.txt")
    page = page_as("human", "approvals")
    shown(page, "slow")
    approve(page)
    until_seen(began.is_set)
    files.leave()
    unknown = page.get_by_role("list", name="Outcome unknown").locator(".approvals-row")
    expect(unknown).to_contain_text("Outcome unknown")
    expect(detail(page)).to_contain_text("whether it was carried out is not known (its host disconnected")
    expect(page.get_by_text("failed")).to_have_count(0)
    newcomer = page_as("second", "approvals")
    elsewhere = newcomer.get_by_role("list", name="Outcome unknown").locator(".approvals-row")
    expect(elsewhere).to_contain_text("slow")
    elsewhere.locator(".approvals-row-open").click()
    detail(newcomer).get_by_role("button", name="It was done…").click()
    newcomer.get_by_label("How do you know?").fill("the file is there")
    newcomer.locator("dialog").get_by_role("button", name="Record as done").click()
    expect(detail(newcomer)).to_contain_text("second (you) found that it was done")
    expect(detail(page)).to_contain_text("the file is there")
    expect(unknown).to_have_count(0)


def test_a_link_to_a_settled_proposal_says_what_became_of_it(
    forgetful: Running, new_page: NewPage, joined: Callable[[str], Driven]
) -> None:
    """Also to somebody who was not there; and of a wrong one it says that it is not known."""
    files, agent, human = joined("files"), joined("agent"), joined("human")
    files.run(offer_tools)
    proposal = propose(agent, "add", a=1)
    human.sees(lambda space: space.proposals.open())
    human.run(lambda space: space.approve(proposal.id))
    agent.run(lambda space: proposal.outcome())
    agent.run(say_much)
    page = new_page()
    page.goto(f"{forgetful.url}/#/lab/approvals/{proposal.id}")
    sign_in(page, "t-second")
    expect(detail(page)).to_contain_text("human approved it; it was carried out")
    expect(detail(page)).to_contain_text("add")
    open_link(page, "approvals", "no-such-proposal")
    expect(detail(page)).to_contain_text("Unknown proposal")
    open_link(page, "approvals")
    expect(detail(page)).to_contain_text("No pending proposals")


def open_link(page: Page, *parts: str) -> None:
    page.evaluate("(hash) => { location.hash = hash; }", "#/" + "/".join(["lab", *parts]))


def test_what_waits_in_any_space_is_one_queue(page_as: PageAs, member: MemberAs) -> None:
    """Counted in the title and on the icon, wherever the person looks."""
    hermit = member("hermit", space="attic")
    page = page_as("human", "timeline")
    expect(page).to_have_title("Timeline · lab · Moot")
    second = member("second")
    propose(second, "add", a=1)
    hermit.run(lambda space: space.propose("nobody", "tools/call", {"name": "tidy", "arguments": {"n": 2}}))
    expect(page).to_have_title("(2) Timeline · lab · Moot")
    expect(page.locator('link[rel="icon"]')).to_have_attribute("href", re.compile(r"icon-badge\.svg$"))
    page.evaluate("location.hash = '#/lab/approvals'")
    elsewhere = page.get_by_role("list", name="Pending in other spaces").locator(".approvals-row")
    expect(elsewhere).to_contain_text("hermit wants to call tidy")
    expect(elsewhere).to_contain_text("in attic")
    expect(page.get_by_text("1 pending", exact=True)).to_be_visible()
    elsewhere.locator(".approvals-row-open").click()
    expect(page.get_by_role("button", name="Space: attic")).to_be_visible()
    shown(page, "tidy")


def test_what_a_removed_member_proposed_is_gone_at_once(page_as: PageAs, member: MemberAs) -> None:
    """Decision 0015: removing an agent is the quick way out of a runaway."""
    member("files")
    agent, second = member("agent"), member("second")
    for number in range(12):
        propose(agent, "add", a=number)
    mine = propose(second, "add", a=99)
    page = page_as("human", "approvals")
    expect(waiting(page)).to_have_count(13)
    waiting(page).first.click()
    second.run(lambda space: space.admin.kick("agent", "runaway"))
    expect(waiting(page)).to_have_count(1)
    expect(detail(page).locator(".settled-text")).to_contain_text("because agent was removed")
    expect(detail(page).locator(".history-steps")).to_contain_text("Withdrawn, because agent was removed")
    open_link(page, "approvals", mine.id)
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_enabled()


AWAY: dict[str, Json] = {
    "kind": "system/presence",
    "payload": {"event": "leave", "participant": {"id": "agent-laptop"}},
}
REMOVALS: list[tuple[list[Json], int]] = [
    ([AWAY], 2),
    ([AWAY, {"kind": "space/kick", "payload": {"participant_id": "agent"}}], 0),
    ([{"kind": "space/kick", "payload": {"participant_id": "agent-laptop"}}], 0),
    ([AWAY | {"payload": {**AWAY["payload"], "reason": "no longer a participant"}}], 0),
    ([{"kind": "space/kick", "payload": {"participant_id": "another"}}], 2),
]


def test_the_page_infers_a_removal_from_each_message_that_tells_of_it() -> None:
    """Decision 0015: also of a member that is away, by its logical name or its runtime id (D-19)."""
    found = in_node(
        """async (bring, cases) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const { Roster } = await bring("core/state/state-roster.js");
        const agent = { id: "agent-laptop", name: "agent", capabilities: [] };
        const welcome = { you: { id: "human" }, extensions: ["moot/list-proposals"], participants: [agent] };
        const call = { method: "tools/call", params: { name: "add" } };
        return cases.map((messages) => {
            const state = { roster: new Roster(), proposals: new Proposals() };
            const receive = ({ id = "e", from = "system:gateway", kind, payload }) => {
                const raw = JSON.stringify({ id, from, payload });
                const row = { id, from, to: [], about: [], at: 1, raw };
                state.roster.receive({ id, from, kind, payload }, row);
                state.proposals.receive({ id, from, kind, payload }, row, state);
            };
            receive({ kind: "system/welcome", payload: welcome });
            const proposed = { from: agent.id, kind: "mcp/proposal", payload: call };
            for (const id of ["p1", "p2"]) receive({ id, ...proposed });
            messages.forEach(receive);
            return state.proposals.open().length;
        });
        }""",
        [messages for messages, _ in REMOVALS],
    )
    assert found == [left for _, left in REMOVALS]


def test_a_host_that_does_not_know_what_came_of_a_call_has_not_failed() -> None:
    """Without a page; the history has what members said, and not that the gateway calls it unknown."""
    call = {"method": "tools/call", "params": {"name": "slow", "arguments": {}}}
    unsure = {"code": -32004, "message": "it ended", "data": {"moot/outcome": "unknown"}}
    envelopes = [
        {"id": "p1", "from": "agent", "kind": "mcp/proposal", "to": ["files"], "payload": call},
        {
            "id": "r1",
            "from": "human",
            "kind": "mcp/request",
            "to": ["files"],
            "correlation_id": ["p1"],
            "payload": call,
        },
        {
            "id": "a1",
            "from": "files",
            "kind": "mcp/response",
            "correlation_id": ["r1"],
            "payload": {"error": unsure},
        },
        {
            "id": "o1",
            "from": "system:gateway",
            "kind": "moot/outcome",
            "payload": {"proposal_id": "p1", "outcome": "unknown", "reason": "host_does_not_know"},
        },
    ]
    envelopes.append(
        {
            "id": "s1",
            "from": "human",
            "kind": "moot/settle",
            "correlation_id": ["p1"],
            "payload": {"outcome": "failed", "note": "no file is there"},
        }
    )
    states = in_node(
        """async (bring, envelopes) => {
            const { Proposals } = await bring("core/state/state-proposals.js");
            const { recordText } = await bring("views/proposals/proposal-decisions.js");
            const follow = (some) => {
                const proposals = new Proposals();
                return some.map((envelope, at) => {
                    const { id, from, to = [], correlation_id: about = [] } = envelope;
                    proposals.receive(envelope, { id, from, to, about, at, raw: JSON.stringify(envelope) });
                    return proposals.byId.get("p1").status;
                });
            };
            const without = (...ids) => follow(envelopes.filter((each) => !ids.includes(each.id)));
            const told = { state: "fulfilled", outcome: "unknown", reason: "host_does_not_know" };
            return [without(), without("o1"), without("a1", "o1"), recordText(told)];
        }""",
        envelopes,
    )
    assert states[:3] == [
        ["pending", "fulfilled", "unknown", "unknown", "failed"],
        ["pending", "fulfilled", "unknown", "failed"],
        ["pending", "fulfilled", "failed"],
    ]
    assert "got no answer that it could read" in states[3]
    # In the timeline, too; and only an answer says so.
    envelopes.append({"id": "c1", "from": "agent", "kind": "chat", "payload": {"text": "x", "error": unsure}})
    rows = in_node(
        """async (bring, envelopes) => {
            globalThis.addEventListener = () => {};
            const { State } = await bring("core/state/state.js");
            const { tagOf } = await bring("views/timeline/timeline-rows.js");
            const state = new State("lab", { publish() {} });
            return envelopes.map((envelope) => {
                const sent = { protocol: "mew/v0.4", ts: "2026-11-17T14:00:00Z", ...envelope };
                state.receive(JSON.stringify(sent));
                const row = state.envelopes.byId(envelope.id);
                return [tagOf(row).word, row.summary, row.isUnknown];
            });
        }""",
        envelopes,
    )
    assert rows[2:] == [
        ["unknown", "not known: it ended", True],
        ["outcome unknown", "its host got no answer that it could read", False],
        ["settled", "it was not done: no file is there", False],
        ["chat", "x", False],
    ]


def test_who_approved_is_named_or_said_to_be_someone() -> None:
    """A gateway that has restarted may know that it was approved and not by whom."""
    said = each_in_node(
        "views/approvals/proposal-row.js", "(by) => m.approvedBy(by, 'maria')", ["maria", "ben", ""]
    )
    assert said == ["Approved", "Approved by ben", "Approved by someone"]
