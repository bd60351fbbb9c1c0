"""Matrix: cards are messages, decisions are reactions and replies (client-server API v3).

Who acts is the `sender` that the homeserver gives with an event; names that people choose are not looked at.
Rooms without encryption only: what is sent in an encrypted one cannot be read here, and is said to be so.
"""

from __future__ import annotations

import asyncio
import html
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from secrets import token_urlsafe
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import orjson

from moot.chat.json_api import AnswerTooLarge, JsonApi
from moot.chat.platform import Card, ChatAct, PlatformFault, Receive, Verb
from moot.resilience.rate_limits import token_buckets
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

REACTIONS: Final[Mapping[Verb, str]] = {"approve": "✅", "reject": "❌", "ask": "❓", "show": "👀"}
_VERBS: Final = {sign: verb for verb, sign in REACTIONS.items()}
# Signs of emoji that clients add or leave out.
_VARIATION: Final = "\ufe0f"
_SYNC_SECONDS: Final = 30.0
_FILTER: Final[dict[str, Any]] = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "ephemeral": {"types": []},
        "account_data": {"types": []},
        "state": {"types": []},
        "timeline": {"types": ["m.room.message", "m.reaction", "m.room.encrypted"], "limit": 100},
    },
}
# Of the first answer only the place is wanted: what was said before is not acted on.
_FIRST_FILTER: Final = {**_FILTER, "room": {**_FILTER["room"], "timeline": {"types": [], "limit": 1}}}
# Strangers can invite us.
JOINS_PER_MINUTE: Final = 20
_MAX_ROOMS: Final = 500


class MatrixPlatform:
    """One account at a homeserver."""

    name = "Matrix"
    # An event holds 64 KiB; a changed card is in it four times, in up to 3 bytes or an escape of 5 each.
    max_card_chars = 5_000
    # A reaction names the message, and that is the card.
    has_buttons = False
    how_to = (
        "React to a card with ✅ to approve or ❌ to reject; reply “reject WORDS” to say why; "
        "any other reply is a comment that everybody in the space sees."
    )

    def __init__(self, homeserver: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._api = JsonApi(self.name, f"{homeserver.rstrip('/')}/_matrix/client/v3", token, headers)
        self._me = ""
        self._told_encrypted: set[str] = set()
        self._joins = token_buckets(JOINS_PER_MINUTE / 60, JOINS_PER_MINUTE, max_keys=1)

    async def start(self) -> str:
        self._me = str((await self._api.call("GET", "/account/whoami", needs="user_id"))["user_id"])
        return self._me

    async def run(self, receive: Receive, cursor: str, keep_cursor: Callable[[str], None]) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                page = await self._sync(cursor)
                await self._join_invited(page)
                for room, event in _events_in(page) if cursor else ():
                    await self._handle_event(receive, room, event)
            except PlatformFault as fault:
                log.warning("no events for now", extra={"why": str(fault)})
                if isinstance(fault, AnswerTooLarge):
                    # Strangers can fill rooms. What is in this page is lost: it would come for ever.
                    cursor = ""
                await asyncio.sleep(max(fault.wait_seconds, backoff.next_delay()))
                continue
            backoff.reset()
            # What is told again after a crash is recognised by the id of its event.
            cursor = str(page["next_batch"])
            keep_cursor(cursor)

    async def send_card(self, room: str, card: Card) -> str:
        # The key makes the request safe to repeat: the homeserver takes it once.
        message = await self._send(room, "m.room.message", content_of(card), f"card-{card.key}")
        for verb in card.verbs:
            relates = {"rel_type": "m.annotation", "event_id": message, "key": REACTIONS[verb]}
            try:
                await self._send(room, "m.reaction", {"m.relates_to": relates}, f"{verb}-{card.key}")
            except PlatformFault as fault:
                # The card is there; people can choose the reaction themselves.
                log.info("no reaction to choose", extra={"why": str(fault)})
        return message

    async def change_card(self, room: str, message: str, card: Card) -> None:
        content = content_of(card)
        changed = {
            **content,
            "body": f"* {content['body']}",
            "m.new_content": content,
            "m.relates_to": {"rel_type": "m.replace", "event_id": message},
        }
        await self._send(room, "m.room.message", changed)

    async def tell(self, room: str, text: str, *, about: str = "") -> None:
        content: dict[str, Any] = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
        if about:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": about}
        await self._send(room, "m.room.message", content)

    async def is_private(self, room: str, account: str) -> bool:
        found = await self._api.call("GET", f"/rooms/{quote(room, safe='')}/joined_members", needs="joined")
        return set(found["joined"]) == {self._me, account}

    async def _send(self, room: str, kind: str, content: dict[str, Any], transaction: str = "") -> str:
        id = quote(transaction or token_urlsafe(12), safe="")
        path = f"/rooms/{quote(room, safe='')}/send/{kind}/{id}"
        return str((await self._api.call("PUT", path, content, needs="event_id"))["event_id"])

    async def _sync(self, cursor: str) -> dict[str, Any]:
        wait = _SYNC_SECONDS if cursor else 0.0
        asked = _FILTER if cursor else _FIRST_FILTER
        query = {"filter": orjson.dumps(asked).decode(), "timeout": str(int(wait * 1_000))}
        if cursor:
            query["since"] = cursor
        return await self._api.call("GET", f"/sync?{urlencode(query)}", wait_seconds=wait, needs="next_batch")

    async def _join_invited(self, page: Mapping[str, Any]) -> None:
        rooms = page.get("rooms", {})
        for room in rooms.get("invite", {}):
            if self._joins.take("", time.monotonic()):
                log.warning("too many invitations at once")
                return
            try:
                await self._api.call("POST", f"/rooms/{quote(room, safe='')}/join")
                await self.tell(room, "Hello. Say “help” to see what I do.")
            except PlatformFault as fault:
                log.info("an invitation was not accepted", extra={"why": str(fault)})

    async def _handle_event(self, receive: Receive, room: str, event: Mapping[str, Any]) -> None:
        sender, content = event.get("sender"), event.get("content")
        if sender == self._me or not isinstance(sender, str) or not isinstance(content, dict):
            return
        if event.get("type") == "m.room.encrypted":
            await self._refuse_encrypted(room)
            return
        act = act_of(room, event)
        if act is None:
            return
        try:
            is_private = await self.is_private(room, sender)
        except PlatformFault as fault:
            if not fault.is_final:
                raise
            is_private = False
        await receive(replace(act, is_private=is_private))

    async def _refuse_encrypted(self, room: str) -> None:
        if room in self._told_encrypted or len(self._told_encrypted) > _MAX_ROOMS:
            return
        self._told_encrypted.add(room)
        try:
            await self.tell(room, "I cannot read encrypted rooms. Invite me to one without encryption.")
        except PlatformFault as fault:
            log.info("not said", extra={"why": str(fault)})


def act_of(room: str, event: Mapping[str, Any]) -> ChatAct | None:
    """What an event means; None for what concerns no card and says nothing to us."""
    content = cast("dict[str, Any]", event["content"])
    given = content.get("m.relates_to")
    relates: dict[str, Any] = given if isinstance(given, dict) else {}
    kind, about = relates.get("rel_type"), str(relates.get("event_id") or "")
    shared: dict[str, Any] = {
        "event": str(event.get("event_id")),
        "account": str(event["sender"]),
        "room": room,
        "at": float(event.get("origin_server_ts", 0)) / 1_000,
    }
    if event.get("type") == "m.reaction":
        verb = _VERBS.get(str(relates.get("key")).replace(_VARIATION, ""))
        if kind != "m.annotation" or verb is None:
            return None
        return ChatAct(**shared, verb=verb, message=about)
    if event.get("type") != "m.room.message" or not isinstance(text := content.get("body"), str):
        return None
    replied = relates.get("m.in_reply_to")
    if kind != "m.thread" and isinstance(replied, dict):
        about = str(replied.get("event_id") or "")
        text = _without_quote(text)
    return ChatAct(
        **shared,
        verb="text",
        message="" if kind == "m.replace" else about,
        text=text,
        # By convention bots and bridges send notices; whoever answers them may go round in circles.
        is_bot=content.get("msgtype") == "m.notice",
        is_edited=kind == "m.replace",
    )


def _without_quote(text: str) -> str:
    """A reply without the lines of what it replies to, which older clients put before it."""
    lines = text.split("\n")
    if not lines[0].startswith("> "):
        return text
    while lines and lines[0].startswith(">"):
        lines.pop(0)
    return "\n".join(lines).strip()


def _events_in(page: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    joined = page.get("rooms", {}).get("join", {})
    return [
        (room, event)
        for room, found in joined.items()
        for event in found.get("timeline", {}).get("events", ())
        if isinstance(event, dict)
    ]


def content_of(card: Card) -> dict[str, Any]:
    """A message without markup of others: the call stands in `pre`, and nobody is mentioned."""
    notes = "\n".join(card.notes)
    plain = "\n".join(each for each in (card.title, card.body, notes, card.link) if each)
    shown = f"<p><strong>{html.escape(card.title, quote=False)}</strong></p>"
    if card.body:
        shown += f"<pre><code>{html.escape(card.body, quote=False)}</code></pre>"
    if notes:
        shown += f"<p>{html.escape(notes, quote=False).replace(chr(10), '<br>')}</p>"
    if card.link:
        where = html.escape(card.link, quote=True)
        shown += f'<p><a href="{where}">Open in the console</a></p>'
    return {
        "msgtype": "m.text",
        "body": plain,
        "format": "org.matrix.custom.html",
        "formatted_body": shown,
        "m.mentions": {},
    }
