"""`moot chat`: proposals come to people as cards in their chat, and what they do there is done as them.

    platform ─ act ─▶ act_check ─▶ the person's own connection ─▶ the gateway's ladder
    spaces ─ what is open ─▶ card_keeper ─▶ cards in rooms

The program joins the space as a member of its own, which may bind accounts and see what is open. For each
bound account it joins once more, as that person. Whatever an account does is sent over that connection
alone, so the gateway judges it as it judges everything else that this person does.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from moot.chat import act_check
from moot.chat.act_check import ActRefused, LinkAbove
from moot.chat.card_keeper import CardKeeper, Place
from moot.chat.card_text import comment_text, fault_text
from moot.chat.chat_settings import ChatSettings, SpaceFacts, ask_for_space, end_binding, redeem_code
from moot.chat.chat_state import MAX_BINDINGS, Binding, ChatState, PostedCard
from moot.chat.platform import ChatAct, Platform, PlatformFault
from moot.chat.seat import Seat
from moot.errors import MootError, VoteCounted
from moot.participant import JoinedSpace, SeenProposal
from moot.participant.connection.envelope_sender import CloseReason, SentEnvelope
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.resilience.rate_limits import token_buckets
from moot.resilience.restart_loop import Backoff
from moot.resilience.task_set import TaskSet, end_tasks, wait_for_any

log = logging.getLogger(__name__)

# What is proposed within this becomes one round of cards.
GATHER_SECONDS: Final = 0.5
# Proposals expire without a word.
_ROUND_SECONDS: Final = 30.0
# An approved tool may run for so long.
CALL_SECONDS: Final = 3_600.0
# Who presses waits for a connection that was just lost, and not for longer.
_JOIN_SECONDS: Final = 10.0
# Acts of one account; what is beyond is not even answered.
ACTS_PER_MINUTE: Final = 30
# Codes that one account tries.
CODES_PER_HOUR: Final = 10
_MAX_KEYS: Final = 10_000
# Of a comment in a thread.
_MAX_COMMENT_CHARS: Final = 2_000
_MAX_OWN_CHATS: Final = 1_000

# Phones begin a line with a capital letter, and people begin it with our name.
_BIND: Final = re.compile(r"(?:\S+\s+)?[!/]?(?:bind|start)(?:@\S+)?\s+([A-Za-z0-9_-]{22})", re.IGNORECASE)
_UNBIND: Final = re.compile(r"[!/]?unbind[.!]?", re.IGNORECASE)
_OFFLINE: Final = "the gateway cannot be reached now; nothing was done. Try again soon"
_HELP: Final = (
    "I show what waits for a decision in {space}. To decide here, bind this account once: ask for a code in "
    "the console (menu of spaces, Decide in a chat…) or with “moot chat bind”, and send me “bind CODE” in "
    "a room of the two of us. {how_to} “unbind” ends it."
)


class ChatService:
    """One platform and one space."""

    def __init__(
        self,
        space: JoinedSpace,
        platform: Platform,
        state: ChatState,
        settings: ChatSettings,
        facts: SpaceFacts,
    ) -> None:
        self._space = space
        self._platform = platform
        self._state = state
        self._settings = settings
        self._facts = facts
        self.cards = CardKeeper(
            platform,
            state,
            console=settings.console,
            space_name=facts.name,
            link_above=facts.link_above,
        )
        self._seats: dict[str, Seat] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup
        self._work = TaskSet("chat")
        self._changed = asyncio.Event()
        # Rooms whose cards are being made right, and those where more has changed meanwhile.
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        # Proposals that are being approved, and chats that were written here.
        self._deciding: set[str] = set()
        self._own_chats: LatestDict[str, str] = LatestDict(_MAX_OWN_CHATS)
        self._commenting = asyncio.Lock()
        self._rates = token_buckets(ACTS_PER_MINUTE / 60, ACTS_PER_MINUTE, max_keys=_MAX_KEYS)
        self._codes = token_buckets(CODES_PER_HOUR / 3_600, CODES_PER_HOUR, max_keys=_MAX_KEYS)

    async def run(self) -> CloseReason:
        """Serve until the space lets us go; the platform has been started."""
        self._watch(Place("", "", self._space))
        record = self._state.record
        try:
            async with asyncio.TaskGroup() as self._tasks:
                served = [
                    self._tasks.create_task(
                        self._platform.run(self.receive, record.cursor, self._state.keep_cursor)
                    ),
                    self._tasks.create_task(self._keep_cards()),
                ]
                for binding in record.bindings.values():
                    self._take_seat(binding)
                ending = await self._space.stay()
                await end_tasks([*served, *self._kept.values(), *self._running.values()])
        except ExceptionGroup as faults:
            # What one of them cannot get over ends all, and is told as if there were no group.
            raise faults.exceptions[0] from None
        finally:
            await self._work.close()
        return ending

    # Cards

    async def _keep_cards(self) -> None:
        while True:
            rooms = {each.room for each in self._places()}
            for room in rooms | {each.room for each in self._state.record.unsent}:
                if room in self._kept:
                    self._again.add(room)
                else:
                    self._kept[room] = self._tasks.create_task(self._keep_room(room))
            await wait_for_any(self._changed.wait(), timeout_seconds=_ROUND_SECONDS)
            self._changed.clear()
            await asyncio.sleep(GATHER_SECONDS)

    async def _keep_room(self, room: str) -> None:
        """Make a room right. It has a task of its own: a slow one keeps no other waiting."""
        backoff = Backoff(1.0, 60.0)
        try:
            while True:
                self._again.discard(room)
                try:
                    await self.cards.send_unsent(room)
                    for place in [each for each in self._places() if each.room == room]:
                        await self._update(place)
                except PlatformFault as fault:
                    log.warning("cards wait for the platform", extra={"room": room, "why": str(fault)})
                    await asyncio.sleep(max(fault.wait_seconds, backoff.next_delay()))
                    continue
                if room not in self._again:
                    return
        finally:
            del self._kept[room]

    async def _update(self, place: Place) -> None:
        try:
            await self.cards.update(place)
        except PlatformFault as fault:
            # A room that we were removed from keeps nobody else waiting.
            if not fault.is_final:
                raise
            log.warning("a room gets no cards", extra={"room": place.room, "why": str(fault)})

    def _places(self) -> list[Place]:
        shared = [Place(room, "", self._space) for room in self._settings.channels]
        own = [
            Place(seat.binding.room, account, seat.space)
            for account, seat in self._seats.items()
            if seat.space is not None
        ]
        return [*shared, *own]

    def _watch(self, place: Place) -> None:
        """Look at the cards again after each message, and carry comments to their threads."""

        @place.space.on("*", own=True)
        def note(envelope: Envelope) -> None:
            self._changed.set()
            if envelope.kind == "chat" and envelope.correlation_id:
                self._work.start(self._carry_comment(place, envelope))

        @place.space.on_reconnected
        def look_again() -> None:
            self._changed.set()

    async def _carry_comment(self, place: Place, envelope: Envelope) -> None:
        async with self._commenting:
            written_in = self._own_chats.get(envelope.id)
        rooms = (place.room,) if place.account else self._settings.channels
        cards = self._state.record.cards.values()
        for card in [each for each in cards if each.room in rooms and each.account == place.account]:
            found = place.space.proposals.get(card.proposals[0]) if len(card.proposals) == 1 else None
            is_about = found is not None and any(each.id == envelope.id for each in found.comments)
            if is_about and card.room != written_in:
                text = comment_text(envelope.sender, str(envelope.payload.get("text")))[:_MAX_COMMENT_CHARS]
                await self.cards.say(card.room, text, card.message, account=card.account)

    # People

    def _take_seat(self, binding: Binding) -> None:
        seat = Seat(binding, self._settings, self._seat_joined)
        self._seats[binding.account] = seat
        task = self._tasks.create_task(self._hold_seat(seat))
        self._running[binding.account] = task

    def _seat_joined(self, seat: Seat, space: JoinedSpace) -> None:
        self._watch(Place(seat.binding.room, seat.binding.account, space))
        self._changed.set()

    async def _hold_seat(self, seat: Seat) -> None:
        why = await seat.run()
        binding = seat.binding
        if self._seats.get(binding.account) is seat:
            self._forget(binding.account)
            await self.cards.say(
                binding.room, f"This account is no longer bound to {binding.participant}: {fault_text(why)}."
            )

    def _forget(self, account: str) -> Binding | None:
        self._seats.pop(account, None)
        self._running.pop(account, None)
        return self._state.unbind(account)

    # Acts

    async def receive(self, act: ChatAct) -> None:
        """Do what somebody did in the chat, or say why not."""
        now = time.time()
        if not act.is_bot and self._rates.take(act.account, time.monotonic()):
            return
        try:
            if not self._state.claim_act(act.event):
                raise ActRefused("replayed", "this was counted already, and counts once")
            act_check.check_sender(act, now)
            await self.cards.wait_posted(act.room)
            if act.verb == "text" and await self._take_command(act):
                return
            binding, card = act_check.check_act(
                act,
                self._state.record,
                has_buttons=self._platform.has_buttons,
                channels=self._settings.channels,
                now=now,
            )
            await self._act_on(act, binding, card)
        except ActRefused as refusal:
            log.info("an act was refused", extra={"why": refusal.why, "account": act.account})
            if not act.is_bot:
                # Answering a bot could go on for ever.
                await self.cards.say(act.room, f"Not done: {refusal}.", act.message, is_answer=True)

    async def _take_command(self, act: ChatAct) -> bool:
        """Words to us alone, not about a card; whether that was all."""
        if (found := _BIND.fullmatch(act.text.strip())) is not None:
            await self._bind(act, found[1])
            return True
        # Also as a reply to a card: nobody wants to say this one word to everybody.
        if act.is_private and _UNBIND.fullmatch(act.text.strip()):
            await self._unbind(act)
            return True
        if self._state.card_at(act.room, act.message) is not None:
            return False
        if not act.is_private:
            # People talk in shared rooms.
            return True
        text = _HELP.format(space=self._facts.name, how_to=self._platform.how_to)
        if (binding := self._state.record.bindings.get(act.account)) is not None:
            text = f"This account is bound to {binding.participant}. {text}"
        await self.cards.say(act.room, text, is_answer=True)
        return True

    async def _bind(self, act: ChatAct, code: str) -> None:
        if self._codes.take(act.account, time.monotonic()):
            raise ActRefused(
                "codes", f"more codes than {CODES_PER_HOUR} an hour: wait, then ask for a new one"
            )
        if (
            len(self._state.record.bindings) >= MAX_BINDINGS
            and act.account not in self._state.record.bindings
        ):
            raise ActRefused("full", f"{MAX_BINDINGS} accounts are bound already, and that is the limit")
        try:
            # Also where it is refused: a code that others have read is void then.
            binding = await redeem_code(self._settings, code, account=act.account, room=act.room)
        except MootError as fault:
            raise ActRefused("code", fault_text(fault)) from None
        if not act.is_private:
            raise ActRefused(
                "not_private",
                "others can read this room, so that code is void. Bind in a room of the two of us",
            )
        if (before := self._running.get(act.account)) is not None:
            gone = self._forget(act.account)
            await end_tasks([before])
            await self._revoke(gone)
        self._state.bind(binding)
        self._take_seat(binding)
        log.info("bound", extra={"account": act.account, "participant": binding.participant})
        await self.cards.say(
            act.room,
            f"This account now decides as {binding.participant} in {self._facts.name}. "
            f"{self._platform.how_to}",
        )

    async def _unbind(self, act: ChatAct) -> None:
        running = self._running.get(act.account)
        if running is None:
            raise ActRefused("unbound", "this account is not bound")
        gone = self._forget(act.account)
        await end_tasks([running])
        text = "This account is not bound any more."
        if not await self._revoke(gone):
            text += (
                " Its token could not be revoked: the gateway did not take it."
                " Revoke it there (“moot member tokens”), or it ends by itself."
            )
        await self.cards.say(act.room, text)

    async def _revoke(self, binding: Binding | None) -> bool:
        """Have the gateway end what was bound, lest a copy of our file could still decide."""
        try:
            if binding is not None:
                await end_binding(self._settings, binding)
        except MootError as fault:
            log.warning("a token was not revoked", extra={"why": str(fault)})
            return False
        return True

    async def _act_on(self, act: ChatAct, binding: Binding, card: PostedCard) -> None:
        verb, words = act_check.meaning_of(act)
        space = await self._space_of(binding)
        if verb == "show":
            act_check.check_verb(verb, card)
            place = Place(card.room, card.account, space if card.account else self._space)
            with suppress(PlatformFault):
                await self.cards.show(place, card)
            self._changed.set()
            return
        found = await self._find(space, card)
        seen = act_check.check_call(
            card, found, is_known=space.state == "joined" and (found is not None or space.proposals.known)
        )
        act_check.check_verb(verb, card)
        if verb in ("approve", "reject") and act_check.page_reason(seen, await self._current_line()):
            raise ActRefused("page", "this space decides such calls on their page: follow the link")
        if verb == "approve":
            if seen.id in self._deciding:
                raise ActRefused("running", "it is being decided already")
            self._deciding.add(seen.id)
            self._work.start(self._approve(act, space, seen))
        elif verb == "reject":
            await self._do(space.reject(seen, "disagree", explanation=words[:_MAX_COMMENT_CHARS] or None))
        elif words:
            await self._comment(act, space, seen, words)
        else:
            await self.cards.say(
                act.room,
                "Reply to the card with your question. Everybody in the space sees it; answers come here.",
                card.message,
            )

    async def _comment(self, act: ChatAct, space: JoinedSpace, seen: SeenProposal, words: str) -> None:
        # It comes back at once, and whoever wrote it has it already.
        async with self._commenting:
            sent = await self._do(space.comment(seen, words[:_MAX_COMMENT_CHARS]))
            self._own_chats[sent.id] = act.room

    async def _do(self, sending: Awaitable[SentEnvelope]) -> SentEnvelope:
        """Send something as the person; what the gateway refuses is said."""
        try:
            return await sending
        except MootError as fault:
            raise ActRefused("gateway", fault_text(fault)) from None

    async def _space_of(self, binding: Binding) -> JoinedSpace:
        """Their connection; waits a moment where it was just lost or made."""
        seat = self._seats.get(binding.account)
        if seat is not None:
            with suppress(TimeoutError, MootError):
                async with asyncio.timeout(_JOIN_SECONDS):
                    return await seat.joined()
        raise ActRefused("offline", _OFFLINE)

    async def _find(self, space: JoinedSpace, card: PostedCard) -> SeenProposal | None:
        """The proposal of a card as this person sees it; the gateway is asked if that is not certain."""
        id = card.proposals[0] if card.proposals else ""
        found = space.proposals.get(id)
        if found is None or found.uncertain:
            with suppress(MootError):
                await space.refresh_proposals()
        return space.proposals.get(id)

    async def _current_line(self) -> LinkAbove:
        """The space's line as it is now: it may have been drawn anew since the card was sent."""
        try:
            self.cards.link_above = (await ask_for_space(self._settings)).link_above
        except MootError:
            raise ActRefused("offline", _OFFLINE) from None
        return self.cards.link_above

    async def _approve(self, act: ChatAct, space: JoinedSpace, seen: SeenProposal) -> None:
        """Approve exactly the call that the card shows; the card tells what came of it."""
        try:
            await space.approve(seen, timeout_seconds=CALL_SECONDS)
        except VoteCounted as voted:
            await self.cards.say(act.room, f"{fault_text(voted)}.", act.message)
        except MootError as fault:
            done = "It was approved, but" if seen.status == "fulfilled" else "Not approved:"
            await self.cards.say(act.room, f"{done} {fault_text(fault)}.", act.message)
        finally:
            self._deciding.discard(seen.id)
