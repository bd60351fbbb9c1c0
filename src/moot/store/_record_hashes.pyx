# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""What is hashed of records, in C: the seals of a journal (`record_chain`) and the hashes of its log
(`evidence/log_hashes`).

A record costs some small hashes, so that OpenSSL is called without Python between (`openssl_sha256`), and
without its lock. Where it is not found, importing this fails and the Python functions are used. Where the
processor has no instructions for SHA-256, many texts are hashed at once instead (`sha256_lanes.h`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from moot.protocol.openssl_sha256 cimport find_sha256, sha256_begin, sha256_end, sha256_update

cdef extern from "sha256_lanes.h":
    ctypedef struct Job "sha256_job":
        const char *text
        size_t size
        int first
        int last
        char *digest

    int sha256_has_lanes() nogil
    void sha256_many(const Job *, size_t) nogil

cdef enum:
    HASH = 32
    TILE = 256
    HALF_TILE = 128
    SEAL = 73  # as in record_chain.py
    SEAL_END = 3
    SALT = 22
    MAX_DIGITS = 18

cdef const char *LETTERS = b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

if not find_sha256():
    raise ImportError('the SHA-256 of OpenSSL is not found')

HAS_LANES = bool(sha256_has_lanes())


cdef void _hash_all(const Job *jobs, Py_ssize_t count, bint lanes) noexcept nogil:
    cdef unsigned long long state[32]  # a SHA256_CTX has 112 bytes
    cdef Py_ssize_t each
    cdef char byte
    if lanes:
        sha256_many(jobs, count)
        return
    for each in range(count):
        sha256_begin(state)
        if jobs[each].first >= 0:
            byte = <char> jobs[each].first
            sha256_update(state, &byte, 1)
        sha256_update(state, jobs[each].text, jobs[each].size)
        if jobs[each].last >= 0:
            byte = <char> jobs[each].last
            sha256_update(state, &byte, 1)
        sha256_end(<unsigned char *> jobs[each].digest, state)


cdef Py_ssize_t _lines(const char *at, const char *stop) noexcept nogil:
    # Not `bytes.count`, which looks at one byte after the other.
    cdef Py_ssize_t count = 0
    while True:
        at = <const char *> memchr(at, b'\n', stop - at)
        if at == NULL:
            return count
        count += 1
        at += 1


cdef long long _number(const char **at, const char *end) noexcept nogil:
    """The digits that stand here, and `at` behind them; -1 if there are none, or too many."""
    cdef long long number = 0
    cdef const char *begin = at[0]
    while at[0] < end and 48 <= at[0][0] <= 57:
        if at[0] - begin == MAX_DIGITS:
            return -1
        number = number * 10 + at[0][0] - 48
        at[0] += 1
    return number if at[0] > begin else -1


cdef long long _shared_number(const char *begin, const char *end) noexcept nogil:
    """What stands in `,"c":C,"s":"SALT"` at the end of a record without brace and seal; 0 if nothing does."""
    cdef const char *at = end - SALT - 7
    cdef const char *letter = end - SALT - 1
    if at <= begin or memcmp(at, b',"s":"', 6) != 0 or (end - 1)[0] != c'"':
        return 0
    while letter < end - 1:
        if not (48 <= letter[0] <= 57 or 65 <= (letter[0] & ~32) <= 90 or letter[0] == c'_' or letter[0] == c'-'):
            return 0
        letter += 1
    while at - 1 > begin and 48 <= (at - 1)[0] <= 57:
        at -= 1
    if at - begin < 5 or memcmp(at - 5, b',"c":', 5) != 0 or at[0] == 48:
        return 0
    return _number(&at, end)


def entries_between(
    bytes text not None, long long after, long long through, long long following=0, bint lanes=HAS_LANES
):
    """The entries of records behind one number up to another, the number and the end of the last one.

    `text` has whole lines. Of a cluster, `following` is the number at all gateways that comes next: records
    without one are passed over. Nothing is read behind a record that is not the next one; the last value
    says whether there was one. None for what is rare: a record that was erased, or that the log has already.
    """
    cdef Py_ssize_t count = 0, lines, each
    cdef const char *begin = PyBytes_AS_STRING(text)
    cdef const char *at = begin
    cdef const char *stop = at + len(text)
    cdef const char *end
    cdef const char *place
    cdef long long number, shared, last = after
    cdef bint is_rare = False, is_gap = False
    cdef bytes found
    cdef Job *jobs
    with nogil:
        lines = _lines(begin, stop)
        jobs = <Job *> malloc((lines + 1) * sizeof(Job))
    if jobs is NULL:
        raise MemoryError
    with nogil:
        while at < stop:
            end = <const char *> memchr(at, b'\n', stop - at)
            place = at + 5
            if end == NULL or end - at < 8 or memcmp(at, b'{"n":', 5) != 0:
                is_rare = True
                break
            number = _number(&place, end)
            if number <= after:
                is_rare = number < 0 or last > after
                if is_rare:
                    break
                at = end + 1
                continue
            if number > through:
                is_gap = not following and last < through
                break
            if place[0] != c',' or (end - 1)[0] != c'}' or (end - place > 11 and memcmp(place, b',"erased":"', 11) == 0):
                is_rare = True
                break
            jobs[count].text = at
            jobs[count].size = end - at
            jobs[count].first = jobs[count].last = -1
            # With its newline the line has one more.
            if (
                end - at + 1 >= SEAL
                and memcmp(end + 1 - SEAL, b',"h":"', 6) == 0
                and memcmp(end - 2, b'"}', 2) == 0
            ):
                jobs[count].size -= SEAL - 1
                jobs[count].last = c'}'
            shared = _shared_number(place, at + jobs[count].size - (jobs[count].last < 0))
            if shared < 0 or (shared and not following):
                is_rare = True
                break
            if following:
                if 0 < shared < following:
                    is_rare = True
                    break
                is_gap = shared > following
            else:
                is_gap = number != last + 1
            if is_gap:
                break
            if shared:
                following += 1
                # Without the number that each gateway counts for itself.
                jobs[count].size -= place + 1 - at
                jobs[count].text = place + 1
                jobs[count].first = c'{'
                count += 1
            elif not following:
                count += 1
            last = number
            at = end + 1
    found = PyBytes_FromStringAndSize(NULL, 0 if is_rare else count * HASH)
    if not is_rare:
        for each in range(count):
            jobs[each].digest = PyBytes_AS_STRING(found) + each * HASH
        with nogil:
            _hash_all(jobs, count, lanes)
    free(jobs)
    return None if is_rare else (found, last, at - begin, is_gap)


def shared_ending(bytes seed not None, bytes space not None, long long number):
    """As `record_chain.shared_ending_in_python`."""
    cdef unsigned long long state[32]
    cdef unsigned char digest[HASH]
    cdef char text[64]
    cdef char digits[24]
    cdef int size = snprintf(digits, sizeof(digits), b'%lld', number), each, bits
    cdef char *into = text
    sha256_begin(state)
    sha256_update(state, b'salt ', 5)
    sha256_update(state, PyBytes_AS_STRING(seed), len(seed))
    sha256_update(state, b'/', 1)
    sha256_update(state, PyBytes_AS_STRING(space), len(space))
    sha256_update(state, b'/', 1)
    sha256_update(state, digits, size)
    sha256_end(digest, state)
    memcpy(into, b',"c":', 5)
    memcpy(into + 5, digits, size)
    memcpy(into + 5 + size, b',"s":"', 6)
    into += 11 + size
    for each in range(SALT):
        bits = 6 * each
        # Six bits from here on, which may begin in one byte and end in the next.
        into[each] = LETTERS[((digest[bits >> 3] << 8 | digest[(bits >> 3) + 1]) >> (10 - (bits & 7))) & 63]
    into[SALT] = c'"'
    return PyBytes_FromStringAndSize(text, 12 + size + SALT)


def leaf_hashes(bytes entries not None, bint lanes=HAS_LANES):
    """As `log_hashes.leaf_hashes`."""
    cdef Py_ssize_t count = len(entries) // HASH, each
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * HASH)
    cdef Job *jobs = <Job *> malloc((count + 1) * sizeof(Job))
    if jobs is NULL:
        raise MemoryError
    for each in range(count):
        jobs[each].text = PyBytes_AS_STRING(entries) + each * HASH
        jobs[each].size = HASH
        jobs[each].first = 0
        jobs[each].last = -1
        jobs[each].digest = PyBytes_AS_STRING(found) + each * HASH
    with nogil:
        _hash_all(jobs, count, lanes)
    free(jobs)
    return found


def tile_hash(bytes hashes not None, bint lanes=HAS_LANES):
    """As `log_hashes.tile_hash`."""
    cdef char work[TILE * HASH]
    cdef Job jobs[HALF_TILE]
    cdef Py_ssize_t count = len(hashes) // HASH, each
    if count * HASH != len(hashes) or not 0 < count <= TILE or count & (count - 1):
        raise ValueError('a power of two of hashes is needed, at most 256')
    memcpy(work, PyBytes_AS_STRING(hashes), count * HASH)
    with nogil:
        while count > 1:
            count >>= 1
            for each in range(count):
                jobs[each].text = work + each * 2 * HASH
                jobs[each].size = 2 * HASH
                jobs[each].first = 1
                jobs[each].last = -1
                jobs[each].digest = work + each * HASH
            _hash_all(jobs, count, lanes)
    return PyBytes_FromStringAndSize(work, HASH)


cdef bint _is_stated(const unsigned char *digest, const char *stated) noexcept nogil:
    """Whether 64 digits state this hash."""
    cdef int each
    for each in range(HASH):
        if stated[2 * each] != b'0123456789abcdef'[digest[each] >> 4]:
            return False
        if stated[2 * each + 1] != b'0123456789abcdef'[digest[each] & 15]:
            return False
    return True


cdef struct Batch:
    Py_ssize_t end  # where its last line ends
    Py_ssize_t lines
    bint has_stub


def sealed_batches(bytes text not None, bytes before not None, long long number, bint lanes=HAS_LANES):
    """How far a text holds that begins with record `number`, behind the seal `before`: batch by batch.

    The seal that is the last to hold, the number that comes next, how many bytes and lines hold, and whether
    something behind them is wrong. If not, nothing follows them, or a part of a batch.
    """
    # Each has a seal. To count them would take as long as all the rest.
    cdef Py_ssize_t most = len(text) // SEAL + 1, count = 0, lines = 0, each, head = len(before)
    cdef Py_ssize_t room = max(head, 2 * HASH), held = 0, held_lines = 0
    cdef const char *begin = PyBytes_AS_STRING(text)
    cdef const char *at = begin
    cdef const char *stop = at + len(text)
    cdef const char *end
    cdef const char *place
    cdef char *copy = <char *> malloc(room + len(text) + 1)
    cdef Job *jobs = <Job *> malloc(most * sizeof(Job))
    cdef Batch *batches = <Batch *> malloc(most * sizeof(Batch))
    cdef char *digests = <char *> malloc(most * HASH)
    cdef bint is_wrong = False, has_stub = False
    cdef bytes seal
    if copy is NULL or jobs is NULL or batches is NULL or digests is NULL:
        free(copy)
        free(jobs)
        free(batches)
        free(digests)
        raise MemoryError
    with nogil:
        while at < stop:
            end = <const char *> memchr(at, b'\n', stop - at)
            if end == NULL:
                break
            place = at + 5
            if (
                end - at < 8
                or memcmp(at, b'{"n":', 5) != 0
                or place[0] == c'0'
                or _number(&place, end) != number + lines
                or place[0] != c','
                or (end - 1)[0] != c'}'
            ):
                is_wrong = True
                break
            has_stub = has_stub or (end - place > 11 and memcmp(place, b',"erased":"', 11) == 0)
            lines += 1
            end += 1
            if end - at >= SEAL and memcmp(end - SEAL, b',"h":"', 6) == 0 and (end - SEAL_END)[0] == c'"':
                batches[count].end = end - begin
                batches[count].lines = lines
                batches[count].has_stub = has_stub
                has_stub = False
                count += 1
            at = end
        memcpy(copy + room, begin, stop - begin)
        for each in range(count):
            # The seal before it, over the end of the batch that this seals, whose own text ends before it.
            place = copy + room + (batches[each - 1].end if each else 0)
            if each:
                memmove(<char *> place - 2 * HASH, place - 2 * HASH - SEAL_END, 2 * HASH)
            jobs[each].text = place - 2 * HASH
            jobs[each].size = copy + room + batches[each].end - SEAL - jobs[each].text
            jobs[each].first = -1
            jobs[each].last = c'}'
            jobs[each].digest = digests + each * HASH
    if count:
        memcpy(copy + room - head, PyBytes_AS_STRING(before), head)
        jobs[0].size += head - 2 * HASH
        jobs[0].text = copy + room - head
    with nogil:
        _hash_all(jobs, count, lanes)
        for each in range(count):
            # What an erased record was hashed as is gone with it: then the log vouches for the others.
            if not batches[each].has_stub and not _is_stated(
                <const unsigned char *> digests + each * HASH, begin + batches[each].end - SEAL + 6
            ):
                is_wrong = True
                break
            held, held_lines = batches[each].end, batches[each].lines
    seal = text[held - 2 * HASH - SEAL_END : held - SEAL_END] if held else before
    free(copy)
    free(jobs)
    free(batches)
    free(digests)
    return seal, number + held_lines, held, held_lines, is_wrong
