"""Rules in the terminal, with a real approver: suggested, accepted, narrowed, granted, stopped, explained."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from moot.errors import Rejected, UsageError
from moot.operations.rule_commands import narrow_rule
from moot.operations.text.rule_lines import bar
from moot.participant import JoinedSpace, SeenProposal
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore
from moot.tui.app import MootApp
from tests.trust.approver.test_approver import APPROVER, LEARNING
from tests.tui.terminal_session import (
    TerminalSpace,
    enter_line,
    pane_text,
    screen_text,
    terminal_space,
    until,
)
from tests.waiting import HANG_SECONDS


@pytest.fixture(autouse=True)
def patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The approver is there, and answers when the machine lets it."""
    monkeypatch.setattr("moot.operations.approver_client.ANSWER_SECONDS", HANG_SECONDS)


class RuleSpace:
    """Bob decides as he is in the mood for, the agent proposes, the approver learns; alice looks on."""

    def __init__(self, space: TerminalSpace, store: RuleStore) -> None:
        self.space = space
        self.store = store
        self.mood = "approve"
        self.agent: JoinedSpace
        self.approver: Approver

    async def begin(self) -> asyncio.Task[None]:
        await self.space.host()
        self.agent = await self.space.join("agent")
        bob = await self.space.join("bob")

        @bob.on_proposal
        async def decide(seen: SeenProposal) -> None:
            if self.mood == "approve":
                await bob.approve(seen)
            elif self.mood == "reject":
                await bob.reject(seen, "unsafe")

        space = await self.space.join("approver")
        self.approver = Approver(space, self.store, ProposalHistory(), ApproverSettings(learning=LEARNING))
        return asyncio.create_task(self.approver.run())

    async def write(self, path: str) -> str:
        try:
            return f"by {(await self.agent.call('files', 'write_file', {'path': path, 'text': 'x'})).by}"
        except Rejected as no:
            return f"no, {no.by}"

    async def suggested(self) -> str:
        """Bob approves ten; the name of what comes of it."""
        for day in range(10, 20):
            assert await self.write(f"reports/day-{day}.md") == "by bob"
        await self.approver.suggester.suggest_now()
        (name,) = self.store.suggestions
        return name


@asynccontextmanager
async def rule_space(folder: Path) -> AsyncIterator[RuleSpace]:
    async with terminal_space(folder, approver=APPROVER) as terminal:
        opened = RuleSpace(terminal, RuleStore.open(folder / "trust"))
        running = await opened.begin()
        try:
            yield opened
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def says(pilot: Pilot[int], line: str, words: str) -> None:
    """A line is enter_line, and this stands in the timeline then."""
    app = pilot.app
    assert isinstance(app, MootApp)
    await enter_line(pilot, line)
    await until(pilot, lambda: words in pane_text(app.panes.timeline))


async def test_a_suggestion_is_accepted_by_keys_counted_and_explained(tmp_path: Path) -> None:
    """MEW 9.4, by keys: the pane, its suggestion, a rule, its decisions, and why."""
    async with rule_space(tmp_path) as lab, lab.space.terminal() as (app, pilot):
        name = await lab.suggested()
        await pilot.press("escape", "7")
        await until(pilot, lambda: f"? {name}  suggested by approver" in pane_text(app.panes.rules))
        assert "error rate up to" in pane_text(app.panes.rules)
        await pilot.press("enter")
        # It is made once enough was decided, which may be before the last of the ten.
        await until(
            pilot, lambda: bool(re.search(r"agrees with (8|9|10) of \1 past decisions", screen_text(app)))
        )
        assert "tool: write_file" in screen_text(app)
        await pilot.press("escape", "home", "a")
        await until(pilot, lambda: app.input_line.value == f"/accept {name}")
        await pilot.press("enter")
        await until(pilot, lambda: "§ write_file-agent-" in pane_text(app.panes.rules))
        lab.mood = "leave"
        for day in (20, 21):
            assert await lab.write(f"reports/day-{day}.md") == "by approver"
        await until(pilot, lambda: "active, 2 decisions" in pane_text(app.panes.rules))
        automatic = [*lab.approver.ledger][-1].id
        await says(pilot, f"/explain {automatic}", "alice accepted this rule from suggestion")
        await says(pilot, "/rules", "17% of 12")


async def test_less_is_accepted_and_more_is_refused_in_the_approvers_words(tmp_path: Path) -> None:
    async with rule_space(tmp_path) as lab, lab.space.terminal() as (app, pilot):
        name = await lab.suggested()
        await says(pilot, "/suggestions", "can be granted instead: agent can call write_file on files")
        await says(pilot, f"/accept {name} --set path=*", "! approver: not accepted: it may allow more")
        assert [each.name for each in app.trust.open_suggestions()] == [name]
        setting = 'path=["reports/day-10.md","reports/day-11.md"]'
        line = f"/accept {name} --set '{setting}' count=3 while_present=alice"
        await says(pilot, line, "active")
        (rule,) = lab.store.rules
        assert (rule.limits.max_decisions, rule.limits.while_present) == (3, ("alice",))
        lab.mood = "reject"
        assert await lab.write("reports/day-11.md") == "by approver"
        assert await lab.write("reports/day-12.md") == "no, bob"


async def test_a_grant_instead_is_taken_back_with_the_command_that_was_told(tmp_path: Path) -> None:
    async with rule_space(tmp_path) as lab, lab.space.terminal() as (app, pilot):
        name = await lab.suggested()
        await says(pilot, "/suggestions", name)
        await says(pilot, f"/accept {name} --grant", "granted: agent can call write_file")
        arguments = {"path": "reports/day-20.md", "text": "x"}
        call = {"name": "write_file", "arguments": arguments}
        # The terminal may say so before the agent has heard of it.
        await until(pilot, lambda: lab.agent.may_request("files", "tools/call", call))
        assert (await lab.agent.call("files", "write_file", arguments)).how == "direct"
        await until(pilot, lambda: not app.trust.open_suggestions())
        (granted,) = lab.store.granted.values()
        await enter_line(pilot, f"/revoke agent --grant {granted.grant}")
        await until(pilot, lambda: not lab.store.granted)
        lab.mood = "reject"
        assert await lab.write("reports/day-21.md") == "no, bob"


async def test_rules_are_stopped_resumed_suspended_and_lifted(tmp_path: Path) -> None:
    async with rule_space(tmp_path) as lab, lab.space.terminal() as (app, pilot):
        name = await lab.suggested()
        await says(pilot, "/suggestions", name)
        await enter_line(pilot, f"/accept {name}")
        await until(pilot, lambda: len(app.trust.rules()) == 1)
        rule = app.trust.rules()[0].name
        await pilot.press("escape", "7", "S")
        await until(pilot, lambda: app.input_line.value == "/stop-rules")
        await pilot.press("enter")
        await until(pilot, lambda: "ALL RULES STOPPED by alice" in pane_text(app.panes.rules))
        assert await lab.write("reports/day-20.md") == "by bob"
        await says(pilot, "/resume-rules", "rules decide again")
        lab.mood = "leave"
        assert await lab.write("reports/day-21.md") == "by approver"
        automatic = [*lab.approver.ledger][-1].id
        await says(pilot, f"/stop-rules --about {automatic} --reason odd", f"rule {rule} is suspended")
        await until(pilot, lambda: "suspended: alice complained: odd" in pane_text(app.panes.rules))
        await says(pilot, f"/resume-rules {rule}", f"rule {rule} decides again")
        assert await lab.write("reports/day-22.md") == "by approver"
        unreviewed = lab.approver.reviews.unreviewed(rule)
        await says(
            pilot, f"/review {rule}", f"all of this was right: /review {rule} --confirm {unreviewed[-1]}"
        )
        assert "reports/day-22.md" in pane_text(app.panes.timeline).partition(f"{unreviewed[-1]}  ")[2]
        await says(pilot, "/review --confirm nothing", "! nothing does not wait for a review")
        assert lab.approver.reviews.unreviewed(rule) == unreviewed
        await says(pilot, f"/review --confirm {unreviewed[-1]}", f"reviewed {len(unreviewed)} decision")
        assert lab.approver.reviews.unreviewed(rule) == ()
        await says(pilot, "/review", "there is nothing to review")
        await says(pilot, "/stop-rules nothing", "! approver: not stopped: there is no rule nothing")
        await says(
            pilot, "/resume-rules nothing", "! approver: not resumed: there is no suspended rule nothing"
        )


async def test_a_dismissed_suggestion_is_gone_and_without_an_approver_it_is_said(tmp_path: Path) -> None:
    async with rule_space(tmp_path) as lab, lab.space.terminal() as (app, pilot):
        name = await lab.suggested()
        await says(pilot, "/suggestions", name)
        await says(pilot, f"/dismiss {name[:6]} --reason no", f"dismissed {name}")
        await until(pilot, lambda: len(lab.store.dismissed) == 1)
        assert app.trust.open_suggestions() == []
        await lab.approver.space.close()
        await until(pilot, lambda: "approver" not in app.space.roster)
        await says(pilot, "/rules", "no approver is in this space: `moot rules run` starts one")
        await says(pilot, "/explain x", "! no approver is in this space")


def test_what_is_set_of_a_rule_is_an_argument_a_limit_or_a_field() -> None:
    rule = {
        "name": "x",
        "decision": "approve",
        "words": "wide",
        "arguments": {"path": "*"},
        "limits": {"count": 9},
    }
    assert narrow_rule(rule, ["path=[1]", "count=2", "hours=09:00-17:00", "range.size=[1, 2]"]) == {
        "name": "x",
        "decision": "approve",
        "arguments": {"path": [1]},
        "limits": {"count": 2},
        "hours": "09:00-17:00",
        "range": {"size": [1, 2]},
    }
    assert rule["arguments"] == {"path": "*"}
    with pytest.raises(UsageError, match=r"write FIELD=VALUE"):
        narrow_rule(rule, ["path"])
    with pytest.raises(UsageError, match=r"is not an object"):
        narrow_rule(rule, ["path.deep=1"])
    with pytest.raises(UsageError, match=r"contains no rule"):
        narrow_rule(None, [])


def test_a_bar_is_as_long_as_its_share() -> None:
    assert [bar(share, 4) for share in (0.0, 0.5, 1.0, 2.0)] == ["····", "██··", "████", "████"]
    assert bar(0.03, 4) == "▏···"
