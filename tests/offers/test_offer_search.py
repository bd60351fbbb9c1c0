"""Tools, prompts and resources are found by what they are for, among those that may be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moot.offers.offer_search import OfferSearch
from moot.offers.offer_table import Offer, OfferTable


def example_offers() -> OfferTable:
    offers = OfferTable()
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    offers.learn(
        "files",
        "tools",
        [
            {"name": "read_file", "description": "Read the contents of a file.", "inputSchema": schema},
            {"name": "delete_file", "description": "Remove a file for good.", "inputSchema": schema},
        ],
    )
    offers.learn(
        "sky", "tools", [{"name": "forecast", "description": "Weather tomorrow.", "inputSchema": {}}]
    )
    offers.learn("sky", "prompts", [{"name": "packing", "description": "What to pack for the weather."}])
    return offers


async def names(
    finder: OfferSearch, query: str, limit: int = 5, only: Callable[[Offer], bool] = lambda _: True
) -> list[str]:
    return [offer.shown for offer in await finder.find(query, limit, only)]


async def test_what_fits_best_comes_first_whatever_kind_it_is() -> None:
    finder = OfferSearch(example_offers())
    assert (await names(finder, "remove a file"))[0] == "delete_file"
    assert {*(await names(finder, "how will the weather be"))[:2]} == {"forecast", "packing"}


async def test_nonsense_finds_nothing() -> None:
    finder = OfferSearch(example_offers())
    for query in ("zeppelin", "xyzzy", "photosynthesis"):
        assert await names(finder, query) == []


async def test_what_may_not_be_shown_is_not_found_and_takes_nobodys_place() -> None:
    finder = OfferSearch(example_offers())
    assert await names(finder, "file", 1, lambda offer: offer.shown != "read_file") == ["delete_file"]


async def test_a_search_sees_what_changed_since_the_last_one() -> None:
    offers = example_offers()
    finder = OfferSearch(offers)
    assert "forecast" in await names(finder, "weather")
    offers.remove_owner("sky")
    assert await names(finder, "weather") == []
    offers.learn(
        "files", "tools", [{"name": "climb", "description": "Weather a mountain.", "inputSchema": {}}]
    )
    assert (await names(finder, "weather"))[0] == "climb"
    assert await names(finder, "remove a file", 5, lambda offer: offer.shown == "delete_file") == []


async def test_the_first_search_over_thousands_of_tools_lets_others_have_their_turn() -> None:
    """Indexing them takes more than a second."""
    offers = OfferTable()
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [
        {"name": f"tool_{number}", "description": f"Does thing number {number}.", "inputSchema": schema}
        for number in range(4_000)
    ]
    for owner in range(4):
        offers.learn(f"owner{owner}", "tools", tools[owner * 1_000 : (owner + 1) * 1_000])
    finder = OfferSearch(offers)
    first, second = (asyncio.create_task(names(finder, "thing number 77")) for _ in range(2))
    turns = 0
    while not first.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 10:
            # Gone before it was found.
            offers.learn("owner0", "tools", [tool for tool in tools[:1_000] if tool["name"] != "tool_77"])
    assert turns > 400
    assert "tool_77" not in await first + await second
    # Nothing is left to be indexed.
    third = asyncio.create_task(names(finder, "thing number 78"))
    turns = 0
    while not third.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns < 10
    assert "tool_78" in await third
