cdef struct Span:
    Py_ssize_t start
    Py_ssize_t size


cdef struct ScannedEnvelope:
    Span id
    Span ts
    Span sender
    Span kind
    Span payload
    # Of a size of 0 where they are not there. Lists are as they stand in the text.
    Span to
    Span correlation_id
    Span context


cdef bint scan_envelope(
    const unsigned char *text, Py_ssize_t size, bint is_mew, ScannedEnvelope *found
) noexcept nogil
