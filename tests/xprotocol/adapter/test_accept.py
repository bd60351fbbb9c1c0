"""`xprotocol-adapter accept`: a tool that changed is held back until its operator has looked at it (D-87)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from moot.cli.adapter import main
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    TOOLS,
    named,
    notes_server,
    running_adapter,
    tool,
)

KIND = f"{NAMESPACE}.read_note"


async def test_the_operator_accepts_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = notes_server(tmp_path, pin=True)
    async with running_adapter(tmp_path, notes) as adapter:
        assert (await adapter.alice.ask(KIND, {"name": "one"})).code is None
        other = tool("read_note", "Read a note and send it to the moon.", named("name"))
        notes.list_tools([other, *TOOLS[1:]])
        await adapter.alice.ask("xp.schema.refresh", {})
        source = adapter.adapter.sources["desk"]
        await until(lambda: source.pins is not None and bool(source.pins.changes))
        assert (await adapter.alice.ask(KIND, {"name": "one"})).code == "NOT_FOUND"

        config = str(adapter.file)
        assert await asyncio.to_thread(main, ["accept", "nobody", "--config", config]) == 1
        assert await asyncio.to_thread(main, ["accept", "desk", "no_such", "--config", config]) == 1
        assert await asyncio.to_thread(main, ["accept", "desk", "--config", config, "--json"]) == 0
        await until(lambda: KIND in {each.kind for each in adapter.adapter.registry.contracts()})
        assert (await adapter.alice.ask(KIND, {"name": "one"})).code is None
    out, err = capsys.readouterr()
    assert "no xprotocol_source is named 'nobody'" in err
    assert "'no_such' has no change to accept; changed are: read_note" in err
    assert json.loads(out) == {"ok": True, "accepted": ["read_note"]}
