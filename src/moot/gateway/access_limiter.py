"""How often an address or a name may come with a wrong token, a member may join, and tokens may be made.

The token is looked at first, always: whoever has the right one gets in, whatever others did from the same
address or under the same name. So nobody can lock a member out, not even from behind the same proxy, where
all addresses are one. What is limited is what a wrong token gets: after 60 in a minute, 429 and
`Retry-After` instead of the reason. Joins are counted for those who have a right to them, by space and
member: only the holder of a token can use them up. Short-lived tokens are counted by who asks and for whom,
because each is a change of rights that waits for the disk and stays in the state of the space.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from moot.config.gateway_config import GatewayConfig
from moot.gateway.access import AccessDenied, TokenIdentity
from moot.net.counted_address import network_of
from moot.resilience.rate_limits import token_buckets

log = logging.getLogger(__name__)

# Strangers choose addresses and names; this many of each are remembered, the latest ones.
_MAX_KEYS: Final = 10_000
_MAX_NAME_CHARS: Final = 256
# Of one address or for one name that are told so; further ones get 429.
WRONG_TOKENS_PER_MINUTE: Final = 60.0
# Of one participant. Shells in a loop stay below.
JOINS_PER_SECOND: Final = 50.0
# A supervisor that restarts all of its members at once, and a browser with its windows.
_JOIN_BURST_SECONDS: Final = 5.0
_SECONDS_PER_MINUTE: Final = 60.0
# Short-lived tokens that one participant may ask for: one for each job of a busy script.
MINTED_TOKENS_PER_MINUTE: Final = 60
# An operator wants to know that somebody guesses, and not how often.
_LOG_SECONDS: Final = 60.0


class AccessLimiter:
    """Counts wrong tokens and joins of one gateway."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.wrong_tokens = 0
        self.joins_refused = 0
        per_second = WRONG_TOKENS_PER_MINUTE / _SECONDS_PER_MINUTE
        burst = WRONG_TOKENS_PER_MINUTE
        self._by_address = token_buckets(per_second, burst, max_keys=_MAX_KEYS)
        self._by_name = token_buckets(per_second, burst, max_keys=_MAX_KEYS)
        joins = JOINS_PER_SECOND
        self._joins = token_buckets(joins, max(1.0, joins * _JOIN_BURST_SECONDS), max_keys=_MAX_KEYS)
        minted = MINTED_TOKENS_PER_MINUTE
        self._minted = token_buckets(minted / _SECONDS_PER_MINUTE, minted, max_keys=_MAX_KEYS)
        self._log_from = 0.0

    def refuse_token(self, denied: AccessDenied, address: str, name: str | None = None) -> AccessDenied:
        """Count a wrong token; returns what to answer: `denied`, or 429 when there were too many."""
        if denied.status >= 500:
            # Nothing is wrong with the token.
            return denied
        now = time.monotonic()
        self.wrong_tokens += 1
        wait = self._by_address.take(network_of(address), now)
        if name:
            wait = max(wait, self._by_name.take(name[:_MAX_NAME_CHARS], now))
        if not wait:
            return denied
        if now >= self._log_from:
            self._log_from = now + _LOG_SECONDS
            log.warning("too many wrong tokens", extra={"address": address, "wrong": self.wrong_tokens})
        return AccessDenied(429, "too many wrong tokens: try again later", retry_after=wait)

    def has_guessed(self, address: str) -> bool:
        """Whether the next wrong token of this address is answered with 429."""
        return self._by_address.wait_seconds(network_of(address), time.monotonic()) > 0

    def check_join(self, identity: TokenIdentity, address: str) -> AccessDenied | None:
        """Count a join; why it has to wait, if it has to. A guest is known by its address only."""
        who = ("guest", network_of(address)) if identity.guest else ("member", identity.name)
        wait = self._joins.take((identity.host.name, *who), time.monotonic())
        if not wait:
            return None
        self.joins_refused += 1
        return AccessDenied(
            429,
            f"joining more often than {JOINS_PER_SECOND:g} times a second",
            retry_after=wait,
        )

    def check_mint(self, space: str, member: str, by: tuple[str, str]) -> AccessDenied | None:
        """Count a short-lived token that `by` (a role and a name) asks for; why it has to wait, if so."""
        wait = self._minted.take((space, member, *by), time.monotonic())
        if not wait:
            return None
        return AccessDenied(
            429,
            f"more short-lived tokens for {member} than {MINTED_TOKENS_PER_MINUTE} a minute",
            retry_after=wait,
        )
