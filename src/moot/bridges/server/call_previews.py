"""Previews of proposed calls at a boxed server, what approving them does, and taking that back.

How it works. A proposal that names us alone is queued; one after the other, the call is made of a second
instance in an overlay, and the space is told what it did (`moot/preview`). From then on the proposal is
bound: the request that carries it out gets the effect applied, and the result that was seen; the server
itself is not called. If a file is not as it was by then, nothing is done. A proposal that is carried out
before its preview was told, or whose preview does not bind, runs as any other.

    moot/preview {proposal}    all of a preview: differences and the result; made anew if files changed
    moot/undo {proposal}       takes back what was applied, while the files are as it left them
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from moot.box.boxed_child import Box
from moot.bridges.server.call_secrets import CallSecrets
from moot.bridges.server.preview_run import CallPreview, call_hash, preview_call
from moot.bridges.server.server_pause import ServerPause
from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import StdioServer, Upstream
from moot.participant import IncomingRequest, JoinedSpace, SeenProposal
from moot.preview.effect_store import AboutEffect, EffectStore, StoredEffect
from moot.preview.effect_text import differences, report_of
from moot.preview.effect_writer import EffectWriter
from moot.preview.path_state import NotBound
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.preview_report import (
    EFFECT_KEY,
    PREVIEW_KIND,
    PREVIEW_METHOD,
    UNDO_METHOD,
    PreviewReport,
)
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)

# One runs, the others wait; who proposes faster than that gets no previews for the rest.
MAX_WAITING: Final = 16
MAX_WAITING_EACH: Final = 4
PREVIEW_METHODS: Final = frozenset({PREVIEW_METHOD, UNDO_METHOD})
# What is run or read outside of a box, wherever it is below a folder.
_GIT_RUNS: Final = frozenset({"hooks", "config"})


class CallPreviews:
    """The previews of one bridge."""

    def __init__(self, box: Box, server: StdioServer, folder: Path, secrets: CallSecrets | None) -> None:
        """`server`: without any secret. Raises UsageError if its effects cannot be kept in `folder`."""
        self.pause = ServerPause()
        self._box = box
        self._server = server
        self._secrets = secrets
        self._store = EffectStore(folder)
        self._writer = EffectWriter(self._store)
        try:
            self._store.load()
            self._writer.recover()
        except (OSError, ValueError) as fault:
            raise UsageError(f"{folder}: what was applied last cannot be finished: {fault}") from None
        self._is_reading: Callable[[str], bool] = lambda _tool: False
        self._space: JoinedSpace | None = None
        self._upstream: Upstream | None = None
        self._waiting: deque[str] = deque()
        self._wake = asyncio.Event()
        self._running: tuple[str, asyncio.Task[PreviewReport]] | None = None
        # What was carried out: no preview of it is told any more.
        self._over: deque[str] = deque(maxlen=1_000)

    def attach(self, upstream: Upstream, space: JoinedSpace, is_reading: Callable[[str], bool]) -> None:
        """`is_reading`: of a tool, whether it says that it only reads."""
        self._upstream, self._space, self._is_reading = upstream, space, is_reading
        space.on("mcp/proposal")(self._on_proposal)

    async def run(self) -> None:
        """Make the previews that are asked for, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                id = self._waiting.popleft()
                try:
                    await self._preview(id)
                except MootError as fault:
                    log.info("no preview", extra={"proposal": id, "reason": type(fault).__name__})

    # What is proposed

    def _on_proposal(self, envelope: Envelope) -> None:
        space = self._space
        if space is None or list(envelope.to) != [space.me] or not space.may(PREVIEW_KIND, {"why": "-"}):
            return
        if self._obstacle(envelope.payload) is not None:
            return
        known = [space.proposals.get(id) for id in self._waiting]
        own = sum(each is not None and each.proposer == envelope.sender for each in known)
        if len(self._waiting) < MAX_WAITING and own < MAX_WAITING_EACH:
            self._waiting.append(envelope.id)
            self._wake.set()

    def _obstacle(self, payload: Mapping[str, Json]) -> str | None:
        """Why a call gets no preview."""
        params = payload.get("params")
        if payload.get("method") != "tools/call" or not isinstance(params, dict):
            return "only calls of tools have one"
        if self._is_reading(str(params.get("name"))):
            return "this tool says that it only reads"
        if "{{secret:" in json.dumps(params, ensure_ascii=False):
            return "the call uses a secret, which a preview does not have"
        return None

    async def _preview(self, id: str) -> PreviewReport:
        """Make the preview of an open proposal and tell it; the one that runs, if it is of this one."""
        if self._running is not None and self._running[0] == id:
            return await asyncio.shield(self._running[1])
        while self._running is not None:
            await asyncio.wait([self._running[1]])
        task = asyncio.create_task(self._make(id))
        self._running = (id, task)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise UsageError("it was carried out meanwhile") from None
        finally:
            self._running = None

    async def _make(self, id: str) -> PreviewReport:
        seen = self._open(id)
        if (obstacle := self._obstacle(seen.envelope.payload)) is not None:
            raise UsageError(f"no preview of this: {obstacle}")
        info = None if self._upstream is None else self._upstream.server_info
        started_at = time.monotonic()
        try:
            made = await preview_call(
                self._box,
                self._server,
                seen.params,
                era=None if info is None else info.era,
                folder=self._store.folder,
                is_protected=self._is_protected,
            )
            report = await asyncio.to_thread(self._keep, id, made)
        except NotBound as fault:
            report = PreviewReport(why=str(fault)[:900])
        log.info("preview", extra={"proposal": id, "seconds": round(time.monotonic() - started_at, 3)})
        # While it was made, it may have been decided.
        self._open(id)
        if self._space is not None:
            await self._space.send(PREVIEW_KIND, report.as_json(), about=id)
        return report

    def _keep(self, id: str, made: CallPreview) -> PreviewReport:
        report = report_of(made.effect, made.contents, made.tried)
        if made.why:
            return PreviewReport(why=made.why, tried=made.tried)
        about = AboutEffect(id, self._mask(made.result), report.as_json(), time.time())
        for former in self._told_of(id):
            self._store.drop(former)
        self._store.save(made.effect, made.contents, about)
        return report

    def _told_of(self, id: str) -> list[StoredEffect]:
        found = self._store.of(id)
        return [found] if found is not None and found.status == "told" else []

    def _open(self, id: str) -> SeenProposal:
        space = self._space
        seen = None if space is None else space.proposals.get(id)
        if space is None or seen is None or list(seen.to) != [space.me]:
            raise UsageError("there is no such proposal for this member")
        if seen.status != "pending" or id in self._over:
            raise UsageError("this proposal is not pending any more")
        return seen

    def _is_protected(self, path: Path) -> bool:
        parts = path.parts
        in_git = any(a == ".git" and b in _GIT_RUNS for a, b in pairwise(parts))
        own = path in (self._box.folder / "moot.yaml", self._box.folder / "space.yaml")
        return in_git or own or any(path.is_relative_to(each) for each in self._box.hidden)

    def _mask(self, value: JsonObject) -> JsonObject:
        masked = value if self._secrets is None else self._secrets.mask(value)
        return masked if isinstance(masked, dict) else {}

    # What is carried out

    async def carry_out(self, request: IncomingRequest) -> JsonObject | None:
        """The result of a bound proposal, whose effect is applied now; None: the call runs as any other.

        Raises McpError if nothing was done.
        """
        about = request.envelope.correlation_id
        wanted = request.envelope.payload.get("effect")
        self._over.extend(about)
        self._waiting = deque(each for each in self._waiting if each not in about)
        if self._running is not None and self._running[0] in about:
            self._running[1].cancel()
        bound = [each for id in about for each in self._told_of(id)]
        if not bound:
            if wanted is not None:
                raise _nothing_done("the effect that was approved is not known here any more")
            return None
        stored = bound[0]
        if wanted is not None and wanted != stored.hash:
            raise _nothing_done(f"what was approved is not the last preview, {stored.hash[:8]}")
        if stored.effect.call != call_hash(request.method, request.params):
            raise _nothing_done("this is not the call of the preview")
        await self._write(stored, self._writer.apply)
        result = stored.about.result if isinstance(stored.about.result, dict) else {}
        return _with_effect(result, {"effect": stored.hash, "applied": len(stored.effect.changes)})

    async def handle(self, request: IncomingRequest) -> JsonObject:
        """The methods of PREVIEW_METHODS; raises McpError."""
        id = request.params.get("proposal")
        if not isinstance(id, str):
            raise McpError(INVALID_PARAMS, f"{request.method} needs params.proposal, the id of a proposal")
        if request.method == UNDO_METHOD:
            return await self._undo(id)
        stored = self._store.of(id)
        is_current = stored is not None and await asyncio.to_thread(self._is_current, stored)
        if not is_current:
            # Also where one was told: what it says is not so any more.
            try:
                report = await self._preview(id)
            except MootError as fault:
                raise McpError(INVALID_PARAMS, str(fault)) from None
            stored = self._store.of(id) if report.effect else None
            if stored is None:
                return {"report": report.as_json()}
        assert stored is not None  # noqa: S101  # told, or just made
        if request.params.get("check") is True:
            # Everybody reads the answer, so it says no more than was told.
            return {"report": stored.about.report}
        return self._mask(await asyncio.to_thread(_whole, stored))

    async def _undo(self, id: str) -> JsonObject:
        stored = self._store.of(id)
        if stored is None:
            raise _nothing_done("no applied effect of this proposal is kept here")
        await self._write(stored, self._writer.undo)
        count = len(stored.effect.changes)
        text = f"Taken back: {count} {'path is' if count == 1 else 'paths are'} as before."
        result: JsonObject = {"content": [{"type": "text", "text": text}]}
        return _with_effect(result, {"effect": stored.hash, "undone": count})

    async def _write(self, stored: StoredEffect, write: Callable[[StoredEffect], None]) -> None:
        assert self._upstream is not None  # noqa: S101  # requests come when it is there
        try:
            # Not for what changes nothing: the server runs on.
            if not stored.effect.changes:
                await asyncio.to_thread(write, stored)
                return
            async with self.pause.pause(self._upstream):
                # To its end, also when the caller goes.
                await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(write, stored)))
        except NotBound as fault:
            raise _nothing_done(str(fault)) from None
        finally:
            self._wake.set()

    def _is_current(self, stored: StoredEffect) -> bool:
        if stored.status == "undone":
            return True
        try:
            self._writer.check(stored)
        except (NotBound, OSError):
            # What was applied stays what it is, whatever came after it.
            return stored.status == "applied"
        return True


def _whole(stored: StoredEffect) -> JsonObject:
    return {
        "report": stored.about.report,
        "status": stored.status,
        "differences": differences(stored.effect, stored.content),
        "result": stored.about.result,
        "document": msgspec.to_builtins(stored.effect),
    }


def _nothing_done(why: str) -> McpError:
    return McpError(INVALID_PARAMS, f"nothing was done: {why}")


def _with_effect(result: JsonObject, effect: JsonObject) -> JsonObject:
    meta = result.get("_meta")
    return result | {"_meta": {**(meta if isinstance(meta, dict) else {}), EFFECT_KEY: effect}}
