# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled frame reader. `frame_reader.py` says what it does; the pure class there does the same."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from moot.net.websocket_frame import FrameError

cdef extern from "Python.h":
    char *PyByteArray_AS_STRING(object)
    object PyUnicode_DecodeUTF8Stateful(const char *, Py_ssize_t, const char *, Py_ssize_t *)

cdef enum:
    MAX_CONTROL_BYTES = 125
    MASK_BYTES = 4
    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2

cdef enum:
    PROTOCOL_ERROR = 1002
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009


cdef class FrameReader:
    """Frames of one client, which masks them."""

    cdef object _on_message
    cdef object _on_control
    cdef public Py_ssize_t max_message_bytes
    cdef Py_ssize_t _max_fragments
    cdef public bint ignores_messages
    cdef bint _is_stopped
    # What waits: from _start to _end.
    cdef unsigned char *_waiting
    cdef Py_ssize_t _room
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end
    cdef uint64_t _skip
    # Of a message in fragments.
    cdef bytearray _message
    cdef bint _is_binary
    cdef Py_ssize_t _fragments
    cdef Py_ssize_t _valid

    def __init__(self, on_message, on_control, Py_ssize_t max_message_bytes, Py_ssize_t max_fragments):
        self._on_message = on_message
        self._on_control = on_control
        self.max_message_bytes = max_message_bytes
        self._max_fragments = max_fragments

    def __dealloc__(self):
        free(self._waiting)

    @property
    def held_bytes(self):
        """What this reader keeps in memory for its connection."""
        return self._room + (0 if self._message is None else len(self._message))

    def take(self, bytearray data not None, Py_ssize_t size):
        """Keep the first `size` bytes of `data`."""
        cdef Py_ssize_t skipped = 0
        cdef Py_ssize_t needed
        cdef unsigned char *grown
        if size > len(data):
            raise ValueError("fewer bytes than said")
        if self._is_stopped:
            return
        if self._skip:
            skipped = size if self._skip > <uint64_t> size else <Py_ssize_t> self._skip
            self._skip -= skipped
        size -= skipped
        if size <= 0:
            return
        if self._start:
            memmove(self._waiting, self._waiting + self._start, self._end - self._start)
            self._end -= self._start
            self._start = 0
        needed = self._end + size
        if needed > self._room:
            # A little more only when it grows again, so that a large message is not moved at every packet.
            if self._room:
                needed += needed // 2
            grown = <unsigned char *> realloc(self._waiting, needed)
            if grown is NULL:
                raise MemoryError
            self._waiting = grown
            self._room = needed
        memcpy(self._waiting + self._end, PyByteArray_AS_STRING(data) + skipped, size)
        self._end += size

    def read(self, Py_ssize_t max_frames, double seconds):
        """Handle what waits; True if some may be left. Raises FrameError, and what the callbacks raise."""
        cdef double deadline = _monotonic() + seconds
        cdef Py_ssize_t frames = 0
        try:
            while frames < max_frames:
                if self._is_stopped or not self._read_frame():
                    return False
                frames += 1
                if _monotonic() >= deadline:
                    break
            return self._start < self._end
        except FrameError:
            self.stop()
            raise
        finally:
            if self._start == self._end:
                self._forget()

    def stop(self):
        """Read and keep nothing more."""
        self._is_stopped = True
        self._forget()
        self._message = None

    cdef void _forget(self) noexcept:
        free(self._waiting)
        self._waiting = NULL
        self._room = self._start = self._end = 0

    cdef bint _read_frame(self) except -1:
        """Handle one frame; False where it has not come whole."""
        cdef const unsigned char *data = self._waiting + self._start
        cdef Py_ssize_t available = self._end - self._start
        cdef Py_ssize_t head = 2
        cdef uint64_t size, whole, least
        cdef int first, second, opcode, index
        cdef bint is_final, is_control
        cdef bytes payload
        if available < 2:
            return False
        first, second = data[0], data[1]
        opcode, is_final, size = first & 0x0F, first >= 0x80, second & 0x7F
        if first & 0x70:
            raise FrameError(PROTOCOL_ERROR, "reserved bits are set, but no extension was agreed")
        if 0x3 <= opcode <= 0x7 or opcode > 0xA:
            raise FrameError(PROTOCOL_ERROR, f"opcode {opcode:#x} is not defined")
        if not second & 0x80:
            raise FrameError(PROTOCOL_ERROR, "a client has to mask its frames")
        is_control = opcode > BINARY
        if is_control and not is_final:
            raise FrameError(PROTOCOL_ERROR, "a control frame may not be fragmented")
        if is_control and size > MAX_CONTROL_BYTES:
            raise FrameError(PROTOCOL_ERROR, "a control frame holds at most 125 bytes")
        if size >= 126:
            head, least = (4, 126) if size == 126 else (10, 1 << 16)
            if available < head:
                return False
            size = 0
            for index in range(2, head):
                size = size << 8 | data[index]
            if size < least or size >> 63:
                raise FrameError(PROTOCOL_ERROR, "the length of a frame is not encoded in the fewest bytes")
        whole = head + MASK_BYTES + size
        if not is_control:
            if self.ignores_messages:
                if whole > <uint64_t> available:
                    self._skip = whole - available
                    whole = available
                self._start += <Py_ssize_t> whole
                return True
            self._check_message(opcode, size)
        if <uint64_t> available < whole:
            return False
        self._start += <Py_ssize_t> whole
        payload = _unmasked(data + head + MASK_BYTES, <Py_ssize_t> size, data + head)
        if is_control:
            self._on_control(opcode, payload)
        elif opcode != CONTINUATION and is_final:
            if opcode == TEXT and not _is_ascii(payload):
                _check_text(PyBytes_AS_STRING(payload), len(payload), NULL)
            self._on_message(payload, opcode == BINARY)
        else:
            self._add_fragment(opcode, payload, is_final)
        return True

    cdef int _check_message(self, int opcode, uint64_t size) except -1:
        """As soon as the head of a frame has come: it does not have to be kept to be refused."""
        cdef bytearray message = self._message
        cdef uint64_t before = 0
        if message is not None:
            before = len(message)
        if opcode == CONTINUATION and message is None:
            raise FrameError(PROTOCOL_ERROR, "a continuation of nothing")
        if opcode != CONTINUATION and message is not None:
            raise FrameError(PROTOCOL_ERROR, "a new message inside a fragmented one")
        if size + before > <uint64_t> self.max_message_bytes:
            raise FrameError(MESSAGE_TOO_BIG, f"message larger than {self.max_message_bytes} bytes")
        if message is not None and self._fragments >= self._max_fragments:
            raise FrameError(POLICY_VIOLATION, f"message in more than {self._max_fragments} fragments")
        return 0

    cdef int _add_fragment(self, int opcode, bytes payload, bint is_final) except -1:
        cdef bytearray message
        cdef Py_ssize_t valid, left
        if opcode != CONTINUATION:
            self._message = bytearray()
            self._is_binary = opcode == BINARY
            self._fragments = self._valid = 0
        message = self._message
        message += payload
        self._fragments += 1
        if not self._is_binary:
            # Also before the end: whoever sends what is no text need not finish it.
            left = len(message) - self._valid
            valid = left
            _check_text(PyByteArray_AS_STRING(message) + self._valid, left, NULL if is_final else &valid)
            self._valid += valid
        if is_final:
            self._message = None
            self._on_message(bytes(message), self._is_binary)
        return 0


cdef int _check_text(const char *text, Py_ssize_t size, Py_ssize_t *valid) except -1:
    """Where `valid` is asked for, the last character may be cut."""
    try:
        PyUnicode_DecodeUTF8Stateful(text, size, NULL, valid)
    except UnicodeDecodeError:
        raise FrameError(INVALID_TEXT, "text is not valid UTF-8") from None
    return 0


cdef inline bint _is_ascii(bytes text) noexcept:
    cdef const unsigned char *data = <const unsigned char *> PyBytes_AS_STRING(text)
    cdef Py_ssize_t index, size = len(text)
    cdef unsigned char seen = 0
    for index in range(size):
        seen |= data[index]
    return seen < 0x80


cdef inline bytes _unmasked(const unsigned char *data, Py_ssize_t size, const unsigned char *mask):
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char *into = <unsigned char *> PyBytes_AS_STRING(payload)
    cdef Py_ssize_t at = 0
    cdef uint32_t four
    cdef uint64_t eight, word
    memcpy(&four, mask, 4)
    eight = <uint64_t> four << 32 | four
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        word ^= eight
        memcpy(into + at, &word, 8)
        at += 8
    while at < size:
        into[at] = data[at] ^ mask[at & 3]
        at += 1
    return payload


cdef inline double _monotonic() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
