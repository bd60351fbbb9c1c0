"""Settings of `moot chat`, and how it asks the gateway for what a code stands for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import orjson

from moot.chat.act_check import LinkAbove
from moot.chat.chat_state import Binding
from moot.errors import Refused, Unreachable, UsageError
from moot.net.http_client import HttpClient
from moot.operations.text.call_text import console_address
from moot.participant.programs.join_target import JoinTarget

_ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings(JoinTarget):
    """Where `moot chat` joins, and which rooms are shared."""

    state_file: Path
    # Rooms in which everybody sees the cards of the whole space.
    channels: tuple[str, ...] = ()
    # Where people open the console.
    console: str = ""


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """What the gateway says of the space."""

    name: str
    link_above: LinkAbove


async def ask_for_space(settings: ChatSettings) -> SpaceFacts:
    """Raises Refused, Unreachable or UsageError."""
    spaces = (await _ask(settings, "spaces", None)).get("spaces", [])
    found = [each for each in spaces if settings.space in ("", each["name"])]
    if not found:
        raise UsageError(f"the token of `moot chat` opens no space {settings.space}")
    # A gateway that does not know the setting has not said that more may be decided.
    return SpaceFacts(str(found[0]["name"]), cast("LinkAbove", found[0].get("chat_link_above", "none")))


async def redeem_code(settings: ChatSettings, code: str, *, account: str, room: str) -> Binding:
    """Bind an account to whoever asked for this code; raises Refused or Unreachable."""
    made = await _ask(settings, _bindings(settings), orjson.dumps({"code": code}))
    return Binding(
        account=account,
        participant=str(made["participant_id"]),
        room=room,
        token=str(made["token"]),
        expires=time.time() + float(made["expires_seconds"]),
    )


async def end_binding(settings: ChatSettings, binding: Binding) -> None:
    """Have its token revoked; raises Refused or Unreachable."""
    url = f"{console_address(settings.gateway)}/{_bindings(settings)}"
    answer = await _client(binding.token).delete(url)
    # It is void already; 403 where a gateway of a cluster does not know all spaces.
    if answer.status not in (200, 401, 403):
        raise Refused(f"HTTP {answer.status}")


def _bindings(settings: ChatSettings) -> str:
    """With the space: gateways of a cluster pass it on to one that serves it."""
    return "chat-bindings" + (f"?space={quote(settings.space, safe='')}" if settings.space else "")


def _client(token: str) -> HttpClient:
    return HttpClient(timeout_seconds=_ANSWER_SECONDS, headers={"Authorization": f"Bearer {token}"})


async def _ask(settings: ChatSettings, path: str, body: bytes | None) -> dict[str, Any]:
    client = _client(str(settings.token() if callable(settings.token) else settings.token))
    url = f"{console_address(settings.gateway)}/{path}"
    if body is None:
        answer = await client.get(url)
    else:
        answer = await client.post(url, body, {"Content-Type": "application/json"})
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise Unreachable(f"the gateway answered {answer.status} with something else than JSON")
    if answer.status >= 400:
        raise Refused(str(found.get("message") or f"HTTP {answer.status}"))
    return found
