# cython: language_level=3, cdivision=True
"""The compiled part of the fast path; `fast_path.py` says what that is, and why it is safe.

What it does by itself, so that it need not call Python, must have the same outcome as the method on the right.
`tests/gateway/hosting/test_fast_path_equivalence.py` runs random stories both ways and compares all that can be seen.

    SpaceFastPath.remember      IdWindow.remember            space/id_window.py
    SpaceFastPath.write         Journal.append               store/journal.py
    SpaceFastPath.send          Outgoing.append              net/outbox.py
    SpaceFastPath.keep          MessageHistory.add           gateway/hosting/delivery.py
    SessionFastPath._check_rate SendRateLimiter.check_rate     space/members/send_rate.py
    RecordBatch.add             RecordEncoder.record, line   gateway/hosting/space_records.py, store/record_chain.py
    _framed                     framed                       net/websocket_frame.py
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy
from posix.time cimport clock_gettime, clockid_t, timespec

from moot.protocol._scan_envelope cimport ScannedEnvelope, Span, scan_envelope
from moot.store.record_chain import random_salts

# Counted up with what `fast_path.py` calls here: it passes over what an earlier version built.
INTERFACE = 2

cdef enum:
    # Larger ones are rare, and the slow path costs little beside them. A frame's head has two bytes for the size.
    MAX_MESSAGE_BYTES = 0xFFFF
    MAX_KINDS = 16
    # Records that wait for the journal in one piece.
    MAX_BATCH_BYTES = 1 << 16
    # Messages that the history may hold beyond its bounds until they are counted.
    MAX_UNCOUNTED = 256
    MAX_UNCOUNTED_BYTES = 1 << 18
    # Of a record around the id, what it has in common with others, and the envelope: number, time and salt.
    MAX_FRONT_BYTES = 128
    SALT_CHARS = 22  # as in store/record_chain.py
    MAX_DIGITS = 20

cdef double BURST_SECONDS = 1.0  # as in space/members/send_rate.py


cdef class RecordBatch:
    """Records of one tick, one behind the other, as the journal takes them: a readable buffer."""

    cdef unsigned char *_text
    cdef Py_ssize_t _room
    cdef Py_ssize_t _size
    cdef int _readers

    def __dealloc__(self):
        free(self._text)

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._text, self._size, 1, flags)
        self._readers += 1

    def __releasebuffer__(self, Py_buffer *view):
        self._readers -= 1

    cdef bint is_open(self) noexcept:
        return self._size < MAX_BATCH_BYTES and self._readers == 0

    cdef int add(
        self,
        long long number,
        long long micros,
        const unsigned char *text,
        Py_ssize_t size,
        Span id,
        bytes common,
        bytes ending,
    ) except -1:
        """One more record: number, time, id, what such records have in common, and the envelope.

        With an `ending` all gateways of a cluster have this record: it is byte for byte what the slow path
        of another one writes.
        """
        cdef Py_ssize_t least = self._size + MAX_FRONT_BYTES + id.size + len(common) + size + len(ending)
        cdef long long fraction = micros % 1_000_000
        cdef int digits = 6
        cdef unsigned char *into
        if least > self._room:
            into = <unsigned char *> realloc(self._text, 2 * least)
            if into is NULL:
                raise MemoryError
            self._text = into
            self._room = 2 * least
        into = self._text + self._size
        if self._size:
            into = _put(into, b'}\n', 2)
        into = _put(into, b'{"n":', 5)
        into = _put_number(into, number, 1)
        into = _put(into, b',"t":', 5)
        into = _put_number(into, micros // 1_000_000, 1)
        into = _put(into, b'.', 1)
        while ending and digits > 1 and fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        into = _put_number(into, fraction, digits)
        into = _put(into, b',"id":"', 7)
        into = _put(into, text + id.start, id.size)
        into = _put(into, b'"', 1)
        into = _put(into, PyBytes_AS_STRING(common), len(common))
        into = _put(into, text, size)
        if ending:
            into = _put(into, PyBytes_AS_STRING(ending), len(ending))
        else:
            into = _put(into, b',"s":"', 6)
            into = _put(into, _next_salt(), SALT_CHARS)
            into = _put(into, b'"', 1)
        self._size = into - self._text
        return 0


# Salts that were drawn and not used yet.
cdef bytes _salts = b''
cdef Py_ssize_t _salt_at = 0


cdef const char *_next_salt() except NULL:
    global _salts, _salt_at
    if _salt_at >= len(_salts):
        _salts = random_salts()
        _salt_at = 0
    _salt_at += SALT_CHARS
    return PyBytes_AS_STRING(_salts) + _salt_at - SALT_CHARS


cdef class SpaceFastPath:
    """What the fast paths of all sessions of one space have in common."""

    cdef readonly long long accepted
    cdef readonly long long delivered
    # Of the space: its `verdict_epoch` says for how long a verdict holds.
    cdef object _state
    # The same for what the gateway does: see `invalidate`.
    cdef long long _order_epoch
    # Of the window: by id, open ones by id, in the order in which they came.
    cdef dict _recent
    cdef dict _pinned
    cdef object _order
    cdef dict _superseded
    cdef object _append_id
    cdef object _pop_id
    # Of the journal: what waits to be written.
    cdef object _journal
    cdef bint _is_written
    cdef list _pending
    cdef RecordBatch _batch
    cdef object _outgoing
    # Of the history, and what was added to it and not counted yet.
    cdef object _history
    cdef object _entry_type
    cdef object _append_entry
    cdef int _uncounted
    cdef long long _uncounted_bytes

    def __init__(self, state, journal, outgoing, history, entry_type):
        self._state = state
        window = state.window
        self._recent = window.recent
        self._pinned = window.pinned
        self._order = window.order
        self._superseded = window.superseded
        self._append_id = window.order.append
        self._pop_id = window.order.popleft
        self._journal = journal
        self._pending = journal.pending
        self._is_written = journal.is_written
        self._outgoing = outgoing
        self._history = history
        self._entry_type = entry_type
        self._append_entry = history.stored.append
        history.count_stored = self.count_stored

    def invalidate(self):
        """Every session has to take the slow path once."""
        self._order_epoch += 1

    cdef bint knows(self, str id) except -1:
        return id in self._recent or id in self._pinned

    cdef int remember(self, str id, record, Py_ssize_t window_size) except -1:
        """For an id that is not known: one that may come again takes the slow path."""
        cdef object oldest
        self._recent[id] = record
        self._append_id(id)
        if len(self._order) > window_size:
            oldest = self._pop_id()
            if not self._superseded or oldest not in self._superseded:
                del self._recent[oldest]
            elif self._superseded[oldest] > 1:
                self._superseded[oldest] -= 1
            else:
                del self._superseded[oldest]
        return 0

    cdef int write(
        self,
        long long number,
        long long micros,
        const unsigned char *text,
        Py_ssize_t size,
        Span id,
        bytes common,
        bytes ending,
    ) except -1:
        """Append a record: to the batch that this tick has begun, or to a new one."""
        cdef Py_ssize_t waiting = len(self._pending)
        cdef RecordBatch batch = self._batch
        if waiting and self._pending[waiting - 1] is batch and batch.is_open():
            return batch.add(number, micros, text, size, id, common, ending)
        batch = RecordBatch()
        batch.add(number, micros, text, size, id, common, ending)
        self._pending.append(batch)
        self._batch = batch
        self._journal.schedule()
        return 0

    cdef int send(self, list audience, bytes frame) except -1:
        cdef dict frames
        if not audience:
            # In a cluster: nobody of this space is at this gateway.
            return 0
        batch = self._outgoing.batch
        self.delivered += len(audience)
        if batch is not None and batch.audience is audience:
            frames = batch.frames
            if 'mew' in frames:
                (<list> frames['mew']).append(frame)
                return 0
        self._outgoing.append(audience, 'mew', frame)
        return 0

    cdef int keep(self, entry, Py_ssize_t size) except -1:
        """Add to the history; it is counted later, at the latest when somebody reads it."""
        self._append_entry(entry)
        self._uncounted += 1
        self._uncounted_bytes += size
        if self._uncounted >= MAX_UNCOUNTED or self._uncounted_bytes >= MAX_UNCOUNTED_BYTES:
            self._history.trim(self.count_stored())
        return 0

    def count_stored(self):
        """The bytes that were added to the history since the last call."""
        cdef long long size = self._uncounted_bytes
        self._uncounted = self._uncounted_bytes = 0
        return size


cdef class SessionFastPath:
    """The fast path of one session."""

    cdef SpaceFastPath _space
    cdef bytes _sender
    # The epochs in which the verdicts below were given. An epoch is one object, so that `is` compares it.
    cdef object _verdict_epoch
    cdef long long _order_epoch
    # By kind: (kind, its bytes, what the window keeps, what its records have in common). The third is None for
    # kinds that have to take the slow path.
    cdef list _kinds
    cdef Py_ssize_t _max_bytes
    cdef Py_ssize_t _max_id_bytes
    cdef long long _slow_from
    # The space's time, as SteadyClock computes it.
    cdef clockid_t _clock_id
    cdef long long _clock_offset_micros
    cdef Py_ssize_t _window_size
    # The rate; None without one.
    cdef object _limiter
    cdef double _per_message
    cdef double _per_byte
    cdef list _audience

    def __init__(self, SpaceFastPath space not None, str sender not None):
        self._space = space
        self._sender = sender.encode()
        self._kinds = []

    cdef bint _is_current(self) except -1:
        return (
            self._order_epoch == self._space._order_epoch
            and self._verdict_epoch is self._space._state.verdict_epoch
        )

    def needs_verdict(self, str kind not None):
        """Whether nothing is known of this kind yet."""
        cdef tuple row
        if not self._is_current():
            return True
        for row in self._kinds:
            if row[0] == kind:
                return False
        return True

    def mark_slow(self, str kind not None):
        """This kind has to take the slow path."""
        self._begin()
        self._kinds.append((kind, b'', None, b''))

    def mark_fast(
        self,
        str kind not None,
        *,
        record,
        bytes common not None,
        rate,
        limiter,
        list audience not None,
        long long slow_from,
        long long clock_id,
        long long clock_offset_micros,
        Py_ssize_t max_bytes,
        Py_ssize_t max_id_chars,
    ):
        """From now on envelopes of this kind may take the fast path."""
        self._begin()
        self._kinds.append((kind, kind.encode(), record, common))
        self._max_bytes = min(max_bytes, MAX_MESSAGE_BYTES)
        self._max_id_bytes = max_id_chars - len(self._sender)
        self._slow_from = slow_from
        self._clock_id = <clockid_t> clock_id
        self._clock_offset_micros = clock_offset_micros
        self._window_size = self._space._state.window.size
        self._per_message, self._per_byte = rate
        self._limiter = limiter if self._per_message or self._per_byte else None
        self._audience = audience

    cdef int _begin(self) except -1:
        if not self._is_current() or len(self._kinds) >= MAX_KINDS:
            self._verdict_epoch = self._space._state.verdict_epoch
            self._order_epoch = self._space._order_epoch
            self._kinds.clear()
        return 0

    def accept(self, bytes data not None):
        """Take one message, whole and in valid UTF-8. False: nothing happened, it has to take the slow path."""
        return self._accept(data, 0, b'')

    def accept_at(self, bytes data not None, long long micros, bytes ending not None):
        """The same at a time that is given: that of a log, which has put it in order. So ends its record."""
        return self._accept(data, micros, ending)

    def recognises(self, bytes data not None):
        """Whether `accept` would take it, but for its id, its rate and the journal: so its form is right."""
        cdef ScannedEnvelope found
        return self._find(data, &found) is not None

    cdef tuple _find(self, bytes data, ScannedEnvelope *found):
        """The row of its kind; None: it has to take the slow path."""
        cdef const unsigned char *text = data
        cdef Py_ssize_t size = len(data)
        cdef tuple row
        if not self._is_current() or size > self._max_bytes or not scan_envelope(text, size, True, found):
            return None
        if not _is(text, found.sender, self._sender) or found.id.size > self._max_id_bytes:
            return None
        for row in self._kinds:
            if row[2] is not None and _is(text, found.kind, <bytes> row[1]):
                return row
        return None

    cdef bint _accept(self, bytes data, long long micros, bytes ending) except -1:
        cdef SpaceFastPath space = self._space
        cdef const unsigned char *text = data
        cdef Py_ssize_t size = len(data)
        cdef ScannedEnvelope found
        cdef timespec time
        cdef long long number
        cdef double now
        cdef str id
        cdef tuple row = self._find(data, &found)
        if row is None:
            return False
        id = PyUnicode_DecodeASCII(<const char *> text + found.id.start, found.id.size, NULL)
        if space.knows(id):
            return False
        journal = space._journal
        number = journal.next_number
        if number >= self._slow_from or not journal.writable:
            return False
        if micros == 0:
            if clock_gettime(self._clock_id, &time) != 0:
                return False
            # Whole microseconds, so that they are written quickly and read again as the same number.
            micros = <long long> time.tv_sec * 1_000_000 + time.tv_nsec // 1_000 + self._clock_offset_micros
        if micros <= 0:
            return False
        now = micros / 1e6
        if self._limiter is not None and not self._check_rate(size, now):
            return False
        # It is accepted. The record comes first: whatever fails behind it, the journal is whole.
        if space._is_written:
            space.write(number, micros, text, size, found.id, <bytes> row[3], ending)
        journal.next_number = number + 1
        space.accepted += 1
        space.remember(id, row[2], self._window_size)
        space.send(self._audience, _framed(text, size))
        space.keep(space._entry_type(now, data, None, size), size)
        return True

    cdef bint _check_rate(self, Py_ssize_t size, double now) except -1:
        """False where `check_rate` raises, and where the clock went back: the slow path answers for both."""
        limiter = self._limiter
        cdef double messages = limiter.messages_drained
        cdef double octets = limiter.bytes_drained
        if messages > now + BURST_SECONDS + self._per_message:
            return False
        messages = max(messages, now)
        octets = max(octets, now)
        if self._per_message:
            messages += self._per_message
            if messages > now + BURST_SECONDS:
                return False
        if self._per_byte:
            if octets > now + BURST_SECONDS:
                return False
            octets += size * self._per_byte
        limiter.messages_drained = messages
        limiter.bytes_drained = octets
        return True


cdef inline bint _is(const unsigned char *text, Span span, bytes word) noexcept:
    return span.size == len(word) and memcmp(text + span.start, PyBytes_AS_STRING(word), span.size) == 0


cdef inline unsigned char *_put(unsigned char *into, const void *what, Py_ssize_t size) noexcept nogil:
    memcpy(into, what, size)
    return into + size


cdef unsigned char *_put_number(unsigned char *into, long long number, int least) noexcept nogil:
    """In decimal, with at least so many digits."""
    cdef unsigned char digits[MAX_DIGITS]
    cdef int count = 0
    while number or count < least:
        digits[count] = <unsigned char> (c'0' + number % 10)
        number //= 10
        count += 1
    while count:
        count -= 1
        into[0] = digits[count]
        into += 1
    return into


cdef bytes _framed(const unsigned char *text, Py_ssize_t size):
    """A WebSocket text frame of at most MAX_MESSAGE_BYTES."""
    cdef Py_ssize_t head = 2 if size < 126 else 4
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, head + size)
    cdef unsigned char *into = <unsigned char *> PyBytes_AS_STRING(frame)
    into[0] = 0x81
    if size < 126:
        into[1] = <unsigned char> size
    else:
        into[1] = 126
        into[2] = <unsigned char> (size >> 8)
        into[3] = <unsigned char> (size & 0xFF)
    memcpy(into + head, text, size)
    return frame
