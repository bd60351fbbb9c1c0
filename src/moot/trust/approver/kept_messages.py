"""The messages of a space that no call has needed yet, and the latest of those that were read.

Of a short chat only the bytes are kept until a call looks at it: an envelope is ten objects for which memory
has to be found, and most chats are never looked at. Who sent it, and when, is found then. The bytes of short
chats need not be counted: their number bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from moot.origins.origin_memory import acts_outside
from moot.protocol.envelope import Envelope

# Read or not; the oldest are dropped first. The bytes are those of all but short chats.
MAX_KEPT_MESSAGES: Final = 4_096
MAX_KEPT_BYTES: Final = 8 << 20
MAX_SHORT_BYTES: Final = 2 << 10
# What an agent read or was told: forgotten unread, it is not known. Everything else is read in any case.
_FORGOTTEN: Final = frozenset({"chat", "mcp/response", "mcp/request", "mcp/proposal"})

# A message, whether a person sent it, and when.
KeptMessage = tuple[Envelope, bool, float]


class KeptMessages:
    """`decode` makes a message of the bytes of a short chat, `see` is given each one that is read, in order,
    and `note_gap` is called where some were forgotten.
    """

    def __init__(
        self,
        decode: Callable[[bytes], KeptMessage],
        see: Callable[[KeptMessage], None],
        note_gap: Callable[[], None],
    ) -> None:
        self._decode, self._see, self._note_gap = decode, see, note_gap
        # Oldest first; so many of them were read, and can be read again.
        self.messages: deque[KeptMessage | bytes] = deque()
        self.read_count = 0
        self._bytes = 0
        # Whether something is rejected by what is unread; until all is read it may have been read since.
        self.may_reject = False
        # Whether the next short chat takes the place of the oldest message, since some were forgotten anyway.
        self.is_full = False
        # Whether there was more than is kept.
        self.has_gap = False

    @property
    def is_read(self) -> bool:
        return self.read_count == len(self.messages)

    def add(self, message: KeptMessage) -> None:
        """Keep what is no short chat; those are added by `OriginWatch.observe`."""
        self.may_reject |= _rejects(message)
        self.messages.append(message)
        self._bytes += _counted_bytes(message)
        self.make_room()

    def make_room(self) -> None:
        """Drop what was read, then forget the oldest unread ones, or read what has to be."""
        messages = self.messages
        while len(messages) > MAX_KEPT_MESSAGES or self._bytes > MAX_KEPT_BYTES:
            oldest = messages[0]
            if self.read_count:
                self.read_count -= 1
                self.has_gap = True
            elif not _is_forgotten(oldest):
                self.read_oldest()
                continue
            else:
                if not self.is_full:
                    self._note_gap()
                self.is_full = len(messages) == MAX_KEPT_MESSAGES + 1
            messages.popleft()
            self._bytes -= _counted_bytes(oldest)

    def read_oldest(self) -> int:
        """Read the oldest unread message; returns its bytes."""
        message = self.messages[self.read_count] = self._whole(self.messages[self.read_count])
        self.read_count += 1
        self.is_full = False
        self.may_reject &= not self.is_read
        self._see(message)
        return len(message[0].raw)

    def put_back(self) -> None:
        """What was read has to be read again."""
        self.read_count = 0
        self.may_reject = any(isinstance(each, tuple) and _rejects(each) for each in self.messages)

    def latest(self) -> Iterator[KeptMessage]:
        """All that is kept, from the latest on; what one call has looked at is decoded for the next, too."""
        for ago, kept in enumerate(reversed(self.messages), start=1):
            if isinstance(kept, bytes):
                kept = self.messages[-ago] = self._decode(kept)
            yield kept

    def ids(self) -> set[str]:
        return {self._whole(each)[0].id for each in self.messages}

    def decode_all(self) -> None:
        for _ in self.latest():
            pass

    def _whole(self, kept: KeptMessage | bytes) -> KeptMessage:
        return self._decode(kept) if isinstance(kept, bytes) else kept


def _rejects(message: KeptMessage) -> bool:
    return message[0].kind == "mcp/reject"


def _is_forgotten(kept: KeptMessage | bytes) -> bool:
    return isinstance(kept, bytes) or (kept[0].kind in _FORGOTTEN and not acts_outside(kept[0]))


def _counted_bytes(kept: KeptMessage | bytes) -> int:
    if isinstance(kept, bytes):
        return 0
    size = len(kept[0].raw)
    return 0 if kept[0].kind == "chat" and size <= MAX_SHORT_BYTES else size
