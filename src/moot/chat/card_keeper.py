"""Keeps the cards of rooms as they should be: one for each open proposal, changed when that changes.

Nothing is queued: what a room should show is computed from what is open, and compared with the cards that are
out. So whatever happened while the platform or the gateway was away, the next round makes good, and a card
whose proposal was decided meanwhile is never sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

import msgspec

from moot.chat.act_check import LinkAbove
from moot.chat.card_text import MAX_LISTED, digest_of, many_card, proposal_card, shown_card
from moot.chat.chat_state import ChatState, PostedCard, Unsent
from moot.chat.platform import Card, Platform, PlatformFault
from moot.errors import MootError
from moot.operations.proposal_operations import others_note
from moot.participant import JoinedSpace, SeenProposal
from moot.resilience.rate_limits import token_buckets

log = logging.getLogger(__name__)

# More than these at once become one card.
MAX_AT_ONCE: Final = 3
# Messages to one room: Slack takes one a second, Telegram 20 a minute in groups.
MESSAGES_PER_MINUTE: Final = 20
MESSAGE_BURST: Final = 20
_MAX_ROOMS: Final = 1_000
# A button of Telegram holds 64 bytes, with the verb.
_KEY_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Place:
    """A room, whose cards it shows, and through whose eyes: a person's own, or ours in a shared room."""

    room: str
    account: str
    space: JoinedSpace

    def concerns(self, seen: SeenProposal) -> bool:
        """Whether a card is due: in a shared room always, else if its person may decide and has not."""
        if not self.account:
            return True
        may_vote = bool(seen.approvals_needed) and self.space.may("moot/approve")
        may_decide = may_vote or self.space.may_request(seen.to, seen.method, seen.params)
        return may_decide and not others_note(self.space, seen)


class CardKeeper:
    """The cards of all rooms."""

    def __init__(
        self, platform: Platform, state: ChatState, *, console: str, space_name: str, link_above: LinkAbove
    ) -> None:
        self._platform = platform
        self._state = state
        self._console = console
        self._space_name = space_name
        self.link_above = link_above
        self._rates = token_buckets(MESSAGES_PER_MINUTE / 60, MESSAGE_BURST, max_keys=_MAX_ROOMS)
        # By room that cards were sent to.
        self._posting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Of a card about many, those that somebody asked to be shown, by room and account.
        self._asked: dict[tuple[str, str], frozenset[str]] = {}
        # Rooms whose person was told that others are there.
        self._told_others: set[str] = set()

    async def wait_posted(self, room: str) -> None:
        """Wait until a card that is being sent is known: people can be quicker than its last request."""
        if room in self._posting:
            async with self._posting[room]:
                return

    async def say(
        self, room: str, text: str, about: str = "", *, is_answer: bool = False, account: str = ""
    ) -> None:
        """Say something now, or as soon as the platform is back; with `account`, to nobody else.

        An answer to what anybody may ask is dropped where the room has had enough: nobody else waits for it.
        """
        words = Unsent(room=room, text=text, about=about, account=account)
        try:
            if not is_answer:
                await self._pace(room)
            elif self._rates.take(room, time.monotonic()):
                return
            await self._tell(words)
        except PlatformFault as fault:
            if not fault.is_final:
                self._state.spool(words)
            log.warning("not said", extra={"why": str(fault), "kept": not fault.is_final})

    async def send_unsent(self, room: str) -> None:
        """Raises PlatformFault."""
        for words in [each for each in self._state.record.unsent if each.room == room]:
            await self._pace(words.room)
            try:
                await self._tell(words)
            except PlatformFault as fault:
                if not fault.is_final:
                    raise
            self._state.sent(words)

    async def _tell(self, words: Unsent) -> None:
        if not words.account or await self._platform.is_private(words.room, words.account):
            await self._platform.tell(words.room, words.text, about=words.about)

    async def update(self, place: Place) -> None:
        """Make the cards of a place right; raises PlatformFault."""
        if place.space.state != "joined" or not await _knows_what_is_open(place.space):
            return
        shown: set[str] = set()
        for card in [each for each in self._state.record.cards.values() if _is_of(each, place)]:
            if not card.is_over:
                await self._update_card(place, card)
            shown.update(card.proposals)
        new = [each for each in place.space.proposals.open() if each.id not in shown and place.concerns(each)]
        if not new or not await self._may_show(place):
            return
        key = (place.room, place.account)
        asked = self._asked.get(key, frozenset())
        alone = [each for each in new if each.id in asked]
        others = [each for each in new if each.id not in asked]
        for seen in alone if len(others) > MAX_AT_ONCE else new:
            await self._send_if_taken(place, seen)
        if len(others) > MAX_AT_ONCE:
            await self._send_many(place, others)
        if self._asked.get(key) is asked:
            del self._asked[key]

    async def show(self, place: Place, many: PostedCard) -> None:
        """Have the next round send a card for each of the first of many; raises PlatformFault."""
        found = [each for id in many.proposals if (each := place.space.proposals.get(id)) is not None]
        open_ones = [each for each in found if each.status == "pending"]
        first, rest = open_ones[:MAX_LISTED], open_ones[MAX_LISTED:]
        self._asked[place.room, place.account] = frozenset(each.id for each in first)
        self._state.add_card(
            msgspec.structs.replace(many, proposals=tuple(each.id for each in rest), is_over=not rest)
        )
        if rest:
            made = many_card(rest, key=many.key, console=self._console, space=self._space_name)
        else:
            made = shown_card(len(first), key=many.key)
        await self._change(many, made, is_over=not rest)

    async def _update_card(self, place: Place, card: PostedCard) -> None:
        found = [place.space.proposals.get(id) for id in card.proposals]
        known = [each for each in found if each is not None]
        if len(known) < len(found) and not place.space.proposals.known:
            return
        if any(each.uncertain for each in known):
            return
        if len(card.proposals) > 1 or "show" in card.verbs:
            made = many_card(known, key=card.key, console=self._console, space=self._space_name)
            is_over = all(each.status != "pending" for each in known)
        elif not known:
            made = Card(key=card.key, title="This proposal is over", body="")
            is_over = True
        else:
            made = self._draw(place, known[0], card.key)
            is_over = known[0].is_over
        if digest_of(made) == card.shown and is_over == card.is_over:
            return
        await self._change(card, made, is_over=is_over)

    async def _change(self, card: PostedCard, made: Card, *, is_over: bool) -> None:
        digest = digest_of(made)
        if digest != card.shown:
            if made.body and card.account and not await self._platform.is_private(card.room, card.account):
                # Who joined later has not seen the call.
                return
            await self._pace(card.room)
            try:
                await self._platform.change_card(card.room, card.message, made)
            except PlatformFault as fault:
                if not fault.is_final:
                    raise
                log.warning("a card could not be changed", extra={"why": str(fault)})
        # A button that a card has lost is dead, and one that it has got counts. What it is about may have
        # changed meanwhile.
        if (now := self._state.record.cards.get(card.key)) is not None:
            changed = msgspec.structs.replace(now, shown=digest, verbs=made.verbs, is_over=is_over)
            self._state.add_card(changed)

    async def _send(self, place: Place, seen: SeenProposal) -> None:
        made = self._draw(place, seen, token_urlsafe(_KEY_BYTES))
        await self._post(place, made, (seen.id,), seen.fingerprint())

    async def _send_if_taken(self, place: Place, seen: SeenProposal) -> None:
        """One card that the platform never takes keeps no other waiting; raises PlatformFault otherwise."""
        try:
            await self._send(place, seen)
        except PlatformFault as fault:
            if not fault.is_final:
                raise
            log.warning("a card was not taken", extra={"room": place.room, "why": str(fault)})

    async def _send_many(self, place: Place, found: Sequence[SeenProposal]) -> None:
        key = token_urlsafe(_KEY_BYTES)
        made = many_card(found, key=key, console=self._console, space=self._space_name)
        await self._post(place, made, tuple(each.id for each in found), "")

    async def _post(self, place: Place, made: Card, proposals: tuple[str, ...], fingerprint: str) -> None:
        await self._pace(place.room)
        async with self._posting[place.room]:
            message = await self._platform.send_card(place.room, made)
            self._state.add_card(
                PostedCard(
                    key=made.key,
                    room=place.room,
                    message=message,
                    proposals=proposals,
                    fingerprint=fingerprint,
                    verbs=made.verbs,
                    account=place.account,
                    shown=digest_of(made),
                )
            )

    def _draw(self, place: Place, seen: SeenProposal, key: str) -> Card:
        return proposal_card(
            seen,
            key=key,
            viewers=(place.space.me, place.space.name) if place.account else (),
            console=self._console,
            space=self._space_name,
            link_above=self.link_above,
            max_chars=self._platform.max_card_chars,
        )

    async def _may_show(self, place: Place) -> bool:
        """A person's cards go to a room of the two of us alone."""
        if not place.account or await self._platform.is_private(place.room, place.account):
            self._told_others.discard(place.room)
            return True
        if place.room not in self._told_others:
            self._told_others.add(place.room)
            await self.say(
                place.room,
                "Something waits for a decision, but others are in this room, so I show and decide nothing "
                "here. Write to me in a room of our own, and bind there.",
            )
        return False

    async def _pace(self, room: str) -> None:
        """Wait until this room may get another message."""
        while wait := self._rates.take(room, time.monotonic()):
            await asyncio.sleep(wait)


async def _knows_what_is_open(space: JoinedSpace) -> bool:
    """Ask the gateway where it has not told: after joining, and after a lost connection."""
    try:
        if space.proposals.knowledge == "not_known" and await space.refresh_proposals():
            await space.recall_origins()
    except MootError as fault:
        log.info("what is open is not known", extra={"why": type(fault).__name__})
    return space.proposals.knowledge in ("known", "not_told")


def _is_of(card: PostedCard, place: Place) -> bool:
    return (card.room, card.account) == (place.room, place.account)
