cdef struct Span:
    Py_ssize_t start
    Py_ssize_t size


cdef struct Plain:
    Span id
    Span ts
    Span sender
    Span kind


cdef bint read_plain(const unsigned char *text, Py_ssize_t size, Plain *found) noexcept nogil
