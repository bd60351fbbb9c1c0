# cython: language_level=3
"""Recognising ordinary envelopes: without parsing them, for the fast path, and in place of checks, to decode (D-83).

Ordinary is what clients send nearly always: `protocol`, `id`, `ts`, `from`, `kind` and `payload`, perhaps `to`,
`correlation_id` and `context`, each once, each as the dialect wants it, and a payload that every reader reads
alike. `scan_envelope` says where they are, or that the envelope is not ordinary. It refuses nothing: whatever is
not ordinary takes the slow path, and whatever is, the slow path would accept too
(`tests/protocol/test_scan_envelope.py` compares them), but for what is left to the caller: that the kind is one
that the slow path accepts, and that the text is not too long. `read_envelope` makes an `Envelope` of it.

The text must be valid UTF-8 and end in a zero byte, which is not counted, as CPython's `bytes` do. A zero is
never skipped, for it is no part of JSON, and nothing looks further ahead than one byte behind what was seen: so
nothing outside of the text is ever read. Where a stretch is looked at as a whole, `size` bounds it.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp

from moot.protocol.openssl_sha256 cimport find_sha256, sha256_begin, sha256_end, sha256_update

from hashlib import sha256

from orjson import OPT_SORT_KEYS, dumps, loads

from moot.protocol.envelope import Envelope

cdef bint HAS_SHA256 = find_sha256()

cdef enum:
    # Deeper or wider is not wrong, only not ordinary. The slow path allows 64 levels and counts from the envelope.
    MAX_LEVELS = 24
    MAX_KEYS = 24
    NAMES = 32
    NAME_BYTES = 256
    CONTEXT_BYTES = 1024
    MAX_DIGITS = 15
    # Members of an envelope, as bits.
    PROTOCOL = 1
    ID = 2
    TS = 4
    FROM = 8
    KIND = 16
    PAYLOAD = 32
    TO = 64
    CORRELATION_ID = 128
    CONTEXT = 256
    REQUIRED = 63

    NO = -1

# Where a space allows less, nothing is ordinary.
MAX_NAMES = NAMES
MAX_NAME_BYTES = NAME_BYTES


cdef inline Py_ssize_t _space(const unsigned char *text, Py_ssize_t at) noexcept nogil:
    # No line feed: a record of the journal is one line.
    while text[at] == c' ' or text[at] == c'\t' or text[at] == c'\r':
        at += 1
    return at


cdef inline int _hex(unsigned char digit) noexcept nogil:
    if c'0' <= digit <= c'9':
        return digit - c'0'
    if c'a' <= digit <= c'f':
        return digit - c'a' + 10
    if c'A' <= digit <= c'F':
        return digit - c'A' + 10
    return -1


cdef Py_ssize_t _bare(const unsigned char *text, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Behind the closing quote of a string without escapes; `at` is behind the opening one."""
    cdef const unsigned char *quote = <const unsigned char *> memchr(text + at, c'"', size - at)
    cdef Py_ssize_t end, each
    cdef unsigned char odd = 0
    if quote is NULL:
        return NO
    end = quote - text
    # No early exit, so that the compiler looks at sixteen bytes at a time.
    for each in range(at, end):
        odd |= (text[each] < 0x20) | (text[each] == c'\\')
    return NO if odd else end + 1


cdef Py_ssize_t _string(const unsigned char *text, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Behind the closing quote of any string; `at` is behind the opening one."""
    cdef Py_ssize_t end = _bare(text, size, at)
    cdef int first, second
    if end != NO:
        return end
    while True:
        if text[at] == c'"':
            return at + 1
        if text[at] < 0x20:
            return NO
        if text[at] != c'\\':
            at += 1
            continue
        at += 1
        if text[at] == c'u':
            first = _hex(text[at + 1])
            if first < 0:
                return NO
            second = _hex(text[at + 2])
            # Half a surrogate pair may stand alone; the slow path finds out.
            if second < 0 or (first == 13 and second >= 8):
                return NO
            if _hex(text[at + 3]) < 0 or _hex(text[at + 4]) < 0:
                return NO
            at += 5
        elif text[at] in b'"\\/bfnrt':
            at += 1
        else:
            return NO


cdef Py_ssize_t _digits(const unsigned char *text, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t start = at
    while c'0' <= text[at] <= c'9':
        at += 1
    return at if 0 < at - start <= MAX_DIGITS else NO


cdef Py_ssize_t _number(const unsigned char *text, Py_ssize_t at) noexcept nogil:
    if text[at] == c'-':
        at += 1
    if text[at] == c'0':
        at += 1
        if c'0' <= text[at] <= c'9':
            return NO
    else:
        at = _digits(text, at)
        if at == NO:
            return NO
    if text[at] == c'.':
        at = _digits(text, at + 1)
        if at == NO:
            return NO
    return NO if text[at] in b'eE' else at


cdef Py_ssize_t _word(const unsigned char *text, Py_ssize_t at, const char *word) noexcept nogil:
    cdef Py_ssize_t each = 0
    while word[each] != 0:
        if text[at + each] != <unsigned char> word[each]:
            return NO
        each += 1
    return at + each


cdef Py_ssize_t _value(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t at, int levels
) noexcept nogil:
    """Behind the value that begins here."""
    if text[at] == c'"':
        return _string(text, size, at + 1)
    if text[at] == c'{':
        return _object(text, size, at, levels)
    if text[at] == c'[':
        return _array(text, size, at, levels)
    if text[at] == c't':
        return _word(text, at, b'true')
    if text[at] == c'f':
        return _word(text, at, b'false')
    if text[at] == c'n':
        return _word(text, at, b'null')
    return _number(text, at)


cdef Py_ssize_t _array(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t at, int levels
) noexcept nogil:
    if levels == 0:
        return NO
    at = _space(text, at + 1)
    if text[at] == c']':
        return at + 1
    while True:
        at = _value(text, size, at, levels - 1)
        if at == NO:
            return NO
        at = _space(text, at)
        if text[at] == c']':
            return at + 1
        if text[at] != c',':
            return NO
        at = _space(text, at + 1)


cdef Py_ssize_t _object(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t at, int levels
) noexcept nogil:
    """Behind the object that begins here, no key of which stands twice."""
    cdef Span keys[MAX_KEYS]
    cdef int known = 0, each
    cdef Span key
    if levels == 0:
        return NO
    at = _space(text, at + 1)
    if text[at] == c'}':
        return at + 1
    while True:
        if text[at] != c'"' or known == MAX_KEYS:
            return NO
        key.start = at + 1
        at = _bare(text, size, key.start)
        if at == NO:
            return NO
        key.size = at - 1 - key.start
        for each in range(known):
            if keys[each].size == key.size and not memcmp(
                text + keys[each].start, text + key.start, key.size
            ):
                return NO
        keys[known] = key
        known += 1
        at = _space(text, at)
        if text[at] != c':':
            return NO
        at = _value(text, size, _space(text, at + 1), levels - 1)
        if at == NO:
            return NO
        at = _space(text, at)
        if text[at] == c'}':
            return at + 1
        if text[at] != c',':
            return NO
        at = _space(text, at + 1)


cdef Py_ssize_t _names(const unsigned char *text, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Behind a list of names, each of some bytes and without escapes."""
    cdef int left = NAMES
    cdef Py_ssize_t start
    if text[at] != c'[':
        return NO
    at = _space(text, at + 1)
    if text[at] == c']':
        return at + 1
    while left:
        left -= 1
        if text[at] != c'"':
            return NO
        start = at + 1
        at = _bare(text, size, start)
        if at == NO or not 0 < at - 1 - start <= NAME_BYTES:
            return NO
        at = _space(text, at)
        if text[at] == c']':
            return at + 1
        if text[at] != c',':
            return NO
        at = _space(text, at + 1)
    return NO


cdef Py_ssize_t _text(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t at, Span *found
) noexcept nogil:
    """Behind a string of some bytes without escapes, and where it stands."""
    if text[at] != c'"':
        return NO
    found.start = at + 1
    at = _bare(text, size, at + 1)
    found.size = at - 1 - found.start
    return at if found.size > 0 else NO


cdef bint _is_printable(const unsigned char *text, Span span) noexcept nogil:
    """Some characters of ASCII, none of them a control."""
    cdef Py_ssize_t each
    cdef unsigned char odd = 0
    for each in range(span.start, span.start + span.size):
        odd |= (text[each] < 0x20) | (text[each] > 0x7e)
    return span.size > 0 and not odd


cdef inline int _pair(const unsigned char *text) noexcept nogil:
    """The number that two digits make; -1 for anything else."""
    if c'0' <= text[0] <= c'9' and c'0' <= text[1] <= c'9':
        return 10 * (text[0] - c'0') + text[1] - c'0'
    return -1


cdef bint _is_day(int month, int day) noexcept nogil:
    """But for the 29th of February: the slow path knows the year."""
    if not 1 <= month <= 12 or day < 1:
        return False
    if month == 2:
        return day <= 28
    return day <= (30 if month in (4, 6, 9, 11) else 31)


cdef bint _is_moment(const unsigned char *text, Span ts) noexcept nogil:
    """Whether this is a timestamp as clocks write it: 2026-01-31T12:00:00, a fraction perhaps, and UTC."""
    cdef Py_ssize_t at = ts.start + 19, end = ts.start + ts.size
    cdef const unsigned char *second = text + ts.start
    if ts.size < 20 or ts.size > 64:
        return False
    if not (
        second[4] == second[7] == c'-' and second[10] == c'T' and second[13] == second[16] == c':'
        and _pair(second) >= 0 and _pair(second + 2) >= 0
        and _is_day(_pair(second + 5), _pair(second + 8))
        and 0 <= _pair(second + 11) <= 23 and 0 <= _pair(second + 14) <= 59 and 0 <= _pair(second + 17) <= 59
    ):
        return False
    if text[at] == c'.':
        at = _digits(text, at + 1)
        if at == NO:
            return False
    if text[at] == c'Z':
        return at + 1 == end
    return end - at == 6 and memcmp(text + at, b'+00:00', 6) == 0


cdef inline bint _is(const unsigned char *key, const char *name, Py_ssize_t size) noexcept nogil:
    return memcmp(key, name, size) == 0


cdef int _member(const unsigned char *key, Py_ssize_t size) noexcept nogil:
    """The bit of a member of an envelope; 0 for others."""
    if size == 2:
        if _is(key, b'id', 2):
            return ID
        if _is(key, b'ts', 2):
            return TS
        if _is(key, b'to', 2):
            return TO
    elif size == 4:
        if _is(key, b'from', 4):
            return FROM
        if _is(key, b'kind', 4):
            return KIND
    elif size == 7:
        if _is(key, b'payload', 7):
            return PAYLOAD
        if _is(key, b'context', 7):
            return CONTEXT
    elif size == 8 and _is(key, b'protocol', 8):
        return PROTOCOL
    elif size == 14 and _is(key, b'correlation_id', 14):
        return CORRELATION_ID
    return 0


cdef bint scan_envelope(
    const unsigned char *text, Py_ssize_t size, bint is_mew, ScannedEnvelope *found
) noexcept nogil:
    cdef Py_ssize_t at, end, start
    cdef int seen = 0, member
    cdef Span protocol
    protocol.size = found.to.size = found.correlation_id.size = found.context.size = 0
    if text[0] != c'{':
        return False
    at = _space(text, 1)
    while True:
        if text[at] != c'"':
            return False
        end = _bare(text, size, at + 1)
        if end == NO:
            return False
        member = _member(text + at + 1, end - at - 2)
        if member == 0 or seen & member:
            return False
        seen |= member
        at = _space(text, end)
        if text[at] != c':':
            return False
        start = at = _space(text, at + 1)
        if member == PAYLOAD:
            at = _object(text, size, at, MAX_LEVELS) if text[at] == c'{' else NO
            found.payload = Span(start, at - start)
        elif member == ID:
            at = _text(text, size, at, &found.id)
        elif member == TS:
            at = _text(text, size, at, &found.ts)
        elif member == FROM:
            at = _text(text, size, at, &found.sender)
        elif member == KIND:
            at = _text(text, size, at, &found.kind)
        elif member == PROTOCOL:
            at = _text(text, size, at, &protocol)
        elif member == CONTEXT:
            at = _text(text, size, at, &found.context)
        elif member == TO:
            at = _names(text, size, at)
            found.to = Span(start, at - start)
        elif is_mew:
            at = _names(text, size, at)
            found.correlation_id = Span(start, at - start)
        else:
            at = _text(text, size, at, &found.correlation_id)
        if at == NO:
            return False
        at = _space(text, at)
        if text[at] == c'}':
            break
        if text[at] != c',':
            return False
        at = _space(text, at + 1)
    if seen & REQUIRED != REQUIRED or _space(text, at + 1) != size:
        return False
    if is_mew:
        if protocol.size != 8 or not _is(text + protocol.start, b'mew/v0.4', 8):
            return False
    elif (
        protocol.size != 9
        or not _is(text + protocol.start, b'mcpx/v0.1', 9)
        or found.correlation_id.size > NAME_BYTES
    ):
        return False
    return (
        found.id.size <= NAME_BYTES
        and found.sender.size <= NAME_BYTES
        and found.context.size <= CONTEXT_BYTES
        and _is_printable(text, found.id)
        and _is_moment(text, found.ts)
    )


cdef inline str _decoded(const unsigned char *text, Span span):
    return PyUnicode_DecodeUTF8(<const char *> text + span.start, span.size, NULL)


cdef list _listed(const unsigned char *text, Span span):
    """The names of a list that was found in order."""
    cdef list names = []
    cdef Py_ssize_t at = span.start, end = span.start + span.size
    cdef Span name
    while True:
        # No name has a quote in it, and between them there is none but their own.
        while at < end and text[at] != c'"':
            at += 1
        if at >= end:
            return names
        name.start = at + 1
        at = _bare(text, end, name.start)
        name.size = at - 1 - name.start
        names.append(_decoded(text, name))


def read_envelope(bytes raw not None, str dialect not None, dict known_kinds not None):
    """An ordinary envelope whose kind is known; None for any other, and for what is no UTF-8.

    `known_kinds`: by kind as it is sent, the kind that is meant and what it claims.
    """
    cdef ScannedEnvelope found
    cdef const unsigned char *text = raw
    cdef bint is_mew = dialect == "mew"
    cdef object to = (), correlation_id = ()
    if not scan_envelope(text, len(raw), is_mew, &found):
        return None
    try:
        wire_kind = _decoded(text, found.kind)
        meant = known_kinds.get(wire_kind)
        if meant is None:
            return None
        if found.to.size:
            to = _listed(text, found.to)
        if not found.correlation_id.size:
            pass
        elif is_mew:
            correlation_id = _listed(text, found.correlation_id)
        else:
            correlation_id = [_decoded(text, found.correlation_id)]
        kind, claim = <tuple> meant
        return Envelope(
            dialect,
            kind,
            _decoded(text, found.id),
            _decoded(text, found.ts),
            _decoded(text, found.sender),
            to,
            correlation_id,
            _decoded(text, found.context) if found.context.size else None,
            loads(raw[found.payload.start : found.payload.start + found.payload.size]),
            raw,
            (),
            wire_kind,
            claim,
        )
    except ValueError:
        # UnicodeDecodeError and orjson.JSONDecodeError are some: the slow path says at which byte.
        return None


cdef bint _is_plain(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    cdef const unsigned char *found = <const unsigned char *> memchr(text, c'\\', size)
    cdef Py_ssize_t at, digits = 0
    cdef unsigned char odd = 0, each
    cdef bint has_escapes = found is not NULL
    for at in range(size):
        odd |= text[at] >= 0x7f
    while found is not NULL:
        odd |= found[1] == c'u'
        found = <const unsigned char *> memchr(found + 1, c'\\', text + size - found - 1)
    if odd:
        return False
    at = 0
    while 0 <= at < size:
        each = text[at]
        if each == c'"':
            digits = 0
            if has_escapes:
                at = _string(text, size, at + 1)
            else:
                found = <const unsigned char *> memchr(text + at + 1, c'"', size - at - 1)
                at = found - text + 1 if found is not NULL else NO
            continue
        digits = digits + 1 if c'0' <= each <= c'9' else 0
        if digits > MAX_DIGITS or each in b'.-eE':
            return False
        if each == c't':
            at = _word(text, at, b'true')
        elif each == c'f':
            at = _word(text, at, b'false')
        else:
            at += 1
    return at == size


def is_plain(bytes raw not None):
    """As `strict_json.is_plain_in_python`; False, too, for what is no accepted text."""
    return _is_plain(raw, len(raw))


cdef str _sha256_hex(bytes text):
    cdef unsigned long long state[32]
    cdef unsigned char digest[32]
    cdef char digits[64]
    cdef int each
    if not HAS_SHA256:
        return sha256(text).hexdigest()
    sha256_begin(state)
    sha256_update(state, PyBytes_AS_STRING(text), len(text))
    sha256_end(digest, state)
    for each in range(32):
        digits[2 * each] = b'0123456789abcdef'[digest[each] >> 4]
        digits[2 * each + 1] = b'0123456789abcdef'[digest[each] & 15]
    return PyUnicode_DecodeASCII(digits, 64, NULL)


def plain_fingerprint(bytes raw not None, payload):
    """As `fingerprint.fingerprint` of an accepted envelope that is plain, from what was decoded; else None."""
    if not _is_plain(raw, len(raw)):
        return None
    body = {'method': payload.get('method'), 'params': payload.get('params', {})}
    return _sha256_hex(dumps(body, None, OPT_SORT_KEYS))
