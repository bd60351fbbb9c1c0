"""A program that runs in an overlay, without a box around it, and the effect that it had."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from moot.box.box_plan import BoxPlan
from moot.box.folder_overlay import FolderOverlay
from moot.preview.call_effect import CallEffect
from moot.preview.effect_store import AboutEffect, EffectStore, StoredEffect
from moot.preview.overlay_scan import OverlayScan

ABOUT = AboutEffect(proposal="p1", result={}, report={}, at=0.0)


def plan_for(*folders: Path) -> BoxPlan:
    return BoxPlan(
        links={},
        system=(),
        read={},
        write={each: each for each in folders},
        hidden_folders=(),
        hidden_files=(),
        home=None,
        cwd=folders[0],
    )


def scan_run(folder: Path, scratch: Path, command: Sequence[str]) -> OverlayScan:
    """What a command does to a folder, which stays as it is."""
    scratch.mkdir(exist_ok=True)
    overlay = FolderOverlay(scratch)
    wrapped, channel = overlay.wrap(plan_for(folder), command)
    since = time.clock_gettime_ns(time.CLOCK_REALTIME)
    try:
        subprocess.run(  # noqa: S603  # our own program
            wrapped, check=True, pass_fds=[channel.fileno()], timeout=60
        )
        channel.close()
        overlay.receive_folders()
        scan = OverlayScan(since_ns=since, is_protected=lambda _root, path: path == "protected")
        base = os.open(folder, os.O_RDONLY)
        try:
            scan.add(str(folder), base, overlay.uppers[folder])
        finally:
            os.close(base)
        return scan
    finally:
        overlay.close()


def store_scan(scan: OverlayScan, store: EffectStore) -> StoredEffect:
    effect = CallEffect(call="c", nonce="n", changes=tuple(scan.changes), result="r")
    return store.save(effect, scan.contents, ABOUT)


def new_store(folder: Path) -> EffectStore:
    store = EffectStore(folder)
    store.load()
    return store
