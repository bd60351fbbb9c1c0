"""Bytes on sockets, no protocol of a space: WebSocket messages in, framed bytes out, slow readers bounded."""
