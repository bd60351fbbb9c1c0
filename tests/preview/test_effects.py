"""Effects: what a run in an overlay changed, applied as a whole or not at all, and taken back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moot.box.box_support import why_not_confined
from tests.preview.effect_soak import run_effect_kills, run_effect_races, run_effects
from tests.preview.overlay_run import scan_run

boxes = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


@boxes
def test_an_applied_effect_equals_a_real_run_and_is_taken_back_byte_for_byte() -> None:
    run_effects(4, seed=1)


@boxes
def test_a_folder_made_anew_inside_of_one_made_anew_has_nothing_of_the_former_one(tmp_path: Path) -> None:
    """Only the outer one of the two is marked as new in the overlay."""
    base = tmp_path / "base"
    (base / "a" / "b").mkdir(parents=True)
    (base / "a" / "b" / "old.txt").write_text("old")
    script = f"import os, shutil; os.chdir({str(base)!r}); shutil.rmtree('a'); os.makedirs('a/b')"
    scan = scan_run(base, tmp_path / "scratch", [sys.executable, "-S", "-c", script])
    assert [(each.what, each.path) for each in scan.changes] == [("deleted", "a/b/old.txt")]


def test_killed_before_any_step_files_are_old_or_new() -> None:
    run_effect_kills(1, seed=3)


def test_what_others_change_meanwhile_never_mixes_with_an_effect() -> None:
    run_effect_races(30, seed=1)
