# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=False
"""`log_hashes` in C: a record costs three small hashes, and each call of `hashlib` more than the hash itself.

The functions of OpenSSL that Python's own `_hashlib` is linked to are called without Python between them, and
without its lock. Where they are not found, importing this fails and the Python functions are used.
"""

import _hashlib

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "dlfcn.h":
    void *dlopen(const char *, int) nogil
    void *dlsym(void *, const char *) nogil
    int RTLD_LAZY, RTLD_NOLOAD

ctypedef int (*Begin)(void *) noexcept nogil
ctypedef int (*Update)(void *, const void *, size_t) noexcept nogil
ctypedef int (*End)(unsigned char *, void *) noexcept nogil

cdef enum:
    HASH = 32
    TILE = 256
    SEAL = 73  # as in store/record_chain.py

cdef Begin _begin
cdef Update _update
cdef End _end
cdef void *_library = dlopen(_hashlib.__file__.encode(), RTLD_LAZY | RTLD_NOLOAD)
if _library != NULL:
    _begin = <Begin> dlsym(_library, b'SHA256_Init')
    _update = <Update> dlsym(_library, b'SHA256_Update')
    _end = <End> dlsym(_library, b'SHA256_Final')
if _library == NULL or _begin == NULL or _update == NULL or _end == NULL:
    raise ImportError('the SHA-256 of OpenSSL is not found')


cdef void _hash(char first, int has_first, const char *text, Py_ssize_t size, int brace, char *into) noexcept nogil:
    cdef unsigned long long state[32]  # a SHA256_CTX has 112 bytes
    _begin(state)
    if has_first:
        _update(state, &first, 1)
    _update(state, text, size)
    if brace:
        _update(state, b'}', 1)
    _end(<unsigned char *> into, state)


def entries_of(bytes text not None):
    """As `log_hashes.entries_of`; None if a record was erased, or is one that all gateways of a cluster have."""
    cdef Py_ssize_t count = text.count(b'\n')
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * HASH)
    cdef char *into = PyBytes_AS_STRING(found)
    cdef const char *at = PyBytes_AS_STRING(text)
    cdef const char *end
    cdef const char *comma
    cdef const char *digit
    cdef Py_ssize_t left = len(text), size
    cdef int is_sealed, is_other = 0
    with nogil:
        while count:
            count -= 1
            end = <const char *> memchr(at, b'\n', left)
            size = end - at
            comma = <const char *> memchr(at, b',', size)
            if comma != NULL and end - comma > 11 and memcmp(comma, b',"erased":"', 11) == 0:
                is_other = 1
                break
            # With its newline the line has one more.
            is_sealed = (
                size + 1 >= SEAL
                and memcmp(end + 1 - SEAL, b',"h":"', 6) == 0
                and memcmp(end - 2, b'"}', 2) == 0
                and memcmp(at, b'{"n":', 5) == 0
            )
            # `,"c":C,"s":"SALT"` ends it, with the salt's 22 letters, and `}` if there is no seal.
            digit = end - (SEAL - 1 if is_sealed else 1) - 30
            if digit > at + 5 and 48 <= digit[0] <= 57:
                while digit > at + 5 and 48 <= digit[0] <= 57:
                    digit -= 1
                if memcmp(digit - 4, b',"c":', 5) == 0:
                    is_other = 1
                    break
            if is_sealed:
                _hash(0, 0, at, size + 1 - SEAL, 1, into)
            else:
                _hash(0, 0, at, size, 0, into)
            into += HASH
            left -= size + 1
            at = end + 1
    return None if is_other else found


def leaf_hashes(bytes entries not None):
    """As `log_hashes.leaf_hashes`."""
    cdef Py_ssize_t count = len(entries) // HASH, each
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * HASH)
    cdef char *into = PyBytes_AS_STRING(found)
    cdef const char *at = PyBytes_AS_STRING(entries)
    with nogil:
        for each in range(count):
            _hash(0, 1, at + each * HASH, HASH, 0, into + each * HASH)
    return found


def tile_hash(bytes hashes not None):
    """As `log_hashes.tile_hash`."""
    cdef char work[TILE * HASH]
    cdef Py_ssize_t count = len(hashes) // HASH, each
    if count * HASH != len(hashes) or not 0 < count <= TILE or count & (count - 1):
        raise ValueError('a power of two of hashes is needed, at most 256')
    memcpy(work, PyBytes_AS_STRING(hashes), count * HASH)
    with nogil:
        while count > 1:
            count >>= 1
            for each in range(count):
                _hash(1, 1, work + each * 2 * HASH, 2 * HASH, 0, work + each * HASH)
    return PyBytes_FromStringAndSize(work, HASH)
