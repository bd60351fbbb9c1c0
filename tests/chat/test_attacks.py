"""Attacks on the chat, each by its name: nothing happens, and it is said why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from moot.chat.act_check import (
    ActRefused,
    LinkAbove,
    check_act,
    check_call,
    check_verb,
    meaning_of,
    page_reason,
)
from moot.chat.card_text import proposal_card
from moot.chat.chat_state import Binding, ChatRecord, ChatState, PostedCard
from moot.chat.matrix import act_of as matrix_act
from moot.chat.matrix import content_of as matrix_content
from moot.chat.platform import ChatAct
from moot.chat.slack import act_of as slack_act
from moot.chat.slack import is_signed, message_of
from moot.chat.telegram import act_of as telegram_act
from moot.errors import NotAdmitted
from moot.participant import connect
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from tests.chat.chat_space import CHANNEL, chat_space
from tests.rows import for_each_row

NOW: Final = 1_000_000.0
PRESS: Final = ChatAct(
    event="e1", account="@ana", room="dm", at=NOW, verb="approve", message="m1", key="k1", is_private=True
)


def proposal(id: str = "p1", **arguments: Any) -> SeenProposal:
    params = {"name": "write_file", "arguments": {"path": "a", "text": "b"} | arguments}
    raw = orjson.dumps(
        {
            "protocol": "mew/v0.4",
            "id": id,
            "ts": "2026-11-18T10:00:00Z",
            "from": "agent",
            "to": ["files"],
            "kind": "mcp/proposal",
            "payload": {"method": "tools/call", "params": params},
        }
    )
    return SeenProposal(
        id=id,
        proposer="agent",
        proposer_name="agent",
        envelope=DIALECTS["mew"].decode(raw, ANY_SIZE),
        proposed_at=NOW,
        expires=NOW + 100,
    )


def record() -> ChatRecord:
    def bound(account: str, expires: float) -> Binding:
        return Binding(account=account, participant=account[1:], room="dm", token="t", expires=expires)

    def posted(key: str, **fields: Any) -> PostedCard:
        given = {"message": key.replace("k", "m"), "room": "dm", "account": "@ana", "proposals": ("p1",)}
        given |= {"fingerprint": proposal().fingerprint(), "verbs": ("approve", "reject", "ask")}
        return PostedCard(key=key, **(given | fields))

    cards = [
        posted("k1"),
        posted("k2", verbs=()),
        posted("k3", proposals=("p1", "p2"), fingerprint="", verbs=("show",)),
        posted("k4", account="", room=CHANNEL),
        posted("k5", account="", room="closed-channel"),
    ]
    bindings = {
        each.account: each
        for each in (bound("@ana", NOW + 100), bound("@ben", NOW + 100), bound("@old", NOW))
    }
    return ChatRecord(bindings=bindings, cards={each.key: each for each in cards})


def judge(act: ChatAct, seen: SeenProposal | None, *, is_known: bool = True, line: Any = "bad") -> str:
    """The word with which an act is refused; empty if it counts."""
    try:
        _, card = check_act(act, record(), has_buttons=True, channels=(CHANNEL,), now=NOW)
        found = check_call(card, seen, is_known=is_known)
        check_verb("approve" if act.text == "approve" else act.verb, card)
    except ActRefused as refusal:
        return refusal.why
    return "page" if page_reason(found, line) else ""


def settled(status: Any) -> SeenProposal:
    seen = proposal()
    seen.status = status
    return seen


def uncertain() -> SeenProposal:
    seen = proposal()
    seen.uncertain = True
    return seen


SHARED = replace(PRESS, room=CHANNEL, message="m4", key="k4", is_private=False)
WORDS = replace(PRESS, verb="text", text="approve", key="")

# Name, the act, the proposal as it is then, why it is refused.
ATTACKS: Final[list[tuple[str, ChatAct, SeenProposal | None, str]]] = [
    ("a stranger presses", replace(PRESS, account="@eve"), proposal(), "unbound"),
    ("a stranger presses in a shared room", replace(SHARED, account="@eve"), proposal(), "unbound"),
    ("an account whose name looks like the bound one", replace(PRESS, account="@аna"), proposal(), "unbound"),
    (
        "words that mention a bound person",
        replace(WORDS, account="@eve", text="@ana approve"),
        proposal(),
        "unbound",
    ),
    ("the same id in other letters", replace(PRESS, account="@ANA"), proposal(), "unbound"),
    ("a binding that has ended", replace(PRESS, account="@old"), proposal(), "expired"),
    ("a message that is no card", replace(PRESS, message="m9"), proposal(), "no_card"),
    ("no message at all", replace(PRESS, message=""), proposal(), "no_card"),
    ("a card copied to another room", replace(PRESS, room="elsewhere"), proposal(), "no_card"),
    ("a private card brought to the shared room", replace(PRESS, room=CHANNEL), proposal(), "no_card"),
    ("a button of another card", replace(PRESS, key="k2"), proposal(), "other_key"),
    ("a made-up button", replace(PRESS, key="approve"), proposal(), "other_key"),
    ("a button without a key", replace(PRESS, key=""), proposal(), "other_key"),
    ("somebody else's card", replace(PRESS, account="@ben"), proposal(), "others_card"),
    ("a room that others joined", replace(PRESS, is_private=False), proposal(), "not_private"),
    ("words in a room that others joined", replace(WORDS, is_private=False), proposal(), "not_private"),
    ("a bot", replace(PRESS, is_bot=True), proposal(), "bot"),
    ("a bot in the name of a bound account", replace(WORDS, is_bot=True), proposal(), "bot"),
    ("a forwarded message", replace(WORDS, is_forwarded=True), proposal(), "forwarded"),
    ("a message edited to approve", replace(WORDS, is_edited=True), proposal(), "edited"),
    ("a press that was under way for too long", replace(PRESS, at=NOW - 601), proposal(), "old"),
    ("a press without a time", replace(PRESS, at=0.0), proposal(), "old"),
    ("a press from the future", replace(PRESS, at=NOW + 121), proposal(), "old"),
    ("a novel", replace(WORDS, text="x" * 2_001), proposal(), "long"),
    ("a button that the card does not have", replace(PRESS, message="m2", key="k2"), proposal(), "no_button"),
    ("approving in words what only links", replace(WORDS, message="m2"), proposal(), "no_button"),
    ("approving a card of many", replace(PRESS, message="m3", key="k3"), proposal(), "changed"),
    (
        "a channel that is no longer served",
        replace(SHARED, room="closed-channel", message="m5", key="k5"),
        proposal(),
        "no_channel",
    ),
    ("a proposal that was approved meanwhile", PRESS, settled("fulfilled"), "settled"),
    ("a proposal that was withdrawn", PRESS, settled("withdrawn"), "settled"),
    ("a proposal that has expired", PRESS, settled("expired"), "settled"),
    ("the same id with other arguments", PRESS, proposal(text="evil"), "changed"),
    ("another proposal behind the card", PRESS, proposal("p2"), "changed"),
    ("a proposal that the person does not see", PRESS, None, "gone"),
    ("after a lost connection", PRESS, uncertain(), "offline"),
]


@for_each_row("name,act,seen,why", ATTACKS)
def test_an_attack_is_refused_by_its_name(
    name: str, act: ChatAct, seen: SeenProposal | None, why: str
) -> None:
    assert judge(act, seen) == why, name


def test_what_a_bound_person_does_on_their_card_counts() -> None:
    assert judge(PRESS, proposal()) == ""
    assert judge(WORDS, proposal()) == ""
    assert judge(SHARED, proposal()) == ""
    assert judge(PRESS, proposal(), is_known=False) == "offline"
    assert judge(PRESS, proposal(path="/etc/passwd"), line="info") == "changed"


def test_a_risk_above_the_line_is_not_decided_here() -> None:
    risky = proposal(path="../../x")
    lines: list[LinkAbove] = ["none", "info", "warn", "bad"]
    assert [bool(page_reason(risky, line)) for line in lines] == [True, True, True, False]
    harmless = proposal()
    assert not page_reason(harmless, "none")
    harmless.passkey = True
    assert page_reason(harmless, "bad") == "It is approved with a passkey, on its page."
    assert judge(PRESS, harmless) == "page"


@for_each_row(
    "text,meaning",
    [
        ("approve", ("approve", "")),
        ("/Approve. ", ("approve", "")),
        ("approve!", ("approve", "")),
        ("reject", ("reject", "")),
        ("Reject: not today?", ("reject", "not today?")),
        ("rejected it is", ("text", "rejected it is")),
        ("do not approve", ("text", "do not approve")),
        ("approve?", None),
        ("approve only if it is the test database", None),
        ("Approve: no!", None),
        ("approve\nnothing of this", None),
        ("reject?", None),
    ],
)
def test_only_a_reply_that_is_nothing_but_a_yes_is_one(text: str, meaning: tuple[str, str] | None) -> None:
    said = replace(WORDS, text=text)
    if meaning is not None:
        assert meaning_of(said) == meaning
        return
    with pytest.raises(ActRefused, match="nothing was decided or said"):
        meaning_of(said)


def test_a_replayed_act_is_recognised_and_also_after_a_restart(tmp_path: Path) -> None:
    state = ChatState(tmp_path / "chat.json")
    assert state.claim_act("e1")
    assert not state.claim_act("e1")
    assert not ChatState(tmp_path / "chat.json").claim_act("e1")


SLACK_SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"
# The example of Slack's own documentation.
SLACK_BODY: Final = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK_HEADERS: Final = {
    "x-slack-request-timestamp": "1531420618",
    "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}


@for_each_row(
    "name,headers,body,later,counts",
    [
        ("as Slack sent it", {}, SLACK_BODY, 0, True),
        ("an old signature", {}, SLACK_BODY, 301, False),
        ("a signature from the future", {}, SLACK_BODY, -301, False),
        ("another body", {}, SLACK_BODY + b"x", 0, False),
        ("no signature", {"x-slack-signature": ""}, SLACK_BODY, 0, False),
        ("no time", {"x-slack-request-timestamp": ""}, SLACK_BODY, 0, False),
        ("a time that was moved on", {"x-slack-request-timestamp": "1531420918"}, SLACK_BODY, 300, False),
        ("a time of 5,000 digits", {"x-slack-request-timestamp": "1" * 5_000}, SLACK_BODY, 0, False),
        ("digits of another script", {"x-slack-request-timestamp": "١٥٣١٤٢٠٦١٨"}, SLACK_BODY, 0, False),
    ],
)
def test_a_request_of_slack_counts_only_with_its_signature(
    name: str, headers: dict[str, str], body: bytes, later: float, counts: bool
) -> None:
    assert is_signed(SLACK_SECRET, SLACK_HEADERS | headers, body, 1_531_420_618 + later) is counts, name


def test_what_platforms_say_of_bots_forwards_edits_and_other_peoples_rooms() -> None:
    def telegram(**fields: Any) -> ChatAct | None:
        said = {
            "from": {"id": 5, "is_bot": False},
            "chat": {"id": 5, "type": "private"},
            "date": 1,
            "text": "hi",
        }
        return telegram_act({"update_id": 1, "message": said | fields}, NOW)

    plain = telegram()
    assert plain is not None
    assert plain.is_private
    assert not plain.is_bot
    anonymous = telegram(sender_chat={"id": -7})
    assert anonymous is not None
    assert anonymous.is_bot
    forwarded = telegram(forward_origin={"type": "user"})
    assert forwarded is not None
    assert forwarded.is_forwarded
    group = telegram(chat={"id": -9, "type": "group"})
    assert group is not None
    assert not group.is_private
    # A button below a message that was sent by way of a bot names no message of ours.
    inline = {
        "update_id": 1,
        "callback_query": {"from": {"id": 5}, "inline_message_id": "x", "data": "approve:k"},
    }
    assert telegram_act(inline, NOW) is None

    def matrix(content: Any, type: str = "m.room.message") -> ChatAct | None:
        return matrix_act(
            "!r",
            {"type": type, "event_id": "$e", "sender": "@a:x", "origin_server_ts": 1, "content": content},
        )

    edit = matrix(
        {
            "msgtype": "m.text",
            "body": "* approve",
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$c"},
        }
    )
    assert edit is not None
    assert edit.is_edited
    notice = matrix({"msgtype": "m.notice", "body": "approve"})
    assert notice is not None
    assert notice.is_bot
    assert (
        matrix({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$c", "key": "👍"}}, "m.reaction")
        is None
    )
    quoted = matrix(
        {
            "msgtype": "m.text",
            "body": "> <@b:x> approve\n\nno",
            "m.relates_to": {"m.in_reply_to": {"event_id": "$c"}},
        }
    )
    assert quoted is not None
    assert (quoted.text, quoted.message) == ("no", "$c")

    said = {"type": "message", "channel": "D1", "user": "U1", "text": "approve", "ts": "5.0"}
    bot = slack_act(
        {"type": "event_callback", "team_id": "T", "event_id": "E", "event": said | {"bot_id": "B1"}}
    )
    assert bot is not None
    assert bot.is_bot
    changed = {"type": "message", "subtype": "message_changed", "channel": "D1", "ts": "6.0", "message": said}
    edited = slack_act({"type": "event_callback", "team_id": "T", "event_id": "E", "event": changed})
    assert edited is not None
    assert edited.is_edited


def test_a_call_cannot_draw_over_its_card() -> None:
    """A line end in a name, a turned direction, markup and mentions are text like any other."""
    seen = proposal(**{"x\ntext: harmless": "y", "to": "a\u202eb", "html": "<b>@room</b> <!channel> *x*"})
    card = proposal_card(
        seen, key="k", viewers=(), console="https://c", space="lab", link_above="bad", max_chars=3_000
    )
    assert card.body.split("\n") == [
        "path: a",
        "text: b",
        "x\\ntext: harmless: y",
        "to: a\\u202eb",
        "html: <b>@room</b> <!channel> *x*",
    ]
    content = matrix_content(card)
    assert "<b>" not in content["formatted_body"]
    assert content["m.mentions"] == {}
    blocks = message_of(card)["blocks"]
    shown = [each for each in blocks if each["type"] == "rich_text"]
    assert shown[0]["elements"][0] == {
        "type": "rich_text_preformatted",
        "elements": [{"type": "text", "text": card.body}],
    }


async def test_codes_that_others_read_were_used_or_are_tried_by_the_dozen_bind_nobody(tmp_path: Path) -> None:
    async with chat_space(tmp_path, channels=(CHANNEL,)) as chat:
        code = await chat.code("ana")
        await chat.say("@eve", f"@moot: Bind {code}", room=CHANNEL)
        await chat.told(CHANNEL, "that code is void")
        await chat.say("@eve", f"bind {code}")
        await chat.told("dm-@eve", "used already, or is too old")
        for number in range(10):
            await chat.say("@eve", f"bind {'x' * 21}{number}")
        await chat.told("dm-@eve", "more codes than 10 an hour")
        assert chat.service is not None
        assert chat.service._state.record.bindings == {}


async def test_a_room_that_others_join_gets_no_card_and_unbinding_ends_everything(tmp_path: Path) -> None:
    async with chat_space(tmp_path) as chat:
        await chat.bind("@ana", "ana")
        chat.platform.others.add("dm-@ana")
        await chat.propose()
        await chat.told("dm-@ana", "others are in this room")
        assert chat.cards("@ana") == []
        chat.platform.others.clear()
        await chat.propose(path="c")
        card = await chat.card("@ana", count=2)
        assert chat.service is not None
        token = chat.service._state.record.bindings["@ana"].token
        await chat.say("@ana", "unbind", about=card.id)
        await chat.told("dm-@ana", "not bound any more")
        assert not [text for text in chat.told_in("dm-@ana") if "could not be revoked" in text]
        # Whoever has copied it decides nothing with it.
        with pytest.raises(NotAdmitted):
            async with connect(chat.gateway.url, "lab", token):
                pass
        await chat.press("@ana", card, "approve")
        await chat.told("dm-@ana", "not bound to a participant")
        assert set(chat.kept) == {"a.txt"}
        assert b"t-ana" not in chat.state_file.read_bytes()


async def test_two_presses_at_once_run_it_once(tmp_path: Path) -> None:
    async with chat_space(tmp_path, channels=(CHANNEL,)) as chat:
        await chat.bind("@ana", "ana")
        await chat.propose()
        own, shared = await chat.card("@ana"), await chat.card(CHANNEL)
        await chat.press("@ana", own, "approve")
        await chat.press("@ana", shared, "approve")
        await chat.told(CHANNEL, "Not done: ")
