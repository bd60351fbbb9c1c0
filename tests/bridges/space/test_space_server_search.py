"""`moot_find_tools` as a client meets it: a `moot mcp` of its own in a real space, with the real vectors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from moot.participant import JoinedSpace
from moot.xprotocol.search.word_vectors import are_vectors_installed
from tests.bridges.served_space import served_space, text_of
from tests.bridges.space.test_mcp_command import arguments
from tests.broken_vectors import environment_with_broken_vectors, environment_without_vectors
from tests.waiting import bounded

needs_vectors = pytest.mark.skipif(not are_vectors_installed(), reason="moot[search] is not installed")
# No tool says `house` or `mortgage`.
QUERY = "house mortgage"


def offer_tools(space: JoinedSpace) -> None:
    @space.tool
    def loan_payment(principal: float) -> str:
        """Monthly payment of a loan."""
        return f"{principal / 120:.2f}"

    @space.tool
    def current_weather(city: str) -> str:
        """Temperature, wind and humidity in a city."""
        return f"fine in {city}"

    @space.tool
    def read_file(path: str) -> str:
        """Read a file."""
        return path


def server(url: str, folder: Path, *more: str, env: dict[str, str] | None = None) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=arguments(url, folder, "bob", *more), env=env or None
    )


async def find(client: Client, query: str, mode: str) -> list[str]:
    """Asked again until it is searched in this mode: the first searches may not wait for the vectors."""
    async with bounded():
        while True:
            found = (await client.call_tool("moot_find_tools", {"query": query})).structured_content
            assert found is not None
            if found["search"] == mode:
                return [each["name"] for each in found["found"]]


async def status(client: Client) -> tuple[dict[str, Any], str]:
    shown = await client.call_tool("moot_status", {})
    assert shown.structured_content is not None
    return shown.structured_content["search"], text_of(shown)


@needs_vectors
async def test_a_tool_is_found_that_shares_no_word_with_the_question(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_tools(await served.join("files"))
        async with Client(server(served.gateway.url, tmp_path)) as client:
            assert await find(client, QUERY, "lexical + vectors") == ["loan_payment"]
            assert (await status(client))[0] == {"mode": "lexical + vectors", "why": ""}
            assert await find(client, "zeppelin", "lexical + vectors") == []


async def test_it_is_not_found_when_vectors_are_turned_off(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_tools(await served.join("files"))
        async with Client(server(served.gateway.url, tmp_path, "--no-word-vectors")) as client:
            assert await find(client, QUERY, "lexical") == []
            assert await find(client, "monthly loan", "lexical") == ["loan_payment"]
            _, text = await status(client)
            assert "Tool search: lexical (word vectors are turned off)." in text


async def test_without_the_extra_words_are_searched_and_status_says_what_is_missing(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_tools(await served.join("files"))
        env = environment_without_vectors(tmp_path / "without")
        async with Client(server(served.gateway.url, tmp_path, env=env)) as client:
            assert await find(client, QUERY, "lexical") == []
            assert await find(client, "monthly loan", "lexical") == ["loan_payment"]
            assert "pip install '.[search]' in the clone" in (await status(client))[1]


@needs_vectors
async def test_broken_vectors_break_no_search(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_tools(await served.join("files"))
        env = environment_with_broken_vectors(tmp_path / "broken")
        async with Client(server(served.gateway.url, tmp_path, env=env)) as client:
            assert await find(client, QUERY, "lexical") == []
            assert await find(client, "monthly loan", "lexical") == ["loan_payment"]
            assert (await status(client))[0]["why"].startswith("word vectors cannot be used: SafetensorError")
