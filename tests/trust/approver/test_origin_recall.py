"""What the approver keeps of messages, when it reads them, and what it knows after a restart."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

import pytest

from moot.gateway import space_factory
from moot.participant import connect
from moot.participant.connection import gateway_reads
from moot.trust.approver import kept_messages, origin_watch
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.approver.origin_watch import SLICE_BYTES
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore
from tests.participant.gateway_with_members import QUICK
from tests.trust.approver.mail_space import APPROVER, BY_ORIGIN, STRANGER, mail_space
from tests.waiting import until


async def test_after_a_restart_of_the_approver_the_same_is_found_and_not_told_again(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        await space.say("Write to bob@example.org please")
        id, why = await space.asked(STRANGER)
        await space.stop_approver()
        await space.start_approver()
        await until(lambda: space.approver.origins.ask_reason(space.approver.ledger.get(id).case) is not None)  # type: ignore[union-attr]
        await space.settle()
        assert (len(space.told), space.approver.origins.finding(id)["why"]) == (1, why)  # type: ignore[index]
        assert (await space.propose("bob@example.org")).by == "approver"
        # An endorsement while nobody was there counts, too.
        await space.stop_approver()
        await space.alice.send("moot/endorse", {"value": STRANGER}, confirm=True)
        await space.start_approver()
        assert (await space.tasks.pop()).by == "approver"


async def test_what_was_forgotten_by_a_history_without_a_journal_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_reads, "MAX_PAGES", 0)
    async with mail_space(tmp_path) as space:
        await space.say("Hello")
        await space.stop_approver()
        await space.start_approver()
        count = len(space.told)
        space.tasks.append(space.propose("carol@example.org"))
        await until(lambda: len(space.told) > count)
        assert space.told[-1].payload["arguments"][0]["origin"] == "unknown"


async def test_what_was_said_before_the_history_of_the_gateway_begins_is_known_from_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_factory, "POLL_MESSAGES", 5)
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")
        await space.read_mail()
        for number in range(10):
            await space.alice.chat(f"this is number {number}")
        await space.stop_approver()
        await space.start_approver()
        assert (await space.propose("bob@example.org")).by == "approver"
        assert STRANGER in (await space.asked(STRANGER))[1]
        await space.asked("carol@example.org")
        assert space.told[-1].payload["arguments"][0]["origin"] == "nobody"


async def test_an_approver_that_came_later_does_not_know_what_was_said_before(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")
        await space.stop_approver()
        made = await space.alice.admin.invite("late", APPROVER)
        store = RuleStore.open(tmp_path / "late")
        store.rules_file.write_text(BY_ORIGIN)
        store.reload()
        async with connect(space.party.url, "lab", str(made.token), limits=QUICK) as joined:
            late = Approver(joined, store, ProposalHistory(), ApproverSettings(makes_suggestions=False))
            running = asyncio.create_task(late.run())
            await until(lambda: "mail" in late.tool_watcher._compared)
            await space.asked("carol@example.org")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert space.told[-1].payload["arguments"][0]["origin"] == "unknown"


async def test_a_call_behind_many_messages_waits_for_them_and_nobody_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        origins = space.approver.origins
        for number in range(120):
            await space.alice.chat(f"{number} " + "and so on " * 50)
        await space.settle()
        kept = islice(origins.kept.messages, origins.kept.read_count, None)
        assert sum(len(each if isinstance(each, bytes) else each[0].raw) for each in kept) > 2 * SLICE_BYTES
        read_slice, at_once = origins._read_slice, []

        def read() -> None:
            before = sum(len(envelope.raw) for envelope in space.messages_read())
            read_slice()
            at_once.append(sum(len(envelope.raw) for envelope in space.messages_read()) - before)

        monkeypatch.setattr(origins, "_read_slice", read)
        await space.agent.propose("mail", "tools/call", {"name": "send", "arguments": {"to": STRANGER}})
        # Said behind the call, before it was looked at.
        await space.alice.chat(f"what is {STRANGER}?", to="agent")
        await until(lambda: len(space.told) > 0)
        assert f"“{STRANGER}” is from read_mail of mail" in space.told[0].payload["why"]
        assert len(at_once) > 2
        assert max(at_once) <= SLICE_BYTES + 1_000
        # It is still the origin that is told as the reason, and what people said before is known.
        found = await space.alice.call("approver", "trust_explain", {"id": space.told[0].correlation_id[0]})
        assert "read_mail of mail" in found.text
        await space.say("Write to bob@example.org please")
        assert (await space.propose("bob@example.org")).by == "approver"


async def test_messages_are_read_when_a_call_with_an_effect_needs_them(tmp_path: Path) -> None:
    rules = BY_ORIGIN + "  mail/look: {effect: reads, outside: false}\n"
    async with mail_space(tmp_path, rules) as space:

        @space.mail.tool
        def look() -> str:
            return "nothing"

        await until(lambda: ("mail", "look") in space.approver.tool_watcher.definitions)
        await space.say("Write to bob@example.org please")
        origins = space.approver.origins
        unread = len(origins.kept.messages)
        looked = await space.propose("", "look")
        await space.settle()
        assert (looked.by, origins.kept.read_count) == ("approver", 0)
        assert len(origins.kept.messages) > unread
        found = await space.alice.call("approver", "trust_origins", {"proposal": looked.proposal_id})
        assert found.result["structuredContent"]["proposal"]["why"] == "it only reads"
        # What people said is enough for this one.
        assert (await space.propose("bob@example.org")).by == "approver"
        assert origins.kept.read_count == 0
        await space.asked(STRANGER)
        assert origins.kept.read_count > unread


async def test_chats_beyond_what_is_kept_are_forgotten_unread_and_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kept_messages, origin_watch):
        monkeypatch.setattr(module, "MAX_KEPT_MESSAGES", 20)
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")
        for number in range(30):
            await space.alice.chat(f"this is number {number}", to="agent")
        await space.settle()
        origins = space.approver.origins
        assert len(origins.kept.messages) == 20
        assert "chat" not in [envelope.kind for envelope in space.messages_read()]
        await space.asked("bob@example.org")
        assert space.told[-1].payload["arguments"][0]["origin"] == "unknown"
        await space.say("Write to dora@example.org please")
        assert (await space.propose("dora@example.org")).by == "approver"


async def test_a_look_up_is_trusted_while_its_host_has_shown_it_also_after_a_restart(tmp_path: Path) -> None:
    rules = BY_ORIGIN.replace("mail/read_mail: {returns: others,", "mail/*: {returns: trusted,")
    async with mail_space(tmp_path, rules) as space:
        origins = space.approver.origins
        assert origins.traits_of("mail", "read_mail").returns == "trusted"
        assert origins.traits_of("mail", "invented").returns == "others"
        space.approver.tool_watcher._expire("mail", list_again=False)
        assert origins.traits_of("mail", "read_mail").returns == "others"
        await space.stop_approver()
        await space.start_approver()
        await space.alice.chat("write to whom the mail names", to="agent")
        await space.read_mail()
        await space.stop_approver()
        await space.start_approver()
        assert (await space.propose(STRANGER)).by == "approver"


async def test_a_tool_that_changes_again_and_again_makes_nobody_read_all_again(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        memory = space.approver.origins.memory

        @space.mail.tool(description="Sends it elsewhere.")
        def send(to: str) -> str:
            return "sent"

        await until(lambda: "mail/send" in space.approver.store.changed_tools)
        assert space.approver.origins.memory is memory
