"""Making and redeeming one-time links over HTTP: `POST /sign-in-links` and `POST /sign-in-links/redeem`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from moot.config.gateway_config import is_local
from moot.errors import InvalidRequest
from moot.gateway.access import AccessDenied, TokenIdentity, TokenQuestion
from moot.gateway.http.http_replies import check_json, denied, json_response, object_of
from moot.gateway.http.request_identity import address_of, token_of
from moot.gateway.sign_in import sign_in_links
from moot.gateway.sign_in.sign_in_links import SignInLinks, qr_rows
from moot.gateway.token_spaces import TokenSpaces
from moot.protocol.operation import Json
from moot.resilience.rate_limits import token_buckets

log = logging.getLogger(__name__)

# An address and a code: strangers are read no more of.
_MAX_BODY_BYTES: Final = 1_024
_MAX_PAGE_CHARS: Final = 300
# Participants whose rate is remembered.
_MAX_KEYS: Final = 10_000
# Links of one participant: a person who tries it on several devices.
LINKS_PER_MINUTE: Final = 10

RefuseToken = Callable[[AccessDenied, Request], AccessDenied]


class SignInRoutes:
    """The two requests of one-time links."""

    def __init__(
        self,
        spaces: TokenSpaces,
        links: SignInLinks,
        refuse_token: RefuseToken,
        *,
        public_url: str | None = None,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self._spaces = spaces
        spaces.answer("holder", _describe_holder)
        self._links = links
        self._refuse_token = refuse_token
        self._rates = token_buckets(LINKS_PER_MINUTE / 60.0, LINKS_PER_MINUTE, max_keys=_MAX_KEYS)
        self._public_url = public_url
        self._origins = origins

    async def create(self, request: Request) -> Response:
        """A code for the holder of the token, and a QR code of the page's address with it."""
        token = token_of(request)
        holder = await self._holder_of(token, address_of(request))
        if holder is None:
            return denied(self._refuse_token(AccessDenied(401, "unknown token"), request))
        wait = self._rates.take(holder, time.monotonic())
        if wait:
            # Otherwise somebody with many tokens voids the links of others.
            text = f"more links than {LINKS_PER_MINUTE} a minute: use the last one, or wait"
            return denied(AccessDenied(429, text, retry_after=wait))
        check_json(request)
        asked = await object_of(request, _MAX_BODY_BYTES)
        page = _page_of(asked)
        if asked.get("for") not in (None, "chat"):
            raise InvalidRequest('for is "chat", or left out: the code signs in on another device')
        if asked.get("for") == "chat":
            # It signs nobody in: POST /chat-bindings takes it.
            made: dict[str, Json] = {"code": await self._links.create(token, "chat ")}
            return json_response(201, made | {"valid_seconds": sign_in_links.VALID_SECONDS})
        code = await self._links.create(token)
        body: dict[str, Json] = {"code": code, "valid_seconds": sign_in_links.VALID_SECONDS}
        if page is not None:
            page = self._page_that_works(page, elsewhere=asked.get("elsewhere") is True)
            address = f"{page}#sign-in={code}"
            # It takes 30 ms, which nobody else should wait for.
            body |= {"address": address, "qr": await asyncio.to_thread(qr_rows, address)}
            body["other_machines"] = not _is_local(page)
        return json_response(201, body)

    async def redeem(self, request: Request) -> Response:
        """The token of a code that is valid, once."""
        check_json(request)
        code = (await object_of(request, _MAX_BODY_BYTES)).get("code")
        wrong = AccessDenied(403, "this link was used already, or is too old: ask for a new one")
        token = await self._links.read(code) if isinstance(code, str) else None
        # Whose it is may have to be asked elsewhere, and can fail: the link is used up last.
        is_held = token is not None and await self._holder_of(token) is not None
        if not is_held or await self._links.redeem(str(code)) is None:
            return denied(self._refuse_token(wrong, request))
        log.info("signed in with a one-time link")
        return json_response(200, {"token": token})

    def _page_that_works(self, page: str, *, elsewhere: bool) -> str:
        """Behind a proxy, `moot open` knows the gateway by an address whose page it would not answer.

        With `elsewhere`, for a browser on another machine, which cannot open addresses of this one.
        """
        parts = urlsplit(page)
        is_answered = f"{parts.scheme}://{parts.netloc}".lower() in self._origins
        if is_answered and not (elsewhere and _is_local(page)):
            return page
        if self._public_url is not None:
            return f"{self._public_url}/"
        others = sorted(origin for origin in self._origins if not _is_local(origin))
        return f"{others[0]}/" if elsewhere and others else page

    async def _holder_of(self, token: str, address: str = "") -> tuple[str, str] | None:
        """A space that this token opens, and whose it is there."""
        found, _ = await self._spaces.describe("holder", token, address)
        return (found[0][0], found[0][1]) if found else None


async def _describe_holder(who: TokenIdentity, _question: TokenQuestion) -> Json:
    return who.host.name, who.name


def _is_local(page: str) -> bool:
    """Whether only browsers on this machine can open it."""
    return is_local(urlsplit(page).hostname or "")


def _page_of(body: dict[str, object]) -> str | None:
    """The address of the page that the link opens, if one was given."""
    page = body.get("page")
    if page is None:
        return None
    if not isinstance(page, str) or len(page) > _MAX_PAGE_CHARS:
        raise InvalidRequest(f"page is the address of the console, of {_MAX_PAGE_CHARS} characters at most")
    try:
        parts = urlsplit(page)
    except ValueError:
        raise InvalidRequest("page is no address: its brackets are not those of an IPv6 address") from None
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise InvalidRequest("page is an http or https address without ? and #")
    return page
