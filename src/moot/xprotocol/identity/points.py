"""Which 32 bytes are a public key that may be used at all.

A signature under an Ed25519 key of small order proves nothing: one signature can fit every message.
An X25519 key of small order makes every shared secret zero. And a point that has a second encoding would be
two keys to whoever compares texts. Libraries differ in which of these they refuse, so we look ourselves.

The cheap check (canonical, not of small order) is for whatever arrives, before anything is verified. The
full check (on the curve, in the main subgroup) costs as much as a signature; it is for keys that somebody is
about to rely on.
"""

from __future__ import annotations

from typing import Final

from nacl.bindings import crypto_core_ed25519_is_valid_point

from moot.errors import InvalidKey

KEY_BYTES: Final = 32

# The prime of Curve25519; a coordinate at or above it has a smaller encoding.
_PRIME: Final = 2**255 - 19
_SIGN_BIT: Final = 1 << 255

# y of the two pairs of points of order 8 on edwards25519; the sign of x distinguishes the members of a pair.
_Y_OF_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# With both signs of x: order 1 (y = 1), 2 (y = -1), 4 (y = 0), 8.
SMALL_ORDER_Y: Final = frozenset({0, 1, _PRIME - 1, _Y_OF_ORDER_8, _PRIME - _Y_OF_ORDER_8})

# u of the points of order 8 on Curve25519 and its twist.
_U_OF_ORDER_8: Final = 0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0
_U_OF_ORDER_8_TWISTED: Final = 0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F
# Orders 1 and 2 (u = 0), 4 (u = 1), 4 on the twist (u = -1), 8.
SMALL_ORDER_U: Final = frozenset({0, 1, _PRIME - 1, _U_OF_ORDER_8, _U_OF_ORDER_8_TWISTED})


def check_signing_point(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is encoded like an Ed25519 key and is not one of small order."""
    _check_length(raw)
    y = int.from_bytes(raw, "little") & (_SIGN_BIT - 1)
    if y >= _PRIME:
        raise InvalidKey("an Ed25519 key in a spelling that is not canonical")
    if y in SMALL_ORDER_Y:
        raise InvalidKey("an Ed25519 key of small order: its signatures prove nothing")


def check_signing_point_fully(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is a point of the main subgroup, canonically encoded. Slow."""
    check_signing_point(raw)
    if not crypto_core_ed25519_is_valid_point(raw):
        raise InvalidKey("not an Ed25519 key: no point of the main subgroup of its curve")


def check_sealing_point(raw: bytes) -> None:
    """Raises InvalidKey unless `raw` is a canonical X25519 key that is not of small order.

    Every other coordinate is a good one: it lies on the curve or on its twist, and both are safe (RFC 7748).
    """
    _check_length(raw)
    u = int.from_bytes(raw, "little")
    # X25519 ignores the highest bit, so a key with it set is another encoding, too.
    if u >= _PRIME:
        raise InvalidKey("an X25519 key in a spelling that is not canonical")
    if u in SMALL_ORDER_U:
        raise InvalidKey("an X25519 key of small order: whatever is sealed to it is open to everybody")


def _check_length(raw: bytes) -> None:
    if len(raw) != KEY_BYTES:
        raise InvalidKey(f"a key has {KEY_BYTES} bytes, not {len(raw)}")
