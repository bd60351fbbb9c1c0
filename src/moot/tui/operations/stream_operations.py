"""Streams, for whoever stays in the space: look, read, open, write, close, and hand over."""

from __future__ import annotations

import argparse

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.tui.operations.operation import ClientContext, OperationResult, Run, UserOperation

_ID = "the stream: its id, the start of it, or - for your latest own one"


def _nothing(parser: argparse.ArgumentParser) -> None:
    del parser


async def _streams(seat: ClientContext, _: argparse.Namespace) -> OperationResult:
    value: Json = [
        {"id": info.id, "owner": info.owner, "writers": list(info.writers), "target": info.target}
        for info in seat.space.streams
    ]
    lines = [
        f"{info.id}  of {info.owner} to {', '.join(info.target or ()) or 'all'}"
        f"  {info.details.get('description', '')}".rstrip()
        for info in seat.space.streams
    ]
    return OperationResult(value, lines or ["no open streams"])


def _open_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("description", nargs="*", metavar="TEXT", help="a description")
    parser.add_argument(
        "--to", action="append", default=[], metavar="NAME", help="only this member receives it"
    )
    parser.add_argument("--content-type", metavar="TYPE", help="such as text/csv")


async def _open(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    words = " ".join(chosen.description) or None
    handle = await seat.space.streams.open(chosen.to, description=words, content_type=chosen.content_type)
    return OperationResult({"stream": handle.id}, [f"opened stream {handle.id}: /write - TEXT writes to it"])


def _write_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the text of one frame")


async def _write(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    text = " ".join(chosen.text)
    stream = seat.stream(chosen.stream)
    await seat.space.streams.writer(stream).write(text)
    return OperationResult({"stream": stream, "bytes": len(text.encode())})


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)


async def _close(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    stream = seat.stream(chosen.stream)
    await seat.space.streams.writer(stream).close()
    return OperationResult({"stream": stream}, [f"closed stream {stream}"])


def _writer_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ("let", "stop", "transfer")
    parser.add_argument("action", choices=actions, help="let or stop a writer, or transfer the stream")
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("member", metavar="MEMBER", help="the member")


async def _writer(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    handle = seat.space.streams.writer(seat.stream(chosen.stream))
    match chosen.action:
        case "let":
            writers = await handle.grant_write(chosen.member)
        case "stop":
            writers = await handle.revoke_write(chosen.member)
        case "transfer":
            writers = await handle.transfer(chosen.member)
        case _:
            raise UsageError("let, stop or transfer")
    return OperationResult(
        {"stream": handle.id, "writers": list(writers)}, [f"writers: {', '.join(writers)}"]
    )


def _member_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="ID", help=_ID)
    parser.add_argument("member", metavar="MEMBER", help="the member")


def _with_action(action: str) -> Run:
    async def run(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
        chosen.action = action
        return await _writer(seat, chosen)

    return run


OPERATIONS = tuple(
    UserOperation(name=name, help=help, arguments=arguments, run=run, only_joined=True)
    for name, help, arguments, run in (
        ("streams", "list open streams", _nothing, _streams),
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
