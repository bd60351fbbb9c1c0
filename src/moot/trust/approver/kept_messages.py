"""The messages of a space that no call has needed yet, and the latest of those that were read.

Of a short chat only the bytes are kept until a call looks at it: an envelope is ten objects for which memory
has to be found, and most chats are never looked at. Who sent it, and when, is found then. The bytes of short
chats need not be counted: their number bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from moot.origins.origin_memory import acts_outside
from moot.protocol.envelope import Envelope

# Messages that were not read, and as many that were and can be read again; the oldest are dropped first. The
# bytes are those of all but short chats.
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
        self.unread: deque[KeptMessage | bytes] = deque()
        self.read: deque[KeptMessage] = deque()
        self._unread_bytes = self._read_bytes = 0
        # How many of the unread ones reject something.
        self.unread_rejections = 0
        # Whether the next short chat takes the place of the oldest message, since some were forgotten anyway.
        self.is_full = False
        # Whether there was more than is kept.
        self.has_gap = False

    def add(self, message: KeptMessage) -> None:
        """Keep what is no short chat; those are put into `unread` by `OriginWatch.observe`."""
        self.unread_rejections += message[0].kind == "mcp/reject"
        self.unread.append(message)
        self._unread_bytes += _counted_bytes(message)
        self.make_room()

    def make_room(self) -> None:
        """Forget the oldest unread ones beyond the bounds, or read what has to be."""
        unread = self.unread
        while len(unread) > MAX_KEPT_MESSAGES or self._unread_bytes > MAX_KEPT_BYTES:
            oldest = unread[0]
            if isinstance(oldest, bytes):
                unread.popleft()
            elif oldest[0].kind in _FORGOTTEN and not acts_outside(oldest[0]):
                unread.popleft()
                self._unread_bytes -= _counted_bytes(oldest)
            else:
                self.read_oldest()
                continue
            if not self.is_full:
                self._note_gap()
            self.is_full = len(unread) == MAX_KEPT_MESSAGES

    def read_oldest(self) -> int:
        """Read the oldest unread message; returns its bytes."""
        oldest = self.unread.popleft()
        size = _counted_bytes(oldest)
        message = self._whole(oldest)
        self.is_full = False
        self.unread_rejections -= message[0].kind == "mcp/reject"
        self.read.append(message)
        self._unread_bytes -= size
        self._read_bytes += size
        while len(self.read) > MAX_KEPT_MESSAGES or self._read_bytes > MAX_KEPT_BYTES:
            self._read_bytes -= _counted_bytes(self.read.popleft())
            self.has_gap = True
        self._see(message)
        return len(message[0].raw)

    def put_back(self) -> None:
        """What was read has to be read again."""
        self.unread.extendleft(reversed(self.read))
        self.unread_rejections += sum(each[0].kind == "mcp/reject" for each in self.read)
        self._unread_bytes += self._read_bytes
        self.read.clear()
        self._read_bytes = 0
        self.make_room()

    def latest(self) -> Iterator[KeptMessage]:
        """All that is kept, from the latest on; what one call has looked at is decoded for the next, too."""
        for ago, kept in enumerate(reversed(self.unread), start=1):
            if isinstance(kept, bytes):
                kept = self.unread[-ago] = self._decode(kept)
            yield kept
        yield from reversed(self.read)

    def ids(self) -> set[str]:
        return {self._whole(each)[0].id for kept in (self.read, self.unread) for each in kept}

    def decode_all(self) -> None:
        self.unread = deque(map(self._whole, self.unread))

    def fit(self, most: int) -> bool:
        """Whether all that is unread has no more bytes than this."""
        sizes = accumulate(len(each if isinstance(each, bytes) else each[0].raw) for each in self.unread)
        return all(size <= most for size in sizes)

    def _whole(self, kept: KeptMessage | bytes) -> KeptMessage:
        return self._decode(kept) if isinstance(kept, bytes) else kept


def _counted_bytes(kept: KeptMessage | bytes) -> int:
    if isinstance(kept, bytes):
        return 0
    size = len(kept[0].raw)
    return 0 if kept[0].kind == "chat" and size <= MAX_SHORT_BYTES else size
