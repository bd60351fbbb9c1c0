"""Saying something: chat, that one was seen or needs no attention, or any other envelope."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from msgspec.structs import replace

from moot.errors import UsageError
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    add_reason,
    read_json,
    short_id,
)
from moot.protocol.operation import Json


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


async def _send(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    text = words_of(args.text)
    to = tuple(args.to) or context.default_to
    if args.kind is None:
        if not text.strip():
            raise UsageError("there is no text to send: moot send TEXT")
        sent = await context.space.chat(
            text,
            to=to,
            about=args.about,
            context=args.context,
            format="markdown" if args.markdown else None,
        )
    else:
        payload: Json = read_json(text, "the payload") if text.strip() else {}
        if not isinstance(payload, dict):
            raise UsageError("a payload must be one JSON object")
        sent = await context.space.send(
            args.kind, payload, to=args.to, about=args.about, context=args.context, confirm=True
        )
    away, lines = note_absent(context, to)
    return OperationResult({"id": sent.id, "kind": sent.kind, "sent_at": sent.ts, "absent": away}, lines)


def note_absent(context: ClientContext, to: Iterable[str]) -> tuple[list[str], list[str]]:
    """Who of these did not receive what was sent just now, and what to tell its sender."""
    here = {context.space.me, context.space.name, *context.space.roster}
    here |= {member.name for member in context.space.roster.values()}
    away = [name for name in to if name not in here]
    return away, [f"note: {', '.join(away)} is not in the space and did not receive it"] if away else []


def words_of(words: list[str]) -> str:
    """A text as it was typed, or from standard input."""
    return sys.stdin.read() if words == ["-"] else " ".join(words)


def _acknowledge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chat", metavar="ID", help="the chat")
    parser.add_argument("--status", default="received", metavar="WORD", help="received (default), read, …")


async def _acknowledge(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    args.chat = context.chat(args.chat)
    sent = await context.space.chats.acknowledge(args.chat, args.status)
    return OperationResult({"id": sent.id}, [f"acknowledged {short_id(args.chat)}"])


def _cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chat", metavar="ID", help="the chat")
    add_reason(parser, "handled_elsewhere")


async def _cancel(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    args.chat = context.chat(args.chat)
    sent = await context.space.chats.cancel(args.chat, args.reason)
    return OperationResult({"id": sent.id}, [f"marked {short_id(args.chat)}: no reply needed"])


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sequence", metavar="ID", help="the id of its reasoning/start message")
    add_reason(parser, "superseded")


async def _stop(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    return await stop_reasoning(context, args.sequence, args.reason)


async def stop_reasoning(context: ClientContext, named: str | None, reason: str) -> OperationResult:
    """MEW 3.5.5: end a sequence of anybody; without a name the only one that is going on."""
    if named is None:
        active = [each.id for each in context.space.contexts.active()]
        if len(active) != 1:
            going = ", ".join(short_id(id) for id in active) or "nobody is sharing reasoning"
            raise UsageError(f"name one: {going}")
        named = active[0]
    like = [each.id for each in context.space.contexts if each.id.startswith(named)]
    if not like:
        going = ", ".join(short_id(each.id) for each in context.space.contexts.active())
        raise UsageError(f"unknown reasoning {named}: {f'active: {going}' if going else 'none is active'}")
    sequence = like[0] if len(like) == 1 else named
    sent = await context.space.cancel_reasoning(sequence, reason)
    return OperationResult({"id": sent.id}, [f"asked to stop reasoning: {short_id(sequence)}"])


SEND = UserOperation(
    name="send",
    help="send a message, or any other envelope",
    description="Sends a chat message to everyone in the space, or any envelope that you may send.",
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
    needs_history=True,
)
CANCEL = UserOperation(
    name="cancel",
    help="mark a chat message as needing no reply",
    examples="  moot message cancel 3f1c22ab --reason 'answered by phone'\n",
    arguments=_cancel_arguments,
    run=_cancel,
    needs_history=True,
)
STOP = UserOperation(
    name="stop",
    help="ask a member to stop reasoning",
    examples="  moot message stop 77aa01bc --reason 'found it'\n",
    arguments=_stop_arguments,
    run=_stop,
    needs_history=True,
)
# The word that people look for first.
CHAT = replace(SEND, name="chat", examples="", interactive_only=True)
OPERATIONS = (SEND, CHAT, ACKNOWLEDGE, CANCEL, STOP)
