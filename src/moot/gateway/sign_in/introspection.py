"""Asks a provider whether tokens in use are still good (RFC 7662): a revoked one ends within a minute.

A token is asked about when it comes, and then every half minute. One that is not active any more is
ended everywhere: at once, or, if it was active before, a little later, since many providers take a token back
when its client renews it, and the client needs a moment to bring the new one. A provider that does not answer
ends nothing: its tokens end by themselves. Tokens are kept for that in memory alone, until they end: also one
that has joined no space opens `/admin`, or joins later.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from moot.config.oidc_config import IntrospectionConfig
from moot.errors import MootError, Unreachable
from moot.gateway.sign_in.provider_keys import ProviderKeys, check_same_security
from moot.gateway.sign_in.token_verifier import VerifiedToken
from moot.net.http_client import HttpClient

log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 10.0
# How often each token is asked about; a revoked one ends within that.
INTERVAL_SECONDS: Final = 30.0
_MAX_BYTES: Final = 64 << 10
# Questions at the same time.
_MAX_ASKED: Final = 8
# A client that has renewed its token brings the new one within this.
_RENEWAL_SECONDS: Final = 5.0
# Tokens that are asked about; of more, the oldest are not.
_MAX_TOKENS: Final = 50_000

# Whether a token has ended, or was signed out.
IsOver = Callable[[VerifiedToken], bool]
OnRevoked = Callable[[VerifiedToken], Awaitable[None]]
# Hash under which a space knows it → the token of the provider, and what it says.
_Watched = dict[str, tuple[str, VerifiedToken]]


class Introspection:
    """The questions to one provider."""

    def __init__(
        self, keys: ProviderKeys, config: IntrospectionConfig, is_over: IsOver, on_revoked: OnRevoked
    ) -> None:
        self._keys = keys
        self._config = config
        self._is_over = is_over
        self._on_revoked = on_revoked
        self._tokens: _Watched = {}
        self._new: list[str] = []
        # Tokens that were good when they were asked about.
        self._active: set[str] = set()
        self._wanted = asyncio.Event()
        self._free = asyncio.Semaphore(_MAX_ASKED)

    def watch(self, token_hash: str, token: str, verified: VerifiedToken) -> None:
        """Ask about this token from now on, for the first time at once."""
        while len(self._tokens) >= _MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        if token_hash not in self._tokens:
            self._new.append(token_hash)
            self._wanted.set()
        self._tokens[token_hash] = (token, verified)

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as ending:
            await self._ask_on(ending)

    async def _ask_on(self, ending: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        next_round = loop.time() + INTERVAL_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(next_round):
                    await self._wanted.wait()
            except TimeoutError:
                # Counted from its beginning: a round that takes long delays no other.
                next_round = max(loop.time(), next_round + INTERVAL_SECONDS)
                self._tokens = {key: each for key, each in self._tokens.items() if not self._is_over(each[1])}
                await self._ask_all(list(self._tokens), ending)
                continue
            self._wanted.clear()
            asked, self._new = self._new, []
            await self._ask_all(asked, ending)

    async def _ask_all(self, hashes: list[str], ending: asyncio.TaskGroup) -> None:
        # Several hashes may stand for one token, and are asked about once.
        by_token = {self._tokens[each][0]: self._tokens[each][1] for each in hashes if each in self._tokens}
        results = await asyncio.gather(*(self._check(token) for token in by_token))
        ended = {token for token, is_good in zip(by_token, results, strict=True) if not is_good}
        gone = {key: each for key, each in self._tokens.items() if each[0] in ended}
        self._tokens = {key: each for key, each in self._tokens.items() if key not in gone}
        for token in ended:
            log.info("a token was revoked", extra={"issuer": self._keys.config.issuer})
            watched = {key: each for key, each in gone.items() if each[0] == token}
            if token in self._active:
                ending.create_task(self._end_later(by_token[token], watched))
            else:
                await self._end(by_token[token], watched)
        self._active &= {token for token, _ in self._tokens.values()}

    async def _end_later(self, verified: VerifiedToken, watched: _Watched) -> None:
        await asyncio.sleep(min(_RENEWAL_SECONDS, INTERVAL_SECONDS))
        await self._end(verified, watched)

    async def _end(self, verified: VerifiedToken, watched: _Watched) -> None:
        try:
            await self._on_revoked(verified)
        except MootError as fault:
            # A cluster without its log, perhaps: the next round finds it again.
            self._tokens = watched | self._tokens
            log.warning("not signed out", extra={"issuer": self._keys.config.issuer, "why": str(fault)})

    async def _check(self, token: str) -> bool:
        """Whether a token is good, as far as is known."""
        async with self._free:
            try:
                if await self._is_active(token):
                    self._active.add(token)
                    return True
                return False
            except (Unreachable, ValueError, RecursionError) as fault:
                # Without the text of the answer: it may repeat the token.
                why = type(fault).__name__
                log.warning("not introspected", extra={"issuer": self._keys.config.issuer, "why": why})
                return True

    async def _is_active(self, token: str) -> bool:
        config, address = self._config, self._keys.discovered.get("introspection_endpoint")
        if not isinstance(address, str):
            raise ValueError("the provider names no introspection_endpoint")
        check_same_security(self._keys.config.issuer, address)
        secret = config.client_secret.reveal()
        # RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
        pair = f"{quote(config.client_id, safe='')}:{quote(secret, safe='')}"
        headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        client = HttpClient(timeout_seconds=_ASK_SECONDS, max_bytes=_MAX_BYTES, headers=headers)
        status, body = await client.post_form(address, {"token": token, "token_type_hint": "access_token"})
        answer = json.loads(body) if status == 200 else None
        if not isinstance(answer, dict) or not isinstance(answer.get("active"), bool):
            raise ValueError("that is no answer to an introspection")
        return bool(answer["active"])
