"""`moot journal erase`, `hold`, `release` and `archive`: what goes, what must stay, what an auditor gets."""

from __future__ import annotations

import argparse
import getpass
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from moot.cli.journal.journal_folder import journal_folder_of
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.protocol.envelope import rfc3339
from moot.store.database import StoredSnapshot, stored_snapshots
from moot.store.journal_erasure import Hold, erase_records, place_hold, release_hold, why_kept
from moot.store.journal_reader import JournalRecord, read_records
from moot.store.record_chain import shared_number

_REMEMBERED: Final = (
    "the space still has this proposal, and moot.sqlite its text. Decide on it, start and stop the gateway "
    "until its last three snapshots are newer, and call again"
)


def add_actions(add_action: Callable[..., Any]) -> None:
    """Add these commands to the group."""
    erase = add_action(
        "erase",
        run_erase,
        "erase what somebody wrote: the log still verifies and says what is gone",
        "  moot journal erase 3f1c22ab --why 'request 17'    a message, and what repeats or answers it\n"
        "  moot journal erase --who ana --why 'she left'      all that ana wrote, and what repeats it\n",
    )
    erase.add_argument("wanted", nargs="*", metavar="NUMBER|ID")
    erase.add_argument("--who", metavar="NAME", help="all messages of this member")
    erase.add_argument("--why", required=True, metavar="TEXT", help="is journaled; no names, if they must go")
    erase.add_argument(
        "--yes", action="store_true", help="do it; without this, only say what would be erased"
    )
    hold = add_action(
        "hold",
        run_hold,
        "keep all of a space: nothing is removed or erased until `release`",
        "  moot journal hold --space lab --why 'case 2026-4'\n",
    )
    hold.add_argument("--why", required=True, metavar="TEXT")
    archive = add_action(
        "archive",
        run_archive,
        "write records, log and keys for an auditor, with a verifier that needs no Moot",
        "  moot journal archive lab.tar.gz --space lab     then: tar xf, python3 lab/verify.py\n",
    )
    archive.add_argument("file", metavar="FILE")
    add_action("release", run_release, "end a hold", "  moot journal release --space lab\n")


def run_erase(options: argparse.Namespace) -> int:
    journal = journal_folder_of(options)
    if not options.wanted and not options.who:
        raise UsageError("name what to erase: numbers or ids of messages, or --who NAME")
    records = list(read_records(journal))
    chosen = _choose(records, set(options.wanted), options.who)
    snapshots = stored_snapshots(options.data / "moot.sqlite", journal.parent.name)
    remembered = _remembered(snapshots)
    kept = {
        each.number: why
        for each in chosen
        if (why := why_kept(each) or (_REMEMBERED if each.id in remembered else ""))
    }
    numbers = [each.number for each in chosen if each.number not in kept]
    for number, why in kept.items():
        print(f"kept: record {number}: {printable(why)}")
    if not numbers:
        print("nothing to erase")
        return 1
    shown = ", ".join(map(str, numbers[:20])) + (", …" if len(numbers) > 20 else "")
    if not options.yes:
        print(f"would erase {len(numbers)} records: {shown}. This cannot be undone: call again with --yes")
        return 0
    covered = max((each.position for each in snapshots if each.state is not None), default=0)
    place = records[-1].time if any(shared_number(each.line) for each in records) else 0.0
    said = erase_records(
        journal, numbers, covered=covered, by=getpass.getuser(), why=options.why, now=time.time(), place=place
    )
    print(f"erased {len(numbers)} records: {shown}; record {said} says so")
    print("Copies elsewhere are not: backups, exports, files of agents and of the approver, *.torn files")
    return 0


def _remembered(snapshots: Iterable[StoredSnapshot]) -> set[str]:
    """The proposals whose text is in a snapshot, too."""
    states: Any = [json.loads(each.state) for each in snapshots if each.state is not None]
    return {each["id"] for state in states for each in state["ledger"]["proposals"] if each.get("raw")}


def _choose(records: list[JournalRecord], wanted: set[str], who: str | None) -> list[JournalRecord]:
    """The records that are named or written by somebody, and what repeats, answers or reports on them."""
    chosen: list[JournalRecord] = []
    ids: set[str] = set()
    found: set[str] = set()
    for each in records:
        names = {str(each.number), each.id} & wanted
        is_of = who is not None and who == each.text("who")
        is_about = each.kind.startswith(("mcp", "moot")) and not ids.isdisjoint(each.correlations)
        found |= names
        # Of what others decided about it, and of how somebody came and went, nobody asked to erase anything.
        if names or ((is_of or is_about) and not why_kept(each)):
            chosen.append(each)
            if each.kind.startswith(("mcp", "moot")):
                ids |= {each.id, *_made_ids(each)} - {""}
    if missing := wanted - found:
        raise UsageError(f"no record {', '.join(sorted(missing))}: `moot journal search` finds them")
    return chosen


def _made_ids(record: JournalRecord) -> list[str]:
    made = record.fields.get("made")
    return [str(each.get("id")) for each in made if isinstance(each, dict)] if isinstance(made, list) else []


def run_hold(options: argparse.Namespace) -> int:
    journal = journal_folder_of(options)
    place_hold(journal, Hold(options.why, time.time()))
    print(f"{printable(journal.parent.name)} is held since {rfc3339(time.time())}: {printable(options.why)}")
    return 0


def run_release(options: argparse.Namespace) -> int:
    journal = journal_folder_of(options)
    release_hold(journal)
    print(f"{printable(journal.parent.name)} is no longer held")
    return 0


def run_archive(options: argparse.Namespace) -> int:
    from moot.cli.process.output_file import open_new_file
    from moot.evidence import archive_verifier
    from moot.evidence.journal_entries import shared_begin
    from moot.evidence.log_files import FOLDER, LogReader
    from moot.evidence.log_keys import read_keys

    journal = journal_folder_of(options)
    reader, keys = LogReader(journal.parent / FOLDER), read_keys(options.data)
    if keys is None:
        raise UsageError(f"no keys in {options.data}: a gateway that keeps a log makes them when it starts")
    # First the checkpoint: what a running gateway writes meanwhile comes behind it.
    checkpoint, note = reader.signed()
    shared = reader.about.shared
    records = list(read_records(journal, shared_begin(journal, reader.about.id) if shared else 0))
    about = {"origin": reader.about.origin, "first": reader.about.first, "records_from": records[0].number}
    if shared:
        about["shared"] = True
    files = {
        "checkpoint": str(note).encode(),
        "entries": reader.entries(0, checkpoint.size),
        "records.jsonl": b"".join(each.line for each in records),
        "about.json": json.dumps(about).encode(),
        "keys.txt": "".join(f"{each}\n" for each in keys.verifiers(reader.about.origin)).encode(),
        "verify.py": Path(archive_verifier.__file__).read_bytes(),
    }
    with open_new_file(options.file) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{journal.parent.name}/{name}")
            member.size, member.mtime = len(content), int(time.time())
            archive.addfile(member, io.BytesIO(content))
    print(f"{len(records)} records in {printable(options.file)}; verify.py in it says how to check them")
    return 0
