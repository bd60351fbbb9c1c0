"""Effects beside rules: no rule does one twice, rules go by class, and what nobody knows is found out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import ApprovalRequired
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.operation import Json
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore
from tests.participant.gateway_with_members import gateway_with
from tests.trust.approver.test_approver import AGENT, approver_scene
from tests.waiting import until

ALL: Json = (
    "{name: all, decision: approve, proposer: agent, tool: write_file, arguments: {path: '*', text: '*'}"
)
PARAMS: Json = {"name": "write_file", "arguments": {"path": "A.txt", "text": "y"}}


async def _seen_by(space: JoinedSpace, id: str) -> SeenProposal:
    await until(lambda: space.proposals.get(id))
    seen = space.proposals.get(id)
    assert seen is not None
    return seen


async def test_no_rule_does_the_same_twice_and_a_person_who_has_seen_it_may(tmp_path: Path) -> None:
    effects = {"effects": {"file": {"tool": "write_file", "key": "{path}"}}}
    async with approver_scene(tmp_path, rules=effects) as scene:
        scene.store.rules_file.write_text(f"rules:\n  - {ALL}}}\n")
        await until(lambda: len(scene.store.rules) == 1)
        scene.mood = "leave"
        await scene.agent.call("files", "write_file", {"path": "a.txt", "text": "x"})
        proposal = await scene.agent.propose("files", "tools/call", PARAMS)
        why = await until(lambda: scene.approver.decider.asked_because(proposal.id) or "")
        assert "rule all matched, but propose it: file a.txt was done for agent on" in why
        seen = await _seen_by(scene.alice, proposal.id)
        await until(lambda: seen.effects)
        assert seen.effects[0].text.endswith("approved by approver: do it again?")
        with pytest.raises(ApprovalRequired):
            await scene.alice.approve(seen)
        assert seen.status == "pending"
        await scene.alice.approve(seen, repeats=seen.repeats)
        assert scene.written == ["a.txt", "A.txt"]


@pytest.mark.parametrize(("said", "decides"), [("reversible", True), ("final", False), (None, False)])
async def test_a_rule_goes_by_what_is_said_of_the_tool(
    tmp_path: Path, said: str | None, decides: bool
) -> None:
    async with approver_scene(tmp_path) as scene:
        tools = "" if said is None else f"tools:\n  files/write_file: {{undo: {said}}}\n"
        scene.store.rules_file.write_text(f"rules:\n  - {ALL}, undo: [reversible, compensable]}}\n{tools}")
        await until(lambda: len(scene.store.rules) == 1)
        scene.mood = "leave"
        proposal = await scene.agent.propose("files", "tools/call", PARAMS)
        if decides:
            assert (await proposal.outcome()).by == "approver"
        else:
            await until(lambda: scene.approver.decider.asked_because(proposal.id))
            assert proposal.seen.status == "pending"


_BINDS: Json = {"effect": "a" * 64, "changes": [{"path": "A.txt", "what": "created"}]}


@pytest.mark.parametrize(
    ("report", "said", "decides"),
    [
        (_BINDS, "", True),
        # What people or the operator said of it counts more.
        (_BINDS, "undo: final", False),
        (_BINDS, "effect: destroys", False),
        (_BINDS, "operator", False),
        # A plan of the server takes nothing back, and what does not bind neither.
        ({"effect": "a" * 64, "plan": ["writes A.txt"]}, "", False),
        ({"why": "it fails there"}, "", False),
    ],
)
async def test_a_call_whose_seen_effect_is_applied_is_reversible_for_rules(
    tmp_path: Path, report: dict[str, Json], said: str, decides: bool
) -> None:
    effects: dict[str, Json] = {"effects": {"file": {"tool": "write_file", "undo": "final"}}}
    async with approver_scene(tmp_path, rules=effects if said == "operator" else None) as scene:
        tools = f"tools:\n  files/write_file: {{{said}}}\n" if ":" in said else ""
        scene.store.rules_file.write_text(f"rules:\n  - {ALL}, undo: [reversible]}}\n{tools}")
        await until(lambda: len(scene.store.rules) == 1)
        scene.mood = "leave"
        proposal = await scene.agent.propose("files", "tools/call", PARAMS)
        await until(lambda: scene.approver.decider.asked_because(proposal.id))
        assert proposal.seen.status == "pending"
        await scene.files.send("moot/preview", report, about=proposal.id)
        if decides:
            assert (await proposal.outcome()).by == "approver"
        else:
            later = await scene.agent.propose("files", "tools/call", PARAMS)
            await until(lambda: scene.approver.decider.asked_because(later.id))
            assert proposal.seen.status == "pending"


@pytest.mark.parametrize(("status", "outcome"), [("paid", "done"), ("refused", "failed"), ("sent", None)])
async def test_what_nobody_knows_is_settled_only_by_what_the_operator_s_call_proves(
    tmp_path: Path, status: str, outcome: str | None
) -> None:
    find = {
        "tool": "get_payment",
        "to": "books",
        "arguments": {"invoice": "{invoice}"},
        "done": {"status": "paid"},
        "not_done": {"status": "refused"},
        "after_seconds": 0,
    }
    effects: Json = {"effects": {"pay": {"tool": "pay", "key": "{invoice}", "reconcile": find}}}
    rights: Json = [
        "mcp/response",
        "chat",
        "trust/*",
        {"kind": "mcp/request", "to": ["books"]},
        "moot/settle",
    ]
    host: Json = ["mcp/response"]
    members: Json = {"ana": ["*"], "agent": AGENT, "bank": host, "books": host, "approver": rights}
    async with gateway_with(tmp_path, rules=effects, **members) as party:
        ana, agent, bank, books = [await party.join(name) for name in ("ana", "agent", "bank", "books")]
        store = RuleStore.open(tmp_path / "trust")
        approver = Approver(await party.join("approver"), store, ProposalHistory(), ApproverSettings())
        running = asyncio.create_task(approver.run())
        asked: list[str] = []
        is_called = asyncio.Event()

        @bank.tool
        async def pay(invoice: str) -> str:
            is_called.set()
            await asyncio.Event().wait()
            return invoice

        @books.tool
        def get_payment(invoice: str) -> dict[str, str]:
            asked.append(invoice)
            return {"status": status, "invoice": invoice}

        try:
            params: Json = {"name": "pay", "arguments": {"invoice": "INV-7"}}
            proposal = await agent.propose("bank", "tools/call", params)
            seen = await _seen_by(ana, proposal.id)
            approving = asyncio.create_task(ana.approve(seen))
            await is_called.wait()
            await bank.close()
            await until(lambda: asked)
            if outcome is None:
                again = await agent.propose("bank", "tools/call", params)
                shown = await _seen_by(ana, again.id)
                # Told once more, and looked at once more; it proves nothing, so nothing is settled.
                await until(lambda: shown.effects and len(asked) > 1)
                assert (seen.outcome, seen.assessed_by) == ("unknown", None)
            else:
                await until(lambda: seen.outcome == outcome)
                assert seen.assessed_by == "approver"
                assert seen.note == (
                    f'get_payment {{"invoice": "INV-7"}} on books answered {{"status": "{status}"}}'
                )
            approving.cancel()
        finally:
            running.cancel()
            await asyncio.gather(running, approving, return_exceptions=True)
