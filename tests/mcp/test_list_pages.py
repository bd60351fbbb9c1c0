"""Lists in pages, as servers that are not careful with their cursors send them."""

from __future__ import annotations

import logging

import pytest

from moot.errors import McpError
from moot.mcp.eras import UNREACHABLE, JsonObject
from moot.mcp.list_pages import list_pages
from moot.protocol.answer_marks import unknown_outcome

_FIRST = "the first page"


class PagedServer:
    """Pages by cursor: the names on each, and the cursor that it answers with."""

    def __init__(self, pages: dict[str, tuple[list[str], str | None]], *, code: int = -32602) -> None:
        self.pages = pages
        self.requests = 0
        self._code = code

    async def request(self, params: JsonObject) -> JsonObject:
        self.requests += 1
        page = self.pages.get(params.get("cursor", _FIRST))
        if page is None:
            raise McpError(self._code, "no such cursor")
        names, cursor = page
        result: JsonObject = {"tools": [{"name": name} for name in names]}
        return result if cursor is None else result | {"nextCursor": cursor}

    async def list(self, *, max_pages: int = 10) -> list[str]:
        found = await list_pages(self.request, "tools/list", max_pages=max_pages, source="files")
        return [tool["name"] for tool in found]


async def test_an_empty_cursor_at_the_end_costs_one_request_and_no_tool() -> None:
    server = PagedServer({_FIRST: (["a", "b"], ""), "": (["a", "b"], "")})
    assert await server.list() == ["a", "b"]
    assert server.requests == 2


async def test_cursors_that_go_in_a_circle_end_the_list() -> None:
    server = PagedServer({_FIRST: (["a"], "2"), "2": (["b"], "3"), "3": (["c"], "2")})
    assert await server.list() == ["a", "b", "c"]
    assert server.requests == 3


async def test_a_later_page_that_is_refused_ends_the_list(caplog: pytest.LogCaptureFixture) -> None:
    server = PagedServer({_FIRST: (["a"], "lost")})
    with caplog.at_level(logging.WARNING):
        assert await server.list() == ["a"]
    assert [record.message for record in caplog.records] == ["a later page of a list was refused"]


async def test_a_first_page_that_is_refused_and_a_server_that_is_gone_are_no_list() -> None:
    with pytest.raises(McpError):
        await PagedServer({}).list()
    with pytest.raises(McpError):
        await PagedServer({_FIRST: (["a"], "2")}, code=UNREACHABLE).list()


async def test_a_list_without_an_end_is_read_up_to_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    """`max_pages` and `MAX_LIST_PAGES`."""
    pages: dict[str, tuple[list[str], str | None]] = {
        str(number): ([f"t{number}"], str(number + 1)) for number in range(1, 20)
    }
    server = PagedServer(pages | {_FIRST: (["t0"], "1")})
    with caplog.at_level(logging.WARNING):
        assert await server.list(max_pages=3) == ["t0", "t1", "t2"]
    assert [record.message for record in caplog.records] == ["a list has more pages than are read"]


async def test_two_different_offers_of_one_name_are_both_in_the_list() -> None:
    """A server that hides one tool behind another has to be seen."""
    tools: list[JsonObject] = [{"name": "a"}, {"name": "a", "description": "another"}, {"name": "a"}]

    async def request(_: JsonObject) -> JsonObject:
        return {"tools": tools}

    assert await list_pages(request, "tools/list", max_pages=3, source="files") == tools[:2]


async def test_a_page_that_is_lost_makes_no_shorter_list() -> None:
    """The server did not refuse it: an answer that could not be read, HTTP 502."""

    async def request(params: JsonObject) -> JsonObject:
        if params:
            raise McpError(-32603, "HTTP 502", unknown_outcome())
        return {"tools": [{"name": "a"}], "nextCursor": "2"}

    with pytest.raises(McpError):
        await list_pages(request, "tools/list", max_pages=3, source="files")
