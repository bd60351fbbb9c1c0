"""Who came in, who was refused and whose access ended, for administrators: from the journal, newest first.

A page reads a bounded part of the journal. Where nothing is found in it, the page is empty and says where to
read on, so that a long journal is never read in one go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from moot.gateway.hosting import journal_history
from moot.gateway.hosting.journal_history import microseconds
from moot.gateway.hosting.space_records import recorded_time
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.store.journal_backwards import first_number_from, records_before

# Of an input of the journal: what it is called here.
_EVENTS: Final = {
    "sign_in": "signed_in",
    "sign_in_refused": "refused",
    "refused": "refused",
    "sign_out": "signed_out",
    "temporary_token": "token_made",
    "rotate": "token_replaced",
    "restore": "restored",
    "passkey_add": "passkey_added",
    "passkey_remove": "passkey_removed",
    "passkey_sign_in": "signed_in",
}
_RECORD: Final = re.compile(rb'\{"n":\d+,"t":[\d.e+]+,"in":"(%b)"' % "|".join(_EVENTS).encode())
EVENTS: Final = frozenset(_EVENTS.values())
# Under this name `message_refusals` counts what is too much to be recorded one by one.
_COUNTED: Final = "sign-ins"
_DETAILS: Final = ("issuer", "subject", "account", "client", "rule", "profile")


class SignInPage(NamedTuple):
    """Events, newest first, and where to read on; None at the end of the journal."""

    events: list[dict[str, Json]]
    before: int | None


def read_sign_ins(
    folder: Path, before: int | None, limit: int, *, by_time: bool, wanted: str | None = None
) -> SignInPage:
    """One page of what was before a place, or of the latest. Blocks: call it in a thread.

    With `by_time`, places are times, as in `journal_history`. `wanted` is the only event to tell of.
    """
    found: list[dict[str, Json]] = []
    scanned, last, is_full = 0, before, False
    if by_time and before is not None:
        before = first_number_from(folder, before, microseconds)
    for record in records_before(folder, before):
        place = microseconds(record.line) if by_time else record.number
        if is_full and place != last:
            return SignInPage(found, last)
        last = place
        scanned += len(record.line)
        match = _RECORD.match(record.line)
        event = None if match is None else _event_of(match[1].decode(), record.line)
        if event is not None and wanted in (None, event["event"]):
            found.append(event)
        is_full = is_full or len(found) >= limit or scanned >= journal_history.MAX_SCAN_BYTES
    return SignInPage(found, None)


def _event_of(input: str, line: bytes) -> dict[str, Json] | None:
    """What a record tells of somebody's access, never a token or its hash; None if it is about nobody."""
    try:
        record: Mapping[str, Any] = json.loads(line)
    except ValueError:
        # Damaged: `moot journal verify` tells about it.
        return None
    who = record.get("who", "")
    event: dict[str, Json] = {"event": _EVENTS[input], "at": rfc3339(recorded_time(line))}
    event |= {name: record[name] for name in ("by", "why") if record.get(name)}
    match input:
        case "refused":
            # Of messages, but for one name.
            return event | {"count": record["count"]} if who == _COUNTED else None
        case "sign_out" if not who:
            # Nobody of this space was meant, or an earlier version did not say whom.
            return None
        case "sign_in":
            details = record["sign_in"].get("details", {})
        case "sign_in_refused":
            details = record["sign_in"]
        case _:
            details = {}
    event |= {name: details[name] for name in _DETAILS if name in details}
    return event | {"participant": who} if who else event
