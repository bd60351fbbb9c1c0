"""`moot journal send`: security events of a space to a SIEM, at least once, from where the last run ended."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from moot.cli.journal.journal_folder import journal_folder_of
from moot.errors import MootError
from moot.operations.siem.security_events import missing_event, ocsf, security_event
from moot.operations.siem.targets import SecurityLine, Send, target_of
from moot.participant import token_from
from moot.private_files import open_private
from moot.store.journal_reader import JournalRecord, read_records

# Events of one connection or request.
BATCH: Final = 500
_FIRST_SECONDS, _LAST_SECONDS = 1.0, 60.0
_FOLLOW_SECONDS: Final = 1.0


def add_action(add: Callable[..., Any]) -> None:
    parser = add(
        "send",
        run_send,
        "send security events to a SIEM: sign-ins, refusals, grants, decisions, rules, pauses",
        "  moot journal send syslog+tls://siem.example.org:6514 --ocsf --follow\n"
        "  moot journal send https://siem.example.org/in --token-file siem.token --follow\n"
        "  moot journal send file:/var/log/moot-events.jsonl\n",
    )
    parser.add_argument(
        "target", metavar="URL", help="file:PATH, syslog://, syslog+tls://, http:// or https://"
    )
    parser.add_argument("--ocsf", action="store_true", help="as OCSF 1.9 has events; else plain JSON")
    parser.add_argument(
        "--follow", action="store_true", help="go on with what comes, and try again what fails"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="with https: sent as a bearer token")


def run_send(options: argparse.Namespace) -> int:
    folder = journal_folder_of(options)
    token = None if options.token_file is None else token_from(options.token_file)
    send = target_of(options.target, token)
    name = hashlib.sha256(options.target.encode()).hexdigest()[:16]
    sending = EventSending(folder, folder.parent / f"sent-{name}.json", send, as_ocsf=options.ocsf)
    seconds = _FIRST_SECONDS
    while True:
        try:
            count = sending.send_new()
            seconds = _FIRST_SECONDS
        except OSError as fault:
            if not options.follow:
                raise MootError(
                    f"{options.target}: {fault}; the next run goes on where this one ended"
                ) from None
            time.sleep(seconds)
            seconds = min(seconds * 2, _LAST_SECONDS)
            continue
        if not options.follow:
            print(f"sent {count} events")
            return 0
        time.sleep(_FOLLOW_SECONDS)


class EventSending:
    """The journal is the spool: only how far it was sent is kept, and written after a batch has arrived."""

    def __init__(self, folder: Path, position: Path, send: Send, *, as_ocsf: bool) -> None:
        self._folder, self._position, self._send, self._as_ocsf = folder, position, send, as_ocsf
        self._space = folder.parent.name
        self._after = orjson.loads(position.read_bytes())["after"] if position.exists() else 0

    def send_new(self) -> int:
        """Send what came since; how many events. Raises OSError: what arrived before stays sent."""
        count, batch, last = 0, list[SecurityLine](), self._after
        for record in self._records():
            if record.number > last + 1:
                missing = missing_event(self._space, last + 1, record.number - 1, record.time)
                batch.append(self._line_of(missing, record.time))
            last = record.number
            line = self._line(record)
            if line is not None:
                batch.append(line)
            if len(batch) >= BATCH:
                count += self._deliver(batch, last)
                batch = []
        if last != self._after:
            count += self._deliver(batch, last)
        return count

    def _records(self) -> Iterator[JournalRecord]:
        return read_records(self._folder, self._after)

    def _line(self, record: JournalRecord) -> SecurityLine | None:
        event = security_event(record, self._space)
        return None if event is None else self._line_of(event, record.time)

    def _line_of(self, event: dict[str, Any], at: float) -> SecurityLine:
        told = ocsf(event, at) if self._as_ocsf else event
        return SecurityLine(event["id"], event["time"], orjson.dumps(told))

    def _deliver(self, batch: list[SecurityLine], last: int) -> int:
        if batch:
            self._send(batch)
        aside = self._position.with_suffix(".new")
        with open(aside, "wb", opener=open_private) as file:
            file.write(orjson.dumps({"after": last}))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._position)
        self._after = last
        return len(batch)
