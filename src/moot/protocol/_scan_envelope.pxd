cdef struct Span:
    Py_ssize_t start
    Py_ssize_t size


cdef struct ScannedEnvelope:
    Span id
    Span ts
    Span sender
    Span kind


cdef bint scan_envelope(const unsigned char *text, Py_ssize_t size, ScannedEnvelope *found) noexcept nogil
