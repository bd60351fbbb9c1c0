"""Telegram: cards are messages with buttons, words are replies to them (Bot API, long polling).

Who acts is the numeric id that Telegram gives with an update; names are not looked at. A press has no time of
its own: it is as old as it can be, and those that waited while nobody asked for them do not count.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast, get_args

from moot.chat.json_api import JsonApi
from moot.chat.platform import LABELS, Card, ChatAct, PlatformFault, Receive, Verb
from moot.resilience.restart_loop import Backoff

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 30.0
# Servers that answer at once, as the test server of others does, are not asked in a loop.
_PAUSE_SECONDS: Final = 0.2
# In one answer.
_MAX_UPDATES: Final = 100
_UPDATES: Final = ("message", "edited_message", "callback_query")
# What a message is if somebody else said it first, or not a person.
_FORWARD_KEYS: Final = ("forward_origin", "forward_date", "forward_from", "is_automatic_forward")


class TelegramPlatform:
    """One bot."""

    name = "Telegram"
    # A message has at most 4,096 characters; the link and line ends need some.
    max_card_chars = 3_600
    has_buttons = True
    how_to = (
        "Press a button on the card; reply “reject WORDS” to say why; any other reply is a comment that "
        "everybody in the space sees."
    )

    def __init__(self, api: str, token: str) -> None:
        # The token stands in the address, which JsonApi shows nobody.
        self._api = JsonApi(self.name, f"{api}/bot{token}", token)

    async def start(self) -> str:
        me = (await self._api.call("POST", "/getMe", needs="result"))["result"]
        return f"@{me.get('username') or me.get('id')}"

    async def run(self, receive: Receive, cursor: str, keep_cursor: Callable[[str], None]) -> None:
        backoff = Backoff(1.0, 60.0)
        offset = int(cursor or 0)
        # All that comes now was done after this; 0 where that is not known.
        done_after = 0.0
        while True:
            wait = _POLL_SECONDS if done_after else 0.0
            asked: dict[str, Any] = {
                "offset": offset,
                "timeout": int(wait),
                "limit": _MAX_UPDATES,
                "allowed_updates": _UPDATES,
            }
            try:
                answer = await self._api.call("POST", "/getUpdates", asked, wait_seconds=wait, needs="result")
                found = answer["result"]
            except PlatformFault as fault:
                log.warning("no updates for now", extra={"why": str(fault)})
                await asyncio.sleep(max(fault.wait_seconds, backoff.next_delay()))
                # What came meanwhile has no time, either.
                done_after = 0.0
                continue
            backoff.reset()
            answered = time.time()
            for update in found:
                act = act_of(update, done_after)
                if act is not None:
                    await receive(act)
                await self._answer(update)
                offset = int(update["update_id"]) + 1
                # Telegram forgets what is before it: an update is taken once.
                keep_cursor(str(offset))
            # What did not fit is as old as this.
            done_after = answered if len(found) < _MAX_UPDATES else done_after
            if not found:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def send_card(self, room: str, card: Card) -> str:
        sent = await self._api.call(
            "POST", "/sendMessage", {"chat_id": int(room), **_message(card)}, needs="result"
        )
        return str(sent["result"]["message_id"])

    async def change_card(self, room: str, message: str, card: Card) -> None:
        changed = {"chat_id": int(room), "message_id": int(message), **_message(card)}
        try:
            await self._api.call("POST", "/editMessageText", changed)
        except PlatformFault as fault:
            if "not modified" not in str(fault):
                raise

    async def tell(self, room: str, text: str, *, about: str = "") -> None:
        said: dict[str, Any] = {"chat_id": int(room), "text": text[:4_000], **_NO_PREVIEW}
        if about:
            said["reply_parameters"] = {"message_id": int(about), "allow_sending_without_reply": True}
        await self._api.call("POST", "/sendMessage", said)

    async def is_private(self, room: str, account: str) -> bool:
        # The id of a private chat is that of the person, and groups have negative ones.
        return room == account

    async def _answer(self, update: Mapping[str, Any]) -> None:
        """End the waiting sign at a button; what came of it is on the card."""
        query = update.get("callback_query")
        if not isinstance(query, dict):
            return
        try:
            await self._api.call("POST", "/answerCallbackQuery", {"callback_query_id": str(query.get("id"))})
        except PlatformFault as fault:
            log.info("a press was not answered", extra={"why": str(fault)})


_NO_PREVIEW: Final[dict[str, Any]] = {"link_preview_options": {"is_disabled": True}}


def act_of(update: Mapping[str, Any], pressed_at: float) -> ChatAct | None:
    """What an update means; None for what is no act of an account. A press is as old as its update."""
    is_press = isinstance(update.get("callback_query"), dict)
    found = [update[each] for each in ("callback_query", "message", "edited_message") if each in update]
    said: Any = found[0] if found else None
    if not isinstance(said, dict) or not isinstance(who := said.get("from"), dict):
        return None
    message = said.get("message") if is_press else said
    if not isinstance(message, dict) or not isinstance(chat := message.get("chat"), dict):
        return None
    account, room = str(who.get("id")), str(chat.get("id"))
    shared: dict[str, Any] = {
        "event": f"telegram-{update.get('update_id')}",
        "account": account,
        "room": room,
        "is_private": chat.get("type") == "private" and room == account,
        "is_bot": who.get("is_bot") is True or "via_bot" in message or "sender_chat" in said,
    }
    if is_press:
        verb, _, key = str(said.get("data")).partition(":")
        if verb not in get_args(Verb):
            return None
        id = str(message.get("message_id"))
        return ChatAct(**shared, verb=cast("Verb", verb), key=key, message=id, at=pressed_at)
    if not isinstance(text := said.get("text"), str):
        return None
    replied = said.get("reply_to_message")
    return ChatAct(
        **shared,
        verb="text",
        text=text,
        at=float(said.get("edit_date") or said.get("date") or 0),
        message=str(replied.get("message_id")) if isinstance(replied, dict) else "",
        is_edited="edited_message" in update,
        is_forwarded=any(each in said for each in _FORWARD_KEYS),
    )


def _message(card: Card) -> dict[str, Any]:
    """Text with entities of ours alone: no part of it is read as markup, and nothing in it is linked."""
    parts = [card.title, card.body, "\n".join(card.notes), card.link]
    text, entities = "", []
    for part, kind in zip(parts, ("bold", "pre", "", "url"), strict=True):
        if part:
            text += "\n" if text else ""
            if kind:
                entities.append({"type": kind, "offset": _units(text), "length": _units(part)})
            text += part
    buttons = [{"text": LABELS[verb], "callback_data": f"{verb}:{card.key}"} for verb in card.verbs]
    keyboard = {"inline_keyboard": [buttons] if buttons else []}
    return {"text": text, "entities": entities, "reply_markup": keyboard, **_NO_PREVIEW}


def _units(text: str) -> int:
    """How long a text is as Telegram counts: in units of UTF-16."""
    return len(text.encode("utf-16-le")) // 2
