"""`GET /spaces/{space}/receipts/{id}`: the receipt of a decided proposal or a call, out of journal and log.

For members, of what was proposed since they belong to the space, and in turn with whoever reads its history.
What is no message (how somebody signed in, under which configuration) is not theirs to see: it is withheld,
as a hash that the operator can reveal. So is a rule or a grant from before they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import InvalidRequest, UsageError
from moot.evidence.log_files import FOLDER
from moot.evidence.receipt import MEDIA_TYPE, ROLES, WITHHELD, Receipt, Role, read_roles
from moot.evidence.receipt_maker import RECEIPT_KINDS, NotDecided, find_records, make_receipt, proofs_in
from moot.gateway.access import AccessDenied
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.history_routes import HistoryRoutes, settle
from moot.gateway.http.http_replies import HEADERS, denied
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import JournalRecord
from moot.store.journal_search import JournalQuery, search, whole_id

_OPERATORS: Final[frozenset[Role]] = frozenset({"sign-in", "configuration"})
_MEMBERS: Final = tuple(role for role in ROLES if role not in _OPERATORS)
_INDEX_SECONDS: Final = 2.0
_MAX_ID_CHARS: Final = 256


class ReceiptRoutes:
    def __init__(self, history: HistoryRoutes, keeper: LogKeeper) -> None:
        self._history = history
        self._keeper = keeper

    async def get(self, request: Request) -> Response:
        identity = await self._history.identify(request)
        self._history.charge(identity)
        given, host = request.query_params, identity.host
        if unknown := set(given) - {"show", "withhold"}:
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))[:100]}; give show or withhold")
        show = read_roles(given.getlist("show"), allowed=_MEMBERS)
        withhold = (WITHHELD - show) | read_roles(given.getlist("withhold"), allowed=_MEMBERS) | _OPERATORS
        found = self._keeper.logs.get(host.name)
        if found is None:
            return denied(self._keeper.why_none(host))
        if found.broken:
            text = "the log of this journal is not signed any more: what the gateway logged says why"
            return denied(AccessDenied(503, text))
        folder, named = host.journaled.folder, request.path_params["id"][:_MAX_ID_CHARS]
        try:
            async with self._history.turn_of((host.name, identity.name)):
                await settle(host)
                first, since = await self._history.visible_from(identity)
                about, records = await asyncio.to_thread(_find, folder, named)
                main = next(each for each in records if each.id == about)
                if main.number < first or main.time < since:
                    raise UsageError(f"no accepted proposal or call {named!r} since you belong to the space")
                unseen = {
                    each.number
                    for each in records
                    if each.envelope is not None and (each.number < first or each.time < since)
                }
                with suppress(UsageError):
                    # Waits until it is signed for; that it is not, is said below.
                    await self._keeper.proof_of(host.name, max(each.number for each in records))
                made = await asyncio.to_thread(_make, folder, about, records, withhold, unseen)
        except NotDecided as fault:
            return denied(AccessDenied(409, _as_far_as_known(fault, host)))
        except UsageError as fault:
            return denied(AccessDenied(404, _as_far_as_known(fault, host)))
        # It may have taken a while: a token that is void by now gets nothing.
        await self._history.identify(request)
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="receipt.json"'}
        return Response(made.as_bytes(), media_type=MEDIA_TYPE, headers=headers)


def _as_far_as_known(fault: UsageError, host: SpaceHost) -> str:
    """Of a copy of a cluster's journal, records may be missing."""
    more = ", by this gateway's journal: another gateway's may have it" if host.order.is_shared else ""
    return f"{fault}{more}"


def _find(folder: Path, named: str) -> tuple[str, list[JournalRecord]]:
    index = JournalIndex.open(folder)
    try:
        if index is not None:
            index.catch_up(_INDEX_SECONDS)

        def find(query: JournalQuery) -> list[JournalRecord]:
            return list(search(folder, query, index=index))

        return find_records(find, whole_id(folder, named, index=index, kinds=RECEIPT_KINDS))
    finally:
        if index is not None:
            index.close()


def _make(
    folder: Path,
    about: str,
    records: list[JournalRecord],
    withhold: Collection[Role],
    unseen: Collection[int],
) -> Receipt:
    proofs = proofs_in(folder.parent / FOLDER)
    return make_receipt(folder.parent.name, about, records, proofs, withhold, unseen)
