"""A space where rules decide, for the tests of its view: an approver, an agent, a person who decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Locator, Page

from moot.errors import Rejected
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.operation import Json
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.learning.learning_settings import DEFAULTS
from moot.trust.rules.rule_store import RuleStore
from tests.console.conftest import MemberAs
from tests.console.gateway_and_members import PEOPLE
from tests.gateway.running_gateway import participants, space_settings

# Quick to learn, and nothing left to people as a check.
LEARNING = replace(DEFAULTS, min_approvals=8, check_share=0.0)
APPROVER: Json = [
    {"kind": "mcp/request", "to": ["files"]},
    {"kind": "mcp/request", "payload": {"method": "tools/list"}},
    "mcp/reject",
    "chat",
    {"kind": "trust/*"},
    "moot/origins",
    "mcp/response",
]
# May look and object, and accept nothing.
GUEST: Json = ["chat", "trust/stop", {"kind": "mcp/request", "to": ["approver"]}]


def trusting_spaces() -> dict[str, Json]:
    return {"lab": space_settings({**PEOPLE, **participants(approver=APPROVER, guest=GUEST)})}


class ApproverScene:
    """Everybody but the person in the browser. `mood` is what `second` does about proposals."""

    def __init__(self, member: MemberAs, folder: Path, settings: ApproverSettings | None = None) -> None:
        self._member = member
        self.mood = "approve"
        self.files, self.agent, self.second = member("files"), member("agent"), member("second")
        self.second.run(self._decide)
        self.store = RuleStore.open(folder / "trust")
        self.approver: Approver
        self.begin(settings)

    def begin(self, settings: ApproverSettings | None = None) -> None:
        """The approver comes."""
        self.member = self._member("approver")
        chosen = settings or ApproverSettings(learning=LEARNING)
        self.approver = Approver(self.member.space, self.store, ProposalHistory(), chosen)
        self.member.start(lambda _: self.approver.run())

    def _decide(self, space: JoinedSpace) -> None:
        @space.on_proposal
        async def decide(seen: SeenProposal) -> None:
            if self.mood == "approve":
                await space.approve(seen)
            elif self.mood == "reject":
                await space.reject(seen, "unsafe")

    def write(self, path: str) -> str:
        """The agent proposes; who approved it, or who rejected it."""

        async def propose(space: JoinedSpace) -> str:
            arguments = {"path": path, "content": "news"}
            try:
                return f"by {(await space.call('files', 'write_file', arguments)).by}"
            except Rejected as no:
                return f"no, {no.by}"

        return self.agent.run(propose)

    def teach(self, days: Iterable[int] = range(10, 20)) -> None:
        """The person approves a report a day, and rejects a secret."""
        self.mood = "reject"
        assert self.write("reports/secret.md") == "no, second"
        self.mood = "approve"
        for day in days:
            assert self.write(f"reports/day-{day}.md") == "by second"


def card(page: Page) -> Locator:
    return page.locator(".suggestion")


def rule(page: Page) -> Locator:
    return page.locator(".rule")


def notice(page: Page, words: str) -> Locator:
    return page.locator(".notice").filter(has_text=words)


def dialog(page: Page, title: str) -> Locator:
    return page.get_by_role("dialog", name=title)
