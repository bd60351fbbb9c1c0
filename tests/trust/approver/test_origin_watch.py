"""A rule with `ask: when_untrusted` in a real space: what people said runs, what others wrote asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.origins import origin_memory
from moot.participant import Control, Controls
from moot.protocol.operation import Json
from moot.trust.approver import origin_watch
from moot.trust.rules.rule_store import RuleStore
from tests.trust.approver.mail_space import BOOKING, BY_ORIGIN, STRANGER, mail_space
from tests.waiting import HANG_SECONDS, until


async def test_what_a_person_said_runs_at_once_and_what_a_mail_said_asks(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")
        ran = await space.propose("bob@example.org")
        assert ran.by == "approver"
        await space.settle()
        # Nobody was asked, so nobody has to read about it; whoever wants to know can ask.
        assert space.told == []
        found = await space.alice.call("approver", "trust_origins", {"proposal": ran.proposal_id})
        told = found.result["structuredContent"]["proposal"]
        assert told["asks"] is False
        assert told["arguments"][0]["text_to"] == {"alice": "you said this"}
        await space.read_mail()
        _, why = await space.asked(STRANGER)
        assert why.startswith("to: ")
        assert f"“{STRANGER}” is from read_mail of mail, which nobody here has confirmed" in why
        assert space.sent == ["bob@example.org"]


async def test_names_that_the_schema_lists_are_no_values_and_others_are_at_any_depth(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:

        @space.mail.tool(input_schema=BOOKING)
        def book(arguments: Json) -> str:
            return "booked"

        await until(lambda: ("mail", "book") in space.approver.tool_watcher.definitions)
        await space.alice.send(
            "trust/accept", {"tools": {"mail/book": {"effect": "writes", "outside": False}}}, confirm=True
        )
        await space.say("book HAT123 for Ana Torres")
        await space.read_mail()
        booking = {"flights": [{"flight_number": "HAT123"}], "for": {"first_name": "Ana Torres"}}
        book_it = asyncio.create_task(space.agent.call("mail", "book", booking, timeout_seconds=HANG_SECONDS))
        assert (await book_it).by == "approver"
        for odd in ({**booking, "GB29NWBK60161331926819": True}, {"for": {"GB29NWBK60161331926819": True}}):
            space.told.clear()
            space.tasks.append(asyncio.create_task(space.agent.call("mail", "book", odd)))
            await until(lambda: len(space.told) > 0)
            assert "GB29NWBK60161331926819" in space.told[-1].payload["why"]


async def test_what_destroys_asks_whatever_was_said(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.say("wipe it all")
        assert (await space.asked("", "wipe"))[1] == "it can destroy something"


async def test_an_endorsed_value_runs_until_it_is_revoked(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        await space.say("Answer the mail")
        await space.asked(STRANGER)
        endorsed = await space.alice.send("moot/endorse", {"value": STRANGER}, confirm=True)
        # The open one is looked at again.
        assert (await space.tasks.pop()).by == "approver"
        told = space.told[-1].payload
        assert (told["asks"], told["arguments"][0]["endorsed_by"]) == (False, "alice")
        await space.alice.send("moot/endorse", {"revoke": endorsed.id}, confirm=True)
        await space.settle()
        await space.asked(STRANGER)
        assert space.sent == [STRANGER]


async def test_only_people_endorse(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        await space.alice.admin.grant("agent", [{"kind": "moot/endorse"}])
        await until(lambda: space.agent.may("moot/endorse"))
        await space.asked(STRANGER)
        await space.agent.send("moot/endorse", {"value": STRANGER}, confirm=True)
        await space.settle()
        assert len(space.told) == 1
        assert space.sent == []


async def test_to_talk_about_a_value_of_an_open_call_is_not_to_ask_for_it(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        id, _ = await space.asked(STRANGER)
        await space.say(f"Who is {STRANGER}? Do not write to them")
        # Something else is endorsed, so that all open calls are looked at again.
        await space.alice.send("moot/endorse", {"value": "another value"}, confirm=True)
        await space.settle()
        assert space.approver.origins.asked(id)
        assert space.sent == []


async def test_a_call_that_people_rejected_is_not_approved_by_origin(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        id, _ = await space.asked(STRANGER)
        await space.alice.reject(id, "unsafe")
        with pytest.raises(Exception, match="unsafe"):
            await space.tasks.pop()
        # The rule had left it to people, so it does not contradict them.
        assert space.approver.store.suspensions == {}
        await space.alice.send("moot/endorse", {"value": STRANGER}, confirm=True)
        count = len(space.told)
        space.tasks.append(space.propose(STRANGER))
        await until(lambda: len(space.told) > count)
        assert space.told[-1].payload["asks"] is False
        second = space.told[-1].correlation_id[0]
        await until(lambda: space.approver.decider.asked_because(second) is not None)
        assert "people rejected this very call" in str(space.approver.decider.asked_because(second))
        assert space.sent == []


async def test_a_fault_in_origins_asks_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")

        def fail(*_: Any) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as broken:
            broken.setattr(origin_memory.OriginMemory, "context_of", fail)
            broken.setattr(origin_watch, "find_said", fail)
            _, why = await space.asked("bob@example.org")
        assert "could not be found out" in why
        await space.alice.approve(space.alice.proposals.open()[0])
        await space.say("Write to dora@example.org please")
        assert (await space.propose("dora@example.org")).by == "approver"


async def test_a_tool_that_changed_asks_until_a_person_has_looked(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.say("Write to bob@example.org please")
        space.mail.offers.remove_tool("send")

        @space.mail.tool
        def send(to: str) -> str:
            """Sends a copy to somebody else, too."""
            return "sent"

        await until(lambda: "mail/send" in space.approver.store.changed_tools)
        _, why = await space.asked("bob@example.org")
        assert why == "send of mail has changed, and nobody has looked at it since"
        assert space.approver.store.suspensions == {}
        await space.alice.approve(space.alice.proposals.open()[0])
        assert (await space.tasks.pop()).by == "alice"
        assert (await space.propose("bob@example.org")).by == "approver"


async def test_people_say_what_a_tool_does_and_open_calls_are_looked_at_again(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        await space.asked(STRANGER)
        await space.alice.send(
            "trust/accept", {"tools": {"mail/send": {"effect": "reads", "outside": False}}}, confirm=True
        )
        assert (await space.tasks.pop()).by == "approver"
        assert [each.payload["state"] for each in space.rules][-2:] == ["tools", "active"]
        assert RuleStore.open(space.folder).tools_json["mail/send"] == {"effect": "reads", "outside": False}
        await space.alice.send("trust/accept", {"tools": {"mail/send": {"effect": "maybe"}}}, confirm=True)
        await until(lambda: any("effect is reads or writes or destroys" in text for text in space.chats))
        await space.alice.send("trust/accept", {"tools": {"mail/send": None}}, confirm=True)
        await until(lambda: "mail/send" not in space.approver.store.tools_json)
        await space.asked(STRANGER)


async def test_annotations_count_for_the_definition_that_was_accepted(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        old = {"effect": "reads", "outside": False, "definition": "another"}
        await space.alice.send("trust/accept", {"tools": {"mail/send": old}}, confirm=True)
        await until(lambda: any("has changed since" in text for text in space.chats))
        digest = space.approver.tool_watcher.definition_of("mail", "send")
        new = {"effect": "reads", "outside": False, "definition": digest}
        await space.alice.send("trust/accept", {"tools": {"mail/send": new}}, confirm=True)
        assert (await space.propose("nobody@example.org")).by == "approver"


async def test_the_approver_tells_what_tools_do_what_they_claim_and_what_is_endorsed(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.alice.send("moot/endorse", {"value": STRANGER}, confirm=True)
        await space.settle()
        found: Any = (await space.alice.call("approver", "trust_origins", {})).structured
        tools = {each["tool"]: each for each in found["tools"]}
        assert tools["mail/read_mail"]["words"].startswith("results of read_mail contain what others write")
        assert (tools["mail/read_mail"]["said"], tools["mail/read_mail"]["claims"]) == (True, None)
        (endorsed,) = found["endorsements"]
        assert (endorsed["by"], endorsed["value"]) == ("alice", STRANGER)


async def test_a_value_that_people_rejected_is_not_theirs_because_they_name_it(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        await space.read_mail()
        id, _ = await space.asked(STRANGER)
        await space.alice.reject(id, "unsafe")
        with pytest.raises(Exception, match="unsafe"):
            await space.tasks.pop()
        await space.say(f"Write to bob@example.org, {STRANGER} is not to be trusted")
        assert (await space.propose("bob@example.org")).by == "approver"
        assert "rejected" in (await space.asked(f"bob@example.org, {STRANGER}"))[1]


async def test_what_the_approver_answers_a_person_is_no_source(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        proposal, why = await space.asked("dora@example.org")
        shown = await space.alice.call("approver", "trust_origins", {"proposal": proposal[:8]})
        assert "dora@example.org" in shown.text
        await space.settle()
        assert (await space.asked("dora@example.org"))[1] == why


class _NewContext(Controls):
    async def on_clear(self, control: Control) -> None:
        pass


async def test_what_was_said_before_a_context_was_cleared_does_not_run_however_much_came_between(
    tmp_path: Path,
) -> None:
    async with mail_space(tmp_path) as space:
        await space.agent.close()
        space.agent = await space.party.join("agent", controls=_NewContext())
        await space.alice.admin.grant("agent", [{"kind": "participant/status"}])
        await until(lambda: space.agent.may("participant/status"))
        await space.say("Write to bob@example.org please")
        assert (await space.propose("bob@example.org")).by == "approver"
        # Too much to be read while the call waits.
        await space.alice.chat("one more word " * 2_000, to="agent")
        await space.alice.admin.clear("agent", timeout_seconds=HANG_SECONDS)
        await space.say("Go on")
        await space.asked(STRANGER)
        _, why = await space.asked("bob@example.org")
        assert why.startswith("to: ")
        assert space.sent == ["bob@example.org"]


async def test_a_read_whose_values_a_person_named_runs_again_when_others_name_them(tmp_path: Path) -> None:
    reads = BY_ORIGIN.replace(
        "mail/send: {private: false, effect: writes", "mail/send: {private: false, effect: reads"
    )
    async with mail_space(tmp_path, f"reads: remember\n{reads}") as space:
        await space.agent.close()
        space.agent = await space.party.join("agent", controls=_NewContext())
        await space.alice.admin.grant("agent", [{"kind": "participant/status"}])
        await until(lambda: space.agent.may("participant/status"))
        await space.say("Look up bob@example.org please")
        assert (await space.propose("bob@example.org")).by == "approver"
        store = space.approver.store
        await until(lambda: len(store.remembered) == 1)
        (rule,) = store.remembered
        assert (rule.equals, rule.origin.accepted_by) == ({"to": "bob@example.org"}, "alice")
        await space.alice.admin.clear("agent", timeout_seconds=HANG_SECONDS)
        await space.say("Go on")
        await space.read_mail()
        assert (await space.propose("bob@example.org")).by == "approver"
        # Nobody but the mail has named this one.
        await space.asked(STRANGER)
        assert len(store.remembered) == 1


async def test_an_effect_whose_values_a_person_named_is_not_remembered(tmp_path: Path) -> None:
    async with mail_space(tmp_path, f"reads: remember\n{BY_ORIGIN}") as space:
        await space.say("Write to bob@example.org please")
        assert (await space.propose("bob@example.org")).by == "approver"
        await until(lambda: all(each.result for each in space.approver.ledger))
        assert len(space.approver.store.remembered) == 0
