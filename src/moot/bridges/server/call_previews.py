"""Previews of proposed calls: who gets one and when, and what approving goes by then.

How it works. A proposal that names us alone is queued; one after the other, previews are made, and the space
is told (`moot/preview`). From then on the proposal is bound to what was told. Where the tool names one that
plans it, that is the server's own plan, and the call is made only while it holds (`ServerPlans`). In a box
with previews it is what the call did in an overlay, and that is applied in its place (`OverlayPreviews`).
A proposal that is carried out before its preview was told, or whose preview does not bind, runs as any other.

    moot/preview {proposal}    all of a preview: what differs and the result; made anew if it is old
    moot/undo {proposal}       takes back what was applied, while the files are as it left them
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from moot.bridges.server.overlay_previews import OverlayPreviews, nothing_done, with_effect
from moot.bridges.server.server_plans import PLAN_ID, ServerPlans
from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import JsonObject
from moot.participant import IncomingRequest, JoinedSpace, SeenProposal
from moot.preview.path_state import NotBound
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.preview_report import (
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
MakeCall = Callable[[IncomingRequest], Awaitable[JsonObject]]
PREVIEW_METHODS: Final = frozenset({PREVIEW_METHOD, UNDO_METHOD})


class CallPreviews:
    """The previews of one bridge."""

    def __init__(
        self,
        space: JoinedSpace,
        overlay: OverlayPreviews | None,
        plans: ServerPlans | None,
        is_reading: Callable[[str], bool],
    ) -> None:
        """`is_reading`: of a tool, whether it says that it only reads."""
        self._space = space
        self._overlay = overlay
        self._plans = plans
        self._is_reading = is_reading
        self._waiting: deque[str] = deque()
        self._wake = asyncio.Event()
        self._running: tuple[str, asyncio.Task[PreviewReport]] | None = None
        # What was carried out: no preview of it is told any more.
        self._over: deque[str] = deque(maxlen=1_000)
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
        if list(envelope.to) != [space.me]:
            return
        if self._plans is not None:
            self._plans.note(envelope.id)
        if self._obstacle(envelope.payload) is not None or not space.may(PREVIEW_KIND, {"why": "-"}):
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
        payload = seen.envelope.payload
        plans = None
        if self._plans is not None and await self._plans.cover(payload):
            plans = self._plans
        obstacle = self._obstacle(payload)
        if obstacle is None and plans is None and self._overlay is None:
            obstacle = "this tool names none that plans it"
        if obstacle is not None:
            raise UsageError(f"no preview of this: {obstacle}")
        started_at = time.monotonic()
        former = None if plans is None else plans.told(id)
        try:
            if plans is not None:
                report = await plans.make(id, seen.params)
            else:
                assert self._overlay is not None  # noqa: S101  # else there is an obstacle
                report = await self._overlay.make(id, seen.params)
        except NotBound as fault:
            report = PreviewReport(why=str(fault)[:900])
        log.info("preview", extra={"proposal": id, "seconds": round(time.monotonic() - started_at, 3)})
        # While it was made, it may have been decided.
        self._open(id)
        if former is None or former.hash != report.effect:
            await self._space.send(PREVIEW_KIND, report.as_json(), about=id)
        return report

    def _open(self, id: str) -> SeenProposal:
        seen = self._space.proposals.get(id)
        if seen is None or list(seen.to) != [self._space.me]:
            raise UsageError("there is no such proposal for this member")
        if seen.status != "pending" or id in self._over:
            raise UsageError("this proposal is not pending any more")
        return seen

    # What is carried out

    async def carry_out(self, request: IncomingRequest, call: MakeCall) -> JsonObject:
        """The result of a call of a tool, as what was told of its proposal binds it; raises McpError.

        `call` makes it, where it is made.
        """
        about = request.envelope.correlation_id
        wanted = request.envelope.payload.get("effect")
        self._over.extend(about)
        self._waiting = deque(each for each in self._waiting if each not in about)
        if self._running is not None and self._running[0] in about:
            self._running[1].cancel()
        if self._plans is not None and (plan := await self._plans.check(request)) is not None:
            meta = {name: value for name, value in request.meta.items() if name != PLAN_ID}
            told = {PLAN_ID: plan.id} if plan.id is not None else {}
            request.params = {**request.params, "_meta": meta | told}
            return with_effect(await self._call(request, call), {"effect": plan.hash})
        if self._overlay is not None and (applied := await self._overlay.carry_out(request)) is not None:
            return applied
        if wanted is not None:
            raise nothing_done("what was approved is not known here any more")
        return await self._call(request, call)

    async def _call(self, request: IncomingRequest, call: MakeCall) -> JsonObject:
        if self._overlay is None:
            return await call(request)
        async with self._overlay.pause.call():
            return await call(request)

    async def handle(self, request: IncomingRequest) -> JsonObject:
        """The methods of PREVIEW_METHODS; raises McpError."""
        id = request.params.get("proposal")
        if not isinstance(id, str):
            raise McpError(INVALID_PARAMS, f"{request.method} needs params.proposal, the id of a proposal")
        whole = request.params.get("check") is not True
        if request.method == UNDO_METHOD:
            if self._overlay is None:
                raise nothing_done("what this server did cannot be taken back here")
            return await self._overlay.undo(id)
        if self._overlay is not None and (stored := await self._overlay.current(id)) is not None:
            return await self._overlay.show(stored, whole=whole)
        try:
            report = await self._preview(id)
        except MootError as fault:
            raise McpError(INVALID_PARAMS, str(fault)) from None
        if self._plans is not None and (plan := self._plans.told(id)) is not None:
            # Everybody reads the answer to a check, too; it says no more than was told.
            return {"report": report.as_json()} | (plan.whole() if whole else {})
        if self._overlay is not None and (stored := await self._overlay.current(id)) is not None:
            return await self._overlay.show(stored, whole=whole)
        return {"report": report.as_json()}
