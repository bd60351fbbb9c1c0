"""What members offer: learned, shown in one order, left out where it would break a client's whole list."""

from __future__ import annotations

from typing import Any

import pytest

from moot.mcp.eras import OfferKind
from moot.offers.name_table import ResourceLocation, from_long_form, long_form, matches_template
from moot.offers.offer_table import MAX_ITEMS, OfferTable, fault_of
from tests.rows import for_each_row


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def names(offers: OfferTable, what: OfferKind = "tools") -> list[str]:
    return [offer.shown for offer in offers.all(what)]


def test_order_is_by_member_and_then_the_members_own_whoever_answered_first() -> None:
    one, two = OfferTable(), OfferTable()
    one.learn("b", "tools", [tool("z"), tool("y")])
    one.learn("a", "tools", [tool("q")])
    two.learn("a", "tools", [tool("q")])
    two.learn("b", "tools", [tool("z"), tool("y")])
    assert names(one) == names(two) == ["q", "z", "y"]


def test_learning_says_whether_anything_changed() -> None:
    offers = OfferTable()
    assert offers.learn("a", "tools", [tool("x")])
    assert not offers.learn("a", "tools", [tool("x")])
    assert offers.learn("a", "tools", [tool("x", description="now explained")])
    assert offers.learn("a", "tools", [])
    assert not offers.learn("a", "tools", [])
    assert not offers.learn("b", "prompts", [])


def test_a_next_page_adds_to_the_list() -> None:
    offers = OfferTable()
    offers.learn("a", "tools", [tool("x")])
    offers.learn("a", "tools", [tool("y")], more=True)
    assert names(offers) == ["x", "y"]
    offers.learn("a", "tools", [tool("z")])
    assert names(offers) == ["z"]


def test_who_leaves_takes_its_things_along_but_keeps_its_names() -> None:
    offers = OfferTable()
    offers.learn("a", "tools", [tool("x")])
    offers.learn("a", "resources", [{"uri": "r://1", "name": "one"}])
    assert offers.remove_owner("a") == {"tools", "resources"}
    assert offers.remove_owner("a") == set()
    assert names(offers) == []
    assert offers.find("tools", "x") is None
    offers.learn("b", "tools", [tool("x")])
    assert names(offers) == ["b__x"]
    offers.learn("a", "tools", [tool("x")])
    assert names(offers) == ["x", "b__x"]


def test_prompts_have_names_of_their_own() -> None:
    offers = OfferTable(["moot_chat"])
    offers.learn("a", "tools", [tool("x")])
    offers.learn("b", "prompts", [{"name": "x"}])
    assert names(offers, "prompts") == ["x"]


@for_each_row(
    "bad",
    [
        None,
        "text",
        {},
        {"name": "x"},
        {"name": 7, "inputSchema": {}},
        {"name": "", "inputSchema": {}},
        {"name": "x", "inputSchema": []},
        tool("x", description=7),
        tool("x", annotations={"readOnlyHint": "perhaps"}),
        tool("x", icons=[{"href": "no src"}]),
        tool("x", _meta=[]),
        tool("x", outputSchema=True),
    ],
)
def test_a_tool_that_would_break_the_whole_list_is_dropped(bad: Any) -> None:
    offers = OfferTable()
    offers.learn("a", "tools", [tool("before"), bad, tool("after")])
    assert names(offers) == ["before", "after"]
    assert offers.dropped == 1


def test_what_no_client_knows_is_kept() -> None:
    odd = tool("x", annotations={"title": "X", "vendor": 1}, vendor={"deep": [1, None]}, _meta={"k": 2})
    offers = OfferTable()
    offers.learn("a", "tools", [odd])
    assert offers.all("tools")[0].item == odd


def test_a_name_listed_twice_is_shown_once() -> None:
    offers = OfferTable()
    offers.learn("a", "tools", [tool("x"), tool("x", description="second")])
    assert [offer.item.get("description") for offer in offers.all("tools")] == [None]


def test_a_flood_is_cut() -> None:
    offers = OfferTable()
    offers.learn("a", "tools", [tool(f"t{number}") for number in range(MAX_ITEMS + 5)])
    assert len(names(offers)) == MAX_ITEMS
    assert offers.dropped == 5


@pytest.mark.parametrize(
    ("what", "good"),
    [
        ("resources", {"uri": "r://1", "name": "one", "size": 3, "annotations": {"audience": ["user"]}}),
        ("resourceTemplates", {"uriTemplate": "r://{x}", "name": "t", "mimeType": "text/plain"}),
        ("prompts", {"name": "p", "arguments": [{"name": "a", "required": True}]}),
    ],
)
def test_the_other_kinds_are_checked_the_same_way(what: OfferKind, good: dict[str, Any]) -> None:
    assert fault_of(what, good) is None
    assert fault_of(what, good | {"name": None}) is not None
    assert fault_of(what, {**good, "title": 1}) is not None


# URIs


def test_a_uri_is_verbatim_while_free_and_names_its_member_otherwise() -> None:
    offers = OfferTable()
    for owner in ("a", "b"):
        offers.learn(owner, "resources", [{"uri": "file:///x?y=1#z", "name": "x"}])
    assert names(offers, "resources") == ["file:///x?y=1#z", "moot://b/file:///x?y=1#z"]
    assert offers.locate("file:///x?y=1#z") == ResourceLocation("a", "file:///x?y=1#z")
    assert offers.locate("moot://b/file:///x?y=1#z") == ResourceLocation("b", "file:///x?y=1#z")


def test_a_uri_stays_its_owners_while_that_is_away() -> None:
    offers = OfferTable()
    offers.learn("a", "resources", [{"uri": "r://1", "name": "one"}])
    offers.remove_owner("a")
    offers.learn("b", "resources", [{"uri": "r://1", "name": "one"}])
    assert names(offers, "resources") == ["moot://b/r://1"]


@pytest.mark.parametrize("owner", ["b", "with:colon", "with space", "a/b", "ü"])
def test_the_long_form_leads_back(owner: str) -> None:
    assert from_long_form(long_form(owner, "x://y/{z}")) == ResourceLocation(owner, "x://y/{z}")


@pytest.mark.parametrize("uri", ["moot://", "moot://a", "moot:///x", "http://a/b"])
def test_what_is_no_long_form_is_none(uri: str) -> None:
    assert from_long_form(uri) is None


def test_a_member_cannot_pass_for_another_by_listing_its_long_form() -> None:
    offers = OfferTable()
    offers.learn("evil", "resources", [{"uri": "moot://bank/secrets://all", "name": "x"}])
    assert names(offers, "resources") == ["moot://evil/moot://bank/secrets://all"]


def test_what_is_not_listed_is_found_by_the_template_that_says_most_of_it() -> None:
    offers = OfferTable()
    offers.learn("a", "resourceTemplates", [{"uriTemplate": "{any}", "name": "any"}])
    offers.learn("b", "resourceTemplates", [{"uriTemplate": "note://{id}/text", "name": "text"}])
    offers.learn("c", "resourceTemplates", [{"uriTemplate": "note://{id}", "name": "note"}])
    assert offers.locate("note://7/text") == ResourceLocation("b", "note://7/text")
    assert offers.locate("note://7") == ResourceLocation("c", "note://7")
    assert offers.locate("other://x") == ResourceLocation("a", "other://x")


def test_what_fits_no_template_belongs_to_the_only_member_with_resources_or_to_nobody() -> None:
    offers = OfferTable()
    assert offers.locate("x://1") is None
    offers.learn("a", "resources", [{"uri": "r://1", "name": "one"}])
    assert offers.locate("x://1") == ResourceLocation("a", "x://1")
    offers.learn("b", "resources", [{"uri": "r://2", "name": "two"}])
    assert offers.locate("x://1") is None


@for_each_row(
    ("template", "uri", "expected"),
    [
        ("note://{id}", "note://7", True),
        ("note://{id}", "note://", True),
        ("file:///{+path}", "file:///a/b.c", True),
        ("a.b://{x}", "axb://1", False),
        ("note://{id}", "notes://7", False),
        ("x://{a}-{b}", "x://1-2", True),
        ("x://{a}-{b}", "x://12", False),
        ("x://" + "{a}" * 60 + "!", "x://" + "a" * 3000, False),
        ("{" * 3000, "x", False),
    ],
)
def test_a_template_fits_what_filling_it_in_can_give(template: str, uri: str, expected: bool) -> None:
    assert matches_template(template, uri) is expected
