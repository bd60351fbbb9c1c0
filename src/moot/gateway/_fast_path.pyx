# cython: language_level=3, cdivision=True
"""The compiled part of the short way; `lanes.py` says what that is and when it is open."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from moot.protocol._scan_envelope cimport Plain, Span, read_plain

cdef enum:
    # Larger ones are rare, and beside them the long way costs little. A frame's head has two bytes for the size.
    MOST_BYTES = 0xFFFF
    MOST_KINDS = 16
    # What a timestamp begins with: 2026-01-31T12:00:00
    SECOND = 19
    # Records that wait for the journal in one piece.
    MOST_RUN = 1 << 16
    # Messages that the past may hold beyond its bounds until they are counted.
    MOST_KEPT = 256
    MOST_KEPT_BYTES = 1 << 18
    # Of a record before the id: number, time and the words around them.
    MOST_FRONT = 96
    MOST_DIGITS = 20

cdef double BURST_SECONDS = 1.0  # as in space/send_rate.py


cdef class Run:
    """Records of one tick, one behind the other, as the journal takes them: a buffer to be read."""

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
        return self._size < MOST_RUN and self._readers == 0

    cdef int add(
        self,
        long long number,
        long long micros,
        const unsigned char *text,
        Py_ssize_t size,
        Span id,
        bytes common,
    ) except -1:
        """One more record, as `store.chain.line` makes it: number, time, id, what such records share, envelope."""
        cdef Py_ssize_t least = self._size + MOST_FRONT + id.size + len(common) + size
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
        into = _put_number(into, micros % 1_000_000, 6)
        into = _put(into, b',"id":"', 7)
        into = _put(into, text + id.start, id.size)
        into = _put(into, b'"', 1)
        into = _put(into, PyBytes_AS_STRING(common), len(common))
        into = _put(into, text, size)
        self._size = into - self._text
        return 0


cdef class Shared:
    """What all lanes of one space have in common."""

    cdef readonly long long heard
    cdef readonly long long delivered
    cdef long long _epoch
    cdef object _journal
    # Of the journal: what waits to be written.
    cdef bint _writes
    cdef list _pending
    cdef Run _run
    cdef object _outgoing
    cdef object _past
    cdef object _heard_type
    cdef object _keep
    cdef object _let_go
    # Not counted yet.
    cdef int _kept
    cdef long long _kept_bytes

    def __init__(self, journal, outgoing, past, heard_type):
        self._journal = journal
        self._pending = journal.pending
        self._writes = journal.is_written
        self._outgoing = outgoing
        self._past = past
        self._heard_type = heard_type
        self._keep = past.kept.append
        self._let_go = past.kept.popleft
        past.settle = self.settle

    def close(self):
        """All lanes have to be opened anew."""
        self._epoch += 1

    cdef int write(
        self,
        long long number,
        long long micros,
        const unsigned char *text,
        Py_ssize_t size,
        Span id,
        bytes common,
    ) except -1:
        """`Journal.append`: behind what this tick has brought already, or into a new run."""
        cdef Py_ssize_t waiting = len(self._pending)
        cdef Run run = self._run
        if waiting and self._pending[waiting - 1] is run and run.is_open():
            return run.add(number, micros, text, size, id, common)
        run = Run()
        run.add(number, micros, text, size, id, common)
        self._pending.append(run)
        self._run = run
        self._journal.schedule()
        return 0

    cdef int send(self, list audience, bytes frame) except -1:
        """`Outgoing.append`."""
        cdef dict lanes
        batch = self._outgoing.batch
        self.delivered += len(audience)
        if batch is not None and batch.audience is audience:
            lanes = batch.lanes
            if 'mew' in lanes:
                (<list> lanes['mew']).append(frame)
                return 0
        self._outgoing.append(audience, 'mew', frame)
        return 0

    cdef int keep(self, heard, Py_ssize_t size) except -1:
        """`Past.add`, counted later: at the latest when somebody looks."""
        self._keep(heard)
        self._kept += 1
        self._kept_bytes += size
        if self._kept >= MOST_KEPT or self._kept_bytes >= MOST_KEPT_BYTES:
            self.settle()
        return 0

    def settle(self):
        """Count what was kept since, and let go of what is too long past."""
        past = self._past
        cdef Py_ssize_t over = len(past.kept) - <Py_ssize_t> past.messages
        cdef long long left = past.bytes + self._kept_bytes
        cdef long long most = past.most_bytes
        self._kept = self._kept_bytes = 0
        while over > 0 or left > most:
            left -= self._let_go().size
            over -= 1
        past.bytes = left


cdef class Lane:
    """The short way of one session."""

    cdef Shared _shared
    cdef bytes _sender
    cdef long long _epoch
    cdef bytes _second
    # By kind: (kind, its bytes, what the window keeps, what its records share). The third is None for those
    # that have to go the long way.
    cdef list _kinds
    cdef Py_ssize_t _longest
    cdef Py_ssize_t _longest_id
    cdef long long _before
    # The window: by id, open ones by id, in the order in which they came.
    cdef dict _recent
    cdef dict _pinned
    cdef object _order
    cdef object _remember
    cdef object _forget
    cdef Py_ssize_t _window
    # The rate; None without one.
    cdef object _throttle
    cdef double _per_message
    cdef double _per_byte
    cdef list _audience

    def __init__(self, Shared shared not None, str sender not None):
        self._shared = shared
        self._sender = sender.encode()
        self._epoch = -1
        self._second = bytes(SECOND)
        self._kinds = []

    def wants(self, str kind not None, str ts not None):
        """Whether nothing is known of such an envelope yet."""
        cdef tuple row
        if self._epoch != self._shared._epoch:
            return True
        for row in self._kinds:
            if row[0] == kind:
                return row[2] is not None and ts[:SECOND].encode() != self._second
        return True

    def pass_by(self, str kind not None):
        """This kind has to go the long way."""
        self._begin()
        self._kinds.append((kind, b'', None, b''))

    def open(
        self,
        str kind not None,
        str ts not None,
        *,
        record,
        bytes common not None,
        window,
        pace,
        throttle,
        list audience not None,
        long long before,
        Py_ssize_t most_bytes,
        Py_ssize_t max_id_chars,
    ):
        """From now on envelopes of this kind, sent within this second, may take the lane."""
        cdef bytes second = ts[:SECOND].encode()
        if len(second) != SECOND:
            return
        self._begin()
        self._kinds[:] = [row for row in self._kinds if row[0] != kind]
        self._kinds.append((kind, kind.encode(), record, common))
        self._second = second
        self._longest = min(most_bytes, MOST_BYTES)
        self._longest_id = max_id_chars - len(self._sender)
        self._before = before
        self._recent = window.recent
        self._pinned = window.pinned
        self._order = window.order
        self._remember = window.order.append
        self._forget = window.order.popleft
        self._window = window.size
        self._per_message, self._per_byte = pace
        self._throttle = throttle if self._per_message or self._per_byte else None
        self._audience = audience

    cdef int _begin(self) except -1:
        if self._epoch != self._shared._epoch or len(self._kinds) >= MOST_KINDS:
            self._epoch = self._shared._epoch
            self._kinds.clear()
        return 0

    def hear(self, bytes data not None):
        """Take one message, whole and in valid UTF-8; False if it has to go the long way: nothing happened then."""
        cdef Shared shared = self._shared
        cdef const unsigned char *text = data
        cdef Py_ssize_t size = len(data)
        cdef Plain found
        cdef timespec time
        cdef long long number, micros
        cdef double now
        cdef str id
        cdef tuple row
        if self._epoch != shared._epoch or size > self._longest or not read_plain(text, size, &found):
            return False
        if not (
            _is(text, found.sender, self._sender)
            and found.id.size <= self._longest_id
            and memcmp(text + found.ts.start, PyBytes_AS_STRING(self._second), SECOND) == 0
        ):
            return False
        for row in self._kinds:
            if row[2] is not None and _is(text, found.kind, <bytes> row[1]):
                break
        else:
            return False
        id = PyUnicode_DecodeASCII(<const char *> text + found.id.start, found.id.size, NULL)
        if id in self._recent or id in self._pinned:
            return False
        journal = shared._journal
        number = journal.next_number
        if number >= self._before or not journal.able:
            return False
        clock_gettime(CLOCK_REALTIME, &time)
        if time.tv_sec <= 0:
            return False
        # Whole microseconds, rounded up, so that they are written quickly and read again as the same number.
        micros = <long long> time.tv_sec * 1_000_000 + time.tv_nsec // 1_000 + 1
        now = micros / 1e6
        if self._throttle is not None and not self._keeps_pace(size, now):
            return False
        # It is accepted. The record comes first: whatever fails behind it, the journal is whole.
        if shared._writes:
            shared.write(number, micros, text, size, found.id, <bytes> row[3])
        journal.next_number = number + 1
        shared.heard += 1
        self._recent[id] = row[2]
        self._remember(id)
        if len(self._order) > self._window:
            del self._recent[self._forget()]
        shared.send(self._audience, _framed(text, size))
        shared.keep(shared._heard_type(now, data, None, size), size)
        return True

    cdef bint _keeps_pace(self, Py_ssize_t size, double now) except -1:
        """`Throttle.check_rate`, but that it does not raise: the long way says what is too fast."""
        throttle = self._throttle
        cdef double messages = throttle.messages_drained
        cdef double octets = throttle.bytes_drained
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
        throttle.messages_drained = messages
        throttle.bytes_drained = octets
        return True


cdef inline bint _is(const unsigned char *text, Span span, bytes word) noexcept:
    return span.size == len(word) and memcmp(text + span.start, PyBytes_AS_STRING(word), span.size) == 0


cdef inline unsigned char *_put(unsigned char *into, const void *what, Py_ssize_t size) noexcept nogil:
    memcpy(into, what, size)
    return into + size


cdef unsigned char *_put_number(unsigned char *into, long long number, int least) noexcept nogil:
    """In decimal, with at least so many digits."""
    cdef unsigned char digits[MOST_DIGITS]
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
    """`net.framing.framed` for at most MOST_BYTES of text."""
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
