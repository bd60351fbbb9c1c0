"""Slack: cards are messages with buttons and a line for words, comments are their threads (Web API, Block
Kit).

Acts come over Socket Mode, a WebSocket that Slack lets only our app open, or by HTTP requests that Slack
signs. Who acts is the team and user id in them; names are not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast, get_args
from urllib.parse import parse_qs, urlencode

import orjson

from moot.chat.json_api import JsonApi
from moot.chat.platform import LABELS, Card, ChatAct, PlatformFault, Receive, Verb
from moot.errors import MootError
from moot.net.websocket_client import ClientSocket, dial
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

# As Slack advises: an older request may be a repeated one.
SIGNATURE_SECONDS: Final = 300.0
# Acts that wait while one is done.
MAX_WAITING: Final = 1_000
# Seconds since 1970.
_STAMP: Final = re.compile("[0-9]{1,12}")
_STYLES: Final = {"approve": "primary", "reject": "danger"}
# Changes of messages by their authors, and what is no message of a person.
_EDITS: Final = ("message_changed", "message_deleted")


class SlackPlatform:
    """One app in one workspace: by Socket Mode with an app-level token, else by `handle_request`."""

    name = "Slack"
    # A section holds 3,000 characters.
    max_card_chars = 2_900
    has_buttons = True
    how_to = (
        "Press a button on the card, with words in its line if you like; a reply in its thread is a comment "
        "that everybody in the space sees."
    )

    def __init__(self, api: str, token: str, *, app_token: str = "", signing_secret: str = "") -> None:
        self._api = JsonApi(self.name, api, token, {"Authorization": f"Bearer {token}"})
        self._sockets = JsonApi(self.name, api, app_token, {"Authorization": f"Bearer {app_token}"})
        self._has_sockets = bool(app_token)
        self._secret = signing_secret
        self._me = ""
        self._waiting: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(MAX_WAITING)

    async def start(self) -> str:
        me = await self._api.call("POST", "/auth.test", needs="user_id")
        self._me = f"{me['team_id']}/{me['user_id']}"
        return f"{me.get('user')} in {me.get('team')}"

    async def run(self, receive: Receive, cursor: str, keep_cursor: Callable[[str], None]) -> None:  # noqa: ARG002
        """Slack keeps nothing for us, so there is no cursor."""
        async with asyncio.TaskGroup() as tasks:
            if self._has_sockets:
                tasks.create_task(self._keep_socket())
            while True:
                act = act_of(await self._waiting.get())
                if act is None or act.account == self._me:
                    continue
                try:
                    is_private = await self.is_private(act.room, act.account)
                except PlatformFault:
                    # Not known is not private.
                    is_private = False
                await receive(replace(act, is_private=is_private))

    async def send_card(self, room: str, card: Card) -> str:
        sent = await self._api.call(
            "POST", "/chat.postMessage", {"channel": room, **message_of(card)}, needs="ts"
        )
        return str(sent["ts"])

    async def change_card(self, room: str, message: str, card: Card) -> None:
        await self._api.call("POST", "/chat.update", {"channel": room, "ts": message, **message_of(card)})

    async def tell(self, room: str, text: str, *, about: str = "") -> None:
        said: dict[str, Any] = {"channel": room, "text": _escaped(text), **_PLAIN}
        if about:
            said["thread_ts"] = about
        await self._api.call("POST", "/chat.postMessage", said)

    async def is_private(self, room: str, account: str) -> bool:
        # Methods of Slack that read take no JSON.
        found = await self._api.call("GET", f"/conversations.info?{urlencode({'channel': room})}")
        channel = found.get("channel")
        user = account.partition("/")[2]
        return isinstance(channel, dict) and channel.get("is_im") is True and channel.get("user") == user

    # Socket Mode

    async def _keep_socket(self) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                opened = await self._sockets.call("POST", "/apps.connections.open", needs="url")
                line = _SocketMode(self._take_envelope)
                socket = await dial(str(opened["url"]), line, headers={})
                try:
                    await line.ended.wait()
                finally:
                    socket.abort()
                if line.was_greeted:
                    backoff.reset()
            except MootError as fault:
                # The address of the socket holds a ticket, so what went wrong is named by its kind.
                log.warning("no connection to Slack for now", extra={"why": type(fault).__name__})
            await asyncio.sleep(backoff.next_delay())

    def _take_envelope(self, envelope: Mapping[str, Any]) -> bool:
        payload = envelope.get("payload")
        return not isinstance(payload, dict) or self.queue_act(payload)

    def queue_act(self, payload: Mapping[str, Any]) -> bool:
        """Keep an act until it is its turn; False if too many wait, so that Slack tells of it again."""
        try:
            self._waiting.put_nowait(payload)
        except asyncio.QueueFull:
            return False
        return True

    # HTTP

    def handle_request(self, headers: Mapping[str, str], body: bytes, now: float) -> tuple[int, bytes]:
        """The status and body that answer one request; `headers` have names in lower case."""
        if not self._secret or not is_signed(self._secret, headers, body, now):
            return 401, b"not signed by Slack, or too old"
        try:
            if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                payload = orjson.loads(parse_qs(body.decode())["payload"][0])
            else:
                payload = orjson.loads(body)
        except (ValueError, KeyError):
            return 400, b"neither an event nor an act"
        if not isinstance(payload, dict):
            return 400, b"neither an event nor an act"
        if payload.get("type") == "url_verification":
            return 200, str(payload.get("challenge"))[:1_000].encode()
        return (200, b"") if self.queue_act(payload) else (503, b"too many acts wait")


class _SocketMode:
    """One WebSocket: each envelope is acknowledged when it was taken."""

    def __init__(self, take: Callable[[Mapping[str, Any]], bool]) -> None:
        self._take = take
        self._line: ClientSocket | None = None
        self.was_greeted = False
        self.ended = asyncio.Event()

    def opened(self, line: ClientSocket) -> None:
        self._line = line

    def received(self, data: bytes, binary: bool) -> None:  # noqa: ARG002
        try:
            envelope = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        if not isinstance(envelope, dict):
            return
        if envelope.get("type") == "hello":
            self.was_greeted = True
        elif envelope.get("type") == "disconnect":
            self.ended.set()
        elif isinstance(id := envelope.get("envelope_id"), str) and self._take(envelope) and self._line:
            self._line.send(orjson.dumps({"envelope_id": id}))

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.ended.set()


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether Slack signed this request just now."""
    stamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
    if not _STAMP.fullmatch(stamp) or abs(now - int(stamp)) > SIGNATURE_SECONDS:
        return False
    expected = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={expected}".encode(), signature.encode())


def act_of(payload: Mapping[str, Any]) -> ChatAct | None:
    """What an act or an event means; None for what is neither a press on a card nor words of somebody."""
    if payload.get("type") == "block_actions":
        return _press_of(payload)
    event = payload.get("event")
    if payload.get("type") != "event_callback" or not isinstance(event, dict):
        return None
    changed = event.get("message") if event.get("subtype") in _EDITS else None
    said = changed if isinstance(changed, dict) else event
    if event.get("type") != "message" or not isinstance(text := said.get("text"), str):
        return None
    if not isinstance(user := said.get("user"), str):
        return None
    thread, ts = event.get("thread_ts"), str(event.get("ts"))
    return ChatAct(
        event=f"slack-{payload.get('event_id')}",
        account=f"{event.get('user_team') or payload.get('team_id')}/{user}",
        room=str(event.get("channel")),
        at=_seconds(ts),
        verb="text",
        message=thread if isinstance(thread, str) and thread != ts else "",
        text=html.unescape(text),
        is_bot="bot_id" in said or event.get("subtype") == "bot_message",
        is_edited=event.get("subtype") in _EDITS,
    )


def _press_of(payload: Mapping[str, Any]) -> ChatAct | None:
    match payload:
        case {
            "user": {"id": str(user)},
            "container": {"type": "message", "message_ts": str(message), "channel_id": str(room)},
            "actions": [{"action_id": str(verb), "action_ts": str(at), "value": str(key)}],
        } if verb in get_args(Verb):
            team = payload["user"].get("team_id") or (payload.get("team") or {}).get("id")
            return ChatAct(
                event=f"slack-{team}-{user}-{message}-{verb}-{at}",
                account=f"{team}/{user}",
                room=room,
                at=_seconds(at),
                verb=cast("Verb", verb),
                message=message,
                key=key,
                text=_words_in(payload.get("state")) if verb in ("reject", "ask") else "",
            )
    return None


def _words_in(state: Any) -> str:
    match state:
        case {"values": {"words": {"words": {"value": str(text)}}}}:
            return text
    return ""


def message_of(card: Card) -> dict[str, Any]:
    """Blocks in which Slack reads no markup but in the one link, which is ours."""
    blocks: list[dict[str, Any]] = [_text_block(card.title)]
    if card.body:
        call = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": card.body}]}
        blocks.append({"type": "rich_text", "elements": [call]})
    if card.notes:
        blocks.append(_text_block("\n".join(card.notes)))
    if card.link:
        link = f"<{card.link}|Open in the console>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    if "reject" in card.verbs:
        line = {"type": "plain_text_input", "action_id": "words", "max_length": 2_000}
        label = {"type": "plain_text", "text": "Words, for a rejection or a question"}
        blocks.append(
            {"type": "input", "block_id": "words", "optional": True, "label": label, "element": line}
        )
    if card.verbs:
        blocks.append(
            {"type": "actions", "block_id": "acts", "elements": [*map(_button(card.key), card.verbs)]}
        )
    return {"text": _escaped(card.title), "blocks": blocks, **_PLAIN}


_PLAIN: Final = {
    "mrkdwn": False,
    "link_names": False,
    "parse": "none",
    "unfurl_links": False,
    "unfurl_media": False,
}


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text[:3_000], "emoji": False}}


def _button(key: str) -> Callable[[Verb], dict[str, Any]]:
    def make(verb: Verb) -> dict[str, Any]:
        label = {"type": "plain_text", "text": LABELS[verb], "emoji": False}
        style = {"style": _STYLES[verb]} if verb in _STYLES else {}
        return {"type": "button", "action_id": verb, "value": key, "text": label, **style}

    return make


def _escaped(text: str) -> str:
    """Text in which Slack sees no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(stamp: str) -> float:
    try:
        return float(stamp)
    except ValueError:
        return 0.0
