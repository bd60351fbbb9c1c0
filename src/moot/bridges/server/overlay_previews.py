"""Previews in an overlay: a call of a second instance, whose effect is applied when approved, and undone.

The server itself is not called then. If a file is not as it was by then, nothing is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from moot.box.boxed_child import Box
from moot.bridges.server.call_secrets import CallSecrets
from moot.bridges.server.preview_run import CallPreview, call_hash, preview_call
from moot.bridges.server.server_pause import ServerPause
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import StdioServer, Upstream
from moot.participant import IncomingRequest
from moot.preview.effect_store import AboutEffect, EffectStore, StoredEffect
from moot.preview.effect_text import differences, report_of
from moot.preview.effect_writer import EffectWriter
from moot.preview.path_state import NotBound
from moot.protocol.preview_report import EFFECT_KEY, PreviewReport
from moot.protocol.rpc_codes import INVALID_PARAMS

# What is run or read outside of a box, wherever it is below a folder.
_GIT_RUNS: Final = frozenset({"hooks", "config"})


class OverlayPreviews:
    """The previews of one boxed server, and what of them was applied."""

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
        self._upstream: Upstream | None = None

    def attach(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def make(self, id: str, params: JsonObject) -> PreviewReport:
        """Try a call; raises NotBound, with why there is nothing to show."""
        info = None if self._upstream is None else self._upstream.server_info
        made = await preview_call(
            self._box,
            self._server,
            params,
            era=None if info is None else info.era,
            folder=self._store.folder,
            is_protected=self._is_protected,
        )
        return await asyncio.to_thread(self._keep, id, made)

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
        bound = [each for id in about for each in self._told_of(id)]
        if not bound:
            return None
        stored = bound[0]
        if wanted is not None and wanted != stored.hash:
            raise nothing_done(f"what was approved is not the last preview, {stored.hash[:8]}")
        if stored.effect.call != call_hash(request.method, request.params):
            raise nothing_done("this is not the call of the preview")
        await self._write(stored, self._writer.apply)
        result = stored.about.result if isinstance(stored.about.result, dict) else {}
        return with_effect(result, {"effect": stored.hash, "applied": len(stored.effect.changes)})

    async def current(self, id: str) -> StoredEffect | None:
        """What is kept of a proposal, unless files have changed since."""
        stored = self._store.of(id)
        is_current = stored is not None and await asyncio.to_thread(self._is_current, stored)
        return stored if is_current else None

    async def show(self, stored: StoredEffect, *, whole: bool) -> JsonObject:
        """Not `whole`: no more than everybody was told."""
        if not whole:
            return {"report": stored.about.report}
        return self._mask(await asyncio.to_thread(_whole, stored))

    async def undo(self, id: str) -> JsonObject:
        stored = self._store.of(id)
        if stored is None:
            raise nothing_done("no applied effect of this proposal is kept here")
        await self._write(stored, self._writer.undo)
        count = len(stored.effect.changes)
        text = f"Taken back: {count} {'path is' if count == 1 else 'paths are'} as before."
        result: JsonObject = {"content": [{"type": "text", "text": text}]}
        return with_effect(result, {"effect": stored.hash, "undone": count})

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
            raise nothing_done(str(fault)) from None

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


def nothing_done(why: str) -> McpError:
    return McpError(INVALID_PARAMS, f"nothing was done: {why}")


def with_effect(result: JsonObject, effect: JsonObject) -> JsonObject:
    meta = result.get("_meta")
    return result | {"_meta": {**(meta if isinstance(meta, dict) else {}), EFFECT_KEY: effect}}
