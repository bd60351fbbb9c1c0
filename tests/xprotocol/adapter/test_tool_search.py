"""What an adapter and a DevServer find: processes of their own, asked over a relay, with the real vectors."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_loader import control_path, load_settings
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from moot.xprotocol.contracts.contract_catalog import DESCRIBE_KIND
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.search.word_vectors import are_vectors_installed
from tests.broken_vectors import environment_with_broken_vectors, environment_without_vectors
from tests.waiting import HANG_SECONDS
from tests.xprotocol.adapter.adapter_environment import (
    QUICK_RELAYS,
    RemoteCaller,
    adapter_environment,
    notes_server,
    tool,
)
from tests.xprotocol.adapter.command_runner import Shell, run_program, start_adapter
from tests.xprotocol.adapter.test_adapter_commands import config
from tests.xprotocol.people import person
from tests.xprotocol.test_devserver import devserver

QUERY = "house mortgage"
FOUND = "com.acme.desk.loan_payment"
# Nothing in them says `house` or `mortgage`.
TOOLS = [
    tool("loan_payment", "Monthly payment of a loan."),
    tool("read_note", "Read a note that was left at the desk."),
    tool("current_weather", "Temperature, wind and humidity in a city."),
]
needs_vectors = pytest.mark.skipif(not are_vectors_installed(), reason="moot[search] is not installed")
# As long as it takes: no answer may depend on how fast the machine is.
PATIENT: dict[str, Json] = {"vector_wait_seconds": 600}


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

    async def health(self) -> dict[str, Any]:
        address = f"{(await self.status())['well_known']}/health"
        with urllib.request.urlopen(address, timeout=HANG_SECONDS) as page:  # noqa: S310  # our own page
            health: dict[str, Any] = json.load(page)
            return health

    async def printed_status(self) -> str:
        return run_program("status", "--control", self.control).out


@asynccontextmanager
async def adapter_process(
    tmp_path: Path, search: dict[str, Json], environ: dict[str, str] | None = None
) -> AsyncIterator[AskedAdapter]:
    server = notes_server(tmp_path)
    server.list_tools(TOOLS)
    async with adapter_environment(tmp_path, server, search=search) as environment:
        settings = environment.settings()
        async with start_adapter("--config", environment.file, env=environ) as child:
            asked = AskedAdapter(environment.alice, settings.control)
            assert child.stderr is not None
            async for line in child.stderr:
                if b"running: key" in line:
                    break
            yield asked


@needs_vectors
async def test_an_adapter_finds_what_shares_no_word_with_the_question(tmp_path: Path) -> None:
    async with adapter_process(tmp_path, PATIENT) as adapter:
        before = (await adapter.status())["search"]
        assert before == {"mode": "lexical + vectors", "why": "vectors are loaded by the first search"}
        assert (await adapter.kinds(QUERY))[0] == FOUND
        assert (await adapter.status())["search"] == {"mode": "lexical + vectors", "why": ""}
        assert (await adapter.health())["search"] == "lexical + vectors"
        assert re.search(r"^search +lexical \+ vectors$", await adapter.printed_status(), re.MULTILINE)


async def test_an_adapter_that_is_told_so_goes_by_words_alone(tmp_path: Path) -> None:
    async with adapter_process(tmp_path, {"word_vectors": False}) as adapter:
        assert await adapter.kinds(QUERY) == []
        assert (await adapter.kinds("monthly loan"))[0] == FOUND
        assert (await adapter.health())["search"] == "lexical"
        assert "lexical (word vectors are turned off)" in await adapter.printed_status()


async def test_an_adapter_without_the_extra_says_what_it_would_bring(tmp_path: Path) -> None:
    environ = environment_without_vectors(tmp_path / "without")
    async with adapter_process(tmp_path, PATIENT, environ) as adapter:
        assert await adapter.kinds(QUERY) == []
        assert (await adapter.kinds("monthly loan"))[0] == FOUND
        assert (
            "lexical (with pip install '.[search]' in the clone of Moot, tools"
            in await adapter.printed_status()
        )


@needs_vectors
async def test_an_adapter_with_broken_vectors_goes_by_words_and_says_why_to_its_operator(
    tmp_path: Path,
) -> None:
    environ = environment_with_broken_vectors(tmp_path / "broken")
    async with adapter_process(tmp_path, PATIENT, environ) as adapter:
        assert await adapter.kinds(QUERY) == []
        assert (await adapter.kinds("monthly loan"))[0] == FOUND
        health = await adapter.health()
        assert (health["status"], health["search"]) == ("ok", "lexical")
        assert "Safetensor" not in json.dumps(health)
        assert "lexical (word vectors cannot be used: SafetensorError" in await adapter.printed_status()


@needs_vectors
async def test_a_setting_that_changes_while_the_adapter_runs_counts_at_once(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    server.list_tools(TOOLS)
    async with (
        adapter_environment(tmp_path, server, search=PATIENT) as environment,
        environment.running() as adapter,
    ):
        found = await environment.alice.ask(DESCRIBE_KIND, {"intent": QUERY})
        assert found.payload["matches"][0]["kind"] == FOUND
        environment.document["search"] = {"word_vectors": False}
        reloaded = await adapter.reload(load_settings(environment.write(), environ=environment.environ))
        assert reloaded.needs_restart == ()
        found = await environment.alice.ask(DESCRIBE_KIND, {"intent": QUERY})
        assert found.payload["matches"] == []


@needs_vectors
@pytest.mark.parametrize("word_vectors", [True, False])
async def test_a_devserver_finds_it_too(tmp_path: Path, word_vectors: bool) -> None:
    server = notes_server(tmp_path)
    server.list_tools(TOOLS)
    file = tmp_path / "adapter.yml"
    search = {"search": PATIENT | {"word_vectors": word_vectors}}
    file.write_text(json.dumps({"mcp_sources": [server.source]} | search))
    async with devserver(tmp_path, "--config", str(file), "--data", str(tmp_path / "dev")) as running:
        relay = (await running.line(r"Local relay: (\S+)"))[1]
        control = control_path(tmp_path / "dev" / "adapter")
        async with RelayClient([relay], person("alice"), QUICK_RELAYS) as relays:
            alice = RemoteCaller(person("alice"), relays, lambda: ("", ""))
            listening = asyncio.create_task(alice.listen())
            try:
                asked = AskedAdapter(alice, control)
                found = await asked.kinds(QUERY)
            finally:
                listening.cancel()
        assert found[:1] == ([FOUND] if word_vectors else [])


def test_validate_says_how_tools_are_searched_for(tmp_path: Path, shell: Shell) -> None:
    file = config(tmp_path, search={"word_vectors": False})
    output = shell("validate", "--config", file)
    assert (output.code, "tool search: lexical (word vectors are turned off)" in output.out) == (0, True)
    assert shell("validate", "--config", file, "--json").json["search"]["mode"] == "lexical"


@needs_vectors
def test_validate_tries_the_vectors(tmp_path: Path) -> None:
    file = config(tmp_path)
    assert "tool search: lexical + vectors\n" in run_program("validate", "--config", file).out
    broken = environment_with_broken_vectors(tmp_path / "broken")
    output = run_program("validate", "--config", file, env=broken)
    assert output.code == 0
    assert "tool search: lexical (word vectors cannot be used: SafetensorError" in output.out


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"vectors": True}, "search.vectors"),
        ({"word_vectors": "perhaps"}, "search.word_vectors"),
        ({"vector_wait_seconds": -1}, "search.vector_wait_seconds"),
    ],
)
def test_mistakes_in_the_section_are_named(
    tmp_path: Path, shell: Shell, section: dict[str, Json], path: str
) -> None:
    output = shell("validate", "--config", config(tmp_path, search=section))
    assert (output.code, path in output.err) == (1, True)
