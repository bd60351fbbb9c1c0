"""`moot_find_tools` as a client meets it: a `moot mcp` of its own in a real space."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from moot.participant import JoinedSpace
from tests.bridges.served_space import served_space
from tests.bridges.space.test_mcp_command import arguments


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


def server(url: str, folder: Path) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=arguments(url, folder, "bob"))


async def test_a_tool_is_found_by_what_it_says_of_itself(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_tools(await served.join("files"))
        async with Client(server(served.gateway.url, tmp_path)) as client:
            for query, names in (("monthly loan", ["loan_payment"]), ("zeppelin", [])):
                found = (await client.call_tool("moot_find_tools", {"query": query})).structured_content
                assert found is not None
                assert [each["name"] for each in found["found"]] == names
