"""Streams, for whoever stays in the space: look, read, open, write, close, and hand over."""

from __future__ import annotations

import argparse

from moot.errors import UsageError
from moot.operations.operation import ClientContext, OperationResult, Run, UserOperation, no_arguments
from moot.protocol.operation import Json

_ID = "the stream: its id, the start of it, or - for your latest own one"


async def _streams(context: ClientContext, _: argparse.Namespace) -> OperationResult:
    value: Json = [
        {"id": info.id, "owner": info.owner, "writers": list(info.writers), "target": info.target}
        for info in context.space.streams
    ]
    lines = [
        f"{info.id}  of {info.owner} to {', '.join(info.target or ()) or 'all'}"
        f"  {info.details.get('description', '')}".rstrip()
        for info in context.space.streams
    ]
    return OperationResult(value, lines or ["no open streams"])


def _open_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("description", nargs="*", metavar="TEXT", help="a description")
    parser.add_argument(
        "--to", action="append", default=[], metavar="NAME", help="only this member receives it"
    )
    parser.add_argument("--content-type", metavar="TYPE", help="such as text/csv")


async def _open(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    words = " ".join(args.description) or None
    handle = await context.space.streams.open(args.to, description=words, content_type=args.content_type)
    return OperationResult({"stream": handle.id}, [f"opened stream {handle.id}: /write - TEXT writes to it"])


def _write_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the text of one frame")


async def _write(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    text = " ".join(args.text)
    stream = context.stream(args.stream)
    await context.space.streams.writer(stream).write(text)
    return OperationResult({"stream": stream, "bytes": len(text.encode())})


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)


async def _close(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    stream = context.stream(args.stream)
    await context.space.streams.writer(stream).close()
    return OperationResult({"stream": stream}, [f"closed stream {stream}"])


def _writer_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ("let", "stop", "transfer")
    parser.add_argument("action", choices=actions, help="let or stop a writer, or transfer the stream")
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("member", metavar="MEMBER", help="the member")


async def _writer(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    handle = context.space.streams.writer(context.stream(args.stream))
    match args.action:
        case "let":
            writers = await handle.grant_write(args.member)
        case "stop":
            writers = await handle.revoke_write(args.member)
        case "transfer":
            writers = await handle.transfer(args.member)
        case _:
            raise UsageError("let, stop or transfer")
    return OperationResult(
        {"stream": handle.id, "writers": list(writers)}, [f"writers: {', '.join(writers)}"]
    )


def _member_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("member", metavar="MEMBER", help="the member")


def _with_action(action: str) -> Run:
    async def run(context: ClientContext, args: argparse.Namespace) -> OperationResult:
        args.action = action
        return await _writer(context, args)

    return run


OPERATIONS = tuple(
    UserOperation(name=name, help=help, arguments=arguments, run=run, interactive_only=True)
    for name, help, arguments, run in (
        ("streams", "list open streams", no_arguments, _streams),
        ("open", "open a stream", _open_arguments, _open),
        ("write", "write a frame to a stream", _write_arguments, _write),
        ("close", "close one of your streams", _id_arguments, _close),
        ("writer", "let others write to a stream, or transfer it", _writer_arguments, _writer),
        ("grant-write", "let a member write to your stream", _member_arguments, _with_action("let")),
        (
            "revoke-write",
            "stop a member from writing to your stream",
            _member_arguments,
            _with_action("stop"),
        ),
        ("transfer", "transfer your stream to a member", _member_arguments, _with_action("transfer")),
    )
)
