"""Permission requests are proposals with exactly that call; what people decide reaches the agent, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.agents.acp.agent_profiles import PROFILES, UNKNOWN
from moot.agents.acp.open_permission import choose_options
from moot.errors import McpError, ProposalSettled
from moot.participant import SeenProposal, connect
from tests.agents.acp.agent_space import RIGHTS, agent_space, diff, tool_call, tool_update
from tests.waiting import until


def edit(folder: Path, *, then: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """A turn that asks for an edit, does it if it may, and says what happened."""
    file = folder / "work" / "a.txt"
    ask = {
        "toolCallId": "c1",
        "kind": "edit",
        "title": "Write a.txt",
        "rawInput": {"path": str(file)},
        "content": [diff(str(file), None, "hello")],
    }
    done = [{"write": [str(file), "hello"]}, tool_update(status="completed"), {"say": "Written."}]
    return [{"ask": ask, "allowed": done if then is None else then, "refused": [{"say": "Then not."}]}]


async def test_an_approved_permission_is_released_once_and_the_edit_lands(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path)) as space:
        asked = await space.ask()
        proposal = await space.proposal()
        file = str(tmp_path / "work" / "a.txt")
        assert list(proposal.to) == ["agent"]
        assert asked in proposal.correlation_id
        assert proposal.payload["params"] == {
            "name": "edit",
            "arguments": {
                "input": {"path": file},
                "changes": [{"path": file, "old_text": None, "new_text": "hello"}],
            },
        }
        assert not Path(file).exists()
        outcome = await space.alice.approve(proposal.id)
        assert Path(file).read_text() == "hello"
        assert not outcome.is_error
        assert outcome.text.startswith("The agent reports: edit:")
        await space.wait_for("chat", "Written.")
        # Never the option that outlives the session.
        await space.decided("once")
        with pytest.raises(McpError, match="nothing waits for this call"):
            await space.alice.call("agent", "edit", proposal.payload["params"]["arguments"])


async def test_a_rejection_reaches_the_agent_and_its_reason_is_the_next_prompt(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path), [{"say": "I see."}]) as space:
        await space.ask()
        proposal = await space.proposal()
        await space.alice.reject(proposal.id, "unsafe", explanation="not on Sundays")
        await space.wait_for("chat", "I see.")
        await space.decided("no")
        prompt = space.prompts()[1]
        assert "a.txt" in prompt
        assert "alice rejected it (reason: unsafe) and wrote:\n> not on Sundays" in prompt
        assert not (tmp_path / "work" / "a.txt").exists()


async def test_an_agent_that_takes_no_no_is_not_prompted_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.acp.turn_runner.MAX_REJECTIONS", 2)
    turns = [edit(tmp_path) for _ in range(10)]
    async with agent_space(tmp_path, *turns) as space:

        @space.alice.on_proposal
        async def reject(proposal: SeenProposal) -> None:
            await space.alice.reject(proposal.id)

        await space.ask()
        await space.idle()
        await until(lambda: len(space.prompts()) == 3)
        await space.idle()
        assert len(space.of("mcp/proposal")) == 3
        # The last reason comes with the next message of a person.
        await space.ask("what now?")
        await until(lambda: len(space.prompts()) == 4)
        assert "alice rejected it" in space.prompts()[3]


async def test_the_call_is_merged_from_all_updates_and_says_what_is_missing(tmp_path: Path) -> None:
    """Codex sends the diff earlier; others send nothing but a title."""
    early = [
        tool_call("c1", kind="edit", title="Edit files", content=[diff("b.txt", "1", "2")]),
        {"ask": {"toolCallId": "c1", "title": "Edit files"}, "allowed": [tool_update(status="completed")]},
        {"ask": {"toolCallId": "c2", "kind": "execute", "title": "rm -rf /"}},
    ]
    async with agent_space(tmp_path, early) as space:
        await space.ask()
        first = await space.proposal()
        assert first.payload["params"] == {
            "name": "edit",
            "arguments": {"changes": [{"path": "b.txt", "old_text": "1", "new_text": "2"}]},
        }
        await space.alice.approve(first.id)
        second = await space.proposal(2)
        assert second.payload["params"] == {
            "name": "execute",
            "arguments": {"title": "rm -rf /", "missing": ["input", "command"]},
        }


async def test_a_lying_kind_and_title_do_not_hide_a_command(tmp_path: Path) -> None:
    ask = {"toolCallId": "c1", "kind": "read", "title": "Read README", "rawInput": {"command": "rm -rf ~"}}
    async with agent_space(tmp_path, [{"ask": ask}]) as space:
        await space.ask()
        proposal = await space.proposal()
        assert proposal.payload["params"] == {
            "name": "execute",
            "arguments": {"input": {"command": "rm -rf ~"}},
        }


async def test_paths_that_leave_the_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to("/etc")
    changes = [diff("inside.txt", None, ""), diff("../out.txt", None, ""), diff("link/passwd", None, "x")]
    ask = {"toolCallId": "c1", "kind": "edit", "content": changes}
    async with agent_space(tmp_path, [{"ask": ask}]) as space:
        await space.ask()
        arguments = (await space.proposal()).payload["params"]["arguments"]
        assert arguments["outside_folder"] == ["../out.txt", "link/passwd"]


async def test_doing_another_thing_than_was_approved_is_said_loudly(tmp_path: Path) -> None:
    ask = {"toolCallId": "c1", "kind": "execute", "rawInput": {"command": "ls"}}
    done = [tool_update("c1", status="completed", rawInput={"command": "rm -rf /"})]
    async with agent_space(tmp_path, [{"ask": ask, "allowed": done}]) as space:
        await space.ask()
        outcome = await space.alice.approve((await space.proposal()).id)
        assert outcome.is_error
        assert outcome.text.startswith("WARNING: the agent reports another call than the one that was")
        await space.wait_for("chat", "WARNING: the agent reports another call")


async def test_a_grant_in_the_space_takes_the_place_of_always(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path)) as space:
        await space.alice.admin.grant(
            "agent",
            [{"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "edit"}}}],
        )
        await until(lambda: space.turns.space.rights is not None)
        await space.ask()
        await space.wait_for("chat", "Written.")
        assert not space.of("mcp/proposal")
        # Seen and journaled like any other request, and answered with what came of it.
        request = await space.wait_for("mcp/request", "tools/call")
        assert list(request.to) == ["agent"]
        await space.wait_for("mcp/response", "The agent reports")
        await space.decided("once")


async def test_a_grant_does_not_release_what_needs_approvals_of_others(tmp_path: Path) -> None:
    """D-103."""
    rules = {"quorum": [{"payload": {"params": {"name": "edit"}}, "approvals_needed": 1}]}
    async with agent_space(tmp_path, edit(tmp_path), rights=[*RIGHTS, "mcp/request"], rules=rules) as space:
        await space.ask()
        seen = (await space.wait_for("mcp/proposal", "edit")).id
        assert "tools/call" not in [each.payload["method"] for each in space.of("mcp/request")]
        await space.alice.approve(seen)
        await space.wait_for("chat", "Written.")
        await space.decided("once")


async def test_a_cancelled_turn_withdraws_what_it_asked(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path)) as space:
        asked = await space.ask()
        proposal = await space.proposal()
        await space.alice.chats.cancel(asked)
        withdrawn = await space.wait_for("mcp/withdraw")
        assert list(withdrawn.correlation_id) == [proposal.id]
        await space.decided("")


async def test_a_change_too_large_to_be_shown_is_refused_and_the_agent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.agents.acp.permissions.MAX_PROPOSAL_BYTES", 500)
    ask = {"toolCallId": "c1", "kind": "edit", "content": [diff("a", None, "x" * 1000)]}
    async with agent_space(tmp_path, [{"ask": ask}]) as space:
        await space.ask()
        await space.wait_for("chat", "do it in smaller parts")
        await until(lambda: len(space.prompts()) == 2)
        assert "in smaller parts" in space.prompts()[1]
        assert not space.of("mcp/proposal")


async def test_requests_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.agents.acp.permissions.MAX_OPEN_PERMISSIONS", 1)
    second = {"ask": {"toolCallId": "c2", "kind": "edit"}}
    first = {"ask": {"toolCallId": "c1", "kind": "edit"}, "meanwhile": [second]}
    async with agent_space(tmp_path, [first]) as space:
        await space.ask()
        await space.wait_for("chat", "requests wait already: ask again")
        assert len(space.of("mcp/proposal")) == 1


async def test_an_agent_without_the_right_to_propose_is_refused_and_it_is_told(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path), rights=["chat", "reasoning/*"]) as space:
        await space.ask()
        await space.wait_for("chat", "Not done (your rights in this space do not allow mcp/proposal")
        await space.decided("no")


def options(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"optionId": id, "name": id, "kind": kind} for id, kind in pairs]


@pytest.mark.parametrize(
    ("given", "allow", "reject"),
    [
        (options(("a", "allow_always"), ("b", "allow_once"), ("c", "reject_once")), "b", "c"),
        # Only for ever: neither is taken.
        (options(("a", "allow_always"), ("c", "reject_always")), None, None),
        # One id for two things names nothing.
        (options(("a", "allow_once"), ("a", "allow_always")), None, None),
        ([{"kind": "allow_once"}, {"optionId": 1, "kind": "allow_once"}, 7], None, None),
        ("nonsense", None, None),
    ],
)
def test_the_option_that_allows_once_is_chosen(given: Any, allow: str | None, reject: str | None) -> None:
    chosen = choose_options(given, UNKNOWN)
    assert (chosen.allow, chosen.reject) == (allow, reject)


def test_of_two_options_that_allow_once_the_known_one_is_chosen() -> None:
    """Qwen Code in its mode `auto` has two."""
    qwen = next(each for each in PROFILES if each.name == "Qwen Code")
    given = options(("proceed_auto", "allow_once"), ("proceed_once", "allow_once"))
    assert choose_options(given, qwen).allow == "proceed_once"


async def test_of_two_approvals_one_releases_it_and_the_other_comes_too_late(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path), people={"bob": ["*"]}) as space:
        async with connect(space.gateway.url, "lab", "t-bob") as bob:
            await space.ask()
            proposal = await space.proposal()
            await bob.refresh_proposals()
            results = await asyncio.gather(
                bob.approve(proposal.id), space.alice.approve(proposal.id), return_exceptions=True
            )
        assert sum(isinstance(each, ProposalSettled) for each in results) == 1
        await space.decided("once")
