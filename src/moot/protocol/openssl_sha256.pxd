"""The SHA-256 of the OpenSSL that Python's own `_hashlib` is linked to, called without Python between.

Each call of `hashlib` costs more than the hash of a record itself. Each module that cimports this looks once.
"""

cdef extern from *:
    """
    #include <dlfcn.h>

    static int (*sha256_begin)(void *);
    static int (*sha256_update)(void *, const void *, size_t);
    static int (*sha256_end)(unsigned char *, void *);

    static int sha256_open(const char *file)
    {
        void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            return 0;
        *(void **) &sha256_begin = dlsym(library, "SHA256_Init");
        *(void **) &sha256_update = dlsym(library, "SHA256_Update");
        *(void **) &sha256_end = dlsym(library, "SHA256_Final");
        return sha256_begin && sha256_update && sha256_end;
    }
    """
    int sha256_open(const char *) nogil
    # `state` has 112 bytes in C.
    int sha256_begin(void *state) noexcept nogil
    int sha256_update(void *state, const void *text, size_t size) noexcept nogil
    int sha256_end(unsigned char *digest, void *state) noexcept nogil


cdef inline bint find_sha256() except -1:
    """Whether it is there; before this nothing of it may be called."""
    try:
        import _hashlib
    except ImportError:
        return False
    # A Python that has it built in, as those of uv, has no file of it.
    file = getattr(_hashlib, '__file__', '').encode()
    return bool(file) and sha256_open(file) != 0
