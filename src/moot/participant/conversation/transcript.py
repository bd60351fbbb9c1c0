"""What a member keeps in mind (MEW 3.9.4 to 3.9.8): a transcript with a budget, and prompts made of it.

For agents, and optional: a member without one answers controls as somebody who remembers nothing. Tokens are
estimated unless `count` knows better. Entries can be protected from forgetting and compaction, not clearing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from moot.errors import UsageError
from moot.participant.conversation.contexts import is_within
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

Direction = Literal["oldest", "newest"]

# MEW 3.5.6: nobody drops these because of where they were said.
NEVER_FILTERED: Final = frozenset({"mcp/request", "mcp/proposal"})
# Four bytes a token is what the common tokenisers come to on English and JSON.
_BYTES_PER_TOKEN: Final = 4


def estimated_tokens(envelope: Envelope) -> int:
    return max(1, len(envelope.raw) // _BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One envelope in mind. `foreign`: it belongs to somebody else's sequence of thoughts."""

    envelope: Envelope
    tokens: int
    foreign: bool = False
    protected: bool = False


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction brought."""

    tokens: int
    messages: int
    summary: str | None = None


Summarise = Callable[[list[Envelope]], Awaitable[str]]


class Transcript:
    """Envelopes in the order in which they came, within `max_tokens` and `max_messages`.

    `compact_at` is the share of the budget at which a member compacts by itself (MEW 3.9.5), `tell_at` that
    at which it says once that it comes near (MEW 3.9.4). `summarise` turns what goes into a few words.
    """

    def __init__(
        self,
        *,
        max_tokens: int = 100_000,
        max_messages: int = 10_000,
        compact_at: float = 0.95,
        tell_at: float = 0.9,
        count: Callable[[Envelope], int] = estimated_tokens,
        summarise: Summarise | None = None,
    ) -> None:
        if not 0 < tell_at <= compact_at <= 1:
            raise UsageError("0 < tell_at <= compact_at <= 1")
        self.max_tokens = max_tokens
        self.max_messages = max_messages
        self.compact_at = compact_at
        self.tell_at = tell_at
        self.summarise = summarise
        self.tokens = 0
        self.compactions = 0
        # What earlier compactions left, and notes of the member's own.
        self.summary = ""
        self.notes: dict[str, Json] = {}
        self._count = count
        self._entries: list[TranscriptEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def headroom(self) -> int:
        return max(0, self.max_tokens - self.tokens)

    def is_beyond(self, share: float) -> bool:
        return self.tokens >= share * self.max_tokens or len(self) >= share * self.max_messages

    def remember(self, envelope: Envelope, *, foreign: bool = False, protected: bool = False) -> None:
        """Keep an envelope; beyond the budget the oldest that is not protected goes at once."""
        entry = TranscriptEntry(envelope, self._count(envelope), foreign, protected)
        self._entries.append(entry)
        self.tokens += entry.tokens
        while self.tokens > self.max_tokens or len(self) > self.max_messages:
            if not self.forget("oldest", 1):
                break

    def protect(self, id: str) -> None:
        """Keep an entry through forgetting and compaction; clearing takes it all the same."""
        for index, entry in enumerate(self._entries):
            if entry.envelope.id == id:
                self._entries[index] = TranscriptEntry(entry.envelope, entry.tokens, entry.foreign, True)

    def forget(self, direction: Direction, entries: int | None = None) -> int:
        """MEW 3.9.5: drop so many of one end, half of all if no number is given; returns how many went."""
        loose = [entry for entry in self._entries if not entry.protected]
        most = (len(loose) + 1) // 2 if entries is None else entries
        gone = loose[:most] if direction == "oldest" else loose[max(0, len(loose) - most) :]
        self._drop(gone)
        return len(gone)

    async def compact(self, target_tokens: int | None = None) -> CompactionResult | None:
        """MEW 3.9.6: make room, oldest first, down to the target or half the budget; None: nothing to do."""
        target = self.max_tokens // 2 if target_tokens is None else target_tokens
        gone: list[TranscriptEntry] = []
        left = self.tokens
        for entry in self._entries:
            if left <= target:
                break
            if not entry.protected:
                gone.append(entry)
                left -= entry.tokens
        if not gone:
            return None
        text = None
        if self.summarise is not None:
            text = await self.summarise([entry.envelope for entry in gone])
            self.summary = f"{self.summary}\n{text}".strip()
        # Some may have been forgotten while the summary was written.
        still = [entry for entry in gone if entry in self._entries]
        freed = sum(entry.tokens for entry in still)
        self._drop(still)
        self.compactions += 1
        return CompactionResult(freed, len(still), text)

    def clear(self) -> None:
        """MEW 3.9.8: everything goes, protected or not, summaries and notes too."""
        self._entries.clear()
        self.notes.clear()
        self.summary = ""
        self.tokens = 0

    def entries(self) -> list[TranscriptEntry]:
        return list(self._entries)

    def prompt(self, me: str, *, foreign_contexts: bool = False, within: str | None = None) -> list[Envelope]:
        """What goes into a model's prompt, oldest first.

        Thoughts of others stay out unless `foreign_contexts` (MEW 3.5.6); `within` keeps one context alone.
        Requests, proposals and whatever is addressed to us are never left out for where they were said, and
        welcomes for others never come in (MEW 3.8.1).
        """
        kept: list[Envelope] = []
        for entry in self._entries:
            envelope = entry.envelope
            if envelope.kind == "system/welcome" and me not in envelope.to:
                continue
            if envelope.kind not in NEVER_FILTERED and me not in envelope.to:
                if entry.foreign and not foreign_contexts:
                    continue
                if within is not None and not is_within(envelope.context, within):
                    continue
            kept.append(envelope)
        return kept

    def _drop(self, gone: Iterable[TranscriptEntry]) -> None:
        dropped = {id(entry) for entry in gone}
        self.tokens -= sum(entry.tokens for entry in self._entries if id(entry) in dropped)
        self._entries = [entry for entry in self._entries if id(entry) not in dropped]
