"""Older pages of a space's history, of gateways of the cluster that served the space before this one.

    the own journal ends where this gateway began ─▶ who has the record right before that? ─▶ a page of theirs

Records of a space have the same numbers at all gateways of a cluster, so it is known whether one follows the
other. Whoever gives a page has all records from there up to where this gateway has all: in between, a name
may have become somebody else's. A member reads of a journal what that one knows it to have been there for.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moot.config.loader import is_space_name
from moot.errors import Unavailable
from moot.gateway.access import SpaceDirectory
from moot.gateway.created_spaces import CLUSTER_FILE
from moot.gateway.hosting.journal_history import (
    CopyGap,
    HistoryEnd,
    HistoryPage,
    HistoryQuery,
    HistoryReader,
    copy_gaps,
    microseconds,
    neighbours_of,
    read_page,
)
from moot.gateway.hosting.membership_start import membership_starts
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.envelope import DialectName
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.space.config_json import load_config, save_config
from moot.store.journal_backwards import first_number_from, records_before

# What is told at once fits a message of NATS, whose default is 1 MiB, also with its quotes escaped.
_MAX_BYTES: Final = 1 << 18
_MAX_MESSAGE_BYTES: Final = 1 << 19
# Spaces of whose journals this is remembered.
_MAX_KNOWN: Final = 64


class WantedPage(msgspec.Struct, frozen=True):
    """Which page, for whom: as the gateway says that serves the space."""

    member: str
    since: float
    dialect: DialectName
    query: HistoryQuery
    limit: int
    config: dict[str, Any]


class PastQuestion(msgspec.Struct, frozen=True):
    space: str
    # Of the log, as it stands beside each copy.
    log: str
    # In microseconds of the log's time.
    before: int
    # None: only the numbers around that place, and up to which one all are there from then on.
    page: WantedPage | None = None


class Around(msgspec.Struct, frozen=True):
    last: int
    following: int
    through: int


class PastPage(msgspec.Struct, frozen=True):
    messages: list[str]
    before: int | None
    end: HistoryEnd | None
    has_gap: bool


class _Known(NamedTuple):
    """What a journal told when its run began, or ended: from which record on each participant may read, and
    where records are missing."""

    at: int
    starts: dict[str, int]
    gaps: list[CopyGap]


class PastPages:
    """Asks other gateways for what this one does not have, and answers from the files of this one."""

    def __init__(self, spaces: Path, directory: SpaceDirectory) -> None:
        self._spaces = spaces
        self._directory = directory
        # For members a page of others waits for one at most.
        self._turn = asyncio.Lock()
        self._known: LatestDict[str, _Known] = LatestDict(_MAX_KNOWN)
        directory.others.answer_of_files("past", self._answer)

    async def read(
        self, host: SpaceHost, before: int, query: HistoryQuery, reader: HistoryReader, name: str, limit: int
    ) -> HistoryPage | None:
        """The page before a place; None where nobody who answers has it. Raises Unavailable."""
        ask, log = self._directory.others.ask_files, self._log_of(host.name)
        folder = host.journaled.folder
        own = await asyncio.to_thread(self._around, host.name, folder, before)
        gaps = (await asyncio.to_thread(self._look_at, host.name, folder)).gaps
        # From here on this gateway has all.
        began = gaps[-1].began if gaps else 0
        found = await ask("past", msgspec.to_builtins(PastQuestion(host.name, log, before)))
        around = {who: msgspec.convert(each, Around) for who, each in found.items()}
        last, who = max(
            ((each.last, who) for who, each in around.items() if each.through + 1 >= began), default=(0, "")
        )
        # Where nothing was said since, the next record will have that number.
        known = (own.following or began, *(each.following for each in around.values()))
        if not (began and last) or last + 1 != min(filter(None, known), default=0):
            return None
        # By its rules of now; who is in it does not matter.
        rules = msgspec.structs.replace(host.space.state.config, participants={}, token_limits={})
        wanted = WantedPage(name, reader.since, reader.dialect, query, limit, save_config(rules))
        answer = (
            await ask("past", msgspec.to_builtins(PastQuestion(host.name, log, before, wanted)), who)
        ).get(who)
        if answer is None:
            raise Unavailable("the gateway that has older messages did not answer: try again")
        page = msgspec.convert(answer, PastPage)
        return HistoryPage([each.encode() for each in page.messages], page.before, page.end, page.has_gap)

    async def _answer(self, facts: Json) -> Json:
        question = msgspec.convert(facts, PastQuestion)
        if (
            not (question.log and is_space_name(question.space))
            or self._log_of(question.space) != question.log
        ):
            return None
        async with self._turn:
            return await asyncio.to_thread(self._find, question)

    def _log_of(self, space: str) -> str:
        """Of which log the folder of a space is a copy; empty for none."""
        mark = self._spaces / space / CLUSTER_FILE
        return mark.read_text() if mark.exists() else ""

    # In a thread

    def _find(self, question: PastQuestion) -> Json:
        folder, wanted = self._spaces / question.space / "journal", question.page
        if wanted is None:
            return msgspec.to_builtins(self._around(question.space, folder, question.before))
        first = self._look_at(question.space, folder).starts.get(wanted.member)
        if first is None:
            return msgspec.to_builtins(PastPage([], question.before, "elsewhere", False))
        reader = HistoryReader(first, wanted.since, wanted.dialect, by_time=True)
        config, query, page = load_config(wanted.config), wanted.query, HistoryPage([])
        for most in (_MAX_BYTES, 1):
            page = read_page(
                folder,
                question.before,
                query,
                reader=reader,
                config=config,
                limit=wanted.limit,
                max_bytes=most,
            )
            if sum(map(len, page.messages)) <= _MAX_MESSAGE_BYTES:
                break
        else:
            # One that is too large to be told is left out, and the page says so.
            page = page._replace(messages=[], has_gap=True)
        texts = [each.decode() for each in page.messages]
        return msgspec.to_builtins(PastPage(texts, page.before, page.end, page.has_gap))

    def _around(self, space: str, folder: Path, before: int) -> Around:
        number = first_number_from(folder, before, microseconds)
        gaps = self._look_at(space, folder).gaps if number is not None else []
        ends = (each.last for each in gaps if number is not None and each.record >= number)
        through = next(ends, None)
        if through is None:
            through = neighbours_of(folder, None)[0]
        return Around(*neighbours_of(folder, number), through)

    def _look_at(self, space: str, folder: Path) -> _Known:
        host = self._directory.hosts.get(space)
        newest = next(records_before(folder), None)
        at = host.opened_at_record if host is not None else 0 if newest is None else newest.number
        known = self._known.get(space)
        if known is None or known.at != at:
            known = self._known[space] = _Known(at, membership_starts(folder, at), copy_gaps(folder))
        return known
