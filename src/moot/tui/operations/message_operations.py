"""Saying something: chat, that one was seen or needs no attention, or any other envelope."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.tui.operations.operation import ClientContext, OperationResult, UserOperation, json_argument, short


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("text", nargs="*", metavar="TEXT", help="the text; - reads it from standard input")
    add("--to", action="append", default=[], metavar="NAME", help="whom it is addressed to; everyone sees it")
    add(
        "--about", action="append", default=[], metavar="ID", help="the message it refers to (correlation_id)"
    )
    add("--context", metavar="PATH", help="the sub-context it belongs to")
    add("--markdown", action="store_true", help="the text is Markdown")
    add("--kind", metavar="KIND", help="send this kind instead of chat; TEXT is its payload as JSON")


async def _send(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    text = _words(chosen.text)
    to = tuple(chosen.to) or seat.default_to
    if chosen.kind is None:
        if not text.strip():
            raise UsageError("there is no text to send: moot send TEXT")
        sent = await seat.space.chat(
            text,
            to=to,
            about=chosen.about,
            context=chosen.context,
            format="markdown" if chosen.markdown else None,
        )
    else:
        payload: Json = json_argument(text, "the payload") if text.strip() else {}
        if not isinstance(payload, dict):
            raise UsageError("a payload must be one JSON object")
        sent = await seat.space.send(
            chosen.kind, payload, to=chosen.to, about=chosen.about, context=chosen.context, confirm=True
        )
    here = {seat.space.me, seat.space.name, *seat.space.roster}
    here |= {member.name for member in seat.space.roster.values()}
    away = [name for name in to if name not in here]
    lines = [f"note: {', '.join(away)} is not in the space and did not receive it"] if away else []
    return OperationResult({"id": sent.id, "kind": sent.kind, "ts": sent.ts, "absent": away}, lines)


def _words(words: list[str]) -> str:
    return sys.stdin.read() if words == ["-"] else " ".join(words)


def _acknowledge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chat", metavar="ID", help="the chat")
    parser.add_argument("--status", default="received", metavar="WORD", help="received (default), read, …")


async def _acknowledge(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    chosen.chat = seat.chat(chosen.chat)
    sent = await seat.space.chats.acknowledge(chosen.chat, chosen.status)
    return OperationResult({"id": sent.id}, [f"acknowledged {short(chosen.chat)}"])


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chat", metavar="ID", help="the chat")
    parser.add_argument("--reason", default="handled_elsewhere", metavar="TEXT", help="why")


async def _cancel(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    chosen.chat = seat.chat(chosen.chat)
    sent = await seat.space.chats.cancel(chosen.chat, chosen.reason)
    return OperationResult({"id": sent.id}, [f"marked {short(chosen.chat)}: no reply needed"])


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sequence", metavar="ID", help="the id of its reasoning/start message")
    parser.add_argument("--reason", default="superseded", metavar="TEXT", help="why")


async def _stop(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    return await stop_thinking(seat, chosen.sequence, chosen.reason)


async def stop_thinking(seat: ClientContext, named: str | None, reason: str) -> OperationResult:
    """MEW 3.5.5: end a sequence of anybody; without a name the only one that is going on."""
    if named is None:
        active = [each.id for each in seat.space.contexts.active()]
        if len(active) != 1:
            going = ", ".join(short(id) for id in active) or "nobody is sharing reasoning"
            raise UsageError(f"name one: {going}")
        named = active[0]
    like = [each.id for each in seat.space.contexts if each.id.startswith(named)]
    if not like:
        going = ", ".join(short(each.id) for each in seat.space.contexts.active())
        raise UsageError(f"unknown reasoning {named}: {f'active: {going}' if going else 'none is active'}")
    sequence = like[0] if len(like) == 1 else named
    sent = await seat.space.cancel_reasoning(sequence, reason)
    return OperationResult({"id": sent.id}, [f"asked to stop reasoning: {short(sequence)}"])


SEND = UserOperation(
    name="send",
    help="send a message, or any other envelope",
    about="Sends a chat message to everyone in the space, or an envelope of any kind that you may send.",
    examples="""\
  moot send "the build is green"
  moot send --to agent "look at notes.md, please"
  git log -1 --format=%s | moot send -
  moot send --kind participant/status '{"messages_in_context": 3}'
""",
    arguments=_send_arguments,
    run=_send,
)
ACKNOWLEDGE = UserOperation(
    name="ack",
    help="acknowledge a chat message",
    examples="  moot message ack 3f1c22ab --status read\n",
    arguments=_acknowledge_arguments,
    run=_acknowledge,
    recalls=True,
)
CANCEL = UserOperation(
    name="cancel",
    help="mark a chat message as needing no reply",
    examples="  moot message cancel 3f1c22ab --reason 'answered by phone'\n",
    arguments=_cancel_arguments,
    run=_cancel,
    recalls=True,
)
STOP = UserOperation(
    name="stop",
    help="ask a member to stop reasoning",
    examples="  moot message stop 77aa01bc --reason 'found it'\n",
    arguments=_stop_arguments,
    run=_stop,
    recalls=True,
)
# The word that people look for first.
CHAT = replace(SEND, name="chat", examples="", only_joined=True)
OPERATIONS = (SEND, CHAT, ACKNOWLEDGE, CANCEL, STOP)
