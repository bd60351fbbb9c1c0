"""`GET /spaces/{space}/decisions`: who decided what, when and why, out of the journal, as JSON or CSV.

For members, of what was proposed since they belong to the space, as with its history; and in turn with
whoever reads that. What was read is kept, so that the next report reads only what came since.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import InvalidRequest
from moot.gateway.hosting.journal_history import gap_before
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.history_routes import HistoryRoutes, settle
from moot.gateway.http.http_replies import HEADERS, json_response
from moot.protocol import strict_json
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json
from moot.store.journal_reader import read_records
from moot.trust.history.ledger_reader import JournalReader
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory, filter_proposals

# The latest proposals of a space that a report can be about; and records that are looked through for them.
MAX_REPORTED: Final = 10_000
# What the journal has of them: they stay in memory.
MAX_REPORTED_BYTES: Final = 64 << 20
MAX_RECORDS: Final = 1_000_000
_FILTERS: Final = ("by", "proposer", "tool", "rule")
_HOW: Final = ("pending", "fulfilled", "rejected", "withdrawn", "expired")
_PARAMETERS: Final = frozenset({*_FILTERS, "how", "since", "until", "limit", "format"})
_MAX_WORD_CHARS: Final = 200
COLUMNS: Final = (
    "id", "proposed_at", "proposer", "to", "method", "tool", "arguments", "original_arguments", "state",
    "decided_by", "decided_at", "seconds", "reason", "rule", "votes", "outcome", "error",
)  # fmt: skip
# What a spreadsheet would take for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class _Report:
    """The proposals of one space, and where each is in its journal."""

    def __init__(self) -> None:
        self.ledger = ProposalHistory(max_proposals=MAX_REPORTED + 1)
        self.numbers: dict[str, int] = {}
        # The last record before which some are missing that another gateway may have.
        self.gap = 0
        self._reader = JournalReader(self.ledger)
        # By proposal, and of all.
        self._bytes: dict[str, int] = {}
        self._total = 0

    def catch_up(self, folder: Path, last: int, now: float, *, is_copy: bool) -> None:
        """Read what the journal has since; blocks."""
        after = max(self._reader.position, last - MAX_RECORDS)
        for record in read_records(folder, after):
            if is_copy and gap_before(folder, record, is_copy=True):
                self.gap = record.number
            about = self._reader.read(record)
            if about is None:
                continue
            if about.id == record.id:
                self.numbers[about.id] = record.number
            self._bytes[about.id] = self._bytes.get(about.id, 0) + len(record.line)
            self._total += len(record.line)
            while len(self.ledger) > MAX_REPORTED or self._total > MAX_REPORTED_BYTES:
                gone = self.ledger.drop_oldest()
                self._total -= self._bytes.pop(gone.id)
                self.numbers.pop(gone.id, None)
        self.ledger.advance(now)


class DecisionRoutes:
    """Reports of the spaces of a gateway."""

    def __init__(self, history: HistoryRoutes) -> None:
        self._history = history
        self._reports: WeakKeyDictionary[SpaceHost, _Report] = WeakKeyDictionary()

    async def report(self, request: Request) -> Response:
        """The latest decisions that match, the oldest of them first."""
        identity = await self._history.identify(request)
        given = request.query_params
        unknown = set(given) - _PARAMETERS
        if unknown:
            known = ", ".join(sorted(_PARAMETERS))
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))[:100]}; give some of {known}")
        wanted = {name: given[name][:_MAX_WORD_CHARS] for name in _FILTERS if given.get(name)}
        how = [word for each in given.getlist("how") for word in each.split(",") if word]
        if not set(how) <= set(_HOW):
            raise InvalidRequest(f"how is one of {', '.join(_HOW)}")
        form, limit = given.get("format", "json"), _limit_of(given.get("limit"))
        if form not in ("json", "csv"):
            raise InvalidRequest("format is json or csv")
        since, until = _time_of(given.get("since"), "since"), _time_of(given.get("until"), "until")
        host = identity.host
        found: list[HistoryProposal] = []
        has_gap = not host.journal.is_written
        if not has_gap:
            async with self._history.turn_of((host.name, identity.name)):
                await settle(host)
                report = self._reports.setdefault(host, _Report())
                first, visible_since = await self._history.visible_from(identity)
                last, now = host.journal.next_number - 1, host.journaled.clock()
                folder, is_copy = host.journaled.folder, host.order.is_shared
                await asyncio.to_thread(partial(report.catch_up, folder, last, now, is_copy=is_copy))
                has_gap = bool(report.gap) and report.gap >= first
                seen = [
                    each
                    for each in report.ledger
                    if report.numbers.get(each.id, 0) >= first and each.case.at >= visible_since
                ]
                found = list(
                    filter_proposals(
                        seen,
                        verdict=how,
                        proposer=wanted.get("proposer"),
                        by=wanted.get("by"),
                        tool=wanted.get("tool"),
                        rule=wanted.get("rule"),
                        decided=(since, until),
                    )
                )
        # It may have taken a while: a token that is void by now gets nothing.
        await self._history.identify(request)
        return await asyncio.to_thread(partial(_render, found, limit, form, has_gap=has_gap))


def _render(found: Sequence[HistoryProposal], limit: int, form: str, *, has_gap: bool) -> Response:
    told = [each.as_json() for each in found[-limit:]]
    if form == "json":
        body: dict[str, Json] = {"decisions": told, "left_out": len(found) - len(told)}
        return json_response(200, body | ({"gap": True} if has_gap else {}))
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="decisions.csv"'}
    return Response(as_csv(told), media_type="text/csv; charset=utf-8", headers=headers)


def as_csv(decisions: Iterable[dict[str, Json]]) -> str:
    """One line a decision; what a spreadsheet would calculate, and a terminal would obey, is text."""
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    for each in decisions:
        rows.writerow([_cell(each[name]) for name in COLUMNS])
    return out.getvalue()


def _cell(value: Json) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) else strict_json.encode(value).decode()
    text = show_hidden(text)
    return f"'{text}" if text.startswith(_FORMULA) and not isinstance(value, int | float) else text


def _time_of(given: str | None, name: str) -> float | None:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidRequest(f"{name} is a time such as 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _limit_of(given: str | None) -> int:
    if given is None:
        return MAX_REPORTED
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) < 1:
        raise InvalidRequest(f"limit is a whole number from 1 to {MAX_REPORTED}")
    return min(int(given), MAX_REPORTED)
