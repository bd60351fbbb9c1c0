"""One call, made of a second instance of a boxed server, whose folders are overlays."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from moot.box.boxed_child import Box, boxed
from moot.box.egress_proxy import EgressFact
from moot.box.folder_overlay import FolderOverlay
from moot.errors import McpError
from moot.mcp.eras import Era, JsonObject
from moot.mcp.upstream import StartFailed, StdioServer, UpstreamOptions, open_upstream
from moot.preview.call_effect import CallEffect, result_hash
from moot.preview.overlay_scan import OverlayScan
from moot.preview.path_state import NotBound
from moot.protocol.preview_report import MAX_TRIED

# The start of the server, its call and the comparison; people wait for it.
PREVIEW_SECONDS: Final = 60.0
PREVIEW_CPU_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPreview:
    """What a call did; `why` says why that cannot be applied as it is, if it cannot."""

    effect: CallEffect
    contents: dict[str, bytes]
    result: JsonObject
    tried: tuple[str, ...]
    why: str = ""


def call_hash(method: str, params: JsonObject) -> str:
    """What is called, without what belongs to one request."""
    kept = {name: value for name, value in params.items() if name != "_meta"}
    return hashlib.sha256(msgspec.json.encode([method, kept], order="deterministic")).hexdigest()


async def preview_call(
    box: Box,
    server: StdioServer,
    params: JsonObject,
    *,
    era: Era | None,
    folder: Path,
    is_protected: Callable[[Path], bool],
) -> CallPreview:
    """Make the call, and compare; raises NotBound, with why there is nothing to show.

    `folder`: where an empty folder may be made. Cancelling ends the instance.
    """
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    overlay = FolderOverlay(scratch)
    facts: list[EgressFact] = []
    limited = msgspec.structs.replace(
        box.config, cpu_seconds=min(box.config.cpu_seconds or PREVIEW_CPU_SECONDS, PREVIEW_CPU_SECONDS)
    )
    own = boxed(
        replace(server, stderr_file=None),
        replace(box, config=limited, overlay=overlay, report=facts.append, fill_head=None),
    )
    # It asks nobody anything, and gets no secret.
    options = UpstreamOptions(era=era, capabilities={})
    since_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            async with open_upstream(own, options) as upstream:
                await upstream.wait_until_ready()
                result = await upstream.request("tools/call", params)
            scan = OverlayScan(
                since_ns=since_ns, is_protected=lambda root, path: is_protected(Path(root) / path)
            )
            await asyncio.to_thread(_scan, scan, overlay, box.home)
    except TimeoutError:
        raise NotBound(f"the call takes more than {PREVIEW_SECONDS:.0f} s") from None
    except (McpError, StartFailed, OSError) as fault:
        raise NotBound(f"it fails there: {fault}") from None
    finally:
        overlay.close()
        shutil.rmtree(scratch, ignore_errors=True)
    tried = tuple(dict.fromkeys(str(each) for each in facts))[:MAX_TRIED]
    effect = CallEffect(
        call=call_hash("tools/call", params),
        nonce=secrets.token_hex(16),
        changes=tuple(scan.changes),
        result=result_hash(result),
    )
    why = ""
    if tried:
        why = f"it wanted to connect to {', '.join(tried[:3])}, which a preview does not"
    elif result.get("isError") is True:
        why = "the call fails there"
    elif result.get("resultType", "complete") != "complete":
        why = "the call asks for input"
    return CallPreview(effect=effect, contents=scan.contents, result=result, tried=tried, why=why)


def _scan(scan: OverlayScan, overlay: FolderOverlay, home: Path | None) -> None:
    if not overlay.uppers:
        raise NotBound("it was not started")
    own = None if home is None else home.resolve()
    for folder, upper in overlay.uppers.items():
        # What is in its own home, caches above all, is nobody's.
        if folder == own:
            continue
        base = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            scan.add(str(folder), base, upper)
        finally:
            os.close(base)
