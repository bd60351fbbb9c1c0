"""What an adapter and a DevServer find: processes of their own, asked over a relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_loader import control_path
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from moot.xprotocol.contracts.contract_catalog import DESCRIBE_KIND
from tests.xprotocol.adapter.adapter_environment import (
    RemoteCaller,
    adapter_environment,
    notes_server,
    quick_relay_client,
    tool,
)
from tests.xprotocol.adapter.command_runner import Shell, start_adapter
from tests.xprotocol.adapter.test_adapter_commands import config
from tests.xprotocol.people import person
from tests.xprotocol.test_devserver import devserver

QUERY = "monthly loan"
FOUND = "com.acme.desk.loan_payment"
TOOLS = [
    tool("loan_payment", "Monthly payment of a loan."),
    tool("read_note", "Read a note that was left at the desk."),
    tool("current_weather", "Temperature, wind and humidity in a city."),
]


class AskedAdapter:
    """An adapter in a process of its own, and somebody who describes what they want."""

    def __init__(self, alice: RemoteCaller, control: Path) -> None:
        self._alice = alice
        self.control = control

    async def kinds(self, intent: str) -> list[str]:
        status = await self.status()
        answer = await self._alice.ask(
            DESCRIBE_KIND,
            {"intent": intent},
            recipient=status["key"],
            enc_key=status["encryption_key"],
        )
        return [match["kind"] for match in answer.payload["matches"]]

    async def status(self) -> dict[str, Any]:
        return await send_control_request(self.control, "status")


@asynccontextmanager
async def adapter_process(tmp_path: Path, **sections: Json) -> AsyncIterator[AskedAdapter]:
    server = notes_server(tmp_path)
    server.list_tools(TOOLS)
    async with adapter_environment(tmp_path, server, **sections) as environment:
        settings = environment.settings()
        async with start_adapter("--config", environment.file) as child:
            asked = AskedAdapter(environment.alice, settings.control)
            assert child.stderr is not None
            async for line in child.stderr:
                if b"running: key" in line:
                    break
            yield asked


async def test_an_adapter_finds_a_tool_by_its_words(tmp_path: Path) -> None:
    async with adapter_process(tmp_path) as adapter:
        assert await adapter.kinds("zeppelin") == []
        assert (await adapter.kinds(QUERY))[0] == FOUND


async def test_a_devserver_finds_it_too(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    server.list_tools(TOOLS)
    file = tmp_path / "adapter.yml"
    file.write_text(json.dumps({"mcp_sources": [server.source]}))
    async with devserver(tmp_path, "--config", str(file), "--data", str(tmp_path / "dev")) as running:
        relay = (await running.line(r"Local relay: (\S+)"))[1]
        control = control_path(tmp_path / "dev" / "adapter")
        async with quick_relay_client([relay], person("alice")) as relays:
            alice = RemoteCaller(person("alice"), relays, lambda: ("", ""))
            listening = asyncio.create_task(alice.listen())
            try:
                asked = AskedAdapter(alice, control)
                found = await asked.kinds(QUERY)
            finally:
                listening.cancel()
        assert found[:1] == [FOUND]


def test_a_file_that_still_tunes_word_vectors_is_valid_and_told_that_there_are_none(
    tmp_path: Path, shell: Shell
) -> None:
    output = shell("validate", "--config", config(tmp_path, search={"word_vectors": True}))
    assert output.code == 0
    assert "search is not a setting any more: it is by words alone" in output.out + output.err
