"""The real box, and the ways out of it: `escapes.py` tries them all, in one box and outside."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.resilience.child_process import start_child
from tests.box.outside_world import BOUNDS, SECRET, VARIABLE, outcome_of, outside_world

pytestmark = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv("ESCAPE_TEST", VARIABLE)
    with outside_world(tmp_path) as found:
        yield found


async def test_no_way_out_of_the_box_is_open(
    outside: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    listed = replace(BOUNDS, write=(".",), read=("../readable",))
    box = Box(config=listed, folder=shared, hidden=(shared / ".moot",), home=tmp_path / "home")
    with caplog.at_level(logging.WARNING):
        found = await outcome_of(box.start, outside, shared, {"PATH": "/usr/bin:/bin"})
    open_ways = {name: outcome for name, outcome in found.items() if outcome.startswith("escaped")}
    if "not limited here" in caplog.text:
        open_ways.pop("more processes")
    assert len(found) >= 105
    assert open_ways == {}
    # Nor was anything changed that was not meant to be.
    assert (shared / "moot.yaml").read_text() == (tmp_path / "readable" / "a.txt").read_text() == "text"
    assert (shared / ".moot" / "token").read_text() == SECRET


async def test_the_same_ways_are_open_without_a_box(outside: Any, tmp_path: Path) -> None:
    """So the list can fail: what is harmless to try is tried outside, and succeeds."""
    outside["only_harmless"] = True
    with open(tmp_path / "secret.txt") as inherited:

        async def start(*arguments: Any, **options: Any) -> Any:
            return await start_child(*arguments, **options, pass_fds=(inherited.fileno(),))

        environment = {"PATH": "/usr/bin:/bin", "ESCAPE_TEST": outside["variable"]}
        found = await outcome_of(start, outside, tmp_path, environment)
    assert len(found) >= 25
    assert {name: outcome for name, outcome in found.items() if not outcome.startswith("escaped")} == {}
