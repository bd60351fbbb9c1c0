"""One-time links that sign a person in on another device: nobody types 43 characters on a phone.

Whoever has a token asks for a link and gets a code. Whoever redeems the code, once and in time, gets the
token. Codes and tokens are in memory only: a restart voids all links. The code stands behind the `#` of an
address, so no server and no proxy sees it before it is redeemed, and it is worthless afterwards.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

# 128 random bits: 22 characters, which a phone's camera reads easily.
_CODE_BYTES: Final = 16
# A person who lost the first dialog asks again; the oldest of theirs is then void.
MAX_LINKS_PER_TOKEN: Final = 4


class _Link(NamedTuple):
    token: str
    expires: float


class SignInLinks:
    """The links that were asked for and not redeemed yet."""

    def __init__(self, *, valid_seconds: float, max_links: int) -> None:
        self.valid_seconds = valid_seconds
        self.max_links = max_links
        # By the hash of the code, oldest first: comparing hashes tells nothing by how long it takes.
        self._links: dict[bytes, _Link] = {}

    def create(self, token: str, now: float) -> str:
        """A new code for the holder of this token. Of too many links, the oldest become void."""
        self._drop_expired(now)
        own = [key for key, link in self._links.items() if link.token == token]
        for key in own[: max(0, len(own) + 1 - MAX_LINKS_PER_TOKEN)]:
            del self._links[key]
        while len(self._links) >= self.max_links:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(_CODE_BYTES)
        self._links[_hash(code)] = _Link(token, now + self.valid_seconds)
        return code

    def redeem(self, code: str, now: float) -> str | None:
        """The token, the first time in time; None for every other code."""
        self._drop_expired(now)
        link = self._links.pop(_hash(code), None)
        return None if link is None else link.token

    def _drop_expired(self, now: float) -> None:
        # All are valid for the same time, so the oldest expire first.
        while self._links and next(iter(self._links.values())).expires <= now:
            del self._links[next(iter(self._links))]


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()


def qr_rows(text: str) -> list[str]:
    """A QR code as rows of 0 and 1, without a border."""
    # Only here: most gateways never draw one.
    import segno

    return ["".join(str(min(module, 1)) for module in row) for row in segno.make_qr(text, error="m").matrix]
