"""Whether something that was done in a chat counts. Pure: told the time, opens nothing.

An act counts if a bound account did it, in the room of a card of ours, on that card, and the card shows
exactly the call that is still open. Everything else is refused with a sentence for whoever did it. What the
account may then do is the gateway's business: the act is sent as its participant, with a token that holds
no more.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal

from moot.chat.chat_state import Binding, ChatRecord, PostedCard
from moot.chat.platform import ChatAct, Verb
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.call_risks import Severity

# A press that was under way for longer was made before something may have changed: it is asked for again.
MAX_ACT_SECONDS: Final = 600.0
# A platform's clock may be ahead of ours.
MAX_AHEAD_SECONDS: Final = 120.0
MAX_TEXT_CHARS: Final = 2_000

_DECISION: Final = re.compile(r"[!/]?(approve|reject)\b[\s:,.!]*(.*)", re.DOTALL | re.IGNORECASE)

LinkAbove = Literal["none", "info", "warn", "bad"]
_SEVERITIES: Final[tuple[LinkAbove | Severity, ...]] = ("none", "info", "warn", "bad")


class ActRefused(Exception):
    """Nothing was done; the text says why, for whoever did it. `why` is one word for programs."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


def check_act(
    act: ChatAct, record: ChatRecord, *, has_buttons: bool, channels: Collection[str], now: float
) -> tuple[Binding, PostedCard]:
    """As whom this account acts, and on which card; raises ActRefused."""
    check_sender(act, now)
    binding = _check_bound(act, record, now)
    card = _find_card(act, record, has_buttons=has_buttons)
    _check_place(act, card, channels)
    return binding, card


def check_sender(act: ChatAct, now: float) -> None:
    """Raises ActRefused for what no person did just now, or did by themselves."""
    if act.is_bot:
        raise ActRefused("bot", "messages of bots and bridges decide nothing")
    if act.is_forwarded:
        raise ActRefused("forwarded", "a forwarded message decides nothing: act on the card itself")
    if act.is_edited:
        raise ActRefused("edited", "an edited message decides nothing: write a new one")
    if not now - MAX_ACT_SECONDS <= act.at <= now + MAX_AHEAD_SECONDS:
        raise ActRefused("old", "this came too late to count: do it again if you still want it")
    if len(act.text) > MAX_TEXT_CHARS:
        raise ActRefused("long", f"that is longer than {MAX_TEXT_CHARS} characters: say it in fewer")


def _check_bound(act: ChatAct, record: ChatRecord, now: float) -> Binding:
    """As whom this account acts; raises ActRefused."""
    binding = record.bindings.get(act.account)
    if binding is None:
        raise ActRefused(
            "unbound", "this account is not bound to a participant: “help” in a room with me says how"
        )
    if now >= binding.expires:
        raise ActRefused("expired", "the binding of this account has ended: bind it again")
    return binding


def _find_card(act: ChatAct, record: ChatRecord, *, has_buttons: bool) -> PostedCard:
    """The card of ours that was acted on, in the room that it was sent to; raises ActRefused."""
    found = (each for each in record.cards.values() if act.message and each.message == act.message)
    card = next((each for each in found if each.room == act.room), None)
    if card is None:
        raise ActRefused("no_card", "that is no card of mine here, or it is too old: use the latest one")
    if has_buttons and act.verb != "text" and act.key != card.key:
        raise ActRefused("other_key", "that button is not of this card: use the card itself")
    return card


def _check_place(act: ChatAct, card: PostedCard, channels: Collection[str]) -> None:
    """Raises ActRefused unless the card is there for this account, and its room is what it was."""
    if card.account == "":
        if card.room not in channels:
            raise ActRefused("no_channel", "cards in this room are no longer served: decide in the console")
    elif card.account != act.account:
        raise ActRefused("others_card", "that card is somebody else's: use your own")
    elif not act.is_private:
        raise ActRefused("not_private", "others are in this room now, so nothing is decided here")


def meaning_of(act: ChatAct) -> tuple[Verb | Literal["text"], str]:
    """What was pressed or written, and the words with it; raises ActRefused for a yes that may be none."""
    text = act.text.strip()
    found = _DECISION.fullmatch(text) if act.verb == "text" else None
    if found is None:
        return act.verb, text
    words = found[2].strip()
    if found[1].lower() == "reject" and not words.startswith("?"):
        return "reject", words
    if words:
        # "approve only if it is small" and "approve?" are no yes, and cannot be taken back.
        raise ActRefused(
            "unclear",
            "nothing was decided or said. Reply “approve” alone, or “reject” with your words; "
            "a comment begins with another word",
        )
    return "approve", ""


def check_verb(verb: str, card: PostedCard) -> None:
    """Raises ActRefused for what the card has no button for; comments are always taken."""
    if verb not in ("text", "ask", *card.verbs):
        raise ActRefused("no_button", "this one is decided on its page: follow the link on the card")


def check_call(card: PostedCard, seen: SeenProposal | None, *, is_known: bool) -> SeenProposal:
    """The proposal of a card, if it is open and still the call that the card shows; raises ActRefused."""
    if not is_known or (seen is not None and seen.uncertain):
        raise ActRefused(
            "offline", "the gateway cannot be reached now; nothing was done. Try again in a moment"
        )
    if seen is None:
        raise ActRefused("gone", "this proposal is over, or you may not see it: nothing was done")
    if seen.status != "pending":
        raise ActRefused("settled", f"nothing was done: the proposal is {seen.state_text}")
    if len(card.proposals) != 1 or seen.id != card.proposals[0] or seen.fingerprint() != card.fingerprint:
        raise ActRefused("changed", "the proposal is not the one that the card shows: nothing was done")
    return seen


def page_reason(seen: SeenProposal, line: LinkAbove) -> str:
    """Why a proposal is decided on its page and not in a chat: a passkey, or a hint above the line."""
    if seen.passkey:
        return "It is approved with a passkey, on its page."
    if seen.repeats:
        return "The same was done before, or may have been: look at it on its page."
    limit = _SEVERITIES.index(line)
    is_above = any(_SEVERITIES.index(each.severity) > limit for each in seen.risks)
    return "This space decides such calls on their page, not in a chat." if is_above else ""
