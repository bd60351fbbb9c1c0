"""Tools, prompts and resources are found by what they are for, among those that may be shown."""

from __future__ import annotations

from moot.catalogue.finding import Finder
from moot.catalogue.offers import Offers


def catalogue() -> Offers:
    offers = Offers()
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


def test_what_fits_best_comes_first_whatever_kind_it_is() -> None:
    finder = Finder(catalogue())
    assert finder.find("remove a file", 5, lambda _: True)[0].shown == "delete_file"
    found = finder.find("how will the weather be", 5, lambda _: True)
    assert {offer.shown for offer in found} == {"forecast", "packing"}
    assert finder.find("zeppelin", 5, lambda _: True) == []


def test_what_may_not_be_shown_is_not_found_and_takes_nobodys_place() -> None:
    finder = Finder(catalogue())
    (only,) = finder.find("file", 1, lambda offer: offer.shown != "read_file")
    assert only.shown == "delete_file"


def test_a_search_sees_what_changed_since_the_last_one() -> None:
    offers = catalogue()
    finder = Finder(offers)
    assert finder.find("weather", 5, lambda _: True)
    offers.gone("sky")
    assert finder.find("weather", 5, lambda _: True) == []
    offers.learn(
        "files", "tools", [{"name": "climb", "description": "Weather a mountain.", "inputSchema": {}}]
    )
    assert [offer.shown for offer in finder.find("weather", 5, lambda _: True)] == ["climb"]
    assert finder.find("remove a file", 5, lambda offer: offer.shown == "delete_file") == []
