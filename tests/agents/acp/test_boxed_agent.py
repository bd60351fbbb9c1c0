"""An agent in a box: it works in its folder and its home, and sees nothing else of whoever starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.config.box_config import BoxConfig
from tests.agents.acp.agent_space import AGENT, agent_space
from tests.waiting import until

pytestmark = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


async def test_an_agent_in_a_box_writes_in_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside.txt"
    # Its script and what it writes down are beside its folder.
    own = ("script.json", "received.jsonl", "pid", "played")
    for name in own:
        (tmp_path / name).write_text("0" if name == "played" else "")
    listed = BoxConfig(read=(str(AGENT),), write=own)
    turn: list[dict[str, Any]] = [
        {"write": [str(work / "made.txt"), "inside"]},
        {"say": "Made."},
    ]
    second: list[dict[str, Any]] = [{"write": [str(outside), "outside"]}, {"say": "Not here."}]
    settings = {"box": Box(config=listed, folder=tmp_path)}
    async with agent_space(tmp_path, turn, second, settings=settings) as space:
        await space.ask("make it")
        await space.wait_for("chat", "Made.")
        assert (work / "made.txt").read_text() == "inside"
        await space.ask("and outside")
        # What it wrote there was in the box, and is gone with it.
        await until(lambda: space.turns.current is None and len(space.prompts()) == 2)
        assert not outside.exists()
