"""The transcript of an agent (MEW 3.9.4 to 3.9.8): messages within a token budget, and prompts made of them.

It is optional: a member without one answers controls as if it had no messages. Tokens are estimated, unless
`count` is given. Entries can be protected from forgetting and compaction, but not from clearing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

import msgspec

from moot.errors import UsageError
from moot.participant.conversation.contexts import is_within
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

Direction = Literal["oldest", "newest"]

# MEW 3.5.6: these are never dropped because of their context.
NEVER_FILTERED: Final = frozenset({"mcp/request", "mcp/proposal"})
# Four bytes a token is what the common tokenisers come to on English and JSON.
_BYTES_PER_TOKEN: Final = 4


def estimate_tokens(envelope: Envelope) -> int:
    return max(1, len(envelope.raw) // _BYTES_PER_TOKEN)


class TranscriptEntry(msgspec.Struct, frozen=True):
    """One envelope. `foreign`: it belongs to a reasoning sequence of somebody else."""

    envelope: Envelope
    tokens: int
    foreign: bool = False
    protected: bool = False


class CompactionResult(msgspec.Struct, frozen=True):
    """What a compaction freed, and its summary."""

    tokens: int
    messages: int
    summary: str | None = None


Summarise = Callable[[list[Envelope]], Awaitable[str]]


class Transcript:
    """Envelopes in the order of arrival, within `max_tokens` and `max_messages`.

    `compact_at_share` is the share of the budget at which a member compacts by itself (MEW 3.9.5),
    `report_at_share` that at which it reports once that it is nearly full (MEW 3.9.4). `summarise`
    summarises what is dropped.
    """

    def __init__(
        self,
        *,
        max_tokens: int = 100_000,
        max_messages: int = 10_000,
        compact_at_share: float = 0.95,
        report_at_share: float = 0.9,
        count: Callable[[Envelope], int] = estimate_tokens,
        summarise: Summarise | None = None,
    ) -> None:
        if not 0 < report_at_share <= compact_at_share <= 1:
            raise UsageError("0 < report_at_share <= compact_at_share <= 1")
        self.max_tokens = max_tokens
        self.max_messages = max_messages
        self.compact_at_share = compact_at_share
        self.report_at_share = report_at_share
        self.summarise = summarise
        self.tokens = 0
        self.compactions = 0
        # The summaries of earlier compactions, and notes of the member's own.
        self.summary = ""
        self.notes: dict[str, Json] = {}
        self._count = count
        self._entries: list[TranscriptEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def headroom(self) -> int:
        """Tokens that are left."""
        return max(0, self.max_tokens - self.tokens)

    def is_beyond(self, share: float) -> bool:
        """Whether this share of the budget is used."""
        return self.tokens >= share * self.max_tokens or len(self) >= share * self.max_messages

    def add(self, envelope: Envelope, *, foreign: bool = False, protected: bool = False) -> None:
        """Add an envelope; beyond the budget the oldest that is not protected is dropped at once."""
        entry = TranscriptEntry(envelope, self._count(envelope), foreign, protected)
        self._entries.append(entry)
        self.tokens += entry.tokens
        while self.tokens > self.max_tokens or len(self) > self.max_messages:
            if not self.forget("oldest", 1):
                break

    def protect(self, id: str) -> None:
        """Keep an entry through forgetting and compaction, but not clearing."""
        for index, entry in enumerate(self._entries):
            if entry.envelope.id == id:
                self._entries[index] = TranscriptEntry(entry.envelope, entry.tokens, entry.foreign, True)

    def forget(self, direction: Direction, entries: int | None = None) -> int:
        """Drop entries at one end, half of all if no number is given; returns how many (MEW 3.9.5)."""
        loose = [entry for entry in self._entries if not entry.protected]
        most = (len(loose) + 1) // 2 if entries is None else entries
        gone = loose[:most] if direction == "oldest" else loose[max(0, len(loose) - most) :]
        self._drop(gone)
        return len(gone)

    async def compact(self, target_tokens: int | None = None) -> CompactionResult | None:
        """Drop the oldest down to the target or half the budget (MEW 3.9.6); None if nothing was dropped."""
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
        """Drop everything, protected or not, summaries and notes too (MEW 3.9.8)."""
        self._entries.clear()
        self.notes.clear()
        self.summary = ""
        self.tokens = 0

    def entries(self) -> list[TranscriptEntry]:
        return list(self._entries)

    def prompt(self, me: str, *, foreign_contexts: bool = False, within: str | None = None) -> list[Envelope]:
        """The envelopes for a model's prompt, oldest first.

        Reasoning of others is left out unless `foreign_contexts` (MEW 3.5.6); `within` keeps one context.
        Requests, proposals and whatever is addressed to us are never left out for their context, and welcomes
        of others are never included (MEW 3.8.1).
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
