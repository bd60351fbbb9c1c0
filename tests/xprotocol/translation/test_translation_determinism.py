"""Same input, same bytes out, on every machine (XP 1.3, D-71)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.waiting import HANG_SECONDS
from tests.xprotocol.tool_samples import ROOT


@pytest.mark.requirement("XP-1.3-1", "XP-4.1-1", "XP-4.2-1", "XP-11.1-1", "XP-11.1-2", "XP-11.3-1")
def test_two_processes_with_different_hash_seeds_translate_every_tool_alike() -> None:
    """Contracts, tools, announce, versions and every refusal; over our sample and all real tools at hand."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.xprotocol.digests"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale},
            stdout=subprocess.PIPE,
        )
        for seed, locale in (("1", "C"), ("271828", "C.UTF-8"))
    ]
    one, other = (json.loads(process.communicate(timeout=HANG_SECONDS)[0]) for process in running)
    print(f"over {one['what']}: {one['counts']}")
    assert one == other
    counts = one["counts"]
    refused = sum(count for reason, count in counts.items() if reason.startswith("refused"))
    assert counts["tools"] == counts["published"] + counts["withheld"] + refused
    assert counts["published"] >= 10
    assert counts["unexplained"] == counts["not mirrored"] == 0
