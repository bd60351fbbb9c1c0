"""A large value that a message names by its hash: shown, or saved as a file."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError
from moot.operations.operation import ClientContext, OperationResult, UserOperation
from moot.private_files import open_private
from moot.protocol.large_content import ContentPart, ContentReference, listed_parts
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.protocol.envelope import Envelope

# More is nothing to read on a screen: it is saved.
MAX_SHOWN_BYTES: Final = 4 << 20
# As much of a hash as is shown, and has to be typed.
SHORT_HASH_CHARS: Final = 12
_MIN_HASH_CHARS: Final = 8


def find_hash(named: str, envelopes: Iterable[Envelope]) -> str:
    """The hash of a value by its start, if one of these messages names it; raises UsageError."""
    if re.fullmatch("[0-9a-f]{64}", named):
        return named
    found = {
        part.sha256
        for envelope in envelopes
        for member in ("params", "result")
        for part in listed_parts(envelope.payload.get(member))
        if part.sha256.startswith(named)
    }
    if len(found) != 1 or len(named) < _MIN_HASH_CHARS:
        many = "several values start with" if len(found) > 1 else "no recent message names a value"
        raise UsageError(f"{many} {named}: type its SHA-256, or at least {_MIN_HASH_CHARS} characters of it")
    return found.pop()


def reference_text(reference: ContentReference | ContentPart, *, is_interactive: bool) -> str:
    """How large a value is, its hash, and how to get it."""
    command = "/content" if is_interactive else "moot message content"
    how = f"{command} {reference.sha256[:SHORT_HASH_CHARS]} FILE"
    return f"{reference.size:,} bytes, sha256 {reference.sha256}; {how} saves it"


def read_text(data: bytes) -> str | None:
    """What can be shown of it; None: nothing."""
    if len(data) > MAX_SHOWN_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


async def save_value(file: str, data: bytes) -> None:
    """Into a new file, for its owner alone; raises UsageError."""

    def write() -> None:
        with open(file, "xb", opener=open_private) as opened:
            opened.write(data)

    try:
        await asyncio.to_thread(write)
    except FileExistsError:
        raise UsageError(f"{file} exists: choose another name, or remove it first") from None
    except OSError as fault:
        raise UsageError(f"cannot write {file}: {fault.strerror}") from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sha256", metavar="SHA256", help="its hash, or the start of it")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="save it there; -: to the standard output, as it is"
    )


async def _content(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    known = [*context.history, *(seen.envelope for seen in context.space.proposals)]
    digest = find_hash(args.sha256, known)
    data = await context.space.fetch_content(digest)
    value: dict[str, Json] = {"sha256": digest, "bytes": len(data)}
    if args.file == "-" and not context.is_interactive:
        sys.stdout.buffer.write(data)
        return OperationResult(value)
    if args.file is not None:
        await save_value(args.file, data)
        return OperationResult(value | {"file": args.file}, [f"saved {len(data):,} bytes in {args.file}"])
    text = read_text(data)
    if text is None:
        raise UsageError(f"{len(data):,} bytes are not shown here: name a FILE to save them in")
    return OperationResult(value | {"text": text}, text.split("\n"))


CONTENT = UserOperation(
    name="content",
    help="show a large value of a call, or save it as a file",
    description=(
        "Values of a call that are too large for a message are kept by the gateway; the message has their "
        "beginning, their size and their SHA-256. This fetches one."
    ),
    examples="""\
  moot message content 3f1c22ab90de                  a text of up to 4 MiB
  moot message content 3f1c22ab90de report.csv       anything, into a new file
  moot message content 3f1c22ab90de - | sha256sum
""",
    arguments=_arguments,
    run=_content,
    needs_history=True,
)
OPERATIONS = (CONTENT,)
