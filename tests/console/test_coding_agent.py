"""A coding agent asks for permission, and a person decides on a phone, until a rule does it for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from moot.agents.acp.acp_member import AcpMember
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.learning.learning_settings import DEFAULTS
from moot.trust.rules.rule_store import RuleStore
from tests.agents.acp.agent_space import RIGHTS, diff, settings_for, tool_update, write_script
from tests.console.approvals_page import SETTLED, approve, detail, dialog_button, waiting
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, Loop, Running
from tests.console.rules_page import card, dialog, rule
from tests.gateway.running_gateway import participants, space_settings
from tests.participant.watched_agent import running_member
from tests.waiting import HANG_SECONDS, until_seen

PHONE = {"width": 390, "height": 844}
APPROVER: Json = [{"kind": "mcp/request", "to": ["agent"]}, "mcp/reject", {"kind": "trust/*"}, "mcp/response"]
APPROVALS = 4


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    people = participants(human=["*"], asker=["chat", "chat/*"], agent=RIGHTS, approver=APPROVER)
    running = Running(tmp_path, loop, {"lab": space_settings(people)}, port=origin_port)
    yield running
    running.stop()


def edit(file: Path, text: str) -> list[dict[str, Any]]:
    """A turn that asks for an edit, and makes it when it may: one more line in a file, so twice is seen."""
    ask = {
        "toolCallId": "c1",
        "kind": "edit",
        "title": "Harmless",
        "rawInput": {"path": str(file)},
        "content": [diff(str(file), None, text)],
    }
    done = [{"append": [str(file), text]}, tool_update(status="completed"), {"say": "Written."}]
    return [{"ask": ask, "allowed": done, "refused": [{"say": "Then not."}]}]


class CodingAgent:
    """The scripted agent in the space, run as `moot acp` runs it, and somebody who talks to it."""

    def __init__(self, folder: Path, gateway: Running, loop: Loop, asker: Driven) -> None:
        self._folder, self._loop, self._asker = folder, loop, asker
        self._settings = settings_for(gateway.url, folder)
        self._ended: Future[asyncio.Event] = Future()
        self.chats: list[str] = []
        asker.run(lambda space: space.on("chat")(self._remember))
        self._life = loop.start(self._live())
        self._ended.result()

    def _remember(self, chat: Envelope) -> None:
        if chat.sender == "agent":
            self.chats.append(chat.payload["text"])

    async def _live(self) -> None:
        async with running_member(AcpMember(self._settings), self._settings):
            ended = asyncio.Event()
            self._ended.set_result(ended)
            await ended.wait()

    def ask(self, text: str) -> None:
        async def chat(space: JoinedSpace) -> None:
            await space.roster.wait_for("agent", timeout_seconds=HANG_SECONDS)
            await space.chat(text, to="agent")

        self._asker.run(chat)

    def says(self, text: str, times: int = 1) -> None:
        until_seen(lambda: sum(text in each for each in self.chats) >= times)

    def prompts(self) -> list[str]:
        lines = [json.loads(line) for line in (self._folder / "received.jsonl").read_text().splitlines()]
        asked = [each["params"]["prompt"] for each in lines if each.get("method") == "session/prompt"]
        return ["\n".join(block["text"] for block in prompt) for prompt in asked]

    def end(self) -> None:
        async def end() -> None:
            self._ended.result().set()

        self._loop.run(end())
        self._life.result()


@pytest.fixture
def agent(tmp_path: Path, gateway: Running, loop: Loop, member: MemberAs) -> Iterator[CodingAgent]:
    file, other = tmp_path / "work" / "notes.txt", tmp_path / "work" / "other.txt"
    same = [edit(file, "hello\n") for _ in range(APPROVALS + 1)]
    write_script(tmp_path, same[0], edit(other, "secret\n"), [{"say": "I see."}], *same[1:])
    running = CodingAgent(tmp_path, gateway, loop, member("asker"))
    yield running
    running.end()


def start_approver(member: MemberAs, folder: Path) -> Approver:
    joined = member("approver")
    learning = replace(DEFAULTS, min_approvals=APPROVALS, check_share=0.0)
    store = RuleStore.open(folder / "trust")
    approver = Approver(joined.space, store, ProposalHistory(), ApproverSettings(learning=learning))
    joined.start(lambda _: approver.run())
    return approver


def open_next(page: Page) -> None:
    """The one proposal that is pending, opened with a finger."""
    expect(waiting(page)).to_have_count(1)
    waiting(page).first.locator(".approvals-row-open").tap()
    expect(detail(page).get_by_role("button", name="Approve once")).to_be_enabled()
    page.wait_for_timeout(SETTLED)


def all_proposals(page: Page) -> None:
    page.get_by_role("button", name="All proposals").tap()
    expect(detail(page)).to_be_hidden()


def reject(page: Page, words: str) -> None:
    detail(page).get_by_role("button", name="Reject because…").tap()
    page.locator("dialog").get_by_label("unsafe").check()
    page.locator("dialog").get_by_label("Comment (optional)").fill(words)
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Reject").last.tap()


def test_a_person_on_a_phone_decides_for_a_coding_agent_and_then_a_rule_does(
    tmp_path: Path, page_as: PageAs, member: MemberAs, agent: CodingAgent
) -> None:
    file, other = tmp_path / "work" / "notes.txt", tmp_path / "work" / "other.txt"
    approver = start_approver(member, tmp_path)
    page = page_as("human", "approvals", viewport=PHONE, has_touch=True)
    # The edit is seen as a change of a file before it is there, without the words of the agent.
    agent.ask("Write the notes, please.")
    open_next(page)
    expect(detail(page)).to_contain_text("notes.txt")
    expect(detail(page).get_by_role("group", name="New content")).to_contain_text("hello")
    expect(detail(page)).not_to_contain_text("Harmless")
    assert not file.exists()
    approve(page)
    agent.says("Written.")
    assert file.read_text() == "hello\n"
    all_proposals(page)
    # A rejection, with words: the agent gets them as its next prompt.
    agent.ask("And the other one.")
    open_next(page)
    reject(page, "not on Sundays")
    agent.says("I see.")
    assert not other.exists()
    assert "human rejected it" in agent.prompts()[-1]
    assert "> not on Sundays" in agent.prompts()[-1]
    all_proposals(page)
    # After enough approvals of the same a rule is suggested, and accepted on the phone.
    for number in range(2, APPROVALS + 1):
        agent.ask("The notes again.")
        open_next(page)
        approve(page)
        agent.says("Written.", number)
        all_proposals(page)
    page.goto(page.url.partition("/approvals")[0] + "/rules")
    expect(card(page)).to_have_count(1)
    card(page).get_by_role("button", name="Accept…", exact=True).tap()
    dialog(page, "Accept this rule?").get_by_role("button", name="Accept").tap()
    expect(rule(page)).to_have_count(1)
    # The rule decides from now on, once for each call.
    agent.ask("The notes once more.")
    agent.says("Written.", APPROVALS + 1)
    assert file.read_text() == "hello\n" * (APPROVALS + 1)
    until_seen(lambda: [each.by for each in list(approver.ledger) if each.rule] == ["approver"])
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
