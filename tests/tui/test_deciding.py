"""Approving, rejecting and granting at the full-screen terminal: deliberate, and bound to what was shown."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from moot.errors import Rejected, UsageError
from moot.operations.grant_scope import grant_scopes
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.patterns.url_prefix import url_prefix_pattern
from moot.tui import dialog, dialogs
from moot.tui.decision_flow import check_unchanged
from moot.tui.dialog import DetailDialog, Dialog
from moot.tui.dialogs import ApproveDialog, EndorseDialog, GrantDialog, RejectDialog, ShownProposal
from moot.tui.rows import MAX_ROWS
from tests.console.in_node import each_in_node
from tests.participant.gateway_with_members import ReceivedEnvelopes
from tests.tui.terminal_session import (
    enter_line,
    pane_text,
    propose,
    save_screenshot,
    screen_text,
    settle,
    terminal_space,
    until,
)
from tests.waiting import HANG_SECONDS
from tests.waiting import until as until_so


async def test_a_proposal_is_shown_in_full_and_approved_with_two_keys(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent, "first\nsecond")
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            assert "#1 write_file on files" in pane_text(app.panes.approvals)
            await until(pilot, lambda: "1 pending" in screen_text(app))
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            assert isinstance(app.screen, ApproveDialog)
            parts = ("agent proposes write_file on files", "path: notes.md", "  first", "  second")
            await until(pilot, lambda: all(part in screen_text(app) for part in parts))
            # Nobody knows whether the file is there: nothing is called added.
            assert "replaces the file if there is one; its current content is not known" in screen_text(app)
            assert "+ first" not in screen_text(app)
            save_screenshot(app, "approve")
            await pilot.press("y")
            assert (await proposal.outcome(HANG_SECONDS)).text == "created notes.md: 12 bytes"
            await until(pilot, lambda: "✓ approved write_file" in pane_text(app.panes.timeline))
            await until(pilot, lambda: not app.panes.approvals.rows)


async def test_where_values_came_from_is_seen_before_the_key_and_a_person_endorses_one(
    tmp_path: Path,
) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        heard: list[Envelope] = []
        bob.on("moot/endorse")(heard.append)
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            assert "o origins" not in screen_text(app)
            # It is found out in the moment after, while the dialog is open.
            found: Json = {"path": "path", "value": "notes.md", "origin": "untrusted", "steers": True}
            found |= {"text": "from read of mail", "envelope": "m-12345678", "excerpt": "write to notes.md"}
            report = {"asks": True, "why": "path: from read", "arguments": [found]}
            await bob.send("moot/origins", report, about=proposal.id)
            parts = ("! path: from read", "path: notes.md", "! from read of mail", "o origins · e endorse")
            await until(pilot, lambda: all(part in screen_text(app) for part in parts))
            assert "write to notes.md" not in screen_text(app)
            await pilot.press("o")
            await until(pilot, lambda: "“write to notes.md” [m-123456]" in screen_text(app))
            save_screenshot(app, "origins")
            await pilot.press("e")
            await settle(pilot)
            assert isinstance(app.screen, EndorseDialog)
            assert "Endorse path = “notes.md” until " in screen_text(app)
            save_screenshot(app, "endorse")
            await pilot.press("enter")
            await until(pilot, lambda: bool(heard))
            assert heard[0].payload.items() >= {"value": "notes.md", "member": "agent"}.items()


async def test_a_text_of_very_many_lines_is_shown_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who proposes what, and the first lines, never give way to the last; what is cut is not approved."""
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            text = "".join(f"{number}\n" for number in range(MAX_ROWS + 100))
            await propose(agent, text)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, ApproveDialog)
            assert pane_text(dialog.rows).startswith("agent proposes write_file on files\n")
            assert len(dialog.rows.rows) > MAX_ROWS + 100
            await pilot.press("escape")

            monkeypatch.setattr("moot.tui.dialog.MAX_DIALOG_ROWS", 500)
            await pilot.press("a")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, ApproveDialog)
            assert pane_text(dialog.rows).startswith("agent proposes write_file on files\n")
            assert re.search(r"… 9,6\d\d more lines are not shown here$", pane_text(dialog.rows))
            await pilot.press("end", "y")
            assert app.screen is dialog
            assert "x shows all as raw bytes" in screen_text(app)
            await pilot.press("x", "end", "y")
            await until(pilot, lambda: "✓ approved write_file" in pane_text(app.panes.timeline))


async def test_a_large_value_shows_its_size_and_hash_and_is_fetched_by_a_key(tmp_path: Path) -> None:
    text = "".join(f"line {number} {'.' * 80}\n" for number in range(14_000)) + "the end"
    digest = sha256(text.encode()).hexdigest()
    async with terminal_space(tmp_path) as terminal:
        files = await terminal.host()
        agent = await terminal.join("agent")

        @files.tool
        def give(size: int) -> str:
            return "é" * size

        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent, text)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, ApproveDialog)
            await until(pilot, lambda: f"{len(text):,} bytes, sha256 {digest}" in pane_text(dialog.rows))
            assert "moot/content" not in pane_text(dialog.rows)
            assert "the end" not in pane_text(dialog.rows)
            assert "v large values" in screen_text(app)
            save_screenshot(app, "large-value")
            await pilot.press("v")
            await until(pilot, lambda: "the end" in pane_text(dialog.rows))
            assert "sha256" not in pane_text(dialog.rows)
            # More to read than before.
            await pilot.press("y")
            assert app.screen is dialog
            await pilot.press("end", "y")
            assert (await proposal.outcome(HANG_SECONDS)).text == f"created notes.md: {len(text)} bytes"

            bob = await terminal.join("bob")
            await bob.call("files", "give", {"size": 600_000})
            hashed = sha256(("é" * 600_000).encode()).hexdigest()
            await until(pilot, lambda: any(hashed.encode() in e.raw for e in app.panes.timeline.envelopes()))
            await enter_line(pilot, f"/content {hashed[:12]}")
            await until(pilot, lambda: isinstance(app.screen, DetailDialog))
            detail = app.screen
            assert isinstance(detail, DetailDialog)
            await until(pilot, lambda: pane_text(detail.rows) == "é" * 600_000)
            await pilot.press("escape")
            await enter_line(pilot, f"/content {hashed[:12]} {tmp_path / 'saved'}")
            await until(pilot, lambda: "saved 1,200,000 bytes" in pane_text(app.panes.timeline))
            assert (tmp_path / "saved").read_text() == "é" * 600_000
            answer = next(e for e in app.panes.timeline.envelopes() if hashed.encode() in e.raw)
            await enter_line(pilot, f"/look {answer.id}")
            await until(pilot, lambda: isinstance(app.screen, DetailDialog))
            assert isinstance(app.screen, DetailDialog)
            told = f"content.0.text: 1,200,000 bytes, sha256 {hashed}; /content {hashed[:12]} FILE saves it"
            assert told in pane_text(app.screen.rows)


async def test_nothing_is_approved_by_accident(tmp_path: Path) -> None:
    """Keys enter_line ahead, keys held down, Enter, and a yes to something that was not read to its end."""
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        async with terminal.terminal(size=(100, 24)) as (app, pilot):
            long = "\n".join(f"line {number}" for number in range(200))
            proposal = await propose(agent, long)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            # In the line they are letters.
            await pilot.press("a", "y", "y", "enter")
            await until(pilot, lambda: "ayy" in pane_text(app.panes.timeline))
            await pilot.press("escape", "2", "a", "enter", "a", "a", "enter")
            await settle(pilot)
            await pilot.press("y")
            assert isinstance(app.screen, ApproveDialog)
            await until(pilot, lambda: "more below" in screen_text(app))
            assert proposal.state == "pending"
            await pilot.press("end")
            await until(pilot, lambda: "line 199" in screen_text(app))
            await pilot.press("y")
            await proposal.outcome(HANG_SECONDS)


async def test_what_is_typed_ahead_approves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A yes does not count before the dialog has been there for SETTLE_SECONDS."""
    monkeypatch.setattr(dialog, "SETTLE_SECONDS", HANG_SECONDS * 10)
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2")
            for opening, yes in (("a", "y"), ("g", "y"), ("r", "enter")):
                await pilot.press(opening, yes, yes)
                await until(pilot, lambda: isinstance(app.screen, dialogs.ProposalDialog))
                await until(pilot, lambda: "works in a moment" in screen_text(app))
                await pilot.press("escape")
            assert proposal.state == "pending"


async def test_a_dialog_that_is_not_there_yet_has_not_settled() -> None:
    """However long the machine has been up: its clock is no moment at which anybody looked."""
    assert not Dialog("Approve?", "y yes").has_settled


async def test_a_decision_of_somebody_else_is_told_where_ours_would_have_been(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            await until(pilot, lambda: bob.proposals.get(proposal.id) is not None)
            await bob.approve(proposal.id)
            await until(pilot, lambda: "too late: approved by bob" in screen_text(app))
            await pilot.press("y")
            assert isinstance(app.screen, ApproveDialog)
            await pilot.press("escape")
            await until(pilot, lambda: not app.panes.approvals.rows)
            # Typed instead: told as well.
            await enter_line(pilot, f"/approve {proposal.id}")
            await until(pilot, lambda: "! too late: approved by bob" in pane_text(app.panes.timeline))


async def test_a_decision_is_about_the_bytes_that_were_shown(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent, alice = await terminal.join("agent"), await terminal.join("alice")
        first = await propose(agent, "harmless")
        second = await propose(agent, "something else")
        seen = [await _seen(alice, each.id) for each in (first, second)]
        check_unchanged(alice, ShownProposal.of(seen[0]))
        with pytest.raises(UsageError, match="not the proposal you were shown"):
            check_unchanged(alice, ShownProposal(seen[0], seen[1].fingerprint()))
        await first.withdraw()
        await until_so(lambda: seen[0].status != "pending")
        with pytest.raises(Exception, match="too late: withdrawn"):
            check_unchanged(alice, ShownProposal.of(seen[0]))


async def _seen(space: JoinedSpace, id: str) -> SeenProposal:
    seen = await until_so(lambda: space.proposals.get(id))
    assert seen is not None
    return seen


async def test_rejecting_takes_a_reason_and_words(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        agent = await terminal.join("agent")
        received = ReceivedEnvelopes(agent)
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "r")
            await settle(pilot)
            assert isinstance(app.screen, RejectDialog)
            await pilot.press("down", "down", "tab", *"not on a Friday".replace(" ", "_"), "enter")
            with pytest.raises(Rejected, match="unsafe"):
                await proposal.outcome(HANG_SECONDS)
            chat = await received.wait("chat")
            assert chat.payload["text"] == "not_on_a_Friday"
            await until(pilot, lambda: "✗ rejected write_file" in pane_text(app.panes.timeline))


async def test_a_grant_for_once_is_chosen_with_a_key_and_kept_by_the_gateway(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        received = ReceivedEnvelopes(agent)
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent, path="docs/notes.md")
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "g")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, GrantDialog)
            await pilot.press("t", "t", "t")
            save_screenshot(app, "grant-once")
            assert "write_file with exactly path=docs/notes.md, text=hello on files one more time" in (
                dialog._sentence()
            )
            await pilot.press("y")
            await proposal.outcome(HANG_SECONDS)
            grant = await received.wait("capability/grant")
            assert grant.payload["max_uses"] == 1
            assert "expires_in_seconds" not in grant.payload


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        (["1"], {"$exact": {"path": "docs/notes.md", "text": "hello"}}),
        (["2"], None),
        (["3"], {"path": "docs/**"}),
    ],
)
async def test_approve_and_grant_gives_the_right_that_was_shown(
    tmp_path: Path, keys: list[str], arguments: Json
) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        received = ReceivedEnvelopes(agent)
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent, path="docs/notes.md")
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "g")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, GrantDialog)
            await pilot.press(*keys)
            save_screenshot(app, f"grant-{keys[0]}")
            answer = json.loads(dialog._json(dialog._chosen))
            await pilot.press("y")
            await proposal.outcome(HANG_SECONDS)
            grant = await received.wait("capability/grant")
            (given,) = grant.payload["capabilities"]
            assert given == answer
            # For an hour, unless somebody chooses otherwise.
            assert grant.payload["expires_in_seconds"] == 3_600
            params = {"name": "write_file"} | ({"arguments": arguments} if arguments else {})
            assert given == {
                "kind": "mcp/request",
                "payload": {"method": "tools/call", "params": params},
                "to": ["files"],
            }
            await until(pilot, lambda: "revokes it" in pane_text(app.panes.timeline))
            # It is a right now: no proposal is needed for the same.
            again = await agent.call("files", "write_file", {"path": "docs/notes.md", "text": "hello"})
            assert again.how == "direct"


async def test_a_pattern_of_ones_own_has_to_allow_what_was_proposed(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent = await terminal.join("agent")
        received = ReceivedEnvelopes(agent)
        async with terminal.terminal() as (app, pilot):
            await propose(agent, path="docs/notes.md")
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "g")
            await settle(pilot)
            dialog = app.screen
            assert isinstance(dialog, GrantDialog)
            await pilot.press("e")
            field = dialog.query_one("#dialog-input")
            for wrong, answer in (
                ("{", "not valid JSON"),
                ('{"kind": "mcp/request", "until": "noon"}', "until"),
                ('{"kind": "chat"}', "would not allow the proposed call"),
            ):
                field.value = wrong  # type: ignore[attr-defined]
                await pilot.press("enter")
                await until(pilot, lambda answer=answer: answer in screen_text(app))  # type: ignore[misc]
            field.value = '{"kind": "mcp/request", "to": ["files"]}'  # type: ignore[attr-defined]
            await pilot.press("enter", "y")
            grant = await received.wait("capability/grant")
            assert grant.payload["capabilities"] == [{"kind": "mcp/request", "to": ["files"]}]


# The capabilities that the console offers for a call on files; null for one that it cannot write.
_SCOPES = """(payload) => Object.fromEntries(m.grantScopes({ roster: { get: () => undefined } }, {
  to: ["files"], call: { ...payload, name: payload.params.name, bodyText: JSON.stringify(payload) },
}).map((each) => [each.name, each.text ? JSON.parse(each.text) : null]))"""


async def test_the_exact_scope_takes_every_value_for_itself(tmp_path: Path) -> None:
    """Lists, long texts and signs of the pattern language, up to the size of a capability."""
    async with terminal_space(tmp_path) as terminal:
        agent, alice = await terminal.join("agent"), await terminal.join("alice")
        offered: list[tuple[Any, dict[str, Json]]] = []

        async def widths(params: dict[str, Json]) -> dict[str, Json]:
            made = await agent.propose("files", "tools/call", {"name": "x"} | params)
            seen = await _seen(alice, made.id)
            found: dict[str, Json] = {
                each.name: each.capability or each.problem for each in grant_scopes(alice, seen)
            }
            offered.append((seen.envelope.payload, found))
            return found

        for given in (
            {"items": [1, 2.0]},
            {"path": "*", "word": "!no", "deep": {"n": 1}},
            {"text": "x" * 2000},
        ):
            scopes = await widths({"arguments": given})
            assert scopes["exact"]["payload"]["params"] == {"name": "x", "arguments": {"$exact": given}}
            assert scopes["tool"]["payload"]["params"] == {"name": "x"}
        web = await widths({"arguments": {"url": "https://a.example/docs/x", "to": "https://b.example/"}})
        assert [*web] == ["exact", "address", "site", "tool", "pattern"]
        for name, prefix in (("address", "https://a.example/docs/"), ("site", "https://a.example/")):
            expected = {"url": url_prefix_pattern(prefix), "to": "https://b.example/"}
            assert web[name]["payload"]["params"]["arguments"] == expected
        odd = await widths({"arguments": {"url": "https://a.example@evil.net/docs/x"}})
        assert "not a plain address" in odd["address"]
        assert (await widths({}))["exact"]["payload"]["params"] == {"$exact": {"name": "x"}}
        assert "16384 bytes" in (await widths({"arguments": {"text": "x" * 20_000}}))["exact"]
        await widths({"arguments": {"path": "docs/a.md", "force": False, "n": 1.5, "*": 1}})
    in_console = each_in_node(
        "views/capabilities/grant-scopes.js", _SCOPES, [payload for payload, _ in offered]
    )
    for (payload, here), there in zip(offered, in_console, strict=True):
        for name, capability in here.items():
            # What is edited next begins with another guess in each.
            if name != "pattern":
                assert there[name] == (capability if isinstance(capability, dict) else None), (payload, name)


async def test_votes_count_where_a_space_asks_for_several(tmp_path: Path) -> None:
    rules: dict[str, Json] = {
        "quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}],
    }
    async with terminal_space(tmp_path, rules=rules) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            proposal = await propose(agent)
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            await pilot.press("y")
            counted = "✓ voted for write_file"
            await until(pilot, lambda: counted in pane_text(app.panes.timeline))
            await until(pilot, lambda: "1 of 2 approvals, 1 more needed" in pane_text(app.panes.approvals))
            await bob.vote(proposal.id)
            assert (await proposal.outcome(HANG_SECONDS)).by == "bob"


async def test_a_change_is_compared_with_what_was_last_read(tmp_path: Path) -> None:
    async with terminal_space(tmp_path) as terminal:
        await terminal.host()
        agent, bob = await terminal.join("agent"), await terminal.join("bob")
        async with terminal.terminal() as (app, pilot):
            await bob.call("files", "read_file", {"path": "notes.md"})
            await propose(agent, "one\n2\nthree")
            await until(pilot, lambda: len(app.panes.approvals.rows) == 1)
            await pilot.press("escape", "2", "a")
            await settle(pilot)
            parts = ("compared with the version files had at", "- two", "+ 2")
            await until(pilot, lambda: all(part in screen_text(app) for part in parts))
            # The bytes themselves are one key away.
            await pilot.press("x")
            await until(pilot, lambda: '"text":"one\\n2\\nthree"' in screen_text(app))
