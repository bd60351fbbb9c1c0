"""base64url without padding (RFC 4648, section 5), in its one canonical form.

The same bytes can be encoded in several ways: with padding, with the other alphabet, with junk that Python's
decoder skips, with unused bits set. Each form would be another key or another event to
whoever compares texts, so all but one are refused.
"""

from __future__ import annotations

from typing import Final

import msgspec

# msgspec's codec: three times as fast as `binascii`, and it takes no character outside the alphabet.
_ENCODER: Final = msgspec.json.Encoder()
# By the length's remainder of 4; a remainder of 1 comes from no bytes at all.
_PADDING: Final = ("", "===", "==", "=")


def encode(raw: bytes) -> str:
    """The canonical form."""
    # Within its quotes, and without the padding before the closing one.
    text = _ENCODER.encode(raw)[1:-1].rstrip(b"=")
    return text.replace(b"+", b"-").replace(b"/", b"_").decode("ascii")


def decode(text: str) -> bytes:
    """The bytes; raises ValueError for every form but the one that `encode` gives."""
    if "+" in text or "/" in text or "=" in text:
        raise ValueError("not base64url without padding")
    standard = text.replace("-", "+").replace("_", "/") + _PADDING[len(text) & 3]
    try:
        raw = msgspec.convert(standard, bytes)
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise ValueError("not base64url without padding") from None
    # Encoded again and compared: unused bits pass every decoder.
    if _ENCODER.encode(raw)[1:-1] != standard.encode("ascii"):
        raise ValueError("not the canonical spelling of base64url without padding")
    return raw
