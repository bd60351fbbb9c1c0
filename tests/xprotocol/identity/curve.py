"""edwards25519 in plain Python, slow and from the textbook, to find the points that must be refused."""

from __future__ import annotations

from hashlib import sha512
from typing import Final

P: Final = 2**255 - 19
D: Final = -121665 * pow(121666, -1, P) % P
ORDER: Final = 2**252 + 27742317777372353535851937790883648493

Point = tuple[int, int]
NEUTRAL: Final[Point] = (0, 1)


def root(square: int) -> int | None:
    candidate = pow(square, (P + 3) // 8, P)
    for x in (candidate, candidate * pow(2, (P - 1) // 4, P) % P):
        if x * x % P == square % P:
            return x
    return None


def with_y(y: int) -> list[Point]:
    """The points with this y: none, one or two."""
    x = root((y * y - 1) * pow(D * y * y + 1, -1, P))
    if x is None:
        return []
    return sorted({(x, y), (-x % P, y)})


def add(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    both = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P
    return x, y


def times(factor: int, point: Point) -> Point:
    result = NEUTRAL
    while factor:
        if factor & 1:
            result = add(result, point)
        point = add(point, point)
        factor >>= 1
    return result


def encoded(point: Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decoded(raw: bytes) -> Point:
    number = int.from_bytes(raw, "little")
    y, sign = number & (2**255 - 1), number >> 255
    return next(point for point in with_y(y) if point[0] & 1 == sign)


def small_order_points() -> list[Point]:
    """All eight points of the subgroup of order 8: what is left of some point times the large order."""
    for y in range(2, 100):
        for point in with_y(y):
            generator = times(ORDER, point)
            if times(4, generator) != NEUTRAL:
                return [times(n, generator) for n in range(8)]
    raise AssertionError("no point of order 8")


# RFC 8032: y = 4/5, x even.
BASE: Final[Point] = decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def scalar_of(seed: bytes) -> int:
    """RFC 8032, 5.1.5."""
    raw = sha512(seed).digest()[:32]
    return int.from_bytes(bytes([raw[0] & 248]) + raw[1:31] + bytes([raw[31] & 63 | 64]), "little")


def signature(scalar: int, public: bytes, message: bytes, nonce: int) -> tuple[bytes, int]:
    """A signature with a nonce of one's choice, and the challenge in it."""
    big_r = encoded(times(nonce, BASE))
    challenge = int.from_bytes(sha512(big_r + public + message).digest(), "little")
    return big_r + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little"), challenge
