"""What outlives a restart of `moot chat`: bindings, cards that are out, acts that were taken, unsent words.

An act is written down as taken before it is done: after a crash it is not done twice. The file holds tokens
of the people who are bound, so it is for its owner alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from moot.resilience.atomic_file import RecordFile

MAX_BINDINGS: Final = 500
# Open cards and the latest that are over, so that a late press is answered.
MAX_CARDS: Final = 2_000
# Acts that are recognised when the platform tells of them again.
MAX_TAKEN: Final = 5_000
# Words that could not be said yet.
MAX_UNSENT: Final = 200
_MAX_BYTES: Final = 8 << 20


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """One chat account that acts as one participant."""

    account: str
    participant: str
    # Where its own cards go: a room of the two of us.
    room: str
    token: str
    # Seconds since 1970.
    expires: float


class PostedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card that is out, and what it showed."""

    key: str
    room: str
    message: str
    # One, or those of a card about many.
    proposals: tuple[str, ...]
    # Of the one call that it shows.
    fingerprint: str = ""
    verbs: tuple[str, ...] = ()
    # Whose card it is; empty in a shared room.
    account: str = ""
    # A digest of what it shows now.
    shown: str = ""
    is_over: bool = False


class Unsent(msgspec.Struct, frozen=True, kw_only=True):
    """Words for a room."""

    room: str
    text: str
    about: str = ""
    # Said only while nobody but this account and we are there; empty: to whoever is.
    account: str = ""


class ChatRecord(msgspec.Struct, kw_only=True):
    """The content of the file."""

    version: int = 1
    cursor: str = ""
    bindings: dict[str, Binding] = {}
    cards: dict[str, PostedCard] = {}
    taken: list[str] = []
    unsent: list[Unsent] = []


class ChatState:
    """The record on disk; each change is there before it is relied on."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path, ChatRecord, max_bytes=_MAX_BYTES, what="the chat accounts and cards")
        self.record = self._file.record
        self._taken = set(self.record.taken)

    def claim_act(self, event: str) -> bool:
        """Whether this act is new; from now on it is not. Raises UsageError if that cannot be written."""
        if event in self._taken:
            return False
        self._taken.add(event)
        self.record.taken.append(event)
        for old in self.record.taken[:-MAX_TAKEN]:
            self._taken.discard(old)
        del self.record.taken[:-MAX_TAKEN]
        self._file.write()
        return True

    def keep_cursor(self, cursor: str) -> None:
        if cursor != self.record.cursor:
            self.record.cursor = cursor
            self._file.write()

    def bind(self, binding: Binding) -> None:
        self.record.bindings[binding.account] = binding
        self._file.write()

    def unbind(self, account: str) -> Binding | None:
        gone = self.record.bindings.pop(account, None)
        if gone is not None:
            self.record.cards = {
                key: card for key, card in self.record.cards.items() if card.account != account
            }
            self._file.write()
        return gone

    def add_card(self, card: PostedCard) -> None:
        """A new card, or what a known one shows now; of too many, those that are over go first."""
        cards = self.record.cards
        cards[card.key] = card
        while len(cards) > MAX_CARDS:
            over = (key for key, each in cards.items() if each.is_over)
            del cards[next(over, next(iter(cards)))]
        self._file.write()

    def card_at(self, room: str, message: str) -> PostedCard | None:
        found = (card for card in self.record.cards.values() if (card.room, card.message) == (room, message))
        return next(found, None)

    def spool(self, words: Unsent) -> None:
        """Keep words for later; of too many, the oldest are dropped."""
        self.record.unsent = [*self.record.unsent, words][-MAX_UNSENT:]
        self._file.write()

    def sent(self, words: Unsent) -> None:
        self.record.unsent = [each for each in self.record.unsent if each is not words]
        self._file.write()
