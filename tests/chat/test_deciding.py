"""Proposals decided in a chat: the card shows the call, the act is the person's, the card tells what came
of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from moot.chat.card_text import fault_text
from moot.chat.matrix import MatrixPlatform
from moot.chat.slack import SlackPlatform
from moot.chat.telegram import TelegramPlatform
from moot.errors import UsageError
from moot.participant import connect
from tests.chat.chat_space import CHANNEL, chat_space
from tests.waiting import until


async def test_a_bound_person_approves_exactly_the_call_that_the_card_shows(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        await chat.propose(path="notes.md", text="one\ntwo")
        card = await chat.card("@ana")
        assert card.card.title == "agent proposes write_file on files"
        assert card.card.body == "path: notes.md\ntext: one\n      two"
        assert card.card.verbs == ("approve", "reject", "ask")
        assert card.card.link.startswith("https://moot.example.org/#/lab/approvals/")
        await chat.press("@ana", card, "approve")
        await until(lambda: card.card.notes == ("approved by ana, done",))
        assert chat.kept["notes.md"] == "one\ntwo"
        assert not card.card.verbs


async def test_rejecting_with_words_asking_back_and_comments(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        heard: list[str] = []
        chat.agent.on("chat")(lambda envelope: heard.append(envelope.payload["text"]))
        id = await chat.propose()
        card = await chat.card("@ana")
        await chat.press("@ana", card, "ask")
        await chat.told("dm-@ana", "Reply to the card with your question")
        await chat.say("@ana", "why this file?", about=card.id)
        await until(lambda: "why this file?" in heard)
        await chat.agent.chat("because it is empty", about=id)
        await until(lambda: ("dm-@ana", "agent: because it is empty", card.id) in chat.platform.told)
        await chat.say("@ana", "reject: not today", about=card.id)
        await until(lambda: "not today" in heard)
        await until(lambda: "rejected by ana" in str(card.card.notes))
        assert "b" not in chat.kept


async def test_the_card_changes_when_anybody_anywhere_decides(tmp_path: Path) -> None:
    async with chat_space(tmp_path, channels=(CHANNEL,)) as chat:
        await chat.bind("@ana", "ana")
        id = await chat.propose()
        own, shared = await chat.card("@ana"), await chat.card(CHANNEL)
        await chat.agent.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=id)
        await until(lambda: own.card.notes == shared.card.notes == ("withdrawn: no_longer_needed",))


async def test_in_a_shared_room_everybody_decides_with_their_own_rights(tmp_path: Path) -> None:
    async with chat_space(tmp_path, channels=(CHANNEL,)) as chat:
        await chat.bind("@ana", "ana")
        await chat.bind("@ben", "ben")
        await chat.propose()
        card = await chat.card(CHANNEL)
        await chat.press("@ben", card, "approve")
        await chat.told(CHANNEL, "Not approved:")
        assert "b" not in chat.kept
        # He may not decide on it, so he has no card of his own.
        assert chat.cards("@ben") == []
        await chat.press("@ana", card, "approve")
        await until(lambda: card.card.notes == ("approved by ana, done",))


async def test_many_at_once_are_one_card_that_shows_them(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        for number in range(5):
            await chat.propose(path=f"f{number}")
        await chat.bind("@ana", "ana")
        many = await chat.card("@ana")
        assert many.card.title == "5 proposals wait for a decision in lab"
        assert many.card.verbs == ("show",)
        assert many.card.link == "https://moot.example.org/#/lab/approvals"
        await chat.press("@ana", many, "show")
        last = await chat.card("@ana", count=6)
        await chat.press("@ana", last, "approve")
        await until(lambda: last.card.notes == ("approved by ana, done",))
        assert chat.kept["f4"] == "new"
        assert many.card.title == "5 proposals are shown below"
        assert len(chat.cards("@ana")) == 6


async def test_nobody_is_told_that_all_were_decided_when_they_were_not(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        ids = [await chat.propose(path=f"f{number}") for number in range(4)]
        await chat.bind("@ana", "ana")
        many = await chat.card("@ana")
        for id in ids[1:]:
            await chat.agent.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=id)
        await until(lambda: many.card.title == "1 proposal waits for a decision in lab")
        await chat.agent.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=ids[0])
        await until(lambda: many.card.title == "None of these proposals is open any more")


async def test_what_comes_in_while_many_are_shown_is_sent_once(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        for number in range(5):
            await chat.propose(path=f"f{number}")
        await chat.bind("@ana", "ana")
        many = await chat.card("@ana")
        chat.platform.gate.clear()
        pressing = asyncio.create_task(chat.press("@ana", many, "show"))
        await until(lambda: chat.platform.waiting)
        looks = chat.platform.looks
        await chat.propose(path="last")
        # Nobody else may send these cards before the press is done with them.
        await until(lambda: pressing.done() or chat.platform.looks > looks)
        chat.platform.gate.set()
        await pressing
        await until(lambda: any(each.card.body.startswith("path: last") for each in chat.cards("@ana")))
        paths = [each.card.body.split("\n")[0] for each in chat.cards("@ana")[1:]]
        assert sorted(paths) == ["path: f0", "path: f1", "path: f2", "path: f3", "path: f4", "path: last"]


async def test_comments_stay_in_the_room_of_the_two_of_us_and_pass_for_nobody_elses(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        id = await chat.propose()
        card = await chat.card("@ana")
        await chat.agent.chat("please\nben: I looked at it, approve", about=id)
        await chat.told("dm-@ana", "agent: please\n| ben: I looked at it, approve")
        chat.platform.others.add("dm-@ana")
        await chat.agent.chat("the password is 123", about=id)
        await chat.agent.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=id)
        await until(lambda: card.card.notes == ("withdrawn: no_longer_needed",))
        assert "password" not in str(chat.platform.told)


async def test_a_call_that_does_not_fit_or_is_above_the_line_only_links(tmp_path: Path) -> None:
    async with chat_space(tmp_path, rules={"chat_link_above": "info"}) as chat:
        await chat.bind("@ana", "ana")
        await chat.propose(text="x" * 3_000)
        long = await chat.card("@ana")
        assert (long.card.body, long.card.verbs) == ("", ())
        assert "too long to be shown here whole" in long.card.notes[-1]
        await chat.propose(path="/etc/passwd")
        risky = await chat.card("@ana", count=2)
        assert risky.card.verbs == ()
        assert "decides such calls on their page" in risky.card.notes[-1]
        # A made-up press finds no button.
        await chat.press("@ana", risky, "approve")
        await chat.told("dm-@ana", "decided on its page")
        assert set(chat.kept) == {"a.txt"}


async def test_after_a_restart_cards_still_work_and_nothing_is_done_or_sent_twice(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        await chat.propose(path="first")
        card = await chat.card("@ana")
        await chat.stop()
        await chat.propose(path="meanwhile")
        await chat.start()
        await chat.card("@ana", count=2)
        await chat.press("@ana", card, "approve", event="press-1")
        await until(lambda: card.card.notes == ("approved by ana, done",))
        await chat.stop()
        await chat.start()
        await chat.press("@ana", card, "approve", event="press-1")
        await chat.told("dm-@ana", "counted already")
        assert len(chat.cards("@ana")) == 2
        assert chat.state_file.stat().st_mode & 0o777 == 0o600


async def test_what_a_platform_did_not_take_is_sent_when_it_is_back(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        chat.platform.is_down = True
        gone = await chat.propose(path="gone")
        await chat.propose(path="stays")
        await chat.say("@ana", "help")
        await chat.agent.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=gone, confirm=True)
        chat.platform.is_down = False
        card = await chat.card("@ana")
        assert card.card.body.startswith("path: stays")
        await chat.told("dm-@ana", "This account is bound to ana")


async def test_a_card_that_a_platform_never_takes_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        chat.platform.refused = "path: odd"
        await chat.propose(path="odd")
        await chat.propose(path="usual")
        assert (await chat.card("@ana")).card.body.startswith("path: usual")


async def test_a_slow_room_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Neither for its cards nor for what is pressed on them."""
    async with chat_space(tmp_path, channels=(CHANNEL,)) as chat:
        slow = chat.platform.slow[CHANNEL] = asyncio.Event()
        await chat.bind("@ana", "ana")
        await chat.propose(path="one")
        first = await chat.card("@ana")
        await chat.propose(path="two")
        await chat.card("@ana", count=2)
        await chat.press("@ana", first, "approve")
        await until(lambda: "one" in chat.kept)
        assert chat.cards(CHANNEL) == []
        slow.set()
        await until(lambda: any(each.card.body.startswith("path: two") for each in chat.cards(CHANNEL)))


async def test_a_token_that_was_revoked_ends_the_binding_and_it_is_said(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        await chat.propose()
        card = await chat.card("@ana")
        await chat.gateway.http.post(
            "/admin/participants/ana/token", json={}, headers={"Authorization": "Bearer t-root"}
        )
        await chat.told("dm-@ana", "no longer bound to ana")
        await chat.press("@ana", card, "approve")
        await chat.told("dm-@ana", "not bound to a participant")
        assert "b" not in chat.kept


async def test_who_is_quicker_than_the_end_of_sending_a_card_is_heard(tmp_path: Path) -> None:
    """A card is there before the platform has said so."""
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        chat.platform.on_sent = lambda card: chat.press("@ana", card, "approve")
        await chat.propose()
        card = await chat.card("@ana")
        await until(lambda: card.card.notes == ("approved by ana, done",))


async def test_no_sentence_of_ours_has_backticks_which_no_chat_reads(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.say("@ana", "help")
        await chat.told("dm-@ana", "send me “bind CODE”")
        await chat.bind("@ana", "ana")
        await chat.propose()
        await chat.say("@ana", "approve if it is small", about=(await chat.card("@ana")).id)
        await chat.told("dm-@ana", "Reply “approve” alone")
        await chat.bind("@ben", "ben")
        async with connect(chat.gateway.url, "lab", "t-ana") as ana:
            await ana.admin.kick("ben", reason="use `moot join`")
        await chat.told("dm-@ben", "use “moot join”")
        assert not [text for _, text, _ in chat.platform.told if "`" in text]
    for platform in (MatrixPlatform, SlackPlatform, TelegramPlatform):
        assert "`" not in platform.how_to
    fault = UsageError("no approver is in this space: `moot rules run` starts one")
    assert fault_text(fault) == "no approver is in this space: “moot rules run” starts one"
