"""Members of a space as A2A agents over HTTP.

    /MEMBER/.well-known/agent-card.json    the card, for everybody
    /.well-known/jwks.json                 the key that signed the cards, for everybody
    /MEMBER/                               JSON-RPC, 1.0 and 0.3
    /MEMBER/rest/…                         HTTP+JSON, 1.0

Cards are public. Everything else needs the token of a participant, before anything of the request is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from a2a.auth.user import User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, ContentTypeNotSupportedError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.agent_card import WELL_KNOWN
from moot.agents.a2a.callers import MAX_ADDRESSES, Caller, CallerDenied, Callers
from moot.agents.a2a.card_signer import KEYS_PATH, CardSigner, card_signer
from moot.agents.a2a.published_card import PublishedCard
from moot.agents.a2a.push_sender import PushSender
from moot.agents.a2a.request_handler import MemberRequestHandler
from moot.agents.a2a.task_book import TaskBook
from moot.agents.a2a.task_tracker import TaskTracker
from moot.net.counted_address import network_of
from moot.participant import JoinedSpace
from moot.private_files import use_folder
from moot.resilience.rate_limits import sliding_windows
from moot.resilience.task_set import end_tasks, wait_for_any

# How long the body of one request may take.
BODY_SECONDS: Final = 30.0
# Of one address, with a token or without: callers keep a card.
MAX_CARDS_PER_MINUTE: Final = 120
# Of one request: twice the largest message.
MAX_BODY_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)

_CALLER: Final = "moot.caller"
_BODY: Final = "moot.body"


_NOT_JSON: Final = JSONResponse(
    {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": JSON_RPC_ERROR_CODE_MAP[ContentTypeNotSupportedError],
            "message": "the Content-Type of a request is application/json",
        },
    },
    status_code=415,
)


class _CallerUser(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


class _ContextBuilder(ServerCallContextBuilder):
    """Gives the handler the caller, and no header that holds a secret."""

    def build(self, request: Request) -> ServerCallContext:
        caller = request.scope[_CALLER]
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        return ServerCallContext(
            user=_CallerUser(caller.name),
            state={
                "headers": headers,
                "caller": caller,
                "body": request.scope[_BODY],
                "query": request.query_params,
            },
            requested_extensions=get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)),
        )


class CallerGate:
    """Lets cards through, and requests of callers that are known, bounded in size, rate and number."""

    def __init__(self, app: ASGIApp, callers: Callers, settings: ServeSettings) -> None:
        self._app = app
        self._callers = callers
        self._members = settings.members
        self._cards = sliding_windows(MAX_CARDS_PER_MINUTE, 60.0, max_keys=MAX_ADDRESSES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] in ("GET", "HEAD") and scope["path"].endswith((WELL_KNOWN, KEYS_PATH)):
            try:
                self._check_cards(scope)
            except CallerDenied as fault:
                await _refusal(fault)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
            return
        if scope["path"].strip("/") in self._members and not scope["path"].endswith("/"):
            # Some callers leave the slash out; a redirect would lose their message.
            scope = {**scope, "path": f"{scope['path']}/"}
        request = Request(scope, receive)
        try:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            address = request.client.host if request.client is not None else ""
            caller = await self._callers.admit(token.strip() if scheme.lower() == "bearer" else "", address)
        except CallerDenied as fault:
            await _refusal(fault)(scope, receive, send)
            return
        # Counted before its body is there: a body that comes slowly is held as well.
        caller.at_once += 1
        try:
            body = await self._read(request)
            if not _is_json(request, body):
                await _NOT_JSON(scope, receive, send)
                return
            await self._serve(caller, {**scope, _CALLER: caller, _BODY: body}, _replay(body, receive), send)
        except CallerDenied as fault:
            await _refusal(fault)(scope, receive, send)
        except ClientDisconnect:
            # It went away before its request was whole: nobody is there to answer.
            pass
        finally:
            caller.at_once -= 1
            caller.last_used = time.monotonic()

    def _check_cards(self, scope: Scope) -> None:
        """Count a card that anybody may ask for; raises CallerDenied when an address asks too often."""
        address = scope["client"][0] if scope.get("client") else ""
        if wait := self._cards.take(network_of(address), time.monotonic()):
            text = "too many cards: keep the card that you have"
            raise CallerDenied(429, text, retry_after_seconds=wait)

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for as long as the caller is in the space: a stream ends with its membership."""
        is_begun = False

        async def send_on(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        serving = asyncio.ensure_future(self._app(scope, receive, send_on))
        try:
            await wait_for_any(serving, caller.ended.wait())
            is_served = serving.done()
        finally:
            await end_tasks([serving])
        if is_served:
            serving.result()
        elif is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            text = "the connection of this token to the space has ended: try again"
            raise CallerDenied(503, text, retry_after_seconds=1.0)

    async def _read(self, request: Request) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for piece in request.stream():
                    body += piece
                    if len(body) > MAX_BODY_BYTES:
                        raise CallerDenied(413, f"a request has at most {MAX_BODY_BYTES} bytes")
        except TimeoutError:
            raise CallerDenied(408, f"no whole request within {BODY_SECONDS:g} s: send it again") from None
        return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then whatever comes: that the caller has gone."""
    is_given = False

    async def next_message() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _is_json(request: Request, body: bytes) -> bool:
    """Whether a body is said to be JSON; a caller that does not say what it sends is believed."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return not body or not given or given == "application/json" or given.endswith("+json")


def _refusal(fault: CallerDenied) -> JSONResponse:
    headers = {}
    if fault.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="moot"'
    if fault.retry_after_seconds:
        headers["Retry-After"] = str(int(fault.retry_after_seconds) + 1)
    return JSONResponse({"error": str(fault)}, status_code=fault.status, headers=headers)


@asynccontextmanager
async def published(space: JoinedSpace, settings: ServeSettings) -> AsyncIterator[ASGIApp]:
    """The application, while the block runs. `space` is the connection of this service's own member."""
    # The SDK logs what callers write.
    logging.getLogger("a2a").setLevel(logging.CRITICAL)
    folder = settings.state_folder / "tasks"
    use_folder(settings.state_folder, what="the state folder", option="--state DIR")
    use_folder(folder, what="the state folder", option="--state DIR")
    book = TaskBook(folder, settings.max_open_tasks)
    push = PushSender(settings)
    book.on_event = push.handle
    tracker = TaskTracker(space, book, settings)
    callers = Callers(settings, space.name)
    callers.has_open_tasks = lambda name: book.open_of(name) > 0
    callers.on_removed = book.drop_push
    signer = card_signer(settings.state_folder, settings.public_url)
    handlers = {
        name: MemberRequestHandler(name, settings, book, tracker, push, signer) for name in settings.members
    }
    await tracker.start()
    ticking = asyncio.create_task(tracker.run())
    cards = {name: _card_route(name, space, settings, signer) for name in settings.members}
    routes: list[BaseRoute] = [
        Mount(f"/{name}", routes=[cards[name], *_routes_of(handler)]) for name, handler in handlers.items()
    ]

    async def keys(_: Request) -> JSONResponse:
        return JSONResponse(signer.key_set)

    routes += [cards[settings.members[0]], Route(KEYS_PATH, keys)]
    try:
        yield CallerGate(Starlette(routes=routes), callers, settings)
    finally:
        await end_tasks([ticking])
        await callers.close()
        for handler in handlers.values():
            await handler.close()
        await push.close()


def _routes_of(handler: MemberRequestHandler) -> list[BaseRoute]:
    context = _ContextBuilder()
    return [
        *create_jsonrpc_routes(handler, "/", context_builder=context, enable_v0_3_compat=True),
        *create_rest_routes(handler, context_builder=context, path_prefix="/rest"),
    ]


def _card_route(name: str, space: JoinedSpace, settings: ServeSettings, signer: CardSigner) -> BaseRoute:
    return Route(WELL_KNOWN, PublishedCard(name, space, settings, signer).endpoint())
