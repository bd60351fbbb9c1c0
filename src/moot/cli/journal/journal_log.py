"""`moot journal`: the log beside a journal: its keys, its files for others, and whether it holds."""

from __future__ import annotations

import argparse
from pathlib import Path

from moot.cli.journal.journal_folder import journal_folder_of, journal_folders
from moot.cli.options.shared_options import add_policy
from moot.errors import Unreachable, UsageError
from moot.evidence.checkpoint import parse_checkpoint
from moot.evidence.log_check import KeptCheckpoint, LogReport, check_against, check_log, parse_kept
from moot.evidence.log_files import CHECKPOINT_FILE, FOLDER, LogReader
from moot.evidence.log_keys import KEYS_FILE, LogKeys, read_keys, rotate_key
from moot.evidence.signed_note import NoteError
from moot.evidence.tiles import WIDTH, tiles_of
from moot.evidence.witness_policy import Policy, read_policy
from moot.operations.text.terminal_escape import printable
from moot.resilience.atomic_file import write_atomically

_ANSWER_SECONDS = 20.0


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against",
        metavar="CHECKPOINT",
        action="append",
        default=[],
        help="also compare the log with this: a checkpoint's file, an anchor's file, or a URL of a "
        "published log or a witness; may be given again",
    )
    add_policy(parser)


def run_keys(options: argparse.Namespace) -> int:
    keys = read_keys(options.data)
    if keys is None:
        raise UsageError(f"no {KEYS_FILE} in {options.data}: a gateway makes it when it starts")
    _print_keys(options, keys)
    return 0


def run_rotate(options: argparse.Namespace) -> int:
    keys = rotate_key(options.data)
    _print_keys(options, keys)
    print("Restart the gateway: until then it signs with the key before. Tell the new one to whoever")
    print("verifies or witnesses the log; they keep the old one, too, for what it signed.")
    return 0


def _print_keys(options: argparse.Namespace, keys: LogKeys) -> None:
    for folder in journal_folders(options).values():
        log = folder.parent / FOLDER
        if (log / "about.json").exists():
            now, *former = keys.verifiers(LogReader(log).about.origin)
            print(f"log {printable(str(now))}")
            for each in former:
                print(f"# before: log {printable(str(each))}")
    print(f"witness {keys.name} {keys.witness().verifier}")


def run_publish(options: argparse.Namespace) -> int:
    """The log as files that any web server can serve; the checkpoint comes last."""
    reader = LogReader(journal_folder_of(options).parent / FOLDER)
    checkpoint, note = reader.cosigned() or reader.signed()
    target: Path = options.folder
    _check_published(target, reader, checkpoint.size)
    for tile in tiles_of(checkpoint.size):
        path = target / tile.path
        if tile.width == WIDTH and path.exists():
            continue
        content = reader.tile(tile, checkpoint.size)
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content, mode=0o644)
    target.mkdir(parents=True, exist_ok=True)
    write_atomically(target / CHECKPOINT_FILE, str(note).encode(), mode=0o644)
    print(f"{checkpoint.size} entries of {printable(checkpoint.origin)} in {printable(str(target))}")
    return 0


def _check_published(target: Path, reader: LogReader, size: int) -> None:
    """What is published only grows: whole tiles that are there are not written again. Raises UsageError."""
    try:
        there = parse_checkpoint((target / CHECKPOINT_FILE).read_bytes())[0]
    except FileNotFoundError:
        return
    except NoteError as fault:
        raise UsageError(f"{target / CHECKPOINT_FILE} is damaged ({fault}): name another folder") from None
    if there.origin != reader.about.origin:
        raise UsageError(
            f"{target} has the log {there.origin}, and this is {reader.about.origin}: name another folder"
        )
    if there.size > size:
        raise UsageError(f"{there.size} records were published there, and the log has {size}")
    if reader.root(there.size) != there.root:
        raise UsageError(
            f"other records were published there: `moot journal verify --against {target / CHECKPOINT_FILE}`"
        )


def log_report(options: argparse.Namespace, journal: Path) -> LogReport:
    """What the log beside a journal says of it."""
    folder = journal.parent / FOLDER
    if not (folder / "about.json").exists():
        missing = ["no log to compare"] if options.against or options.policy else []
        return LogReport(missing, [])
    policy: Policy | None = None if options.policy is None else read_policy(options.policy)
    keys = read_keys(options.data)
    known = [] if keys is None else keys.verifiers(LogReader(folder).about.origin)
    report = check_log(journal, folder, known, policy)
    if options.against:
        other = check_against(folder, _kept(options.against), known, policy)
        report = LogReport([*report.faults, *other.faults], [*report.facts, *other.facts])
    return report


def _kept(sources: list[str]) -> list[KeptCheckpoint]:
    found: list[KeptCheckpoint] = []
    for source in sources:
        raw = _fetch(source) if source.startswith(("http://", "https://")) else _read(Path(source))
        try:
            found += parse_kept(raw)
        except UsageError as fault:
            raise UsageError(f"{source}: {fault}") from None
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise UsageError(f"no checkpoint can be read from {path}: {fault.strerror}") from None


def _fetch(url: str) -> bytes:
    # Loaded for it alone: half a second of CPU that no other `moot journal` needs.
    import httpx2

    from moot.cli.client.gateway_request import request_bounded

    where = url if url.endswith("/checkpoint") else f"{url.rstrip('/')}/checkpoint"
    try:
        answer = request_bounded("GET", where, seconds=_ANSWER_SECONDS)
    except httpx2.HTTPError as fault:
        raise Unreachable(f"no checkpoint from {where}: {fault}") from None
    if answer.status_code != 200:
        raise UsageError(f"no checkpoint from {where}: it answers {answer.status_code}")
    return answer.content
